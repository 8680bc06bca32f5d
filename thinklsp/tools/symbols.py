"""The `outline`, `definition` and `references` tools.

These tools query the editor's language servers first, and search by syntax if the servers find nothing. A text search
then finds the name, and a grammar checks the matches. A grammar recognizes names but not types, so the results are
sorted by relevance: first the same scope, then imported files, files in the same folder, and all other files.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, starmap
from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.lines import split_lines, split_without_ends
from thinklsp.core.text_safety import RESULT_LIMIT, clip_line, escape_invisible, format_path, take_fitting
from thinklsp.core.tool_type import ToolOutput
from thinklsp.symbols.outline import (
    Language,
    Symbol,
    build_outline_rows,
    detect_language,
    find_definition_rows,
    find_mention_lines,
)
from thinklsp.tools.read import read_existing
from thinklsp.tools.search import SearchedText, SearchText, SearchTextArguments
from thinklsp.tools.tool import (
    Arguments,
    Editor,
    NamedTarget,
    NamedTargets,
    Point,
    Target,
    Tool,
    ToolContext,
    run_in_thread,
)
from thinklsp.workers import WorkFailed, run_in_worker
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.uri import format_uri, quote_path
from thinklsp.workspace.view import Place

_TIMEOUT_SECONDS = 10.0
FILE_SECONDS = 3.0
"""The time limit of one file. A grammar needs 0.3 s for the largest ordinary files."""
_MAX_FILES = 300
_IMPORT = re.compile(r"\s*(?:import|from|export|use|using|mod|include|#\s*include|source|\")|.*\brequire")
_WORD = re.compile(r"[\w$]+")
# Names of files that stand for their folder.
_FOLDER_FILES = {"__init__", "index", "mod", "lib", "main"}


@dataclass(frozen=True, slots=True)
class _Query:
    """A search for `name` in a line of `text`. `qualifier` is the word before the name, for example before a dot."""

    place: Place
    text: str
    line: int
    name: str
    qualifier: str = ""


@dataclass(slots=True)
class _Hits:
    """The results of a search, most likely first. Only definitions have a symbol."""

    entries: list[tuple[Place, int, Symbol | None]] = field(default_factory=list)
    lines: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def _detect_language(place: Place, text: str, overlay: EditOverlay) -> Language | None:
    return detect_language(place.label, text, overlay.view.find_language_id(overlay.find_origin(place)))


async def _search(query: _Query, overlay: EditOverlay, *, definitions: bool) -> _Hits:
    """Search by syntax for the definitions of a name, or for the lines that mention it."""
    hits = _Hits()
    own = await run_in_thread(_detect_language, query.place, query.text, overlay)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            for text in await _find_texts(query, overlay, hits):
                whole = "".join(text.lines)
                language = await run_in_thread(_detect_language, text.place, whole, overlay)
                # A name in a language of another family cannot refer to the symbol.
                if language is None or own is None or language.family == own.family:
                    add = _add_definitions if definitions else _add_references
                    await add(query, hits, text, whole, language)
    except TimeoutError:
        hits.notes.append(f"[stopped after {_TIMEOUT_SECONDS:.0f} s; there may be more]")
    if hits.unreadable:
        hits.notes.append(f"[no grammar could read {', '.join(map(quote_path, hits.unreadable[:10]))}]")
    return hits


async def _find_texts(query: _Query, overlay: EditOverlay, hits: _Hits) -> list[SearchedText]:
    """Return the texts that contain the name, the text of the query first and the most likely ones next.

    The text search skips ignored files and documents outside all folders, so the query's own text is searched here.
    """
    pattern = re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", re.escape(query.name))
    result = await SearchText().find(SearchTextArguments(pattern=pattern), overlay)
    hits.notes += result.notes
    imports = (line for line in query.text.splitlines() if _IMPORT.match(line))
    imported = frozenset(word for line in imports for word in _WORD.findall(line))
    others = [text for key, text in result.texts.items() if key != query.place.key]
    others.sort(key=lambda text: (_rank(text.place.label, query.place.label, imported), text.place.label))
    if len(others) > _MAX_FILES:
        hits.notes.append(f"[checked {_MAX_FILES} of {len(others)} files that contain the name]")
    own = SearchedText(query.place, query.text)
    own.numbers |= {number for number, line in enumerate(own.lines, 1) if re.search(pattern, line)}
    return [own, *others[:_MAX_FILES]]


def _rank(label: str, own: str, imported: Collection[str]) -> int:
    """Return 0 for a file that the query's text imports, 1 for one in the same folder and 2 for another one."""
    *folders, name = label.split("/")
    stem = name.partition(".")[0]
    stem = folders[-1] if stem in _FOLDER_FILES and folders else stem
    return 0 if stem in imported else 1 if folders == own.split("/")[:-1] else 2


