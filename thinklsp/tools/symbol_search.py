"""Definitions and references by syntax: the names that a search finds, in texts that a grammar has read.

It knows names and not types. So what it finds is put in order by what is likely to be meant: the scope around the
place that was asked about, what its file imports, its folder, the rest.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from thinklsp.symbols.answers import definition_rows, mention_lines, symbol_of
from thinklsp.symbols.languages import Language, language_of
from thinklsp.symbols.outline import Symbol
from thinklsp.tools.search import FoundText, SearchText, SearchTextArguments
from thinklsp.tools.threads import in_thread
from thinklsp.workers.pool import WorkFailed, run_in_worker
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.relpath import quoted
from thinklsp.workspace.view import Place

_SECONDS = 10.0
FILE_SECONDS = 3.0
"""Time limit of one file: its grammar needs 0.3 s for the largest ordinary ones."""
_MOST_FILES = 300
_IMPORT = re.compile(r"\s*(?:import|from|export|use|using|mod|include|#\s*include|source|\")|.*\brequire")
_WORD = re.compile(r"[\w$]+")
# Files that stand for the folder they are in.
_FOLDER_FILES = {"__init__", "index", "mod", "lib", "main"}


@dataclass(frozen=True, slots=True)
class Asked:
    """The name `name` on `line` of `text`. `qualifier`: what stands before its dot, arrow or colons."""

    place: Place
    text: str
    line: int
    name: str
    qualifier: str = ""


@dataclass(slots=True)
class Hits:
    """What one search has found so far, the likeliest first: definitions with their symbol, references without."""

    found: list[tuple[Place, int, Symbol | None]] = field(default_factory=list)
    lines: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def language_at(place: Place, text: str, overlay: EditOverlay) -> Language | None:
    return language_of(place.shown, text, overlay.view.language_id(overlay.origin(place)))


class SymbolSearch:
    """One question about a name. Owned by one call."""

    def __init__(self, asked: Asked, overlay: EditOverlay, search: SearchText) -> None:
        self._asked = asked
        self._overlay = overlay
        self._search = search
        self._language: Language | None = None
        self._imported: frozenset[str] = frozenset()

    def _look(self) -> None:
        """Look at the text that was asked about."""
        asked = self._asked
        self._language = language_at(asked.place, asked.text, self._overlay)
        imports = (line for line in asked.text.splitlines() if _IMPORT.match(line))
        self._imported = frozenset(word for line in imports for word in _WORD.findall(line))

    async def definitions(self) -> Hits:
        return await self._run(self._add_definitions)

    async def references(self) -> Hits:
        return await self._run(self._add_references)

    async def _run(self, add: Callable[[Hits, FoundText], Awaitable[None]]) -> Hits:
        hits = Hits()
        try:
            async with asyncio.timeout(_SECONDS):
                for text in await self._texts(hits):
                    await add(hits, text)
        except TimeoutError:
            hits.notes.append(f"[stopped after {_SECONDS:.0f} s; there may be more]")
        if hits.unread:
            hits.notes.append(f"[no grammar could read {', '.join(map(quoted, hits.unread[:10]))} in time]")
        return hits

    async def _texts(self, hits: Hits) -> list[FoundText]:
        """The texts that hold the name, the one that was asked about first."""
        asked = self._asked
        await in_thread(self._look)
        pattern = re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", re.escape(asked.name))
        found = await self._search.find(SearchTextArguments(pattern=pattern), self._overlay)
        hits.notes += [note for note in found.notes if not note.startswith("[searched")]
        others = sorted((text for key, text in found.texts.items() if key != asked.place.key), key=self._rank)
        if len(others) > _MOST_FILES:
            hits.notes.append(f"[looked at {_MOST_FILES} of {len(others)} files that hold the name]")
        return [await in_thread(self._own, re.compile(pattern)), *others[:_MOST_FILES]]

    def _own(self, name: re.Pattern[str]) -> FoundText:
        """The search leaves out ignored files and documents outside of all folders."""
        own = FoundText(self._asked.place, self._asked.text)
        own.numbers |= {number for number, line in enumerate(own.lines, 1) if name.search(line)}
        return own

    def _rank(self, text: FoundText) -> tuple[int, str]:
        parts = text.place.shown.split("/")
        stem = parts[-1].partition(".")[0]
        if stem in _FOLDER_FILES and len(parts) > 1:
            stem = parts[-2]
        if stem in self._imported:
            return 0, text.place.shown
        return (1 if parts[:-1] == self._asked.place.shown.split("/")[:-1] else 2), text.place.shown

    def _related(self, text: FoundText) -> tuple[str, Language | None, bool]:
        """The whole text, its language, and whether names of it can mean ours."""
        whole = "".join(text.lines)
        language = language_at(text.place, whole, self._overlay)
        own = self._language
        return whole, language, language is None or own is None or language.family == own.family

    async def _add_definitions(self, hits: Hits, text: FoundText) -> None:
        whole, language, related = await in_thread(self._related, text)
        if language is None or not related:
            return
        line = self._asked.line if text.place.key == self._asked.place.key else 0
        try:
            rows = await run_in_worker(FILE_SECONDS, definition_rows, whole, language.name, self._asked.name, line)
        except WorkFailed:
            hits.unread.append(text.place.shown)
            return
        hits.found += [(text.place, each.first_line, each) for each in map(symbol_of, rows)]
        hits.lines[text.place.key] = text.lines
        # Those of the type that is named before the dot go before all others.
        hits.found.sort(
            key=lambda hit: not (hit[2] and self._asked.qualifier and hit[2].container == self._asked.qualifier)
        )

    async def _add_references(self, hits: Hits, text: FoundText) -> None:
        whole, language, related = await in_thread(self._related, text)
        if not related:
            return
        numbers = sorted(text.numbers)
        if language is not None:
            try:
                numbers = await run_in_worker(FILE_SECONDS, mention_lines, whole, language.name, self._asked.name)
            except WorkFailed:
                hits.unread.append(text.place.shown)
        hits.found += [(text.place, number, None) for number in numbers]
        hits.lines[text.place.key] = text.lines
