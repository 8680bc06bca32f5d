"""Where the copies of a turn lie: a folder of its own in the state folder, gone when the turn has ended.

A server that was killed leaves its folder behind; the lock in it has gone with the server, and the next one clears it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress

_NAME = "shadow"
_LOCK = "lock"


class Ground:
    """Made on disk at once. Raises OSError. `nothing`: an empty file, to be shown in the place of others."""

    def __init__(self, state_folder: str) -> None:
        above = os.path.join(state_folder, _NAME)
        os.makedirs(above, mode=0o700, exist_ok=True)
        _clear_left_behind(above)
        self.path = os.path.join(above, secrets.token_hex(8))
        os.mkdir(self.path, 0o700)
        self._lock = os.open(os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.nothing = os.path.join(self.path, "nothing")
        os.close(os.open(self.nothing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))

    def folder(self, *names: str) -> str:
        """A folder in it, made if need be."""
        path = os.path.join(self.path, *names)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def close(self) -> None:
        remove(self.path)
        os.close(self._lock)


def remove(path: str) -> None:
    """All of a folder, whatever modes the commands in it have given to what they made."""
    for folder, names, _ in os.walk(path):
        for name in names:
            below = os.path.join(folder, name)
            with suppress(OSError):
                if stat.S_ISDIR(os.lstat(below).st_mode):
                    os.chmod(below, 0o700)
    shutil.rmtree(path, ignore_errors=True)


Seen = dict[str, tuple[int, int, int, int]]


def seen(folder: str) -> Seen:
    """What lies in a folder, by path below it: what tells whether it has been changed since."""
    return dict(_entries(folder, ""))


def _entries(folder: str, above: str) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        path = f"{above}{entry.name}"
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode):
            yield from _entries(entry.path, f"{path}/")
        else:
            yield path, (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ino)


def _clear_left_behind(above: str) -> None:
    for name in os.listdir(above):
        path = os.path.join(above, name)
        try:
            lock = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(path)
        except OSError:
            pass
        finally:
            os.close(lock)