async def _add_definitions(
    query: _Query, hits: _Hits, text: SearchedText, whole: str, language: Language | None
) -> None:
    if language is None:
        return
    line = query.line if text.place.key == query.place.key else 0
    rows = None
    with suppress(WorkFailed):
        rows = await run_in_worker(FILE_SECONDS, find_definition_rows, whole, language.name, query.name, line)
    if rows is None:
        hits.unreadable.append(text.place.label)
        return
    hits.entries += [(text.place, symbol.first_line, symbol) for symbol in starmap(Symbol, rows)]
    hits.lines[text.place.key] = text.lines
    # Members of the type before the dot come first.
    hits.entries.sort(key=lambda hit: not (hit[2] and query.qualifier and hit[2].container == query.qualifier))


async def _add_references(
    query: _Query, hits: _Hits, text: SearchedText, whole: str, language: Language | None
) -> None:
    numbers: list[int] | None = None
    if language is not None:
        with suppress(WorkFailed):
            numbers = await run_in_worker(FILE_SECONDS, find_mention_lines, whole, language.name, query.name)
        hits.unreadable += [text.place.label] if numbers is None else []
    hits.entries += [(text.place, number, None) for number in (sorted(text.numbers) if numbers is None else numbers)]
    hits.lines[text.place.key] = text.lines


MAX_DEFINITION_LINES = 4
_NOTE_RESERVE = 300
_MAX_LINE = 300


def format_entry(symbol: Symbol) -> str:
    return f"{'  ' * min(symbol.depth, 20)}{_format_name(symbol)} {_format_range(symbol)}"


def _format_name(symbol: Symbol) -> str:
    prefix = f"{symbol.container}." if symbol.container and symbol.kind != "namespace" and not symbol.depth else ""
    return escape_invisible(f"{symbol.kind} {prefix}{symbol.name}")


def _format_range(symbol: Symbol) -> str:
    return (
        str(symbol.first_line) if symbol.first_line == symbol.last_line else f"{symbol.first_line}-{symbol.last_line}"
    )


def format_definition(place: Place, symbol: Symbol, lines: Sequence[str]) -> str:
    within = f" in {escape_invisible(symbol.container)}" if symbol.container else ""
    head = f"{format_path(place.label)}:{_format_range(symbol)} ({symbol.kind}{within})"
    most = min(MAX_DEFINITION_LINES, symbol.last_line - symbol.first_line + 1)
    return "\n".join((head, *format_excerpt(lines, symbol.first_line, most)))


def format_excerpt(lines: Sequence[str], first: int, count: int) -> list[str]:
    return [f"{number}\t{_clip(lines[number - 1])}" for number in range(first, min(first + count, len(lines) + 1))]


def format_line(shown: str, number: int, lines: Sequence[str]) -> str:
    text = _clip(lines[number - 1]).strip() if number <= len(lines) else ""
    return f"{format_path(shown)}:{number}: {text}"


def _clip(line: str) -> str:
    return clip_line(line.rstrip("\r\n"), _MAX_LINE)


def _format_hits(count: int, noun: str, name: str, source: str, blocks: Sequence[str]) -> ToolOutput:
    head = f"{count or 'No'} {noun}{'' if count == 1 else 's'} of {quote_path(name)} ({source})"
    return ToolOutput(join_within_limit(head, blocks, count))


