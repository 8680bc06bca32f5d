"""The user's settings file, the objects that are built from it, and checks of file permissions."""

from __future__ import annotations

import asyncio
import glob
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from thinklsp.core.choices import read_log_level
from thinklsp.core.client_identity import LOCAL_IDENTITY, ClientIdentity
from thinklsp.core.errors import SettingsError, ThinkLspError
from thinklsp.http.routes import load_default_trust, load_libraries
from thinklsp.http.transport import Transport
from thinklsp.providers.catalogue import Catalogue, find_model
from thinklsp.sessions.state_folder import StateReport, is_owned, resolve_state_folder
from thinklsp.settings.model import KeyedProvider
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.settings.private_paths import FileStamp, explain_distrust, find_config_path, read_file_stamp, read_text
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
    for provider in get_args(KeyedProvider):
        find_model(provider, "")
    ProtectedPaths()
    load_default_trust()
    load_libraries()


# Text that indicates a secret in the settings file: headers, or a password in a URL.
_SECRET_MARKERS = ("headers", "@")


def describe_own_files(
    state: StateReport, environment: Mapping[str, str], permissions: PermissionsFile | None = None
) -> list[dict[str, Any]]:
    """Describe the files that contain the user's settings and stored data.

    `mode` is octal, `mine` is true if the user owns the file, and `problem` suggests a fix. Links are followed only for
    settings files, because many users store these files elsewhere.
    """
    config = find_config_path(environment)
    files = [*_describe_store(state.store), *_describe_settings(config, "config.toml")]
    files += _describe_settings((permissions or PermissionsFile.locate_beside(config)).path, "permissions.toml")
    if (folder := _read_status(os.path.dirname(config), follow=True)) is not None:
        files.append(_describe_file(os.path.dirname(config), folder, _check_folder(os.path.dirname(config), folder)))
    return files


def _describe_store(database: str) -> Iterator[dict[str, Any]]:
    """Describe the state folder, and the database with its log files and backups."""
    folder = os.path.dirname(database)
    for path in (folder, *sorted(glob.glob(f"{glob.escape(database)}*"))):
        status = _read_status(path)
        if status is not None:
            yield _describe_file(path, status, _check_private(path, status))


def _check_private(path: str, status: os.stat_result) -> str | None:
    if not is_owned(status):
        return f"{path} belongs to another user. Set `THINKLSP_STATE_DIR` to a folder that you own."
    if status.st_mode & 0o077:
        return f"{path} can be read by other users. Run `chmod {700 if stat.S_ISDIR(status.st_mode) else 600} {path}`."
    return None


def _describe_settings(path: str, name: str) -> Iterator[dict[str, Any]]:
    if (status := _read_status(path, follow=True)) is None:
        return
    problem = explain_distrust(status, path, name)
    if problem is None and status.st_mode & 0o044 and _has_secrets(path, name):
        problem = f"Your {name} may contain secrets and can be read by other users. Run `chmod 600 {path}`."
    yield _describe_file(path, status, problem)


def _has_secrets(path: str, name: str) -> bool:
    try:
        text = read_text(path, name)
    except SettingsError:
        return False
    return any(sign in text for sign in _SECRET_MARKERS)


def _check_folder(path: str, status: os.stat_result) -> str | None:
    """Return an error message if other users can replace files in the folder."""
    if status.st_uid not in (os.getuid(), 0):
        return f"The settings folder {path} belongs to another user. Move your settings to a folder that you own."
    # In a sticky folder, users cannot replace each other's files.
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        return f"Other users can change the settings folder {path}. Run `chmod 700 {path}`."
    return None


def _describe_file(path: str, status: os.stat_result, problem: str | None) -> dict[str, Any]:
    mode = f"{stat.S_IMODE(status.st_mode):04o}"
    return {"path": path, "mode": mode, "mine": is_owned(status), "problem": problem}


def _read_status(path: str, *, follow: bool = False) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError:
        return None
