"""Definitions and references by syntax: the names that a search finds, in texts that a grammar has read.

It knows names and not types. So what it finds is put in order by what is likely to be meant: the scope around the
place that was asked about, what its file imports, its folder, the rest.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from thinklsp.symbols.grammars import ParsingStopped, Stop
from thinklsp.symbols.languages import Language, language_of
from thinklsp.symbols.mentions import mentions
from thinklsp.symbols.outline import Symbol, outline
from thinklsp.tools.search import FoundText, SearchText, SearchTextArguments
from thinklsp.tools.threads import in_thread
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import Place

SECONDS = 10.0
_MOST_FILES = 300
_IMPORT = re.compile(r"\s*(?:import|from|export|use|using|mod|include|#\s*include|source|\")|.*\brequire")
_WORD = re.compile(r"[\w$]+")
# Files that stand for the folder they are in.
_FOLDER_FILES = {"__init__", "index", "mod", "lib", "main"}

Answer = TypeVar("Answer")


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


async def in_time(work: Callable[[Stop], Answer], seconds: float = SECONDS) -> Answer:
    """Runs work in a thread; `stop` turns true when the time is up or nobody waits any more. Raises ParsingStopped."""
    deadline, left = time.monotonic() + seconds, threading.Event()
    try:
        return await in_thread(work, lambda: left.is_set() or time.monotonic() > deadline)
    finally:
        left.set()


def language_at(place: Place, text: str, overlay: EditOverlay) -> Language | None:
    return language_of(place.shown, text, overlay.view.language_id(overlay.origin(place)))


class SymbolSearch:
    """One question about a name. Owned by one call."""

    def __init__(self, asked: Asked, overlay: EditOverlay, search: SearchText) -> None:
        self._asked = asked
        self._overlay = overlay
        self._search = search
        self._language = language_at(asked.place, asked.text, overlay)
        self._imported = {
            word
            for line in asked.text.splitlines()
            if _IMPORT.match(line)
            for word in _WORD.findall(line)
        }  # fmt: skip

    async def definitions(self) -> Hits:
        return await self._run(self._add_definitions)

    async def references(self) -> Hits:
        return await self._run(self._add_references)

    async def _run(self, add: Callable[[Hits, FoundText, Stop], None]) -> Hits:
        hits, begun = Hits(), time.monotonic()
        texts = await self._texts(hits)

        def work(stop: Stop) -> None:
            for text in texts:
                add(hits, text, stop)

        try:
            await in_time(work, SECONDS - (time.monotonic() - begun))
        except ParsingStopped:
            hits.notes.append(f"[stopped after {SECONDS:.0f} s; there may be more]")
        return hits

    async def _texts(self, hits: Hits) -> list[FoundText]:
        """The texts that hold the name, the one that was asked about first."""
        asked = self._asked
        pattern = re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", re.escape(asked.name))
        found = await self._search.find(SearchTextArguments(pattern=pattern), self._overlay)
        hits.notes += [note for note in found.notes if not note.startswith("[searched")]
        others = sorted((text for key, text in found.texts.items() if key != asked.place.key), key=self._rank)
        if len(others) > _MOST_FILES:
            hits.notes.append(f"[looked at {_MOST_FILES} of {len(others)} files that hold the name]")
        # Looked through here: the search leaves out ignored files and documents outside of all folders.
        own, name = FoundText(asked.place, asked.text), re.compile(pattern)
        own.numbers |= {number for number, line in enumerate(own.lines, 1) if name.search(line)}
        return [own, *others[:_MOST_FILES]]

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

    def _add_definitions(self, hits: Hits, text: FoundText, stop: Stop) -> None:
        whole, language, related = self._related(text)
        if language is None or not related:
            return
        symbols = outline(whole, language, stop)
        mine = text.place.key == self._asked.place.key
        around = [each for each in symbols if mine and each.first_line <= self._asked.line <= each.last_line]
        scopes = {each.name: each.depth for each in around}
        named = [each for each in symbols if each.name.rpartition("::")[2] == self._asked.name]
        named.sort(key=lambda each: -scopes.get(each.container, -1))
        hits.found += [(text.place, each.first_line, each) for each in named]
        hits.lines[text.place.key] = text.lines
        # Those of the type that is named before the dot go before all others.
        hits.found.sort(
            key=lambda hit: not (hit[2] and self._asked.qualifier and hit[2].container == self._asked.qualifier)
        )

    def _add_references(self, hits: Hits, text: FoundText, stop: Stop) -> None:
        whole, language, related = self._related(text)
        if not related:
            return
        numbers = sorted(text.numbers) if language is None else mentions(whole, language, self._asked.name, stop)
        hits.found += [(text.place, number, None) for number in numbers]
        hits.lines[text.place.key] = text.lines