def join_within_limit(head: str, blocks: Iterable[str], count: int) -> str:
    """Join the blocks that fit into one tool result.

    `count` is the total number of blocks. `blocks` may contain only some of them.
    """
    kept_blocks, is_cut = take_fitting(blocks, RESULT_LIMIT - _NOTE_RESERVE - len(head))
    return "\n".join((head, *kept_blocks, *([f"[cut: {len(kept_blocks)} of {count} entries]"] if is_cut else [])))


_MAX_DEFINITIONS = 20
_MAX_REFERENCES = 400
# The maximum number of positions in one line for which the editor is queried.
_MAX_POINTS = 3
# The word before a dot and a name. The length is limited, because matching takes quadratic time.
_QUALIFIER = re.compile(r"([\w$]+)\s*(?:\.|::|->)\s*$")
_MAX_QUALIFIER = 200
_BY_SYNTAX = "by syntax, names only: check the hits"
_BY_NAME = "symbols of that name from the editor's language servers: check the hits"


class OutlineArguments(Arguments):
    path: str = Field(description="Path of the file, relative to the workspace folder, or the URI of an open document.")


class OutlineFile(Tool[OutlineArguments]):
    name: ClassVar[str] = "outline"
    title_template: ClassVar[str] = "outline {path}"
    description: ClassVar[str] = (
        "List the definitions of a source file (classes, functions, methods, types) with their first and last line, "
        "indented by nesting. Cheaper than reading the file. Edits from this turn are visible."
    )
    read_only: ClassVar[bool] = True
    arguments = OutlineArguments

    async def run(self, args: OutlineArguments, context: ToolContext) -> ToolOutput:
        place = context.overlay.view.resolve(args.path)
        current = read_existing(context.overlay, place)
        text = current.text
        language = _detect_language(place, text, context.overlay)
        count: int = 0
        rows: Sequence[Symbol] = ()
        failure = f"No grammar can read {quote_path(place.label)}"
        if language is not None:
            try:
                outline = await run_in_worker(FILE_SECONDS, build_outline_rows, text, language.name)
                if outline is not None:
                    (count, rows), failure = outline, ""
            except WorkFailed:
                failure = f"The definitions of {quote_path(place.label)} were not found within {FILE_SECONDS:.0f} s"
        # Prefer the grammar, because language servers also list parameters, imports and local variables.
        if not rows and current.source != "turn":
            reported = await context.editor.fetch_outline(Point(place.uri, text, 1, 0, current.source == "document"))
            if reported is not None and reported.symbols:
                return ToolOutput(format_outline(place, reported))
        if failure or language is None:
            raise ToolFailed(f"{failure}; use search_text to find names in it.")
        head = f"{format_path(place.label)}, {language.name}, {len(split_lines(text))} lines"
        entries = map(format_entry, starmap(Symbol, rows)) if rows else ["No definitions."]
        return ToolOutput(join_within_limit(head, entries, count))


class SymbolArguments(Arguments):
    path: str = Field(description="Path of the file in which the symbol is used or defined, or an open document's URI.")
    line: int = Field(ge=1, description="Line of the symbol in that file. Lines are numbered from 1.")
    symbol: str = Field(min_length=1, max_length=200, description="The name as written on that line.")


class _SymbolTool(Tool[SymbolArguments]):
    read_only: ClassVar[bool] = True
    arguments = SymbolArguments

    def title(self, args: SymbolArguments) -> str:
        return f"{self.name} of {args.symbol} ({args.path}:{args.line})"


