"""Search for definitions and references by syntax. A text search finds the name, and a grammar checks the matches.

A grammar recognizes names but not types, so the results are sorted by relevance. Results in the same scope come first,
followed by imported files, files in the same folder, and all other files.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from thinklsp.core.text_safety import RESULT_LIMIT, clip_line, escape_invisible, format_path, take_fitting
from thinklsp.symbols.languages import Language, detect_language
from thinklsp.symbols.outline import Symbol, find_definition_rows, find_mention_lines, parse_symbol
from thinklsp.tools.search import SearchedText, SearchText, SearchTextArguments
from thinklsp.tools.tool import run_in_thread
from thinklsp.workers import WorkFailed, run_in_worker
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.relpath import quote_path
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
class SymbolQuery:
    """A search for the definition of `name` in a line of `text`.

    `qualifier` is the word before the name, for example the object before a dot.
    """

    place: Place
    text: str
    line: int
    name: str
    qualifier: str = ""


@dataclass(slots=True)
class Hits:
    """The results of a search, most likely first. Only definitions have a symbol."""

    entries: list[tuple[Place, int, Symbol | None]] = field(default_factory=list)
    lines: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def detect_place_language(place: Place, text: str, overlay: EditOverlay) -> Language | None:
    return detect_language(place.label, text, overlay.view.find_language_id(overlay.find_origin(place)))


class SymbolSearch:
    """A search for a single name."""

    def __init__(self, query: SymbolQuery, overlay: EditOverlay) -> None:
        self._query = query
        self._overlay = overlay
        self._language: Language | None = None
        self._imported_names: frozenset[str] = frozenset()

    def _inspect_text(self) -> None:
        query = self._query
        self._language = detect_place_language(query.place, query.text, self._overlay)
        imports = (line for line in query.text.splitlines() if _IMPORT.match(line))
        self._imported_names = frozenset(word for line in imports for word in _WORD.findall(line))

    async def find_definitions(self) -> Hits:
        return await self._run(self._add_definitions)

    async def find_references(self) -> Hits:
        return await self._run(self._add_references)

    async def _run(self, add: Callable[[Hits, SearchedText], Awaitable[None]]) -> Hits:
        hits = Hits()
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                for text in await self._find_texts(hits):
                    await add(hits, text)
        except TimeoutError:
            hits.notes.append(f"[stopped after {_TIMEOUT_SECONDS:.0f} s; there may be more]")
        if hits.unreadable:
            hits.notes.append(f"[no grammar could read {', '.join(map(quote_path, hits.unreadable[:10]))}]")
        return hits

    async def _find_texts(self, hits: Hits) -> list[SearchedText]:
        """Return the texts that contain the name, starting with the text of the query."""
        query = self._query
        await run_in_thread(self._inspect_text)
        pattern = re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", re.escape(query.name))
        result = await SearchText().find(SearchTextArguments(pattern=pattern), self._overlay)
        hits.notes += [note for note in result.notes if not note.startswith("[searched")]
        others = sorted((text for key, text in result.texts.items() if key != query.place.key), key=self._rank)
        if len(others) > _MAX_FILES:
            hits.notes.append(f"[checked {_MAX_FILES} of {len(others)} files that contain the name]")
        return [await run_in_thread(self._search_own_text, re.compile(pattern)), *others[:_MAX_FILES]]

    def _search_own_text(self, name: re.Pattern[str]) -> SearchedText:
        """Search the text of the query itself, because the text search skips ignored files and documents outside all
        folders."""
        own = SearchedText(self._query.place, self._query.text)
        own.numbers |= {number for number, line in enumerate(own.lines, 1) if name.search(line)}
        return own

    def _rank(self, text: SearchedText) -> tuple[int, str]:
        parts = text.place.label.split("/")
        stem = parts[-1].partition(".")[0]
        if stem in _FOLDER_FILES and len(parts) > 1:
            stem = parts[-2]
        if stem in self._imported_names:
            return 0, text.place.label
        return (1 if parts[:-1] == self._query.place.label.split("/")[:-1] else 2), text.place.label

    def _check_related(self, text: SearchedText) -> tuple[str, Language | None, bool]:
        """Return the full text, its language, and whether the names in it can refer to the query's symbol."""
        whole = "".join(text.lines)
        language = detect_place_language(text.place, whole, self._overlay)
        own = self._language
        return whole, language, language is None or own is None or language.family == own.family

    async def _add_definitions(self, hits: Hits, text: SearchedText) -> None:
        whole, language, related = await run_in_thread(self._check_related, text)
        if language is None or not related:
            return
        line = self._query.line if text.place.key == self._query.place.key else 0
        try:
            rows = await run_in_worker(FILE_SECONDS, find_definition_rows, whole, language.name, self._query.name, line)
        except WorkFailed:
            rows = None
        if rows is None:
            hits.unreadable.append(text.place.label)
            return
        hits.entries += [(text.place, symbol.first_line, symbol) for symbol in map(parse_symbol, rows)]
        hits.lines[text.place.key] = text.lines
        # Members of the type before the dot come first.
        hits.entries.sort(
            key=lambda hit: not (hit[2] and self._query.qualifier and hit[2].container == self._query.qualifier)
        )

    async def _add_references(self, hits: Hits, text: SearchedText) -> None:
        whole, language, related = await run_in_thread(self._check_related, text)
        if not related:
            return
        numbers: list[int] | None = None
        if language is not None:
            with suppress(WorkFailed):
                numbers = await run_in_worker(FILE_SECONDS, find_mention_lines, whole, language.name, self._query.name)
            if numbers is None:
                hits.unreadable.append(text.place.label)
        if numbers is None:
            numbers = sorted(text.numbers)
        hits.entries += [(text.place, number, None) for number in numbers]
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


def format_head(count: int, noun: str, name: str, source: str) -> str:
    return f"{count or 'No'} {noun}{'' if count == 1 else 's'} of {quote_path(name)} ({source})"


def join_within_limit(head: str, blocks: Iterable[str], count: int) -> str:
    """Join the blocks that fit into one tool result.

    `count` is the total number of blocks. `blocks` may contain only some of them.
    """
    kept_blocks, is_cut = take_fitting(blocks, RESULT_LIMIT - _NOTE_RESERVE - len(head))
    return "\n".join((head, *kept_blocks, *([f"[cut: {len(kept_blocks)} of {count} entries]"] if is_cut else [])))
