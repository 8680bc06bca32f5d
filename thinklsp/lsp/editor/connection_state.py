"""The state of a connection. Handlers do not await while they change the state, and share only immutable values."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lsprotocol.types import Range

from thinklsp.core.bounded_dict import BoundedDict
from thinklsp.core.server_context import (
    LOCAL_IDENTITY,
    NO_OBSERVER,
    TENANT_VARIABLE,
    USER_VARIABLE,
    ClientIdentity,
    Observer,
)
from thinklsp.lsp.documents.open_documents import Documents, TrackedDiagnostic
from thinklsp.lsp.editor.client import Client
from thinklsp.sessions.state_folder import USERS_FOLDER, resolve_state_folder
from thinklsp.settings.config_files import find_config_path
from thinklsp.workspace.paths import compute_workspace_key
from thinklsp.workspace.uri import normalize_uri

T = TypeVar("T")

_log = logging.getLogger(__name__)
_MAX_KEYS = 10_000


class FileKeys:
    """The keys of the files of a connection. `find` reads only memory, because code actions may not wait for a disk."""

    def __init__(self) -> None:
        # The keys of the URIs that lead through links.
        self._keys: dict[str, str] = BoundedDict(_MAX_KEYS)

    def find(self, uri: str) -> str:
        normalized = normalize_uri(uri)
        return self._keys.get(normalized, normalized)

    def learn(self, uris: Iterable[str]) -> None:
        """Follow the links of URIs. Run this method in a thread if there are many of them."""
        for uri in uris:
            normalized, key = normalize_uri(uri), compute_workspace_key(uri)
            if key != normalized:
                self._keys[normalized] = key
            else:
                self._keys.pop(normalized, None)


@dataclass(slots=True)
class ActionContext:
    """The position in the user's latest code action request, used by commands without arguments.

    `diagnostics` contains the diagnostics that the editor sent with the request.
    """

    uri: str
    version: int
    range: Range
    diagnostics: tuple[TrackedDiagnostic, ...]


@dataclass(slots=True)
class ConnectionState:
    """The state of a connection.

    The client cannot open `private_folders` as a workspace. `last_location` is the newest action context outside chat
    documents. Mentions in chats refer to it. `is_stopped` is True if the connection is ending and accepts no new work.
    `is_draining` is True if it starts no new turn.
    """

    client: Client
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    identity: ClientIdentity = LOCAL_IDENTITY
    private_folders: tuple[str, ...] = ()
    documents: Documents = field(default_factory=Documents)
    file_keys: FileKeys = field(default_factory=FileKeys)
    last_action: ActionContext | None = None
    last_location: ActionContext | None = None
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    is_stopped: bool = False
    is_draining: bool = False
    observer: Observer = NO_OBSERVER
    _refresh_task: asyncio.Task[None] | None = None
    _is_refresh_due: bool = False

    def spawn(self, work: Coroutine[Any, Any, T], *, is_awaited: bool = False) -> asyncio.Task[T]:
        """Start a task that is cancelled when the connection ends.

        If `is_awaited` is True, the caller handles the task's errors.
        """
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard if is_awaited else self._remove_task)
        return task

    def _remove_task(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task failed", exc_info=error)

    def refresh_lenses(self) -> None:
        """Ask the editor to refresh its code lenses. Changes during a refresh trigger another refresh."""
        if self.client.features.refresh_lenses and not self.is_stopped:
            self._is_refresh_due = True
            if self._refresh_task is None or self._refresh_task.done():
                self._refresh_task = self.spawn(self._refresh_lenses())

    async def _refresh_lenses(self) -> None:
        while self._is_refresh_due:
            self._is_refresh_due = False
            await self.client.refresh_lenses()

    def stop(self) -> None:
        """Cancel every task of the connection."""
        self.is_stopped = True
        for task in list(self.tasks):
            task.cancel()


def build_client_environment(environment: Mapping[str, str], identity: ClientIdentity) -> dict[str, str]:
    """Return the environment of a client's engine.

    Each identified user has a state folder of their own, so that permissions, approvals and copies of files are not
    shared. The folder's name contains no part of the user's name. The user's key commands receive the names.
    """
    if identity == LOCAL_IDENTITY:
        return dict(environment)
    from hashlib import sha256  # noqa: PLC0415 - a server for one user hashes nothing

    # The names contain no control characters, so the separator makes the pair unique.
    name = sha256(f"{identity.tenant}\0{identity.user}".encode()).hexdigest()
    folder = os.path.join(resolve_state_folder(environment), USERS_FOLDER, name)
    return {
        **environment,
        "THINKLSP_STATE_DIR": folder,
        TENANT_VARIABLE: identity.tenant,
        USER_VARIABLE: identity.user,
    }


def list_private_folders(environment: Mapping[str, str], identity: ClientIdentity) -> tuple[str, ...]:
    """Return the folders of the server process that a client cannot open as a workspace.

    They contain the settings of the server and the data of its users. A user of a server for one user owns both.
    """
    if identity == LOCAL_IDENTITY:
        return ()
    return resolve_state_folder(environment), os.path.dirname(find_config_path(environment))
