"""What became of a sent edit, by what the open documents and the disk show. The editor's own word is not enough: some
answer `applied: true` after a part of an edit, or after none of it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thinklsp.core.errors import PathRefused
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.comparing import Arrival, Shown, compare
from thinklsp.lsp.edits.drafts import Proposal, sent
from thinklsp.workspace.forms import same_but_for_form
from thinklsp.workspace.uri import uri_key
from thinklsp.workspace.view import WorkspaceView

# Editors write files before they answer. Notifications may come later: Neovim holds them back for 0.15 s. What takes
# longer waits as a proposal, and is found there as soon as a document shows it.
_MAX_WAIT_SECONDS = 1.5
# Notifications about one edit come together: when a part of it is there, so is the rest, or it was left out.
_REST_SECONDS = 0.4
_MAX_TEXTS = 8
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class UnsavedFile:
    """`is_whole`: the text is the turn's, wholly and without anything that the user has typed."""

    uri: str
    path: str
    is_whole: bool


def unsaved_notices(files: Sequence[UnsavedFile]) -> tuple[str, ...]:
    """Return a sentence that names the files; none if there are none."""
    listed = ", ".join(sorted(file.path for file in files))
    return (f"Changed but not saved yet: {listed}. Save all files to keep the change.",) if files else ()


class Arrivals:
    """Edits are sent one after the other: `watch` begins with the next one."""

    def __init__(self, state: State, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots
        # By `uri_key`, texts that watched documents had since the edit was sent: the user may type on at once.
        self._texts: dict[str, deque[str]] = {}
        # By `uri_key`, documents that the editor opened for an edit, and those of them that were saved when the latest
        # edit was sent.
        self._opened: set[str] = set()
        self._saved: set[str] = set()
        state.documents.on_change.append(self._on_change)
        state.documents.on_close.append(lambda uri: self._opened.discard(uri_key(uri)))

    def watch(self, ready: Sequence[Proposal]) -> None:
        opened = {key: item.present for item in ready if (key := uri_key(item.file.uri)) in self._opened}
        disk = self._snapshots.disk()
        self._saved = {
            key for key, now in opened.items() if same_but_for_form(self._snapshots.on_disk(key, disk), now.text)
        }
        self._texts = {uri_key(item.file.uri): deque(maxlen=_MAX_TEXTS) for item in ready}

    def unsaved(self, ready: Sequence[Proposal], arrived: Mapping[str, Arrival]) -> tuple[UnsavedFile, ...]:
        """Return the files that the editor opened for the edit and has not saved."""
        disk = self._snapshots.disk()
        files = []
        for item in ready:
            arrival = arrived[item.file.uri]
            written = arrival.written
            document = None if written is None else self._state.documents.get(written.new_uri or written.uri)
            if written is None or document is None:
                continue
            if item.present.version is not None and uri_key(item.file.uri) not in self._saved:
                continue
            self._opened.add(uri_key(document.uri))
            if not same_but_for_form(self._snapshots.on_disk(document.uri, disk), document.text):
                is_whole = arrival.rest is None and same_but_for_form(document.text, item.after)
                files.append(UnsavedFile(document.uri, written.new_path or written.path, is_whole))
        return tuple(files)

    def _on_change(self, uri: str) -> None:
        texts, document = self._texts.get(uri_key(uri)), self._state.documents.get(uri)
        if texts is not None and document is not None:
            texts.append(document.text)

    async def now(self, ready: Sequence[Proposal], *, exact: bool = False) -> dict[str, Arrival]:
        """By URI, what can be seen of an edit. Large files are compared in a thread. `exact`: what the user may have
        typed counts for nothing.
        """
        view = self._snapshots.view()
        shown = [self._shown(item, view, exact=exact) for item in ready]
        return await asyncio.to_thread(_compared, ready, shown, exact=exact)

    async def awaited(self, ready: Sequence[Proposal], hurry: asyncio.Event) -> dict[str, Arrival]:
        """The same, as soon as everything can be seen, `hurry` is set, or nothing more is to be expected."""
        end = time.monotonic() + _MAX_WAIT_SECONDS
        arrived: dict[str, Arrival] = {}
        waiting = tuple(ready)
        seen = 0
        while True:
            self._state.documents.touched.clear()
            arrived |= await self.now(waiting)
            waiting = tuple(item for item in waiting if arrived[item.file.uri].rest is not None)
            if (shown := _shown_count(arrived)) > seen:
                seen, end = shown, min(end, time.monotonic() + _REST_SECONDS)
            if not waiting or hurry.is_set() or time.monotonic() > end:
                return arrived
            await self._touched(hurry)

    async def _touched(self, hurry: asyncio.Event) -> None:
        """Until a document changes, or until it is time to look at the disk again."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._state.documents.touched, hurry)]
        try:
            await asyncio.wait(waits, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _shown(self, item: Proposal, view: WorkspaceView, *, exact: bool) -> tuple[Shown, ...]:
        file, disk = item.file, self._snapshots.disk()
        here = self._snapshots.present(file.uri, view).text
        if file.after is None:
            return (Shown((here or "") if _is_on_disk(disk, file.uri) else None),)
        if file.new_uri is not None:
            there = self._snapshots.present(file.new_uri, view).text
            moved = there is not None and not _is_on_disk(disk, file.uri)
            return (Shown(there if moved else here, moved),)
        earlier = () if exact else self._texts.get(uri_key(file.uri), ())
        return (Shown(here), *map(Shown, earlier))


def _compared(ready: Sequence[Proposal], shown: Sequence[Sequence[Shown]], *, exact: bool) -> dict[str, Arrival]:
    """By URI, the text that shows most of the change counts."""
    return {
        item.file.uri: max(
            (compare(sent(item), one, exact=exact) for one in texts), key=lambda arrival: arrival.hunks.applied
        )
        for item, texts in zip(ready, shown, strict=True)
    }


def _shown_count(arrived: Mapping[str, Arrival]) -> int:
    return sum(arrival.hunks.applied + (arrival.written is not None) for arrival in arrived.values())


def _is_on_disk(disk: WorkspaceView, uri: str) -> bool:
    try:
        return disk.kind(disk.resolve(uri)) is not None
    except PathRefused:
        return False
