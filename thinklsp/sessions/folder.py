"""The store's own folder below the state folder: made and checked for its owner and modes, files set aside, locks.

Nothing here follows a link. It knows no SQL.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from thinklsp.core.errors import SessionError
from thinklsp.sessions.state_folder import STORE, closed, is_mine
from thinklsp.settings.own_folder import make_private

if sys.platform != "win32":
    import fcntl

_BESIDE = ("", "-wal", "-shm", "-journal")
_LOCKS = "locks"
# Windows has no such flag.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_RDWR | _NO_LINK
_NETWORK = re.compile(
    r"nfs4?|cifs|smb3|smbfs|9p|afs|ncpfs|coda|ceph|glusterfs|lustre|beegfs|gpfs|davfs|afpfs|fuse\.(sshfs|glusterfs|rclone)"
)


class FolderRefused(Exception):
    """`str(error)` is the sentence that says why nothing is kept there."""


def prepared(state_folder: str) -> str:
    """The folder `sessions` below it, private to this user. Raises FolderRefused."""
    folder = os.path.join(state_folder, "sessions")
    try:
        if not os.path.lexists(state_folder.rstrip("/")):
            make_private(state_folder)
        if (reason := closed(state_folder)) is not None:
            raise FolderRefused(reason)
        for path in (folder, os.path.join(folder, _LOCKS)):
            _private_folder(path)
    except OSError as error:
        raise FolderRefused(f"The folder {folder} cannot be used: {_reason(error)}.") from None
    return folder


def _private_folder(path: str) -> None:
    # Another store may be the first at the same moment.
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise FolderRefused(f"{path} is not a folder. Move it away.")
    if not is_mine(status):
        raise FolderRefused(f"{path} belongs to another user. Set THINKLSP_STATE_DIR to a folder of yours.")
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)


def prepared_database(folder: str, *, create: bool = True) -> str:
    """The path of the database. It exists then, is a plain file of this user, and nobody else can read it or what
    SQLite puts beside it (which gets the same mode). To be called under the opening lock. Raises FolderRefused."""
    path = os.path.join(folder, os.path.basename(STORE))
    try:
        if create and not os.path.lexists(path):
            # What a database that was taken away has left behind would be read as part of the new one.
            for beside in _BESIDE[1:]:
                Path(path + beside).unlink(missing_ok=True)
        for beside in _BESIDE:
            _private_file(path + beside)
        if create and not os.path.lexists(path):
            os.close(os.open(path, _NEW_FILE, 0o600))
    except FileExistsError:
        return prepared_database(folder, create=False)
    except OSError as error:
        raise FolderRefused(f"The session store {path} cannot be used: {_reason(error)}.") from None
    return path


def _private_file(path: str) -> None:
    """A file that is not there, or goes meanwhile, as a log does with the last store that uses it, is no problem."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        what = "a link" if stat.S_ISLNK(status.st_mode) else "not a file"
        raise FolderRefused(f"{path} is {what}. Move it away.")
    if not is_mine(status):
        raise FolderRefused(f"{path} belongs to another user. Set THINKLSP_STATE_DIR to a folder of yours.")
    if status.st_mode & 0o077:
        with suppress(FileNotFoundError):
            os.chmod(path, 0o600)


FileIds = tuple[tuple[int, int] | None, ...]


def file_ids(path: str) -> FileIds:
    """Device and number of the database and of what lies beside it; None for what is not there. While a database is
    open they stay as they are, unless somebody else takes files away. Raises OSError where it cannot be seen."""
    return tuple(_file_id(path + beside) for beside in _BESIDE[:3])


def size_of(path: str) -> int:
    """Bytes of the database and its log, as far as they can be seen."""
    size = 0
    for beside in _BESIDE[:2]:
        with suppress(OSError):
            size += os.lstat(path + beside).st_size
    return size


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def remove_left_behind(path: str, ids: FileIds) -> None:
    """Removes what still lies beside the place of a database that was taken from there."""
    for beside, known in zip(_BESIDE[1:3], ids[1:], strict=True):
        if known is not None and _file_id(path + beside) == known:
            Path(path + beside).unlink(missing_ok=True)


def set_aside(path: str) -> str:
    """Renames a damaged database, with what lies beside it, to a name that nothing else has."""
    stem = f"{path}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    target, number = stem, 1
    while os.path.lexists(target):
        number += 1
        target = f"{stem}-{number}"
    for beside in reversed(_BESIDE):
        if os.path.lexists(path + beside):
            os.rename(path + beside, target + beside)
    return target


def backup_path(path: str, version: int) -> str:
    return f"{path}.before-version-{version}"


def remove_backups(path: str) -> None:
    """Copies from before a migration hold what is deleted now."""
    for copy in Path(path).parent.glob(f"{Path(path).name}.before-version-*"):
        copy.unlink(missing_ok=True)


