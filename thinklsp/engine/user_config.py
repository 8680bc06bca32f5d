"""The user's settings file, the objects that are built from it, and checks of file permissions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from thinklsp.core.choices import read_log_level
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.server_context import LOCAL_IDENTITY, ClientIdentity
from thinklsp.http.routes import load_default_trust, load_libraries
from thinklsp.http.transport import Transport
from thinklsp.providers.catalogue import Catalogue, find_model
from thinklsp.sessions.state_folder import resolve_state_folder
from thinklsp.settings.config_files import FileStamp, find_config_path, read_file_stamp
from thinklsp.settings.model import KEYED_PROVIDERS
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.settings.sources import load_user_settings
from thinklsp.settings.user_file import UserSettings
from thinklsp.tools.registry import TOOLS, build_tool_specs
from thinklsp.workspace.protected import ProtectedPaths

_QUIET_SECONDS = 0.05
_MAX_WAITS = 10


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """The settings, catalogue and transport of a turn. They do not change while the turn runs."""

    user: UserSettings
    catalogue: Catalogue
    transport: Transport


def locate_permissions(user: UserSettings, identity: ClientIdentity) -> PermissionsFile:
    """Return the file with the permissions that a user has given.

    It is beside the settings file. On a server for several users, which share the settings file, it is in the state
    folder of each user.
    """
    if identity == LOCAL_IDENTITY:
        return PermissionsFile.locate_beside(user.path)
    return PermissionsFile.locate_in(resolve_state_folder(user.environment))


class UserConfig:
    """The user's settings file. The engine calls `refresh` before each turn to reload a changed file.

    `problem` explains why a changed file is not used. If set, `on_change` receives the problems each time the file is
    reloaded. Raises SettingsError if the file cannot be used.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._path = find_config_path(environment)
        # Read the file stamp first, so that `refresh` detects a change that happens while the file is read.
        self._stamp = read_file_stamp(self._path)
        user, catalogue = _read_settings(environment)
        self._transports = [_create_transport(user)]
        self._refresh_lock = asyncio.Lock()
        self.problem: str | None = None
        self.on_change: Callable[[Sequence[str]], None] | None = None
        self.current = self._build_snapshot(user, catalogue)

    async def aclose(self) -> None:
        for transport in self._transports:
            await transport.aclose()

    async def refresh(self) -> tuple[str, ...]:
        """Reload the settings file if it has changed, without blocking the event loop.

        Returns new problems, or the reason why the previous settings stay in effect. If `on_change` is set, it receives
        these messages instead.
        """
        async with self._refresh_lock:
            stamp = await asyncio.to_thread(read_file_stamp, self._path)
            if stamp == self._stamp:
                return ()
            self._stamp = await self._wait_until_stable(stamp)
            problems = await self._read_again()
            if self.on_change is None:
                return problems
            self.on_change(problems)
            return ()

    async def _read_again(self) -> tuple[str, ...]:
        previous = self.current.user
        try:
            user, catalogue = await asyncio.to_thread(_read_settings, previous.environment)
        except ThinkLspError as error:
            self.problem = f"{error} Your previous settings stay in effect."
            return (self.problem,)
        if user.file.network != previous.file.network:
            # Running turns may still use the previous transport, so it stays open until the engine closes.
            self._transports.append(_create_transport(user))
        self.problem = None
        self.current = self._build_snapshot(user, catalogue)
        return tuple(problem for problem in user.problems if problem not in previous.problems)

    async def _wait_until_stable(self, stamp: FileStamp) -> FileStamp:
        """Wait until the settings file stops changing, because some editors empty a file before writing to it."""
        for _ in range(_MAX_WAITS):
            await asyncio.sleep(_QUIET_SECONDS)
            previous, stamp = stamp, await asyncio.to_thread(read_file_stamp, self._path)
            if stamp == previous:
                break
        return stamp

    def _build_snapshot(self, user: UserSettings, catalogue: Catalogue) -> ConfigSnapshot:
        logging.getLogger("thinklsp").setLevel((read_log_level(user.environment) or user.file.log.level).upper())
        return ConfigSnapshot(user, catalogue, self._transports[-1])


def _read_settings(environment: Mapping[str, str]) -> tuple[UserSettings, Catalogue]:
    user = load_user_settings(environment)
    return user, Catalogue({str(name): rows for name, rows in user.file.models.items()})


def _create_transport(user: UserSettings) -> Transport:
    return Transport(proxy=user.file.network.proxy, ca_bundle=user.file.network.ca_bundle)


def warm_up() -> None:
    """Load the data and libraries that every first turn needs.

    This function blocks, so do not call it on the event loop. Repeated calls are cheap.
    """
    build_tool_specs(TOOLS)
    for provider in KEYED_PROVIDERS:
        find_model(provider, "")
    ProtectedPaths()
    load_default_trust()
    load_libraries()
