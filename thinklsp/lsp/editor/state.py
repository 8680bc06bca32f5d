"""What one connection knows. Changed by handlers between awaits only; everything handed down is a value."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from thinklsp.lsp import late
from thinklsp.lsp.documents.open_documents import Documents, Seen
from thinklsp.lsp.editor.client import Client
from thinklsp.lsp.protocol.dispatch import Protocol
from thinklsp.lsp.protocol.forms import Folder, Folders, Range
from thinklsp.settings.early import EarlyReading

if TYPE_CHECKING:
    from thinklsp.lsp.editor.checked_settings import CheckedSettings
    from thinklsp.lsp.editor.work_done import WorkDone
    from thinklsp.lsp.face import Face

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ActionContext:
    """Where the user last asked for code actions: what a command without arguments is about. `seen`: the problems that
    the editor told of there."""

    uri: str
    version: int
    range: Range
    seen: tuple[Seen, ...]


@dataclass(slots=True)
class State:
    """`early`: the reading of what code actions need of the user's file. `raw_configurations` are editor settings
    that came before the engine was loaded, oldest first. `starting`: the progress of each command that runs a turn, by
    token. `last_place` is the newest action context outside of chat documents: what a chat can refer to. `root`:
    the folder of a client that has named no list of folders. `stopped`: the connection ends, nothing new may
    begin."""

    protocol: Protocol
    client: Client
    early: EarlyReading
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    documents: Documents = field(default_factory=Documents)
    folders: dict[str, str] = field(default_factory=dict)
    root: str | None = None
    raw_configurations: list[object] = field(default_factory=list)
    last_action: ActionContext | None = None
    last_place: ActionContext | None = None
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    starting: dict[str | int, WorkDone] = field(default_factory=dict)
    stopped: bool = False
    _face: Face | None = None
    _checked: CheckedSettings | None = None
    _checked_count: int = 0
    _loading: asyncio.Task[Face] | None = None
    _refreshing: asyncio.Task[None] | None = None
    _lenses_are_old: bool = False

    @property
    def face(self) -> Face | None:
        """What runs turns, once it is loaded."""
        return self._face

    async def load_face(self) -> Face:
        """Loads the engine and its libraries: the first time in a thread, so that the editor is served meanwhile.

        Raises ThinkLspError while the user's file cannot be used; it may have been mended when somebody asks again.
        """
        if self._face is None:
            if self._loading is None:
                self._loading = asyncio.get_running_loop().create_task(self._load())
            loading = self._loading
            # Awaited from the side: a cancelled request must not stop the loading for all others.
            await asyncio.wait([loading])
            if loading.exception() is not None and self._loading is loading:
                self._loading = None
            return loading.result()
        return self._face

    async def _load(self) -> Face:
        checked = await self._check_settings()
        make = await asyncio.to_thread(late.face)
        self._face = make(self, checked)
        self.refresh_lenses()
        self.spawn(self._face.begin())
        return self._face

    async def _check_settings(self) -> CheckedSettings:
        """Tell at once what is wrong with the settings: the engine takes a second longer."""
        make, user = await asyncio.to_thread(late.checked_settings, self.environment)
        if self._checked is None:
            self._checked = make(self.client)
        self._checked.tell_problems(user)
        for raw in self.unchecked():
            self._checked.configure(raw, user)
        return self._checked

    def unchecked(self) -> list[object]:
        """Return the editor settings that came since the last call."""
        found = self.raw_configurations[self._checked_count :]
        self._checked_count += len(found)
        return found

    def spawn(self, work: Coroutine[Any, Any, Any], *, awaited: bool = False) -> asyncio.Task[Any]:
        """A task that belongs to the connection and ends with it. `awaited`: somebody else takes its errors."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard if awaited else self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task failed", exc_info=error)

    def refresh_lenses(self) -> None:
        """Has the editor ask for its lenses again: once for all changes until it has answered, and once after them."""
        if self.client.can.refresh_lenses and not self.stopped:
            self._lenses_are_old = True
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = self.spawn(self._refresh_lenses())

    async def _refresh_lenses(self) -> None:
        while self._lenses_are_old:
            self._lenses_are_old = False
            await self.client.refresh_lenses()

    def stop(self) -> None:
        """Ends every task of the connection."""
        self.stopped = True
        for task in list(self.tasks):
            task.cancel()

    def begin_with(self, folders: Sequence[Folder], root: Folder | None) -> None:
        """Set the folders of `initialize`. `root` counts until the client adds a folder."""
        self.root = None if root is None else root.uri
        self.folders = {folder.uri: folder.name for folder in (*folders, *([root] if root else ()))}

    def set_folders(self, changed: Folders) -> None:
        if changed.added and self.root is not None:
            self.folders.pop(self.root, None)
            self.root = None
        for folder in changed.removed:
            self.folders.pop(folder.uri, None)
        for folder in changed.added:
            self.folders[folder.uri] = folder.name