def private_copy(path: str) -> str:
    """A new empty file for a copy, in place of an older one."""
    Path(path).unlink(missing_ok=True)
    os.close(os.open(path, _NEW_FILE, 0o600))
    return path


def network_file_system(folder: str) -> str | None:
    """The type of the file system if it is one over a network, as far as the system tells."""
    try:
        mounts = Path("/proc/self/mounts").read_text("utf-8", "replace")
    except OSError:
        return None
    return network_mount(os.path.realpath(folder), mounts)


def network_mount(folder: str, mounts: str) -> str | None:
    """The same, given the system's table of mounts."""
    place, kind, longest = f"{folder}/", None, -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ").rstrip("/") + "/"
        # A later mount on the same place hides the former one.
        if place.startswith(mount) and len(mount) >= longest:
            longest, kind = len(mount), fields[2]
    return kind if kind is not None and _NETWORK.fullmatch(kind) else None


@contextmanager
def opening_lock(folder: str, patience: float) -> Iterator[None]:
    """Held while a database is opened, migrated or set aside, so that two programs do not do it to each other."""
    lock = None
    until = time.monotonic() + patience
    while (lock := _locked(os.path.join(folder, _LOCKS, "opening"))) is None:
        if time.monotonic() > until:
            raise FolderRefused(f"Another thinklsp has been opening the sessions in {folder} for long.")
        time.sleep(0.01)
    try:
        yield
    finally:
        os.close(lock)


class Leases:
    """Which sessions this store may write. A lease is a lock of the system's, so it ends with its process.

    Each costs a descriptor: beyond `most` the one that was used longest ago is given back.
    """

    def __init__(self, folder: str, most: int = 64) -> None:
        self._folder = os.path.join(folder, _LOCKS)
        self._most = most
        self._held: dict[str, int] = {}

    def take(self, session_id: str) -> bool:
        """False: it was held already. Raises SessionError while another process has it."""
        if session_id in self._held:
            if _guards(self._held[session_id], self._path(session_id)):
                self._held[session_id] = self._held.pop(session_id)
                return False
            # Its file was taken away, and others would make a new one.
            os.close(self._held.pop(session_id))
        lock = self._try(session_id)
        if lock is None:
            raise SessionError(
                f"This session is in use by another thinklsp{self._owner(session_id)}. Fork it or stop the other one."
            )
        if len(self._held) >= self._most:
            self.release(next(iter(self._held)))
        self._held[session_id] = lock
        return True

    def free(self, session_id: str) -> bool:
        """Whether no other process has it."""
        if session_id in self._held or not os.path.lexists(self._path(session_id)):
            return True
        lock = self._try(session_id)
        if lock is None:
            return False
        _unlocked(self._path(session_id), lock)
        return True

    def release(self, session_id: str) -> None:
        lock = self._held.pop(session_id, None)
        if lock is not None:
            _unlocked(self._path(session_id), lock)

    def close(self) -> None:
        for session_id in tuple(self._held):
            self.release(session_id)

    def _path(self, session_id: str) -> str:
        """Return the file of the lock. An id that a damaged store gives may be no name of a file."""
        is_name = session_id.isascii() and session_id.isalnum() and len(session_id) <= 64
        name = session_id if is_name else sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        return os.path.join(self._folder, name)

    def _try(self, session_id: str) -> int | None:
        lock = _locked(self._path(session_id))
        if lock is not None:
            # Only for a sentence: a full disk does not matter.
            with suppress(OSError):
                os.ftruncate(lock, 0)
                os.write(lock, str(os.getpid()).encode())
        return lock

    def _owner(self, session_id: str) -> str:
        try:
            number = Path(self._path(session_id)).read_text("utf-8")
        except (OSError, ValueError):
            return ""
        if number == str(os.getpid()):
            return " (another client of this server)"
        return f" (process {number})" if number.isdecimal() else ""


def leases_of(state_folder: str) -> Leases:
    return Leases(os.path.join(state_folder, "sessions"))


def _locked(path: str) -> int | None:
    """A descriptor that holds the lock; None while somebody else does. Raises OSError where no file can be made."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o600)
        if not _exclusive(descriptor):
            os.close(descriptor)
            return None
        # The last owner may have removed the file between our two calls.
        if _guards(descriptor, path):
            return descriptor
        os.close(descriptor)


def _guards(descriptor: int, path: str) -> bool:
    """Whether the lock's file still has its name: a lock on no name guards nothing."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _exclusive(descriptor: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlocked(path: str, descriptor: int) -> None:
    """The file goes first, while the lock is still held; another one of its name is somebody else's."""
    # In a folder that may not be written the file stays, which does no harm: the lock ends all the same.
    with suppress(OSError):
        if _guards(descriptor, path):
            Path(path).unlink(missing_ok=True)
    os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
