"""The files of the session store: its folder, the locks of sessions, and the long texts that sessions keep.

The functions in this module never follow symbolic links and never run SQL.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from thinklsp.core.errors import SessionError
from thinklsp.core.tool_type import KEPT_PATH_PREFIX, is_kept_path
from thinklsp.sessions.spending import BudgetCap, CapReached
from thinklsp.sessions.state_folder import STORE_PATH, is_owned, restrict_access
from thinklsp.settings.config_files import make_private

_SUFFIXES = ("", "-wal", "-shm", "-journal")
LOCK_FOLDER = "locks"
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_NETWORK = re.compile(
    r"nfs4?|cifs|smb3|smbfs|9p|afs|ncpfs|coda|ceph|glusterfs|lustre|beegfs|gpfs|davfs|afpfs|fuse\.(sshfs|glusterfs|rclone)"
)

_MAX_LOCKS = 64
# The limit of the texts that a session keeps.
MAX_SESSION_BYTES = 64 * 1024 * 1024
_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
FileIds = tuple[tuple[int, int] | None, ...]


class FolderRefused(Exception):
    """Raised if the folder cannot be used for the store. The message is shown to the user."""


def prepare_folder(state_folder: str) -> str:
    """Create the private folder `sessions` and return its path. Raises FolderRefused on failure."""
    folder = os.path.join(state_folder, "sessions")
    try:
        if not os.path.lexists(state_folder.rstrip("/")):
            make_private(state_folder)
        if (reason := restrict_access(state_folder)) is not None:
            raise FolderRefused(reason)
        for path in (folder, os.path.join(folder, LOCK_FOLDER)):
            # Another process may create the folder at the same time.
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
            _ensure_private(path, is_folder=True)
    except OSError as error:
        raise FolderRefused(f"The folder {folder} cannot be used: {_describe_error(error)}.") from None
    return folder


def prepare_database(folder: str, *, create: bool = True) -> str:
    """Create the database file if necessary, and return its path. Only this user can read the file.

    The caller must hold the opening lock. SQLite uses the same permissions for its log files. Raises FolderRefused if
    the path is not a regular file or belongs to another user.
    """
    path = os.path.join(folder, os.path.basename(STORE_PATH))
    try:
        if create and not os.path.lexists(path):
            # Remove the log files of a deleted database, because SQLite would apply them to the new database.
            for beside in _SUFFIXES[1:]:
                Path(path + beside).unlink(missing_ok=True)
        for beside in _SUFFIXES:
            _ensure_private(path + beside, is_folder=False)
        if create and not os.path.lexists(path):
            os.close(os.open(path, _NEW_FILE, 0o600))
    except FileExistsError:
        return prepare_database(folder, create=False)
    except OSError as error:
        raise FolderRefused(f"The session store {path} cannot be used: {_describe_error(error)}.") from None
    return path


def _ensure_private(path: str, *, is_folder: bool) -> None:
    """Make a file or a folder accessible only for this user.

    A file may be missing, because another process can remove a log file at any time.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not (stat.S_ISDIR if is_folder else stat.S_ISREG)(status.st_mode):
        is_link = stat.S_ISLNK(status.st_mode) and not is_folder
        problem = "a symbolic link" if is_link else f"not a {'folder' if is_folder else 'file'}"
        raise FolderRefused(f"{path} is {problem}. Move or rename it.")
    if not is_owned(status):
        raise FolderRefused(f"{path} belongs to another user. Set `THINKLSP_STATE_DIR` to your own folder.")
    if status.st_mode & 0o077:
        with suppress(FileNotFoundError):
            os.chmod(path, 0o700 if is_folder else 0o600)


def read_file_ids(path: str) -> FileIds:
    """Return the device and inode numbers of the database and its log files, or None for a missing file.

    The numbers change only if another program removes or replaces the files. Raises OSError if the folder cannot be
    read.
    """
    return tuple(_read_file_id(path + beside) for beside in _SUFFIXES[:3])


