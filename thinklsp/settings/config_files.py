"""The paths of the settings files, and reading and writing them. A file that other users can modify is not trusted."""

from __future__ import annotations

import fcntl
import os
import stat
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from platformdirs import user_config_path

from thinklsp.core.errors import SettingsError

_LOCK_POLL_SECONDS = 0.02

FileStamp = tuple[int, ...] | None


def make_private(folder: str) -> None:
    """Create a folder and its missing parents with mode 0700. Raises OSError.

    `os.makedirs` creates parents with a mode that depends on the umask, which could let other users replace the folder.
    """
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder.rstrip("/"))
    if above:
        make_private(above)
    # Another process may create the folder at the same time.
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)


def find_own_path(environment: Mapping[str, str], variable: str) -> str | None:
    """Return the path in an environment variable, or None if the variable is unset or the path is relative.

    A relative path depends on the folder in which the editor was started, which may be an untrusted repository.
    """
    path = os.path.expanduser(environment.get(variable, "").strip())
    return path if os.path.isabs(path) else None


def find_config_path(environment: Mapping[str, str]) -> str:
    """Return the path of the user's config.toml, which may not exist."""
    return find_own_path(environment, "THINKLSP_CONFIG") or str(user_config_path("thinklsp") / "config.toml")


def find_admin_path(environment: Mapping[str, str]) -> str:
    """Return the path of the administrator's file, which may not exist."""
    return find_own_path(environment, "THINKLSP_ADMIN_CONFIG") or "/etc/thinklsp/config.toml"


def locate_own_skills(config_path: str) -> str:
    """Return the folder of the user's own skills, which is beside config.toml and may not exist."""
    return os.path.join(os.path.dirname(config_path), "skills")


def has_own_skills(config_path: str) -> bool:
    """Return True if the folder of the user's own skills exists."""
    return os.path.isdir(locate_own_skills(config_path))


def shorten_home(path: str) -> str:
    """Return a path with `~` for the home folder."""
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def explain_unused_paths(environment: Mapping[str, str]) -> list[str]:
    """Return a message for the user for each environment variable with a relative path."""
    return [
        f"{variable} is ignored because it is a relative path, which could point into a folder that you open. Set "
        "it to a path that begins with / or ~/."
        for variable in ("THINKLSP_CONFIG", "THINKLSP_ADMIN_CONFIG", "THINKLSP_STATE_DIR")
        if environment.get(variable, "").strip() and find_own_path(environment, variable) is None
    ]


def read_toml(path: str, name: str) -> Mapping[str, Any]:
    """Parse a TOML file. Return an empty mapping if the file does not exist.

    Raises SettingsError. `name` is the name of the file in error messages.
    """
    try:
        return tomllib.loads(read_text(path, name))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError("config", f"Your {name} is not valid TOML: {error}.") from None


def read_text(path: str, name: str, max_bytes: int = 1_000_000) -> str:
    """Return the text of a file, or an empty string if the file does not exist. Raises SettingsError.

    The owner and the permissions are checked on the open file, so that the file cannot be replaced after the check.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise SettingsError("config", f"Your {name} cannot be read: {error.strerror}.") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
        os.close(descriptor)
        limit = f"{max_bytes // 1_000_000} MB"
        raise SettingsError("config", f"Your {name} is not a regular file of less than {limit}; move it away.")
    with os.fdopen(descriptor, "rb") as file:
        if (reason := explain_distrust(status, path, name)) is not None:
            raise SettingsError("config", reason)
        try:
            return file.read().decode()
        except UnicodeDecodeError as error:
            raise SettingsError("config", f"Your {name} is not valid UTF-8: {error}.") from None


def read_file_stamp(path: str) -> FileStamp:
    """Return a stamp that changes when the file changes, or None if the file does not exist.

    The stamp consists of the file's identity, size and modification times.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_dev, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def explain_distrust(status: os.stat_result, path: str, name: str) -> str | None:
    """Return a message for the user if a file is not trusted, or None if the file is trusted."""
    if status.st_uid not in (os.getuid(), 0):
        return f"Your {name} is ignored because it belongs to another user. Create your own file at {path}."
    if status.st_mode & 0o022:
        return f"Your {name} is ignored because other users can write to it. Run chmod 600 {path}."
    return None


@contextmanager
def lock_folder(folder: str, lock_timeout: float) -> Iterator[None]:
    """Lock a folder, so that only one process at a time writes its files.

    No separate lock file is needed, so none is left behind. Raises OSError, also if the lock is not free in time.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + lock_timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(_LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def replace_file(path: str, data: str | bytes, mode: int = 0o600) -> None:
    """Write a file as a whole, so that a crash leaves the old or the new content. Raises OSError."""
    temporary = f"{path}.{os.urandom(8).hex()}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
