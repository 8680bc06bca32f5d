"""The folder of the session store, with checks of its ownership and permissions.

The functions in this module never follow symbolic links and never run SQL.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from thinklsp.sessions.leases import lock_file
from thinklsp.sessions.state_folder import STORE_PATH, is_owned, restrict_access
from thinklsp.settings.private_paths import make_private

_SUFFIXES = ("", "-wal", "-shm", "-journal")
LOCK_FOLDER = "locks"
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW
_NETWORK = re.compile(
    r"nfs4?|cifs|smb3|smbfs|9p|afs|ncpfs|coda|ceph|glusterfs|lustre|beegfs|gpfs|davfs|afpfs|fuse\.(sshfs|glusterfs|rclone)"
)


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
            _ensure_private_folder(path)
    except OSError as error:
        raise FolderRefused(f"The folder {folder} cannot be used: {_describe_error(error)}.") from None
    return folder


def _ensure_private_folder(path: str) -> None:
    # Another process may create the folder at the same time.
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise FolderRefused(f"{path} is not a folder. Move or rename it.")
    if not is_owned(status):
        raise FolderRefused(f"{path} belongs to another user. Set `THINKLSP_STATE_DIR` to your own folder.")
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)


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
            _ensure_private_file(path + beside)
        if create and not os.path.lexists(path):
            os.close(os.open(path, _NEW_FILE, 0o600))
    except FileExistsError:
        return prepare_database(folder, create=False)
    except OSError as error:
        raise FolderRefused(f"The session store {path} cannot be used: {_describe_error(error)}.") from None
    return path


def _ensure_private_file(path: str) -> None:
    """Make a file readable only for this user.

    The file may be missing, because another process can remove a log file at any time.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        problem = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a file"
        raise FolderRefused(f"{path} is {problem}. Move or rename it.")
    if not is_owned(status):
        raise FolderRefused(f"{path} belongs to another user. Set `THINKLSP_STATE_DIR` to your own folder.")
    if status.st_mode & 0o077:
        with suppress(FileNotFoundError):
            os.chmod(path, 0o600)


FileIds = tuple[tuple[int, int] | None, ...]


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
    stem = f"{path}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    target, number = stem, 1
    while os.path.lexists(target):
        number += 1
        target = f"{stem}-{number}"
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