def measure_size(path: str) -> int:
    """Return the total size of the database and its log in bytes. Unreadable files are not counted."""
    size = 0
    for beside in _SUFFIXES[:2]:
        with suppress(OSError):
            size += os.lstat(path + beside).st_size
    return size


def _read_file_id(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def remove_left_behind(path: str, ids: FileIds) -> None:
    """Remove the log files of a database that has been renamed."""
    for beside, file_id in zip(_SUFFIXES[1:3], ids[1:], strict=True):
        if file_id is not None and _read_file_id(path + beside) == file_id:
            Path(path + beside).unlink(missing_ok=True)


def set_aside(path: str) -> str:
    """Rename a damaged database and its log files. Return the new path."""
    now = time.time_ns()
    target = f"{path}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now // 10**9))}-{now % 10**9:09}"
    for beside in reversed(_SUFFIXES):
        if os.path.lexists(path + beside):
            os.rename(path + beside, target + beside)
    return target


def build_backup_path(path: str, version: int) -> str:
    """Return the path of the backup made before a migration to `version`."""
    return f"{path}.before-version-{version}"


def remove_backups(path: str) -> None:
    """Remove the backups from before migrations, because they still contain deleted sessions."""
    for copy in Path(path).parent.glob(f"{Path(path).name}.before-version-*"):
        copy.unlink(missing_ok=True)


def create_private_copy(path: str) -> str:
    """Create an empty private file for a copy of the database. An existing file is replaced."""
    Path(path).unlink(missing_ok=True)
    os.close(os.open(path, _NEW_FILE, 0o600))
    return path


def find_network_file_system(folder: str) -> str | None:
    """Return the type of the folder's network file system, or None for a local file system."""
    try:
        mounts = Path("/proc/self/mounts").read_text("utf-8", "replace")
    except OSError:
        return None
    return find_network_mount(os.path.realpath(folder), mounts)


def find_network_mount(folder: str, mounts: str) -> str | None:
    """Return the type of the folder's network file system according to the mount table, or None."""
    place, kind, longest = f"{folder}/", None, -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ").rstrip("/") + "/"
        # A later mount replaces an earlier mount at the same path.
        if place.startswith(mount) and len(mount) >= longest:
            longest, kind = len(mount), fields[2]
    return kind if kind is not None and _NETWORK.fullmatch(kind) else None


@contextmanager
def hold_opening_lock(folder: str, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock for opening, migrating or renaming the database. Only one process can hold it."""
    lock = None
    until = time.monotonic() + timeout_seconds
    while (lock := lock_file(os.path.join(folder, LOCK_FOLDER, "opening"))) is None:
        if time.monotonic() > until:
            raise FolderRefused(f"Another thinklsp process is still opening the sessions in {folder}. Try again later.")
        time.sleep(0.01)
    try:
        yield
    finally:
        os.close(lock)


def _describe_error(error: OSError) -> str:
    return error.strerror or type(error).__name__


class Leases:
    """Leases on sessions. Only the process with the lease can change a session or apply its edits.

    A lease ends when no turn uses its session and no edit of the session waits for an answer. In this class, no other
    process can use the sessions. Subclasses know how a lease is taken and dropped.
    """

    def __init__(self) -> None:
        self._active_ids: set[str] = set()
        # The session id and the edit id of each edit that the editor has not answered yet.
        self._pending_edits: set[tuple[str, str]] = set()

    @property
    def must_renew(self) -> bool:
        """True if `renew` must be called before the leases end."""
        return False

    def take(self, session_id: str) -> None:
        """Acquire the lease on a session, but do not keep it longer than necessary.

        Raises SessionError if another process is using the session.
        """

    def _drop(self, session_id: str) -> None:
        """Release the lease on a session if this store holds it."""

    def check(self, session_id: str) -> None:
        """Raise SessionError if the lease on a session in use was lost."""

    def reserve(self, session_id: str, usd: float, caps: Sequence[BudgetCap]) -> CapReached | None:  # noqa: ARG002 - subclasses use the arguments
        """Check the lease and reserve the cost of a model call, or return a cap that it would exceed."""
        return None

    def find_in_use(self, session_ids: Iterable[str]) -> frozenset[str]:  # noqa: ARG002 - subclasses use the argument
        """Return the ids of the sessions that another process is using."""
        return frozenset()

    def renew(self) -> None:
        """Acquire the leases again after the folder was replaced, or extend them."""

    def close(self) -> None:
        """Release all leases."""

    def acquire(self, session_id: str) -> None:
        """Acquire the lease on a session until `release` is called.

        Raises SessionError if another process is using the session.
        """
        self.take(session_id)
        self._active_ids.add(session_id)

    def release(self, session_id: str) -> None:
        """Release the lease on a session, unless an edit is still waiting for the editor's response."""
        self._active_ids.discard(session_id)
        if session_id not in self._used_ids:
            self._drop(session_id)

    def hold_for_edit(self, session_id: str, edit: str) -> None:
        """Keep the lease on a session until the edit is settled."""
        self._pending_edits.add((session_id, edit))

    def settle_edit(self, session_id: str, edit: str) -> None:
        """Mark an edit as settled, and release the lease if the session is no longer in use."""
        self._pending_edits.discard((session_id, edit))
        if session_id not in self._used_ids:
            self._drop(session_id)

    def forget(self, session_id: str) -> None:
        """Release the lease on a deleted session."""
        self._pending_edits = {pair for pair in self._pending_edits if pair[0] != session_id}
        self.release(session_id)

    @property
    def _used_ids(self) -> frozenset[str]:
        return frozenset({*self._active_ids, *(session_id for session_id, _ in self._pending_edits)})


class FileLeases(Leases):
    """The leases of a store in a file.

    A lease is a file lock, so it ends with the process. `folder` contains the lock files. No lock file is created until
    `is_usable` returns True. To save file descriptors, the least recently used leases are released.
    """

    def __init__(self, folder: str, is_usable: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self._folder = folder
        self._is_usable = is_usable
        self._locks: dict[str, int] = {}

    def take(self, session_id: str) -> None:
        """Lock the session if the disk is writable. Raises SessionError if another process is using the session."""
        if not (self._locks or self._is_usable()):
            return
        path = self._build_path(session_id)
        if (held_lock := self._locks.pop(session_id, None)) is not None:
            if _is_current(held_lock, path):
                self._locks[session_id] = held_lock
                return
            # Another process can lock a new file with the same name, because the lock file was removed.
            os.close(held_lock)
        try:
            lock = lock_file(path)
        except OSError:
            # If the lock file cannot be created, the disk is not writable, and the session continues in memory.
            return
        if lock is None:
            raise SessionError(
                f"This session is in use by another thinklsp{_describe_owner(path)}. Fork it or stop the other one."
            )
        # The process id appears only in an error message, so a failed write does not matter.
        with suppress(OSError):
            os.ftruncate(lock, 0)
            os.write(lock, str(os.getpid()).encode())
        if len(self._locks) >= _MAX_LOCKS:
            self._drop(next(iter(self._locks)))
        self._locks[session_id] = lock

    def renew(self) -> None:
        for session_id in self._used_ids:
            with suppress(SessionError):
                self.take(session_id)

    def find_in_use(self, session_ids: Iterable[str]) -> frozenset[str]:
        return frozenset(session_id for session_id in session_ids if not self.is_free(session_id))

    def is_free(self, session_id: str) -> bool:
        """Return True if no other process is using the session."""
        path = self._build_path(session_id)
        if session_id in self._locks or not os.path.lexists(path):
            return True
        try:
            lock = lock_file(path)
        except OSError:
            return True
        if lock is None:
            return False
        self._locks[session_id] = lock
        self._drop(session_id)
        return True

    def close(self) -> None:
        for session_id in tuple(self._locks):
            self._drop(session_id)

    def _build_path(self, session_id: str) -> str:
        """Return the path of the lock file. In a damaged store, a session id may not be a valid file name."""
        is_name = session_id.isascii() and session_id.isalnum() and len(session_id) <= 64
        name = session_id if is_name else sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        return os.path.join(self._folder, name)

    def _drop(self, session_id: str) -> None:
        lock = self._locks.pop(session_id, None)
        if lock is None:
            return
        path = self._build_path(session_id)
        # Remove the file before releasing the lock, because another process may lock the file immediately afterwards.
        # In a read-only folder, the file stays.
        with suppress(OSError):
            if _is_current(lock, path):
                Path(path).unlink(missing_ok=True)
        os.close(lock)


def _describe_owner(path: str) -> str:
    try:
        number = Path(path).read_text("utf-8")
    except (OSError, ValueError):
        return ""
    if number == str(os.getpid()):
        return " (another client of this server)"
    return f" (process {number})" if number.isdecimal() else ""


def lock_file(path: str) -> int | None:
    """Lock a file and return its descriptor, or None if the file is already locked.

    Raises OSError if the file cannot be created.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        # The previous owner may have removed the lock file after this process opened it.
        if _is_current(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_current(descriptor: int, path: str) -> bool:
    """Return True if the locked file still exists under its name. Other processes ignore a lock on a removed file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


class KeptTexts:
    """The texts of all sessions. Without a folder, no text is kept."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def keep(self, session_id: str, text: str) -> str | None:
        """Keep a text and return its path for the model, or None if the text cannot be kept.

        A session keeps at most 64 MiB. Beyond this limit, its oldest texts are deleted.
        """
        folder = self._find_folder(session_id)
        data = text.encode("utf-8", "replace")
        if folder is None or len(data) > MAX_SESSION_BYTES:
            return None
        name = secrets.token_hex(4)
        try:
            make_private(folder)
            _make_room(folder, len(data))
            with open(os.open(os.path.join(folder, name), _NEW_FILE, 0o600), "wb") as file:
                file.write(data)
        except OSError:
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))
            return None
        return KEPT_PATH_PREFIX + name

    def read(self, session_id: str, path: str) -> str | None:
        """Return a text, or None if the session does not keep it."""
        folder = self._find_folder(session_id)
        if folder is None or not is_kept_path(path):
            return None
        try:
            data = Path(folder, path.removeprefix(KEPT_PATH_PREFIX)).read_bytes()
        except OSError:
            return None
        return data.decode("utf-8", "replace")

    def forget(self, session_id: str) -> None:
        """Delete the texts of a session."""
        if (folder := self._find_folder(session_id)) is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _find_folder(self, session_id: str) -> str | None:
        if self._folder is None or _SESSION_ID.fullmatch(session_id) is None:
            return None
        return os.path.join(self._folder, session_id)


class SessionTexts:
    """The texts of one session, which are read and written in threads."""

    def __init__(self, texts: KeptTexts, session_id: str) -> None:
        self._texts = texts
        self._session_id = session_id

    async def keep(self, text: str) -> str | None:
        return await asyncio.to_thread(self._texts.keep, self._session_id, text)

    async def read(self, path: str) -> str | None:
        return await asyncio.to_thread(self._texts.read, self._session_id, path)


def _make_room(folder: str, size: int) -> None:
    """Delete the oldest texts of a session until a new one fits. Raises OSError."""
    with os.scandir(folder) as entries:
        files = sorted((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path) for entry in entries)
    sizes = {path: os.lstat(path).st_size for _, path in files}
    total = sum(sizes.values()) + size
    for _, path in files:
        if total <= MAX_SESSION_BYTES:
            break
        os.unlink(path)
        total -= sizes[path]
