"""Where the copies of a turn lie: a folder of its own in the state folder, gone when the turn has ended.

A server that was killed leaves its folder behind; the lock in it has gone with the server, and the next one clears it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NAME = "shadow"
_LOCK = "lock"
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# Set on a folder of an overlay that has taken the place of one below it.
_OPAQUE = "user.overlay.opaque"


class Ground:
    """Made on disk at once. Raises OSError. `nothing`: an empty file, to be shown in the place of others."""

    def __init__(self, state_folder: str) -> None:
        above = os.path.join(state_folder, _NAME)
        os.makedirs(above, mode=0o700, exist_ok=True)
        self.path = os.path.join(above, secrets.token_hex(8))
        # One at a time, or another server would take for left behind what is not locked yet.
        with _alone(above):
            _clear_left_behind(above)
            os.mkdir(self.path, 0o700)
            self._lock = os.open(os.path.join(self.path, _LOCK), _NEW, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.nothing = os.path.join(self.path, "nothing")
        os.close(os.open(self.nothing, _NEW, 0o444))

    def folder(self, *names: str) -> str:
        """A folder in it, made if need be."""
        path = os.path.join(self.path, *names)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def file(self, data: bytes, *names: str) -> str:
        """A file in it that holds `data`, readable only."""
        path = os.path.join(self.folder(*names[:-1]), names[-1])
        with suppress(FileNotFoundError):
            os.unlink(path)
        with open(os.open(path, _NEW, 0o444), "wb") as file:
            file.write(data)
        return path

    def close(self) -> None:
        remove(self.path)
        os.close(self._lock)


def remove(path: str) -> None:
    """All of a folder, whatever modes the commands in it have given to what they made, and however deep that is: each
    folder is brought up before it is emptied. What cannot be removed is left for the next server."""
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        for entry in _listed(folder):
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                os.chmod(entry.path, 0o700)
                above = os.path.join(path, secrets.token_hex(8))
                os.rename(entry.path, above)
                waiting.append(above)
        if folder != path:
            with suppress(OSError):
                os.rmdir(folder)
    with suppress(OSError):
        os.rmdir(path)


def _listed(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


Seen = dict[str, tuple[int, int, int, int]]


def seen(folder: str) -> Seen:
    """What lies in a folder, by path below it: what tells whether it has been changed since. Of folders only those that
    have taken the place of others, and no path that is too long to be opened."""
    found: Seen = {}
    waiting = [""]
    while waiting:
        above = waiting.pop()
        for entry in _listed(os.path.join(folder, above)):
            path = f"{above}{entry.name}"
            with suppress(OSError):
                state = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(state.st_mode):
                    waiting.append(f"{path}/")
                    if not _replaces(entry.path):
                        continue
                found[path] = (state.st_mode, state.st_size, state.st_mtime_ns, state.st_ino)
    return found


def _replaces(folder: str) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


@contextmanager
def _alone(above: str) -> Iterator[None]:
    lock = os.open(os.path.join(above, _LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _clear_left_behind(above: str) -> None:
    for entry in _listed(above):
        if not entry.is_dir(follow_symlinks=False):
            continue
        try:
            lock = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            # Its server came to its end before it was locked, or while it was removed.
            remove(entry.path)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(entry.path)
        except OSError:
            pass
        finally:
            os.close(lock)
