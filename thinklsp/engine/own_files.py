"""Who can read and change what is kept of the user's: settings, permissions and the session store, for the doctor.

It changes nothing; the store tightens the modes of its own files when it is opened.
"""

from __future__ import annotations

import glob
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from thinklsp.core.errors import SettingsError
from thinklsp.sessions.state_folder import StateReport, is_mine
from thinklsp.settings import config_path
from thinklsp.settings.permissions import Permissions
from thinklsp.settings.toml_file import distrusted, read_text

# What stands in a user's file where it holds what others must not read: headers, or a password in an address.
_SECRET = ("headers", "@")


@dataclass(frozen=True, slots=True)
class OwnFile:
    """`mode` is octal, as chmod takes it. `mine`: it belongs to this user. `problem`: a sentence that names its fix."""

    path: str
    mode: str
    mine: bool
    problem: str | None

    def json(self) -> dict[str, Any]:
        return asdict(self)


def own_files(state: StateReport, environment: Mapping[str, str]) -> tuple[OwnFile, ...]:
    """Those that exist. Links are followed to the user's own files, which are often kept that way, and only there."""
    config = config_path(environment)
    found = [*_store(state.store), *_settings(config, "config.toml")]
    found += _settings(Permissions.beside(config).path, "permissions.toml")
    if (folder := _status(os.path.dirname(config), follow=True)) is not None:
        found.append(_told(os.path.dirname(config), folder, _folder_problem(os.path.dirname(config), folder)))
    return tuple(found)


def _store(database: str) -> Iterator[OwnFile]:
    """The folder of sessions, and the database with its logs and copies."""
    folder = os.path.dirname(database)
    for path in (folder, *sorted(glob.glob(f"{glob.escape(database)}*"))):
        status = _status(path)
        if status is not None:
            yield _told(path, status, _private(path, status))


def _private(path: str, status: os.stat_result) -> str | None:
    if not is_mine(status):
        return f"{path} belongs to another user. Set THINKLSP_STATE_DIR to a folder of yours."
    if status.st_mode & 0o077 and sys.platform != "win32":
        return f"{path} can be read by other users. Run chmod {700 if stat.S_ISDIR(status.st_mode) else 600} {path}."
    return None


def _settings(path: str, name: str) -> Iterator[OwnFile]:
    if (status := _status(path, follow=True)) is None or sys.platform == "win32":
        return
    problem = distrusted(status, path, name)
    if problem is None and status.st_mode & 0o044 and _holds_secrets(path, name):
        problem = f"Your {name} holds what may be secret and can be read by other users. Run chmod 600 {path}."
    yield _told(path, status, problem)


def _holds_secrets(path: str, name: str) -> bool:
    try:
        text = read_text(path, name)
    except SettingsError:
        return False
    return any(sign in text for sign in _SECRET)


def _folder_problem(path: str, status: os.stat_result) -> str | None:
    """Who can change a folder can put another file in the place of one in it."""
    if status.st_uid not in (os.getuid(), 0):
        return f"The folder {path} of your settings belongs to another user. Move your settings to one of your own."
    # In a sticky folder nobody moves the files of others.
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        return f"The folder {path} of your settings can be changed by other users. Run chmod 700 {path}."
    return None


def _told(path: str, status: os.stat_result, problem: str | None) -> OwnFile:
    return OwnFile(path, f"{stat.S_IMODE(status.st_mode):04o}", is_mine(status), problem)


def _status(path: str, *, follow: bool = False) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError:
        return None