class FindDefinition(_SymbolTool):
    name: ClassVar[str] = "definition"
    description: ClassVar[str] = (
        "Find the definition of a symbol that occurs on a given line. The result comes from the editor's language "
        "server if there is one; otherwise, it lists definitions of that name, the most likely first. It names its "
        "source."
    )

    async def run(self, args: SymbolArguments, context: ToolContext) -> ToolOutput:
        query, points = await run_in_thread(_build_query, args, context.overlay)
        targets, hover = await asyncio.gather(
            ask_editor(context.editor.find_definition, points), build_hover_block(context.editor, points)
        )
        if targets:
            blocks = build_target_blocks(targets, context.overlay, MAX_DEFINITION_LINES)
            return _format_hits(len(targets), "definition", query.name, BY_EDITOR, [*hover, *blocks])
        hits = await _search(query, context.overlay, definitions=True)
        if not hits.entries:
            return await self._find_by_name(query.name, hits, hover, context)
        listed = hits.entries[:_MAX_DEFINITIONS]
        blocks = [
            format_definition(place, symbol, hits.lines[place.key]) for place, _, symbol in listed if symbol is not None
        ]
        blocks = [*hover, *blocks, *_format_rest(hits, len(listed))]
        return _format_hits(len(hits.entries), "definition", query.name, _BY_SYNTAX, blocks)

    async def _find_by_name(self, name: str, hits: _Hits, hover: Sequence[str], context: ToolContext) -> ToolOutput:
        """List the symbols with this name that the editor finds, for example in libraries."""
        reported = await context.editor.find_symbols(name)
        matching = [] if reported is None else [each.target for each in reported.symbols if is_named(each.name, name)]
        if not matching:
            hint = f"use search_text to find mentions. ({_BY_SYNTAX})"
            return ToolOutput(
                "\n".join((f"No definition of {quote_path(name)} was found; {hint}", *hover, *hits.notes))
            )
        targets = tuple(dict.fromkeys(matching))[:_MAX_DEFINITIONS]
        blocks = [*hover, *build_target_blocks(targets, context.overlay, MAX_DEFINITION_LINES), *hits.notes]
        return _format_hits(len(targets), "definition", name, _BY_NAME, blocks)


class FindReferences(_SymbolTool):
    name: ClassVar[str] = "references"
    description: ClassVar[str] = (
        "Find the uses of a symbol that occurs on a given line. The result comes from the editor's language server if "
        "there is one; otherwise, it lists lines of code with that name, starting with the same file. It names its "
        "source."
    )

    async def run(self, args: SymbolArguments, context: ToolContext) -> ToolOutput:
        query, points = await run_in_thread(_build_query, args, context.overlay)
        targets = await ask_editor(context.editor.find_references, points)
        if targets:
            blocks = build_target_blocks(targets, context.overlay, 1)
            return _format_hits(len(targets), "reference", query.name, BY_EDITOR, blocks)
        hits = await _search(query, context.overlay, definitions=False)
        listed = hits.entries[:_MAX_REFERENCES]
        lines = [format_line(place.label, number, hits.lines[place.key]) for place, number, _ in listed]
        blocks = [*lines, *_format_rest(hits, len(listed))]
        return _format_hits(len(hits.entries), "reference", query.name, _BY_SYNTAX, blocks)


def _build_query(args: SymbolArguments, overlay: EditOverlay) -> tuple[_Query, tuple[Point, ...]]:
    """Return the query and its positions in the editor's text.

    The positions are empty if this turn changed the file.
    """
    place = overlay.view.resolve(args.path)
    current = read_existing(overlay, place)
    lines = split_lines(current.text)
    if args.line > len(lines):
        raise ToolFailed(f"{quote_path(place.label)} has {len(lines)} lines; line {args.line} does not exist.")
    line, symbol = lines[args.line - 1].rstrip("\r\n"), args.symbol.strip()
    columns = (
        [match.start() for match in islice(_build_word_pattern(symbol).finditer(line), _MAX_POINTS)] if symbol else []
    )
    if not columns:
        raise ToolFailed(
            f"{quote_path(args.symbol)} is not on line {args.line} of {quote_path(place.label)}. "
            + _suggest_lines(lines, symbol)
        )
    name = re.split(r"\.|::|->|\\|#", symbol)[-1] or symbol
    at = symbol.rindex(name)
    end = columns[0] + at
    before = _QUALIFIER.search(line, max(0, end - _MAX_QUALIFIER), end)
    query = _Query(place, current.text, args.line, name, before[1] if before else "")
    is_open = current.source == "document"
    points = [Point(place.uri, current.text, args.line, column + at, is_open) for column in columns]
    return query, () if current.source == "turn" else tuple(points)


