"""The files, selections and diagnostics that `@` mentions add to a prompt, and the file names for completion.

File names are collected in a thread, limited in number, and cached for a few seconds.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from thinklsp.core.check_results import FileDiagnostics
from thinklsp.core.errors import PathRefused
from thinklsp.core.prompt_syntax import NameList, can_be_mentioned, find_special_mentions
from thinklsp.engine import Reference
from thinklsp.engine.turn_request import find_file_references
from thinklsp.lsp.editor.arguments import find_latest_location, to_line_numbers
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.tools.read import FileWalk
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import WorkspaceView

_CONTEXT_LINES = 3
_MAX_FILES = 20_000
_FRESH_SECONDS = 5.0
# The scan timeout, which is long enough for an ordinary folder and too short for the user to notice.
_MAX_WAIT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class PromptContext:
    """The context that a prompt includes. `notices` contains a message for each mention that could not be resolved."""

    references: tuple[Reference, ...]
    diagnosed: FileDiagnostics | None = None
    notices: tuple[str, ...] = ()


def collect_context(prompt: str, view: WorkspaceView, state: ConnectionState) -> PromptContext:
    files, unresolved = find_file_references(prompt, view)
    references, notices = list(files), list(unresolved)
    diagnosed = None
    for word in find_special_mentions(prompt):
        if word == "selection":
            result: Reference | str = _find_selection(view, state)
        else:
            diagnosed, result = _find_diagnostics(view, state)
        if isinstance(result, str):
            notices.append(result)
        else:
            references.append(result)
    return PromptContext(tuple(dict.fromkeys(references)), diagnosed, tuple(notices))


def _find_selection(view: WorkspaceView, state: ConnectionState) -> Reference | str:
    place = find_latest_location(state)
    if place is None:
        return (
            "@selection was ignored: no code has been selected yet. Select code, request code actions there, and send "
            "again."
        )
    if place.range is None:
        return "@selection was ignored: the selected code has changed. Select the code again, and send again."
    if not _can_be_read(view, place.uri):
        return "@selection was ignored: its document is closed and is not a workspace file."
    return Reference(place.uri, to_line_numbers(place.range, place.line_count))


def _find_diagnostics(view: WorkspaceView, state: ConnectionState) -> tuple[FileDiagnostics | None, Reference | str]:
    place = find_latest_location(state)
    if place is None or not place.problems:
        return None, (
            "@diagnostics was ignored: no diagnostics are available. Request code actions on a diagnostic, and "
            "send again."
        )
    if not _can_be_read(view, place.uri):
        return None, "@diagnostics was ignored: their document is closed and is not a workspace file."
    lines = [problem.line for problem in place.problems]
    around = (max(1, min(lines) - _CONTEXT_LINES), max(lines) + _CONTEXT_LINES)
    return FileDiagnostics(view.resolve(place.uri).label, place.problems), Reference(place.uri, around)


def _can_be_read(view: WorkspaceView, uri: str) -> bool:
    try:
        return view.peek(view.resolve(uri)) is not None
    except PathRefused:
        return False


class FileNames:
    """The file names that complete an `@` mention, excluding ignored files and paths that cannot be mentioned."""

    def __init__(self, state: ConnectionState, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots
        self._paths: tuple[tuple[str, str], ...] = ()
        self._complete = False
        self._folders: frozenset[str] = frozenset()
        self._scanned_at = -_FRESH_SECONDS
        self._scan_task: asyncio.Task[None] | None = None

    async def list_names(self, excluded_uri: str) -> NameList:
        """Return the file names, excluding the given document, after at most 0.2 seconds.

        The list is incomplete while a scan is running.
        """
        folders = frozenset(self._state.documents.folders)
        if folders != self._folders:
            self._folders, self._paths, self._complete, self._scanned_at = folders, (), False, -_FRESH_SECONDS
        if self._scan_task is None and time.monotonic() - self._scanned_at > _FRESH_SECONDS:
            self._scan_task = self._state.spawn(self._scan(folders))
        if self._scan_task is not None:
            await asyncio.wait([self._scan_task], timeout=_MAX_WAIT_SECONDS)
        paths = tuple(path for path, uri in self._paths if uri != excluded_uri)
        return NameList(paths, self._complete)

    async def _scan(self, folders: frozenset[str]) -> None:
        try:
            overlay = EditOverlay(self._snapshots.create_view())
            walk = FileWalk(overlay, overlay.view.resolve_folder(None), None, _MAX_FILES)
            places = await walk.run()
            # Discard the names if the folders changed during the scan. The next request scans again.
            if folders == self._folders:
                names = ((place.label, place.uri) for place in places if can_be_mentioned(place.label))
                self._paths, self._complete = tuple(sorted(names)), walk.is_complete
        except PathRefused:
            self._paths, self._complete = (), True
        finally:
            self._scanned_at, self._scan_task = time.monotonic(), None
