"""`outline`, `definition` and `references`: what the editor's language servers know, else what syntax tells."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.lines import split_lines
from thinklsp.symbols.answers import outline_rows, symbol_of
from thinklsp.symbols.outline import Symbol
from thinklsp.tools.base import Arguments, Tool, ToolContext, ToolOutput
from thinklsp.tools.editor import Point, Target
from thinklsp.tools.read import existing_text
from thinklsp.tools.search import SearchText
from thinklsp.tools.shown import RESULT_LIMIT, shown_name, visible
from thinklsp.tools.symbol_search import FILE_SECONDS, Asked, Hits, SymbolSearch, language_at
from thinklsp.tools.threads import in_thread
from thinklsp.workers.pool import WorkFailed, run_in_worker
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.relpath import quoted
from thinklsp.workspace.uri import uri_to_path
from thinklsp.workspace.view import Place

_NOTE_ROOM = 300
_LONGEST_LINE = 300
_MOST_DEFINITIONS = 20
_MOST_REFERENCES = 400
_LINES_OF_DEFINITION = 4
# How often one name on a line is asked about.
_MOST_POINTS = 3
# What stands before a name and its dot. Each place of the text costs the square of a word's length.
_QUALIFIER = re.compile(r"([\w$]+)\s*(?:\.|::|->)\s*$")
_LONGEST_QUALIFIER = 200
_BY_EDITOR = "from the editor's language server"
_BY_SYNTAX = "by syntax, names only: check the hits"


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
        text = existing_text(context.overlay, place).text
        language = language_at(place, text, context.overlay)
        if language is None:
            raise ToolFailed(f"No grammar here reads {quoted(place.shown)}; search_text finds names in it.")
        try:
            count, rows = await run_in_worker(FILE_SECONDS, outline_rows, text, language.name)
        except WorkFailed:
            raise ToolFailed(
                f"The definitions of {quoted(place.shown)} were not found within {FILE_SECONDS:.0f} s; search_text "
                "finds names in it."
            ) from None
        head = f"{shown_name(place.shown)}, {language.name}, {len(split_lines(text))} lines"
        entries = (_entry(symbol_of(row)) for row in rows) if rows else ["No definitions."]
        return ToolOutput(_bounded(head, entries, count))


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
        targets = await _from_editor(context.editor.definition, points)
        if targets:
            head = _head(len(targets), "definition", asked.name, _BY_EDITOR)
            return ToolOutput(_bounded(head, _targets(targets, context.overlay, _LINES_OF_DEFINITION), len(targets)))
        hits = await SymbolSearch(asked, context.overlay, self._search).definitions()
        if not hits.found:
            hint = f"search_text finds where it is mentioned. ({_BY_SYNTAX})"
            return ToolOutput("\n".join((f"No definition of {quoted(asked.name)} was found; {hint}", *hits.notes)))
        head = _head(len(hits.found), "definition", asked.name, _BY_SYNTAX)
        shown = hits.found[:_MOST_DEFINITIONS]
        blocks = [_definition(place, symbol, hits.lines[place.key]) for place, _, symbol in shown if symbol is not None]
        return ToolOutput(_bounded(head, [*blocks, *_more(hits, len(shown))], len(hits.found)))


class References(_SymbolTool):
    name: ClassVar[str] = "references"
    description: ClassVar[str] = (
        "Find where a symbol is used, given a line on which it stands. The editor's language server is asked where "
        "there is one; else lines of code with that name are listed, the same file first. The answer says which."
    )

    async def run(self, args: SymbolArguments, context: ToolContext) -> ToolOutput:
        asked, points = await in_thread(_asked, args, context.overlay)
        targets = await _from_editor(context.editor.references, points)
        if targets:
            head = _head(len(targets), "reference", asked.name, _BY_EDITOR)
            return ToolOutput(_bounded(head, _targets(targets, context.overlay, 1), len(targets)))
        hits = await SymbolSearch(asked, context.overlay, self._search).references()
        head = _head(len(hits.found), "reference", asked.name, _BY_SYNTAX)
        shown = hits.found[:_MOST_REFERENCES]
        lines = [_line(place.shown, number, hits.lines[place.key]) for place, number, _ in shown]
        return ToolOutput(_bounded(head, [*lines, *_more(hits, len(shown))], len(hits.found)))


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
    points = [Point(place.uri, found.text, args.line, column + at) for column in columns]
    return asked, () if found.source == "turn" else tuple(points)


def _near(lines: Sequence[str], symbol: str) -> str:
    word = _word(symbol) if symbol else None
    numbers = [str(number) for number, line in enumerate(lines, 1) if word and word.search(line)]
    if not numbers:
        return "It does not occur in the file; search_text finds it elsewhere."
    return f"It stands on line {', '.join(numbers[:10])}."


def _word(symbol: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w$]){re.escape(symbol)}(?![\w$])" if symbol[0] not in "$@#:." else re.escape(symbol))


async def _from_editor(
    ask: Callable[[Point], Awaitable[tuple[Target, ...] | None]], points: Sequence[Point]
) -> tuple[Target, ...]:
    """Every target once, in the order of the answers; none where the editor cannot say."""
    targets: dict[Target, None] = {}
    for point in points:
        targets |= dict.fromkeys(await ask(point) or ())
    return tuple(targets)


def _targets(targets: Sequence[Target], overlay: EditOverlay, most_lines: int) -> list[str]:
    blocks = []
    for target in targets:
        place, lines = _text_of(target.uri, overlay)
        changed = place is not None and any(place.key == other.key for other in overlay.changed())
        shown = place.shown if place is not None else _written(target.uri)
        note = (
            " [numbers of before this turn's edits]"
            if changed
            else ""
            if lines
            else " [not in the workspace; not read]"
        )
        if most_lines == 1 and lines:
            blocks.append(_line(shown, target.first_line, lines) + note)
        else:
            blocks.append(
                "\n".join(
                    (f"{shown_name(shown)}:{target.first_line}{note}", *_excerpt(lines, target.first_line, most_lines))
                )
            )
    return blocks


def _text_of(uri: str, overlay: EditOverlay) -> tuple[Place | None, list[str]]:
    """The text that the editor knows, without this turn's edits; nothing where the gate gives nothing."""
    try:
        place = overlay.view.resolve(uri)
        found = overlay.view.peek(place)
    except (PathRefused, UnicodeError):
        return None, []
    return place, [] if found is None else split_lines(found.text)