def _suggest_lines(lines: Sequence[str], symbol: str) -> str:
    word = _build_word_pattern(symbol) if symbol else None
    numbers = [str(number) for number, line in enumerate(lines, 1) if word and word.search(line)]
    if not numbers:
        return "It does not occur in the file; use search_text to find it elsewhere."
    return f"It is on line {', '.join(numbers[:10])}."


def _build_word_pattern(symbol: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w$]){re.escape(symbol)}(?![\w$])" if symbol[0] not in "$@#:." else re.escape(symbol))


def _format_rest(hits: _Hits, shown_count: int) -> list[str]:
    rest = [f"[{len(hits.entries) - shown_count} more]"] if len(hits.entries) > shown_count else []
    return [*rest, *hits.notes]


BY_EDITOR = "from the editor's language server"
# The characters that can follow a name, as in `run(int)` or `List<T>`.
_PARAMETERS = re.compile(r"[(<\[\s]")


async def ask_editor(
    ask: Callable[[Point], Awaitable[tuple[Target, ...] | None]], points: Sequence[Point]
) -> tuple[Target, ...]:
    """Query the editor for each of the positions, and return the results without duplicates."""
    answers = await asyncio.gather(*map(ask, points))
    return tuple(dict.fromkeys(target for answer in answers for target in answer or ()))


async def build_hover_block(editor: Editor, points: Sequence[Point]) -> list[str]:
    """Return a block with the editor's hover text for the first position, or an empty list."""
    text = await editor.fetch_hover(points[0]) if points else None
    if text is None:
        return []
    return ["\n".join(("The editor shows:", *(f"| {line}" for line in split_without_ends(text))))]


def format_outline(place: Place, outline: NamedTargets) -> str:
    """Format the editor's symbols as the outline of a file."""
    cut_note = ["[there are more]"] if outline.is_cut else []
    unread_note = [f"[omitted: {outline.unreadable_count} in an unexpected format]"] if outline.unreadable_count else []
    head = f"{format_path(place.label)}, {BY_EDITOR}"
    return join_within_limit(
        head,
        [*unread_note, *(format_entry(_build_symbol(symbol)) for symbol in outline.symbols), *cut_note],
        len(outline.symbols),
    )


def _build_symbol(target: NamedTarget) -> Symbol:
    first, last = target.target.first_line, target.target.last_line
    return Symbol(target.name, target.kind, first, first, last, target.depth, target.container)


def is_named(full: str, name: str) -> bool:
    """Return True if a symbol has this name. Language servers may add parameters, or a type before a dot."""
    return name == _PARAMETERS.split(full, maxsplit=1)[0].rpartition(".")[2].rpartition("::")[2]


def build_target_blocks(targets: Sequence[Target], overlay: EditOverlay, max_lines: int) -> list[str]:
    """Return a block of text for each target, with up to `max_lines` lines from the file."""
    blocks = []
    for target in targets:
        place, lines = _read_target(target.uri, overlay)
        changed = place is not None and any(place.key == other.key for other in overlay.list_changed())
        label = place.label if place is not None else escape_invisible(format_uri(target.uri))
        note = "" if lines else " [not in the workspace; not read]"
        if changed:
            note = " [line numbers before this turn's edits]"
        if max_lines == 1 and lines:
            blocks.append(format_line(label, target.first_line, lines) + note)
        else:
            head = f"{format_path(label)}:{target.first_line}{note}"
            blocks.append("\n".join((head, *format_excerpt(lines, target.first_line, max_lines))))
    return blocks


def _read_target(uri: str, overlay: EditOverlay) -> tuple[Place | None, list[str]]:
    """Return the place and the lines of the editor's text, without this turn's edits.

    If the file is not readable, the list of lines is empty.
    """
    try:
        place = overlay.view.locate(uri)
        file_text = overlay.view.peek(place)
    except (PathRefused, UnicodeError):
        return None, []
    return place, [] if file_text is None else split_lines(file_text.text)
