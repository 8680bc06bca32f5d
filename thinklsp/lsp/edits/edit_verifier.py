"""Verification that sent edits appear in the open documents or on disk.

The editor's answer is not sufficient, because some editors answer `applied: true` after applying only part of an edit
or nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thinklsp.core.errors import PathRefused
from thinklsp.engine.merge_plan import MergedFile, build_sent_edit
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.edit_comparison import EditComparison, ObservedFile, compare_edit
from thinklsp.workspace.merge import is_equal_ignoring_format
from thinklsp.workspace.uri import normalize_uri
from thinklsp.workspace.view import WorkspaceView

# The maximum time to wait for changes. Editors may report a change after they answer: Neovim waits for 0.15 s. Later
# changes are detected when the pending edit is next offered.
_MAX_WAIT_SECONDS = 1.5
# The maximum time between the first and the last report about an edit.
_REST_SECONDS = 0.4
_MAX_TEXTS = 8
_CHECK_INTERVAL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class UnsavedFile:
    """A file that the editor opened for an edit and has not saved.

    `is_whole` is True if the user has not typed in the file.
    """

    uri: str
    path: str
    is_whole: bool


def build_unsaved_notices(files: Sequence[UnsavedFile]) -> tuple[str, ...]:
    """Return a notice that names the unsaved files, or an empty tuple if there are no files."""
    names = ", ".join(sorted(file.path for file in files))
    return (f"Changed but not saved: {names}. Save all files to keep the change.",) if files else ()


class EditVerifier:
    """The verifier for sent edits. Call `watch` before sending an edit. Only one edit is sent at a time."""

    def __init__(self, state: ConnectionState, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots
        # The texts of each document since the edit was sent, by normalized URI. Later texts may include the user's
        # changes.
        self._texts: dict[str, deque[str]] = {}
        # The documents that the editor opened for an edit, and those of them that were saved before the latest edit.
        self._opened_documents: set[str] = set()
        self._saved_documents: set[str] = set()
        state.documents.on_change.append(self._on_change)
        state.documents.on_close.append(lambda uri: self._opened_documents.discard(normalize_uri(uri)))

    def watch(self, files: Sequence[MergedFile]) -> None:
        states_by_key = {
            key: item.current for item in files if (key := normalize_uri(item.file.uri)) in self._opened_documents
        }
        disk = self._snapshots.create_disk_view()
        self._saved_documents = {
            key
            for key, now in states_by_key.items()
            if is_equal_ignoring_format(self._snapshots.read_disk(key, disk), now.text)
        }
        self._texts = {normalize_uri(item.file.uri): deque(maxlen=_MAX_TEXTS) for item in files}

    def find_unsaved(
        self, ready: Sequence[MergedFile], comparisons: Mapping[str, EditComparison]
    ) -> tuple[UnsavedFile, ...]:
        """Return the files that the editor opened for the edit and has not saved."""
        disk = self._snapshots.create_disk_view()
        files = []
        for item in ready:
            comparison = comparisons[item.file.uri]
            applied_part = comparison.applied_part
            document = (
                None if applied_part is None else self._state.documents.get(applied_part.new_uri or applied_part.uri)
            )
            if applied_part is None or document is None:
                continue
            if item.current.version is not None and normalize_uri(item.file.uri) not in self._saved_documents:
                continue
            self._opened_documents.add(normalize_uri(document.uri))
            if not is_equal_ignoring_format(self._snapshots.read_disk(document.uri, disk), document.text):
                is_whole = comparison.missing_part is None and is_equal_ignoring_format(document.text, item.after)
                files.append(UnsavedFile(document.uri, applied_part.new_path or applied_part.path, is_whole))
        return tuple(files)

    def _on_change(self, uri: str) -> None:
        texts, document = self._texts.get(normalize_uri(uri)), self._state.documents.get(uri)
        if texts is not None and document is not None:
            texts.append(document.text)

    async def check_applied(self, ready: Sequence[MergedFile], *, exact: bool = False) -> dict[str, EditComparison]:
        """Compare an edit with the current state of its files and return the comparisons by URI.

        The comparison runs in a thread. If `exact` is True, the result makes no allowance for the user's own changes.
        """
        view = self._snapshots.create_view()
        observed = [self._observe_file(item, view, exact=exact) for item in ready]
        return await asyncio.to_thread(_compare_files, ready, observed, exact=exact)

    async def wait_until_applied(
        self, ready: Sequence[MergedFile], stop_waiting: asyncio.Event
    ) -> dict[str, EditComparison]:
        """Wait until an edit is applied, `stop_waiting` is set or a timeout expires. Return the comparisons by URI."""
        end = time.monotonic() + _MAX_WAIT_SECONDS
        comparisons: dict[str, EditComparison] = {}
        waiting = tuple(ready)
        applied_count = 0
        while True:
            self._state.documents.change_event.clear()
            comparisons |= await self.check_applied(waiting)
            waiting = tuple(item for item in waiting if comparisons[item.file.uri].missing_part is not None)
            if (count := _count_applied(comparisons)) > applied_count:
                applied_count, end = count, min(end, time.monotonic() + _REST_SECONDS)
            if not waiting or stop_waiting.is_set() or time.monotonic() > end:
                return comparisons
            await self._wait_for_change(stop_waiting)

    async def _wait_for_change(self, stop_waiting: asyncio.Event) -> None:
        """Wait until a document changes or the next check of the disk is due."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._state.documents.change_event, stop_waiting)]
        try:
            await asyncio.wait(waits, timeout=_CHECK_INTERVAL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _observe_file(self, item: MergedFile, view: WorkspaceView, *, exact: bool) -> tuple[ObservedFile, ...]:
        file, disk = item.file, self._snapshots.create_disk_view()
        current_text = self._snapshots.read_text(file.uri, view)
        if file.after is None:
            return (ObservedFile((current_text or "") if _is_on_disk(disk, file.uri) else None),)
        if file.new_uri is not None:
            new_text = self._snapshots.read_text(file.new_uri, view)
            is_moved = new_text is not None and not _is_on_disk(disk, file.uri)
            return (ObservedFile(new_text if is_moved else current_text, is_moved),)
        earlier = () if exact else self._texts.get(normalize_uri(file.uri), ())
        return (ObservedFile(current_text), *map(ObservedFile, earlier))


def _compare_files(
    ready: Sequence[MergedFile], observed: Sequence[Sequence[ObservedFile]], *, exact: bool
) -> dict[str, EditComparison]:
    """Compare each file's recent texts with the edit. Return, by URI, the comparison with the most applied hunks."""
    return {
        item.file.uri: max(
            (compare_edit(build_sent_edit(item), text, exact=exact) for text in file_texts),
            key=lambda arrival: arrival.hunks.applied,
        )
        for item, file_texts in zip(ready, observed, strict=True)
    }


def _count_applied(comparisons: Mapping[str, EditComparison]) -> int:
    return sum(arrival.hunks.applied + (arrival.applied_part is not None) for arrival in comparisons.values())


def _is_on_disk(disk: WorkspaceView, uri: str) -> bool:
    try:
        return disk.find_kind(disk.locate(uri)) is not None
    except PathRefused:
        return False
