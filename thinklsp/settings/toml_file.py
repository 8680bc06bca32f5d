"""Reads a settings file of the user's, and only one that nobody else could have written."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import SettingsError

Stamp = tuple[int, ...] | None


def read_toml(path: str, name: str) -> Mapping[str, Any]:
    """The file's content; empty when there is none. `name` is what people call it. Raises SettingsError."""
    try:
        return tomllib.loads(read_text(path, name))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError("config", f"Your {name} is not valid TOML: {error}.") from None


def read_text(path: str, name: str) -> str:
    """The same as it is written. One descriptor is checked and read, so that both see one file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise SettingsError("config", f"Your {name} cannot be read: {error.strerror}.") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > 1_000_000:
        os.close(descriptor)
        raise SettingsError("config", f"Your {name} is not a file of settings; move it away.")
    with os.fdopen(descriptor, "rb") as file:
        if (reason := distrusted(status, path, name)) is not None:
            raise SettingsError("config", reason)
        try:
            return file.read().decode()
        except UnicodeDecodeError as error:
            raise SettingsError("config", f"Your {name} is not valid TOML: {error}.") from None


def file_stamp(path: str) -> Stamp:
    """Return values that change with the file; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def distrusted(status: os.stat_result, path: str, name: str) -> str | None:
    """Why what stands in this file may not be the user's word, in sentences that name a fix."""
    if status.st_uid not in (os.getuid(), 0):
        return f"Your {name} is not used, because it belongs to another user. Put one of your own at {path}."
    if status.st_mode & 0o022:
        return f"Your {name} is not used, because other users can write it. Run chmod 600 {path}."
    return None
