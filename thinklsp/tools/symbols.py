"""`outline`, `definition` and `references`: what the editor's language servers know, else what syntax tells."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from itertools import islice
from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import ToolFailed
from thinklsp.core.lines import split_lines
from thinklsp.symbols.answers import Row, outline_rows, symbol_of
from thinklsp.tools.base import Arguments, Tool, ToolContext, ToolOutput
from thinklsp.tools.editor import Point
from thinklsp.tools.editor_symbols import BY_EDITOR, ask_editor, hover_block, is_named, outline_text, target_blocks
from thinklsp.tools.read import existing_text
from thinklsp.tools.search import SearchText
from thinklsp.tools.shown import shown_name
from thinklsp.tools.symbol_search import FILE_SECONDS, Asked, Hits, SymbolSearch, language_at
from thinklsp.tools.symbol_text import (
    LINES_OF_DEFINITION,
    bounded_text,
    definition_text,
    entry_text,
    head_line,
    line_text,
)
from thinklsp.tools.threads import in_thread
from thinklsp.workers.pool import WorkFailed, run_in_worker
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.relpath import quoted

_MAX_DEFINITIONS = 20
_MOST_REFERENCES = 400
# How often one name on a line is asked about.
_MOST_POINTS = 3
# What stands before a name and its dot. Each place of the text costs the square of a word's length.
_QUALIFIER = re.compile(r"([\w$]+)\s*(?:\.|::|->)\s*$")
_LONGEST_QUALIFIER = 200
_BY_SYNTAX = "by syntax, names only: check the hits"
_BY_NAME = "symbols of that name from the editor's language servers: check the hits"


class OutlineArguments(Arguments):
    path: str = Field(description="Path of the file, relative to the workspace folder, or the URI of an open document.")


class Outline(Tool[OutlineArguments]):
    name: ClassVar[str] = "outline"
    description: ClassVar[str] = (
        "List the definitions of a source file (classes, functions, methods, types) with their first and last line, "
        "indented by nesting. Cheaper than reading the file. Edits of this turn are visible."
    )
    read_only: ClassVar[bool] = True
    arguments = OutlineArguments

    def title(self, args: OutlineArguments) -> str:
        return f"outline {args.path}"

    async def run(self, args: OutlineArguments, context: ToolContext) -> ToolOutput:
        place = context.overlay.view.resolve(args.path)
        found = existing_text(context.overlay, place)
        text = found.text
        language = language_at(place, text, context.overlay)
        count, rows = 0, list[Row]()
        failure = f"No grammar here reads {quoted(place.shown)}"
        if language is not None:
            try:
                count, rows = await run_in_worker(FILE_SECONDS, outline_rows, text, language.name)
                failure = ""
            except WorkFailed:
                failure = f"The definitions of {quoted(place.shown)} were not found within {FILE_SECONDS:.0f} s"
        # Language servers also list parameters, imports and local variables: they are asked only if the grammar fails.
        if not rows and found.source != "turn":
            told = await context.editor.outline(Point(place.uri, text, 1, 0, found.source == "document"))
            if told is not None and told.symbols:
                return ToolOutput(outline_text(place, told))
        if failure or language is None:
            raise ToolFailed(f"{failure}; search_text finds names in it.")
        head = f"{shown_name(place.shown)}, {language.name}, {len(split_lines(text))} lines"
        entries = (entry_text(symbol_of(row)) for row in rows) if rows else ["No definitions."]
        return ToolOutput(bounded_text(head, entries, count))


class SymbolArguments(Arguments):
    path: str = Field(description="Path of the file in which the symbol is used or defined, or an open document's URI.")
    line: int = Field(ge=1, description="Line of that file on which the symbol stands, counted from 1.")
    symbol: str = Field(min_length=1, max_length=200, description="The name as it is written on that line.")


class _SymbolTool(Tool[SymbolArguments]):
    read_only: ClassVar[bool] = True
    arguments = SymbolArguments

    def __init__(self, search: SearchText | None = None) -> None:
        self._search = search or SearchText()

    def title(self, args: SymbolArguments) -> str:
        return f"{self.name} of {args.symbol} ({args.path}:{args.line})"


class Definition(_SymbolTool):
    name: ClassVar[str] = "definition"
    description: ClassVar[str] = (
        "Find where a symbol is defined, given a line on which it is used. The editor's language server is asked where "
        "there is one; else definitions of that name are looked for, the likeliest first. The answer says which."
    )

    async def run(self, args: SymbolArguments, context: ToolContext) -> ToolOutput:
        asked, points = await in_thread(_asked, args, context.overlay)
        targets, hover = await asyncio.gather(
            ask_editor(context.editor.definition, points), hover_block(context.editor, points)
        )
        if targets:
            head = head_line(len(targets), "definition", asked.name, BY_EDITOR)
            blocks = target_blocks(targets, context.overlay, LINES_OF_DEFINITION)
            return ToolOutput(bounded_text(head, [*hover, *blocks], len(targets)))
        hits = await SymbolSearch(asked, context.overlay, self._search).definitions()
        if not hits.found:
            return ToolOutput(await self._by_name(asked.name, hits, hover, context))
        head = head_line(len(hits.found), "definition", asked.name, _BY_SYNTAX)
        shown = hits.found[:_MAX_DEFINITIONS]
        blocks = [
            definition_text(place, symbol, hits.lines[place.key]) for place, _, symbol in shown if symbol is not None
        ]
        return ToolOutput(bounded_text(head, [*hover, *blocks, *_more(hits, len(shown))], len(hits.found)))

    async def _by_name(self, name: str, hits: Hits, hover: Sequence[str], context: ToolContext) -> str:
        """Tell of the symbols that the editor knows by this name: of libraries, or of languages without a grammar."""
        told = await context.editor.symbols(name)
        named = [] if told is None else [each.target for each in told.symbols if is_named(each.name, name)]
        if not named:
            hint = f"search_text finds where it is mentioned. ({_BY_SYNTAX})"
            return "\n".join((f"No definition of {quoted(name)} was found; {hint}", *hover, *hits.notes))
        targets = tuple(dict.fromkeys(named))[:_MAX_DEFINITIONS]
        head = head_line(len(targets), "definition", name, _BY_NAME)
        return bounded_text(
            head, [*hover, *target_blocks(targets, context.overlay, LINES_OF_DEFINITION), *hits.notes], len(targets)
        )


class References(_SymbolTool):
    name: ClassVar[str] = "references"
    description: ClassVar[str] = (
        "Find where a symbol is used, given a line on which it stands. The editor's language server is asked where "
        "there is one; else lines of code with that name are listed, the same file first. The answer says which."
    )

    async def run(self, args: SymbolArguments, context: ToolContext) -> ToolOutput:
        asked, points = await in_thread(_asked, args, context.overlay)
        targets = await ask_editor(context.editor.references, points)
        if targets:
            head = head_line(len(targets), "reference", asked.name, BY_EDITOR)
            return ToolOutput(bounded_text(head, target_blocks(targets, context.overlay, 1), len(targets)))
        hits = await SymbolSearch(asked, context.overlay, self._search).references()
        head = head_line(len(hits.found), "reference", asked.name, _BY_SYNTAX)
        shown = hits.found[:_MOST_REFERENCES]
        lines = [line_text(place.shown, number, hits.lines[place.key]) for place, number, _ in shown]
        return ToolOutput(bounded_text(head, [*lines, *_more(hits, len(shown))], len(hits.found)))


def _asked(args: SymbolArguments, overlay: EditOverlay) -> tuple[Asked, tuple[Point, ...]]:
    """What is asked about, and where in the editor's text it stands: nowhere where this turn has changed the file."""
    place = overlay.view.resolve(args.path)
    found = existing_text(overlay, place)
    lines = split_lines(found.text)
    if args.line > len(lines):
        raise ToolFailed(f"{quoted(place.shown)} has {len(lines)} lines; line {args.line} does not exist.")
    line, symbol = lines[args.line - 1].rstrip("\r\n"), args.symbol.strip()
    columns = [match.start() for match in islice(_word(symbol).finditer(line), _MOST_POINTS)] if symbol else []
    if not columns:
        raise ToolFailed(
            f"{quoted(args.symbol)} does not stand on line {args.line} of {quoted(place.shown)}. {_near(lines, symbol)}"
        )
    # A dotted name is asked about by its last part.
    name = re.split(r"\.|::|->|\\|#", symbol)[-1] or symbol
    at = symbol.rindex(name)
    end = columns[0] + at
    before = _QUALIFIER.search(line, max(0, end - _LONGEST_QUALIFIER), end)
    asked = Asked(place, found.text, args.line, name, before[1] if before else "")
    is_open = found.source == "document"
    points = [Point(place.uri, found.text, args.line, column + at, is_open) for column in columns]
    return asked, () if found.source == "turn" else tuple(points)


def _near(lines: Sequence[str], symbol: str) -> str:
    word = _word(symbol) if symbol else None
    numbers = [str(number) for number, line in enumerate(lines, 1) if word and word.search(line)]
    if not numbers:
        return "It does not occur in the file; search_text finds it elsewhere."
    return f"It stands on line {', '.join(numbers[:10])}."


def _word(symbol: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w$]){re.escape(symbol)}(?![\w$])" if symbol[0] not in "$@#:." else re.escape(symbol))


def _more(hits: Hits, shown: int) -> list[str]:
    left = [f"[{len(hits.found) - shown} more]"] if len(hits.found) > shown else []
    return [*left, *hits.notes]