def _written(uri: str) -> str:
    try:
        return visible(uri_to_path(uri))
    except (PathRefused, UnicodeError):
        return visible(uri)


def _entry(symbol: Symbol) -> str:
    return f"{'  ' * min(symbol.depth, 20)}{_named(symbol)} {_range(symbol)}"


def _named(symbol: Symbol) -> str:
    prefix = f"{symbol.container}." if symbol.container and symbol.kind != "namespace" and not symbol.depth else ""
    return visible(f"{symbol.kind} {prefix}{symbol.name}")


def _range(symbol: Symbol) -> str:
    return (
        str(symbol.first_line) if symbol.first_line == symbol.last_line else f"{symbol.first_line}-{symbol.last_line}"
    )


def _definition(place: Place, symbol: Symbol, lines: Sequence[str]) -> str:
    within = f" in {visible(symbol.container)}" if symbol.container else ""
    head = f"{shown_name(place.shown)}:{_range(symbol)} ({symbol.kind}{within})"
    most = min(_LINES_OF_DEFINITION, symbol.last_line - symbol.first_line + 1)
    return "\n".join((head, *_excerpt(lines, symbol.first_line, most)))


def _excerpt(lines: Sequence[str], first: int, count: int) -> list[str]:
    return [f"{number}\t{_cut(lines[number - 1])}" for number in range(first, min(first + count, len(lines) + 1))]


def _line(shown: str, number: int, lines: Sequence[str]) -> str:
    text = _cut(lines[number - 1]).strip() if number <= len(lines) else ""
    return f"{shown_name(shown)}:{number}: {text}"


def _cut(line: str) -> str:
    text = visible(line.rstrip("\r\n")[: _LONGEST_LINE + 1])
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]} [line cut]"


def _head(count: int, what: str, name: str, source: str) -> str:
    return f"{count or 'No'} {what}{'' if count == 1 else 's'} of {quoted(name)} ({source})"


def _more(hits: Hits, shown: int) -> list[str]:
    left = [f"[{len(hits.found) - shown} more]"] if len(hits.found) > shown else []
    return [*left, *hits.notes]


def _bounded(head: str, blocks: Iterable[str], count: int) -> str:
    """`count`: of all blocks there are, of which `blocks` may hold only the first."""
    room = RESULT_LIMIT - _NOTE_ROOM - len(head)
    shown: list[str] = []
    for block in blocks:
        room -= len(block) + 1
        if room < 0:
            return "\n".join((head, *shown, f"[cut: {len(shown)} of {count} entries]"))
        shown.append(block)
    return "\n".join((head, *shown))
