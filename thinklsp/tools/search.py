"""`search_text`: ripgrep over the disk, corrected for what the editor and this turn hold.

Texts that differ from disk are searched as they are now, and what ripgrep says about their files is dropped. Every
other file that it names is read through the gate, and only lines that are really there are shown.
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
from thinklsp.tools.base import Arguments, Tool, ToolContext, ToolOutput
from thinklsp.tools.read import FileWalk, existing_text
from thinklsp.tools.ripgrep import (
    ONE_LINE,
    BrokeOff,
    Match,
    Query,
    UnknownOption,
    find_ripgrep,
    first_sieve,
    match_texts,
    search_texts,
    search_tree,
)
from thinklsp.tools.shown import RESULT_LIMIT, shown_name, visible
from thinklsp.tools.threads import in_thread
from thinklsp.workspace.ignore import GlobFilter, IgnoreRules
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.relpath import RelPath
from thinklsp.workspace.view import Place

_MOST_LINES = 1000
_SECONDS = 10.0
_LONGEST_LINE = 500
_NOTE_ROOM = 400
# What the search without ripgrep reads at most.
_MOST_FILES = 50_000
_MOST_CHARACTERS = 50_000_000
# What a regular expression is made of, as far as line ends matter: what is escaped, a set of characters, any other.
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
    literal: bool = Field(default=False, description="Take the pattern as plain text.")
    context: int = Field(default=0, ge=0, le=20, description="Lines to show before and after each match.")


class FoundText:
    """One text and its matching lines, numbered as editors do. Owned by one search."""

    def __init__(self, place: Place, text: str) -> None:
        self.place = place
        self.lines = split_lines(text)
        self.numbers: set[int] = set()
        self._rows = text.split("\n")
        self._firsts: list[int] | None = None
        if text.count("\r") != text.count("\r\n"):
            # A lone `\r` ends a line for us and not for ripgrep: one of its rows can hold several of our lines.
            inner = (row.removesuffix("\r").count("\r") + 1 for row in self._rows)
            self._firsts = [0, *accumulate(inner)]

    def has(self, match: Match) -> bool:
        """Whether this line is really there: the file that ripgrep read may have been another one."""
        told = match.line.decode("utf-8", "replace").removesuffix("\n").removeprefix("\ufeff")
        return match.number <= len(self._rows) and self._rows[match.number - 1] == told

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
class Found:
    """What one search has found so far. Owned by one call."""

    texts: dict[str, FoundText] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    total: int = 0

    @property
    def full(self) -> bool:
        return self.total >= _MOST_LINES

    def forget(self) -> None:
        self.texts, self.total = {}, 0

    def add(self, text: FoundText, match: Match) -> None:
        before = len(text.numbers)
        text.add(match)
        self.total += len(text.numbers) - before
        self.texts[text.place.key] = text


class SearchText(Tool[SearchTextArguments]):
    name: ClassVar[str] = "search_text"
    description: ClassVar[str] = (
        "Search the text of files with a regular expression (ripgrep syntax; (?i) ignores case), line by line. Open "
        "documents are searched as they stand in the editor, and edits of this turn are visible. Files that "
        ".gitignore leaves out are searched only where path is inside an ignored folder. Results are grouped by file: "
        "`12: text` is a match, `13- text` a context line."
    )
    read_only: ClassVar[bool] = True
    arguments = SearchTextArguments

    def __init__(self, find: Callable[[Iterable[str]], Sequence[str]] = find_ripgrep) -> None:
        """`find`: where there are ripgreps, given the workspace folders; the first that is new enough is used."""
        self._find = find

    def title(self, args: SearchTextArguments) -> str:
        place = f" in {args.path}" if args.path else ""
        return f'search "{args.pattern}"{place}'

    async def run(self, args: SearchTextArguments, context: ToolContext) -> ToolOutput:
        return ToolOutput(await in_thread(_report, await self.find(args, context.overlay), args.context))

    async def find(self, args: SearchTextArguments, overlay: EditOverlay) -> Found:
        """Within the bounds of time and size, which the notes tell of."""
        elements = () if args.literal else _ELEMENT.findall(args.pattern)
        if "\n" in args.pattern or "\r" in args.pattern or r"\n" in elements or r"\r" in elements:
            raise ToolFailed(ONE_LINE)
        found = Found()
        try:
            async with asyncio.timeout(_SECONDS):
                await self._search(args, overlay, found)
        except TimeoutError:
            found.notes.append(f"[stopped after {_SECONDS:.0f} s; narrow the search by path, glob or pattern]")
        return found

    async def _search(self, args: SearchTextArguments, overlay: EditOverlay, found: Found) -> None:
        search = await in_thread(_Search, args, overlay, found)
        note = "[searched without ripgrep: patterns are Python's]"
        for program in self._find(folder.root.path for folder in overlay.view.folders):
            try:
                await search.with_ripgrep(program)
                return
            except UnknownOption:
                found.forget()
                note = "[the installed ripgrep is too old, so patterns are Python's]"
            except BrokeOff:
                found.forget()
                note = "[ripgrep broke off, so patterns are Python's]"
                break
        found.notes.append(note)
        await search.without_ripgrep()


class _Search:
    """One call on its way: where it begins, and which texts stand in for the disk."""

    def __init__(self, args: SearchTextArguments, overlay: EditOverlay, found: Found) -> None:
        self._overlay = overlay
        self._found = found
        self._query = Query(args.pattern, args.literal)
        self._glob = None if args.glob is None else GlobFilter(args.glob)
        view = overlay.view
        changed = {place.key: place for place in (*view.unlike_disk(), *overlay.changed())}
        self._afloat = frozenset(changed)
        if args.path is None and not view.folders:
            self._starts: tuple[Place, ...] = ()
            self._texts = self._readable(view.document_places())
            return
        starts = view.resolve_folder(args.path)
        self._starts = tuple(start for start in starts if overlay.kind(start) == "directory")
        if starts != self._starts:
            self._texts = [FoundText(place, existing_text(overlay, place).text) for place in starts]
        else:
            self._texts = self._readable(place for place in changed.values() if self._wanted(place))

    async def with_ripgrep(self, program: str) -> None:
        texts = ["".join(text.lines) for text in self._texts]
        for index, match in await search_texts(program, texts, self._query, most=_MOST_LINES) if texts else ():
            self._found.add(self._texts[index], match)
        for start in self._starts:
            if not self._found.full:
                await self._tree(program, start)
        self._note_limit()

    async def without_ripgrep(self) -> None:
        texts = list(self._texts)
        if self._starts:
            places = await FileWalk(self._overlay, self._starts, self._glob, _MOST_FILES).run()
            texts += await in_thread(self._loaded, [place for place in places if place.key not in self._afloat])
        whole = ["".join(text.lines) for text in texts]
        for index, match in await match_texts(whole, self._query, most=_MOST_LINES):
            self._found.add(texts[index], match)
        self._note_limit()

    def _note_limit(self) -> None:
        if self._found.full:
            self._found.notes.append(f"[stopped at {_MOST_LINES} lines; narrow the search by path, glob or pattern]")

    async def _tree(self, program: str, start: Place) -> None:
        root, below = start.root, start.path
        if root is None or below is None:
            return
        globs = first_sieve(self._glob, below.parts, self._overlay.view.shown_above(root))
        query = Query(self._query.pattern, self._query.literal, globs)
        rules = await in_thread(IgnoreRules, root, below.parts)
        known = root.stat(RelPath.of((".gitignore",))) if below.parts and not rules.start_ignored else None
        ignore_file = known is not None and known.kind == "file"
        texts: dict[str, FoundText | None] = {}
        matches = search_tree(program, root.path, below.parts, query, ignore_file=ignore_file)
        async with aclosing(matches) as stream:
            async for match in stream:
                name = match.path.removeprefix("./")
                if name not in texts:
                    texts[name] = await in_thread(self._through_gate, start, tuple(name.split("/")), rules)
                text = texts[name]
                if text is not None and text.has(match):
                    self._found.add(text, match)
                if self._found.full:
                    return

    def _through_gate(self, start: Place, parts: tuple[str, ...], rules: IgnoreRules) -> FoundText | None:
        """The text that the gate gives for a path that ripgrep printed; None where its lines are not to be shown."""
        depth = len(start.path.parts) if start.path is not None else 0
        if start.root is None or rules.ignored(parts) or not self._matches(start.root, parts, depth):
            return None
        try:
            place = self._overlay.view.place_in(start.root, parts)
            text = None if place.key in self._afloat else self._overlay.peek(place)
        except PathRefused:
            return None
        return None if text is None else FoundText(place, text.text)

    def _matches(self, root: Root, parts: tuple[str, ...], depth: int) -> bool:
        above = self._overlay.view.shown_above(root)
        return self._glob is None or self._glob.takes(parts, below=depth, above=above)

    def _wanted(self, place: Place) -> bool:
        """Whether a text that stands in for a file would have been found on disk."""
        if self._overlay.kind(place) != "file" or place.path is None:
            return False
        parts = place.path.parts
        for start in self._starts:
            if start.root is place.root and start.root is not None and start.path is not None:
                depth = len(start.path.parts)
                if parts[:depth] == start.path.parts and len(parts) > depth:
                    ignored = IgnoreRules(start.root, start.path.parts).ignored(parts)
                    return not ignored and self._matches(start.root, parts, depth)
        return False

    def _readable(self, places: Iterable[Place]) -> list[FoundText]:
        texts = []
        for place in places:
            try:
                text = self._overlay.peek(place)
            except PathRefused:
                continue
            if text is not None:
                texts.append(FoundText(place, text.text))
        return texts

    def _loaded(self, places: Iterable[Place]) -> list[FoundText]:
        texts: list[FoundText] = []
        left = _MOST_CHARACTERS
        for place in places:
            for text in self._readable([place]):
                left -= sum(map(len, text.lines))
                if left < 0:
                    self._found.notes.append("[only the first 50 MB of the files were searched]")
                    return texts
                if not any("\0" in line for line in text.lines):
                    texts.append(text)
        return texts


def _report(found: Found, context: int) -> str:
    if not found.texts:
        return "\n".join(("No matches.", *found.notes))
    lines: list[str] = []
    room = RESULT_LIMIT - _NOTE_ROOM
    for text in sorted(found.texts.values(), key=lambda text: text.place.shown):
        for line in _block(text, context):
            room -= len(line) + 1
            if room < 0:
                found.notes.insert(0, f"[cut: {found.total} matching lines in {len(found.texts)} files]")
                return "\n".join((*lines, *found.notes)).strip("\n")
            lines.append(line)
    return "\n".join((*lines, *found.notes)).strip("\n")


def _block(text: FoundText, context: int) -> list[str]:
    near = {n for number in text.numbers for n in range(number - context, number + context + 1)}
    lines = ["", visible(shown_name(text.place.shown))]
    last = 0
    for number in sorted(n for n in near if 1 <= n <= len(text.lines)):
        if context and last and number != last + 1:
            lines.append("--")
        raw = text.lines[number - 1].rstrip("\r\n")
        line = visible(raw[: _LONGEST_LINE + 1])
        if len(line) > _LONGEST_LINE:
            line = f"{line[:_LONGEST_LINE]} [line cut]"
        lines.append(f"{number}{':' if number in text.numbers else '-'} {line}")
        last = number
    return lines
