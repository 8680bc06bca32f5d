"""The state folder, which contains logs and the session store.

The server imports this module before it answers `initialize`, so the module must load quickly.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from platformdirs import user_state_dir

LOG_NAME = "thinklsp.log"
STORE_PATH = os.path.join("sessions", "sessions.db")
# Contains a state folder for each user of a server for several users.
USERS_FOLDER = "users"


def resolve_state_folder(environment: Mapping[str, str]) -> str:
    """Return the absolute path of the state folder.

    A relative path in the environment is ignored, because it would depend on the editor's working folder, which may be
    a repository.
    """
    path = os.path.expanduser(environment.get("THINKLSP_STATE_DIR", "").strip())
    return path if os.path.isabs(path) else user_state_dir("thinklsp", appauthor=False)


@dataclass(frozen=True, slots=True)
class StateReport:
    """The status of the state folder. `problems` contains messages for the user, each of which suggests a fix.

    `log_bytes` is None if there is no log yet. `store` is the path of the session store, even if the store does not
    exist yet.
    """

    folder: str
    exists: bool
    log: str
    log_bytes: int | None
    store: str
    store_exists: bool
    problems: tuple[str, ...]


def inspect_state_folder(folder: str) -> StateReport:
    """Check the state folder and its log without changing them.

    A missing folder or log is not a problem.
    """
    log = os.path.join(folder, LOG_NAME)
    status, log_status = read_status(folder), read_status(log)
    problems = tuple(_find_folder_problems(folder))
    if status is not None and log_status is not None:
        problems += tuple(_check_private(f"The log {log}", log_status, f"chmod 600 {log}"))
    size = None if log_status is None else log_status.st_size
    store = os.path.join(folder, STORE_PATH)
    return StateReport(folder, status is not None, log, size, store, os.path.lexists(store), problems)


def find_safety_problem(folder: str) -> str | None:
    """Return the reason why an existing folder is unsafe, or None.

    A folder is unsafe if another user can replace files in it.
    """
    status = os.lstat(folder.rstrip("/") or "/")
    if stat.S_ISLNK(status.st_mode):
        return f"The state folder {folder} is a symbolic link. Set `THINKLSP_STATE_DIR` to the target of the link."
    if not stat.S_ISDIR(status.st_mode):
        return f"The state folder {folder} is not a folder. Move or rename it or set `THINKLSP_STATE_DIR`."
    if not is_owned(status):
        return f"The state folder {folder} belongs to another user. Set `THINKLSP_STATE_DIR` to your own folder."
    if status.st_mode & 0o022:
        return f"The state folder {folder} can be changed by other users. Run `chmod 700 {folder}`."
    return None


def restrict_access(folder: str) -> str | None:
    """Make an existing folder private.

    Return the reason if the folder is unsafe, or None. Raises OSError on failure.
    """
    reason = find_safety_problem(folder)
    if reason is None and os.lstat(folder).st_mode & 0o077:
        os.chmod(folder, 0o700)
    return reason


def is_owned(status: os.stat_result) -> bool:
    """Return True if this user owns the file."""
    return status.st_uid == os.getuid()


def _find_folder_problems(folder: str) -> Iterator[str]:
    if not os.path.lexists(folder.rstrip("/")):
        parent = folder
        while not os.path.exists(parent):
            parent = os.path.dirname(parent) or "."
        if not os.access(parent, os.W_OK | os.X_OK):
            problem = f"The state folder {folder} cannot be created in {parent}."
            yield f"{problem} Set `THINKLSP_STATE_DIR` to your own folder."
        return
    if (reason := find_safety_problem(folder)) is not None:
        yield reason
        return
    yield from _check_private(f"The state folder {folder}", os.lstat(folder), f"chmod 700 {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        yield f"The state folder {folder} is read-only. Set `THINKLSP_STATE_DIR` to your own folder."


def _check_private(subject: str, status: os.stat_result, command: str) -> Iterator[str]:
    if not is_owned(status):
        yield f"{subject} belongs to another user. Set `THINKLSP_STATE_DIR` to your own folder."
    elif status.st_mode & 0o077:
        yield f"{subject} can be read by other users. Run `{command}`."


def read_status(path: str, *, follow: bool = True) -> os.stat_result | None:
    """Return the status of a file or folder, or None if it cannot be read. `follow` decides about links."""
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError:
        return None
