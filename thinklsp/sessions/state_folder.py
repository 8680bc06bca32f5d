"""The folder where the program keeps what is its own: logs, and the session store. Light, so that the server may
import it before it answers `initialize`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from platformdirs import user_state_dir

LOG_NAME = "thinklsp.log"
STORE = os.path.join("sessions", "sessions.db")


def state_folder(environment: Mapping[str, str]) -> str:
    """Always absolute: a relative one would lie in whatever folder an editor was started in, perhaps a repository."""
    given = os.path.expanduser(environment.get("THINKLSP_STATE_DIR", "").strip())
    return given if os.path.isabs(given) else user_state_dir("thinklsp", appauthor=False)


@dataclass(frozen=True, slots=True)
class StateReport:
    """`problems` are sentences that each name their fix. `log_bytes` None: no log has been written yet. `store`: where
    sessions are kept, or would be."""

    folder: str
    exists: bool
    log: str
    log_bytes: int | None
    store: str
    store_exists: bool
    problems: tuple[str, ...]


def inspect(folder: str) -> StateReport:
    """Looks at the folder and its log without changing either. What does not exist yet is no problem. What lies in it
    besides is looked at by `engine/own_files`."""
    log = os.path.join(folder, LOG_NAME)
    status, log_status = _status(folder), _status(log)
    problems = tuple(_folder_problems(folder, status))
    if status is not None and log_status is not None:
        problems += tuple(_private(f"The log {log}", log_status, f"chmod 600 {log}"))
    size = None if log_status is None else log_status.st_size
    store = os.path.join(folder, STORE)
    return StateReport(folder, status is not None, log, size, store, os.path.lexists(store), problems)


def unusable(folder: str) -> str | None:
    """Why nothing of value may be put into a folder that exists: somebody else could put something in its place."""
    status = os.lstat(folder.rstrip("/") or "/")
    if stat.S_ISLNK(status.st_mode):
        return f"The state folder {folder} is a link. Set THINKLSP_STATE_DIR to the folder that it leads to."
    if not stat.S_ISDIR(status.st_mode):
        return f"The state folder {folder} is not a folder. Move it away or set THINKLSP_STATE_DIR."
    if not is_mine(status):
        return f"The state folder {folder} belongs to another user. Set THINKLSP_STATE_DIR to a folder of yours."
    if status.st_mode & 0o022 and sys.platform != "win32":
        return f"The state folder {folder} can be changed by other users. Run chmod 700 {folder}."
    return None


def closed(folder: str) -> str | None:
    """Closes a folder that exists to other users: whoever can read it sees what is made in it, and when. Else why it is
    unusable. Raises OSError."""
    reason = unusable(folder)
    if reason is None and sys.platform != "win32" and os.lstat(folder).st_mode & 0o077:
        os.chmod(folder, 0o700)
    return reason


def is_mine(status: os.stat_result) -> bool:
    return sys.platform == "win32" or status.st_uid == os.getuid()


def _folder_problems(folder: str, status: os.stat_result | None) -> Iterator[str]:
    if status is None:
        above = folder
        while not os.path.exists(above):
            above = os.path.dirname(above) or "."
        if not os.access(above, os.W_OK | os.X_OK):
            yield f"The state folder {folder} cannot be made in {above}. Set THINKLSP_STATE_DIR to a folder of yours."
        return
    if not stat.S_ISDIR(status.st_mode):
        yield f"The state folder {folder} is not a folder. Move it away or set THINKLSP_STATE_DIR."
        return
    if os.path.islink(folder.rstrip("/")):
        yield f"The state folder {folder} is a link. Set THINKLSP_STATE_DIR to the folder that it leads to."
    yield from _private(f"The state folder {folder}", status, f"chmod 700 {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        yield f"The state folder {folder} cannot be written. Set THINKLSP_STATE_DIR to a folder of yours."


def _private(what: str, status: os.stat_result, command: str) -> Iterator[str]:
    if not is_mine(status):
        yield f"{what} belongs to another user. Set THINKLSP_STATE_DIR to a folder of yours."
    elif status.st_mode & 0o077 and sys.platform != "win32":
        yield f"{what} can be read by other users. Run {command}."


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
