"""The paths of the workspace's files, for completion: looked for in a thread, kept for a while, and bounded."""

from __future__ import annotations

import asyncio
import time

from thinklsp.core.errors import PathRefused
from thinklsp.lsp.chats.completion import Names
from thinklsp.lsp.chats.mentions import can_be_mentioned
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.tools.read import FileWalk
from thinklsp.workspace.overlay import EditOverlay

_MOST_FILES = 20_000
_FRESH_SECONDS = 5.0
# Long enough for an ordinary folder, and nobody notices it.
_PATIENCE = 0.2


class FileNames:
    """Owns the last list. Ignored files are not in it, nor paths that no `@` can name."""

    def __init__(self, state: State, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots
        self._found: tuple[tuple[str, str], ...] = ()
        self._complete = False
        self._folders: frozenset[str] = frozenset()
        self._looked_at = -_FRESH_SECONDS
        self._looking: asyncio.Task[None] | None = None

    async def names(self, but_not: str) -> Names:
        """The names that are known a moment from now, without that of one document. Incomplete while they are being
        looked for."""
        folders = frozenset(self._state.folders)
        if folders != self._folders:
            self._folders, self._found, self._complete, self._looked_at = folders, (), False, -_FRESH_SECONDS
        if self._looking is None and time.monotonic() - self._looked_at > _FRESH_SECONDS:
            self._looking = self._state.spawn(self._look(folders))
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=_PATIENCE)
        paths = tuple(path for path, uri in self._found if uri != but_not)
        return Names(paths, self._complete)

    async def _look(self, folders: frozenset[str]) -> None:
        try:
            overlay = EditOverlay(self._snapshots.view())
            walk = FileWalk(overlay, overlay.view.resolve_folder(None), None, _MOST_FILES)
            places = await walk.run()
            # Where the folders have changed meanwhile, the next question looks again.
            if folders == self._folders:
                found = ((place.shown, place.uri) for place in places if can_be_mentioned(place.shown))
                self._found, self._complete = tuple(sorted(found)), walk.complete
        except PathRefused:
            self._found, self._complete = (), True
        finally:
            self._looked_at, self._looking = time.monotonic(), None
