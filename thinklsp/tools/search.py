"""The `search_text` tool, which searches files, open documents and this turn's edits.

ripgrep searches the files on disk. Documents that differ from the disk are searched in memory and replace ripgrep's
matches. All other matching files are read through the workspace view, which checks whether the matches still exist.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.lines import split_lines
from thinklsp.core.text_safety import RESULT_LIMIT, clip_line, escape_invisible, format_path, take_fitting
from thinklsp.core.tool_type import ToolOutput
from thinklsp.tools.read import FileWalk, find_start, read_existing
from thinklsp.tools.ripgrep import (
    MULTILINE_PATTERN,
    Match,
    Query,
    RipgrepKilled,
    UnsupportedRipgrep,
    build_globs,
    find_ignore_files,
    find_ripgrep,
    match_texts,
    search_files,
    search_texts,
    search_tree,
)
from thinklsp.tools.tool import Arguments, Tool, ToolContext, run_in_thread
from thinklsp.workspace.ignore import GlobFilter, IgnoreRules
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.relpath import RelPath
from thinklsp.workspace.view import Place

_MAX_LINES = 1000
_TIMEOUT_SECONDS = 10.0
_MAX_LINE = 500
_NOTE_RESERVE = 400
# The maximum numbers of files and characters that a search without ripgrep reads.
_MAX_FILES = 50_000
_MAX_CHARACTERS = 50_000_000
# A part of a regular expression: an escaped character, a character set, or any other character.
_ELEMENT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|.", re.DOTALL)


class SearchTextArguments(Arguments):
    pattern: str = Field(min_length=1, max_length=1000, description="Regular expression, matched line by line.")
    path: str | None = Field(default=None, description="File or folder to search. Default: all folders.")
    glob: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Only files that match, e.g. *.py or src/**/*.{ts,tsx}.",
    )
    literal: bool = Field(default=False, description="Treat the pattern as plain text.")
    context: int = Field(default=0, ge=0, le=20, description="Lines to show before and after each match.")


class SearchedText:
    """A text with the numbers of its matching lines. Lines are numbered as in editors."""

    def __init__(self, place: Place, text: str) -> None:
        self.place = place
        self.lines = split_lines(text)
        self.numbers: set[int] = set()
        self._rows = text.split("\n")
        self._firsts: list[int] | None = None
        if text.count("\r") != text.count("\r\n"):
            # A lone `\r` ends a line in editors but not in ripgrep, so a line in ripgrep can contain several editor
            # lines.
            inner = (row.removesuffix("\r").count("\r") + 1 for row in self._rows)
            self._firsts = [0, *accumulate(inner)]

    def has_line(self, match: Match) -> bool:
        """Return True if the text still contains the matching line. The file may have changed during the search."""
        reported = match.line.decode("utf-8", "replace").removesuffix("\n").removeprefix("\ufeff")
        return match.number <= len(self._rows) and self._rows[match.number - 1] == reported

    def add(self, match: Match) -> None:
        if self._firsts is None:
            self.numbers.add(match.number)
            return
        row = self._rows[match.number - 1].encode("utf-8", "replace")
        number, before = self._firsts[match.number - 1] + 1, 0
        for column in match.columns or (0,):
            number += row.count(b"\r", before, column)
            before = column
            self.numbers.add(number)


@dataclass(slots=True)
class SearchResult:
    """The matches that a search has found so far."""

    texts: dict[str, SearchedText] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    total: int = 0

    @property
    def is_full(self) -> bool:
        return self.total >= _MAX_LINES

    def clear(self) -> None:
        self.texts, self.total = {}, 0

    def add(self, text: SearchedText, match: Match) -> None:
        before = len(text.numbers)
        text.add(match)
        self.total += len(text.numbers) - before
        self.texts[text.place.key] = text


class SearchText(Tool[SearchTextArguments]):
    name: ClassVar[str] = "search_text"
    description: ClassVar[str] = (
        "Search the text of files with a regular expression (ripgrep syntax; (?i) ignores case), line by line. Open "
        "documents are searched as they are in the editor, and edits from this turn are visible. Ignored files "
        "(.gitignore) are searched only if path is inside an ignored folder. Results are grouped by file: `12: text` "
        "is a match, and `13- text` is a context line."
    )
    read_only: ClassVar[bool] = True
    arguments = SearchTextArguments

    def __init__(self, find: Callable[[Iterable[str]], Sequence[str]] = find_ripgrep) -> None:
        """Initialize the tool.

        The first supported ripgrep among the paths that `find` returns is used.
        """
        self._find = find

    def title(self, args: SearchTextArguments) -> str:
        place = f" in {args.path}" if args.path else ""
        return f'search "{args.pattern}"{place}'

    async def run(self, args: SearchTextArguments, context: ToolContext) -> ToolOutput:
        return ToolOutput(await run_in_thread(_format_result, await self.find(args, context.overlay), args.context))

    async def find(self, args: SearchTextArguments, overlay: EditOverlay) -> SearchResult:
        """Search within time and size limits. The result contains a note for each limit that was reached."""
        elements = () if args.literal else _ELEMENT.findall(args.pattern)
        if "\n" in args.pattern or "\r" in args.pattern or r"\n" in elements or r"\r" in elements:
            raise ToolFailed(MULTILINE_PATTERN)
        result = SearchResult()
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await self._search(args, overlay, result)
        except TimeoutError:
            result.notes.append(f"[stopped after {_TIMEOUT_SECONDS:.0f} s; narrow the search by path, glob or pattern]")
        return result

    async def _search(self, args: SearchTextArguments, overlay: EditOverlay, result: SearchResult) -> None:
        search = await run_in_thread(_Search, args, overlay, result)
        note = "[searched without ripgrep: patterns use Python's syntax]"
        for program in self._find(folder.root.path for folder in overlay.view.folders):
            try:
                await search.search_with_ripgrep(program)
                return
            except UnsupportedRipgrep:
                result.clear()
                note = "[the installed ripgrep is too old, so patterns use Python's syntax]"
            except RipgrepKilled:
                result.clear()
                note = "[ripgrep was killed by the system, so patterns use Python's syntax]"
                break
        result.notes.append(note)
        await search.search_without_ripgrep()


class _Search:
    """A running search, with its start folders and the texts that differ from the disk."""

    def __init__(self, args: SearchTextArguments, overlay: EditOverlay, result: SearchResult) -> None:
        self._overlay = overlay
        self._result = result
        self._query = Query(args.pattern, args.literal)
        self._glob = None if args.glob is None else GlobFilter(args.glob)
        view = overlay.view
        notebooks = view.list_notebooks()
        changed = {place.key: place for place in (*view.list_open_places(), *overlay.list_changed(), *notebooks)}
        self._changed_keys = frozenset(changed)
        if args.path is None and not view.folders:
            self._starts: tuple[Place, ...] = ()
            self._texts = self._read_places(view.list_documents())
            return
        starts = view.resolve_folder(args.path)
        self._starts = tuple(start for start in starts if overlay.find_kind(start) == "directory")
        if starts != self._starts:
            places = [place for start in starts for place in view.list_cells(start) or (start,)]
            self._texts = [SearchedText(place, read_existing(overlay, place).text) for place in places]
        else:
            searched = [place for place in changed.values() if self._should_search(place)]
            self._texts = self._read_places(cell for place in searched for cell in view.list_cells(place) or (place,))

    async def search_with_ripgrep(self, program: str) -> None:
        texts = ["".join(text.lines) for text in self._texts]
        for index, match in await search_texts(program, texts, self._query, limit=_MAX_LINES) if texts else ():
            self._result.add(self._texts[index], match)
        for start in self._starts:
            if not self._result.is_full:
                await self._search_folder(program, start)
        self._note_limit()

    async def search_without_ripgrep(self) -> None:
        texts = list(self._texts)
        if self._starts:
            places = await FileWalk(self._overlay, self._starts, self._glob, _MAX_FILES).run()
            texts += await run_in_thread(
                self._load_texts, [place for place in places if place.key not in self._changed_keys]
            )
        whole = ["".join(text.lines) for text in texts]
        for index, match in await match_texts(whole, self._query, limit=_MAX_LINES):
            self._result.add(texts[index], match)
        self._note_limit()

    def _note_limit(self) -> None:
        if self._result.is_full:
            self._result.notes.append(f"[stopped at {_MAX_LINES} lines; narrow the search by path, glob or pattern]")

    async def _search_folder(self, program: str, start: Place) -> None:
        root, below = start.root, start.path
        if root is None or below is None:
            return
        globs = build_globs(self._glob, below.parts, self._overlay.view.find_label_prefix(root))
        query = Query(self._query.pattern, self._query.literal, globs)
        rules = await run_in_thread(IgnoreRules, root, below.parts)
        ignore_stat = root.stat(RelPath.build((".gitignore",))) if below.parts and not rules.is_start_ignored else None
        ignore_file = ignore_stat is not None and ignore_stat.kind == "file"
        if await self._has_ambiguous_rules(program, start, rules, ignore_file=ignore_file):
            places = await FileWalk(self._overlay, (start,), self._glob, _MAX_FILES).run()
            paths = ["/".join(place.path.parts) for place in places if place.path is not None]
            matches = search_files(program, root.path, paths, query)
        else:
            matches = search_tree(program, root.path, below.parts, query, ignore_file=ignore_file)
        texts: dict[str, SearchedText | None] = {}
        async with aclosing(matches) as stream:
            async for match in stream:
                name = match.path.removeprefix("./")
                if name not in texts:
                    texts[name] = await run_in_thread(self._read_match, start, tuple(name.split("/")), rules)
                text = texts[name]
                if text is not None and text.has_line(match):
                    self._result.add(text, match)
                if self._result.is_full:
                    return

    async def _has_ambiguous_rules(self, program: str, start: Place, rules: IgnoreRules, *, ignore_file: bool) -> bool:
        """Return True if ripgrep may ignore other files than `list_files` below a folder."""
        if start.root is None or start.path is None:
            return False
        paths = await find_ignore_files(program, start.root.path, start.path.parts, ignore_file=ignore_file)
        folders = [tuple(path.split("/")[:-1]) for path in paths] + [()] * ignore_file
        return await run_in_thread(lambda: any(map(rules.is_ambiguous, folders)))

    def _read_match(self, start: Place, parts: tuple[str, ...], rules: IgnoreRules) -> SearchedText | None:
        """Read a file that ripgrep reported, or return None if the file is ignored or not readable."""
        depth = len(start.path.parts) if start.path is not None else 0
        if start.root is None or rules.is_ignored(parts) or not self._is_in_glob(start.root, parts, depth):
            return None
        try:
            place = self._overlay.view.build_place(start.root, parts)
            text = None if place.key in self._changed_keys else self._overlay.peek(place)
        except PathRefused:
            return None
        return None if text is None or "\0" in text.text else SearchedText(place, text.text)

    def _is_in_glob(self, root: Root, parts: tuple[str, ...], depth: int) -> bool:
        above = self._overlay.view.find_label_prefix(root)
        return self._glob is None or self._glob.includes(parts, below=depth, above=above)

    def _should_search(self, place: Place) -> bool:
        """Return True if a search on disk would include the file."""
        start = find_start(place, self._starts) if self._overlay.find_kind(place) == "file" else None
        if start is None or start.root is None or start.path is None or place.path is None:
            return False
        return self._is_in_glob(start.root, place.path.parts, len(start.path.parts))

    def _read_places(self, places: Iterable[Place]) -> list[SearchedText]:
        texts = []
        for place in places:
            try:
                text = self._overlay.peek(place)
            except PathRefused:
                continue
            if text is not None:
                texts.append(SearchedText(place, text.text))
        return texts

    def _load_texts(self, places: Iterable[Place]) -> list[SearchedText]:
        texts: list[SearchedText] = []
        remaining = _MAX_CHARACTERS
        for place in places:
            for text in self._read_places([place]):
                remaining -= sum(map(len, text.lines))
                if remaining < 0:
                    self._result.notes.append("[only the first 50 MB of the files were searched]")
                    return texts
                if not any("\0" in line for line in text.lines):
                    texts.append(text)
        return texts


def _format_result(result: SearchResult, context: int) -> str:
    if not result.texts:
        return "\n".join(("No matches.", *result.notes))
    texts = sorted(result.texts.values(), key=lambda text: text.place.label)
    lines, is_cut = take_fitting(
        (line for text in texts for line in _format_block(text, context)), RESULT_LIMIT - _NOTE_RESERVE
    )
    if is_cut:
        result.notes.insert(0, f"[cut: {result.total} matching lines in {len(texts)} files]")
    return "\n".join((*lines, *result.notes)).strip("\n")


def _format_block(text: SearchedText, context: int) -> list[str]:
    near = {n for number in text.numbers for n in range(number - context, number + context + 1)}
    lines = ["", escape_invisible(format_path(text.place.label))]
    last = 0
    for number in sorted(n for n in near if 1 <= n <= len(text.lines)):
        if context and last and number != last + 1:
            lines.append("--")
        line = clip_line(text.lines[number - 1].rstrip("\r\n"), _MAX_LINE)
        lines.append(f"{number}{':' if number in text.numbers else '-'} {line}")
        last = number
    return lines
