"""Access to the files of the workspace. All other modules open these files through this module.

A `Root` opens its folder once. Each operation walks from this folder to the file, one component at a time and without
following links. The check and the operation use the same descriptor, so that no other process can replace the file in
between. Only terminal commands write files, after the user's consent.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from thinklsp.core.errors import PathRefused
from thinklsp.core.text_safety import format_size
from thinklsp.workspace.protected import ProtectedPaths, fold_parts, is_config_name, is_git_config, strip_logins
from thinklsp.workspace.uri import RelPath, check_regular, normalize_uri, path_to_uri, quote_path, refuse, uri_to_path

MAX_READ_BYTES = 5 * 1024 * 1024
MAX_EDIT_BYTES = 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

FileKind = Literal["file", "directory", "link", "other"]


@dataclass(frozen=True, slots=True)
class FileStat:
    kind: FileKind
    size: int
    link_count: int
    modified_ns: int
    mode: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The names in a folder in sorted order, without special files. Links are listed, but never followed."""

    directories: tuple[str, ...]
    files: tuple[str, ...]
    links: tuple[str, ...] = ()


def resolve_real_path(path: str) -> str:
    """Return the path of a folder or program with all links resolved.

    Use this path only to compare or display, because files are opened by descriptor.
    """
    return os.path.realpath(path)


def compute_workspace_key(uri: str) -> str:
    """Return a key that identifies the sessions of a workspace.

    The key is the same for all spellings of the folder's URI and for all links to the folder.
    """
    try:
        return path_to_uri(os.path.realpath(uri_to_path(uri)))
    except (PathRefused, UnicodeError, OSError):
        return normalize_uri(uri)


class _Descriptor:
    """A file descriptor that is closed when nothing refers to it any more."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class Root(AbstractContextManager["Root"]):
    """A workspace folder, which is opened once and can be used by several threads.

    `given_path` is the original path, and `path` is the path without links. `name` is the name that the editor gives to
    the folder, or empty. After `close`, every operation raises PathRefused, even in running turns.
    """

    def __init__(
        self,
        path: str,
        *,
        name: str = "",
        protected: ProtectedPaths | None = None,
        allow_wide: bool = False,
        read_only: bool = False,
    ) -> None:
        self.name = name
        self.given_path = os.path.normpath(path)
        self.path = resolve_real_path(path)
        self.protected = protected or ProtectedPaths()
        self.read_only = read_only
        if not allow_wide and os.path.commonpath((self.path, resolve_real_path(os.path.expanduser("~")))) == self.path:
            raise PathRefused(
                f"{quote_path(self.path)} contains the entire home folder. Open a project folder, or set "
                "`workspace.allow_home` in the user's file."
            )
        try:
            self._descriptor: _Descriptor | None = _Descriptor(os.open(self.path, _FOLDER))
        except OSError as error:
            refuse(f"The workspace folder {quote_path(path)}", error)

    def close(self) -> None:
        self._descriptor = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def open_folder(self) -> AbstractContextManager[int]:
        """Open a descriptor of the folder itself, for listing files without opening them."""
        return self._open_below((), self.given_path)

    def stat(self, path: RelPath) -> FileStat | None:
        """Return the status of a path, or None if the path does not exist. Links are not followed."""
        try:
            with self._open_below(path.parts[:-1], path.label) as folder:
                if not path.parts:
                    return _stat(os.fstat(folder))
                return _stat(os.stat(path.parts[-1], dir_fd=folder, follow_symlinks=False))
        except FileNotFoundError:
            return None
        except OSError as error:
            refuse(quote_path(path.label), error)

    def read(self, path: RelPath, *, limit: int = MAX_READ_BYTES) -> bytes | None:
        """Return the bytes of a regular file, or None if the file does not exist.

        Raises PathRefused for secrets, links and special files. Logins are removed from git's configuration files.
        """
        if (reason := self.protected.explain_read_refusal(path.parts)) is not None:
            raise PathRefused(f"{quote_path(path.label)} {reason}")
        if not path.parts:
            raise PathRefused("A workspace folder is not a file.")
        try:
            with self._open_below(path.parts[:-1], path.label) as folder:
                descriptor = os.open(path.parts[-1], _FILE, dir_fd=folder)
            try:
                data = _read(descriptor, path.label, limit)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            refuse(quote_path(path.label), error)
        return strip_logins(data) if self.is_git_config(path.parts) else data

    def is_git_config(self, parts: tuple[str, ...]) -> bool:
        """Return True if a path is a git configuration file, even if the git directory has an unusual name."""
        names = fold_parts(parts)
        return is_git_config(names) or (is_config_name(names[-1]) and self._is_git_directory(parts[:-1]))

    def list(self, path: RelPath) -> Listing | None:
        """Return the contents of a folder, or None if the folder does not exist."""
        directories, files, links = list[str](), list[str](), list[str]()
        try:
            with self._open_below(path.parts, path.label) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    # Most entries are files, for which one question is enough.
                    if entry.is_file(follow_symlinks=False):
                        files.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        directories.append(entry.name)
                    elif entry.is_symlink():
                        links.append(entry.name)
        except FileNotFoundError:
            return None
        except OSError as error:
            refuse(quote_path(path.label), error)
        return Listing(*(tuple(sorted(names)) for names in (directories, files, links)))

    def check_writable(self, path: RelPath) -> None:
        """Raise PathRefused if the file at this path must not be created or changed."""
        if not path.parts:
            raise PathRefused("A workspace folder is not a file.")
        if self.read_only:
            raise PathRefused(f"{quote_path(path.label)} is in a folder that tools may only read (`extra_roots`).")
        if (reason := self.protected.explain_write_refusal(path.parts)) is not None:
            raise PathRefused(f"{quote_path(path.label)} {reason}")
        for depth in range(len(path.parts)):
            if self._is_git_directory(path.parts[:depth]):
                raise PathRefused(f"{quote_path(path.label)} is inside a git directory and cannot be changed by tools.")
        status = self.stat(path)
        if status is not None:
            check_regular(status.kind, status.link_count, path.label)
        # Editors open files by path, so an edit could reach another folder that has replaced the workspace folder.
        with self.open_folder() as folder, suppress(OSError):
            if os.path.samestat(os.stat(self.given_path), os.fstat(folder)):
                return
        raise PathRefused(f"{quote_path(path.label)} is in a folder that was moved or replaced. Open the folder again.")

    def create(self, path: RelPath, data: bytes) -> None:
        """Create a file and its missing parent folders. Existing files are never replaced."""
        self.check_writable(path)
        _check_size(data, path.label)
        with self._open_parent(path, make_folders=True) as folder, _reserve(folder, path.parts[-1]) as mode:
            _write_atomically(folder, path.parts[-1], data, mode)

    def ignore_folder(self, parts: tuple[str, ...]) -> None:
        """Create a folder of thinklsp's own documents with a `.gitignore` for all its files, unless the file exists."""
        path = RelPath.build((*parts, ".gitignore"))
        if self.stat(path) is None:
            with self._open_parent(path, make_folders=True) as folder, _reserve(folder, path.parts[-1]) as mode:
                _write_atomically(folder, path.parts[-1], b"*\n", mode)

    def replace(self, path: RelPath, data: bytes, *, expected: bytes | None = None) -> None:
        """Replace the contents of a file atomically, and keep its permissions.

        If `expected` is given, the file is replaced only if these are its current contents.
        """
        self.check_writable(path)
        _check_size(data, path.label)
        with self._open_parent(path) as folder:
            descriptor = os.open(path.parts[-1], _FILE, dir_fd=folder)
            try:
                status = os.fstat(descriptor)
                file_stat = _stat(status)
                check_regular(file_stat.kind, file_stat.link_count, path.label)
                if not status.st_mode & stat.S_IWUSR:
                    raise PathRefused(f"{quote_path(path.label)} is read-only and was not written.")
                if expected is not None and _read(descriptor, path.label, MAX_READ_BYTES) != expected:
                    raise PathRefused(f"{quote_path(path.label)} changed on disk in the meantime and was not written.")
            finally:
                os.close(descriptor)
            _write_atomically(folder, path.parts[-1], data, status.st_mode)

    def delete(self, path: RelPath) -> None:
        self.check_writable(path)
        with self._open_parent(path) as folder:
            os.unlink(path.parts[-1], dir_fd=folder)

    def rename(self, old: RelPath, new: RelPath) -> None:
        """Move a file within this folder. Existing files are never replaced."""
        self.check_writable(old)
        self.check_writable(new)
        with (
            self._open_parent(old) as source,
            self._open_parent(new, make_folders=True) as target,
            _reserve(target, new.parts[-1]),
        ):
            os.rename(old.parts[-1], new.parts[-1], src_dir_fd=source, dst_dir_fd=target)

    @contextmanager
    def _open_parent(self, path: RelPath, *, make_folders: bool = False) -> Iterator[int]:
        """Open the folder of a file that will be changed. System errors are raised as PathRefused."""
        try:
            with self._open_below(path.parts[:-1], path.label, make=make_folders) as folder:
                yield folder
        except OSError as error:
            refuse(quote_path(path.label), error)

    @contextmanager
    def _open_below(self, parts: tuple[str, ...], label: str, *, make: bool = False) -> Iterator[int]:
        """Open a descriptor of a folder without following links."""
        # Copy the reference first, because another thread may close the folder. A lock would block the event loop.
        if (held := self._descriptor) is None:
            raise PathRefused("The workspace folder has been closed; its files can no longer be used.")
        # Open the folder again, because duplicated descriptors share a position and two listings would be incomplete.
        descriptor = os.open(".", _FOLDER, dir_fd=held.number)
        try:
            for part in parts:
                below = _enter(descriptor, part, label, make=make)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def _is_git_directory(self, parts: tuple[str, ...]) -> bool:
        """Return True if a folder contains the files of a git directory. A bare repository can have any name."""
        try:
            with self._open_below(parts, "/".join(parts)) as folder:
                for name in ("HEAD", "objects", "refs"):
                    os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return True


def _enter(descriptor: int, part: str, label: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=descriptor)
    try:
        return os.open(part, _FOLDER, dir_fd=descriptor)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "link") from None
        raise PathRefused(f"{quote_path(label)} leads through {quote_path(part)}, which is not a folder.") from None


def _read(descriptor: int, label: str, limit: int) -> bytes:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise PathRefused(f"{quote_path(label)} is a folder, not a file.")
    if not stat.S_ISREG(status.st_mode):
        raise PathRefused(f"{quote_path(label)} is not a regular file.")
    pieces: list[bytes] = []
    remaining = limit + 1
    # Do not rely on the reported size, because a file may grow and some files report no size.
    while remaining > 0 and (piece := os.read(descriptor, min(remaining, 1 << 20))):
        pieces.append(piece)
        remaining -= len(piece)
    if remaining <= 0:
        raise PathRefused(f"{quote_path(label)} is larger than {format_size(limit)}, the size limit for reading.")
    return b"".join(pieces)


def _write_atomically(folder: int, name: str, data: bytes, mode: int) -> None:
    """Write to a temporary file and rename it, so that readers never see an incomplete file."""
    temporary = f".{os.urandom(8).hex()}.tmp"
    descriptor = os.open(temporary, _NEW_FILE, 0o600, dir_fd=folder)
    try:
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            os.fchmod(descriptor, stat.S_IMODE(mode) & 0o777)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(temporary, dir_fd=folder)
        raise


@contextmanager
def _reserve(folder: int, name: str) -> Iterator[int]:
    """Create an empty file as the target of a rename, so that the rename cannot replace another process's file.

    Yields the file's mode, which respects the umask. If the `with` statement raises OSError, the file is deleted.
    """
    descriptor = os.open(name, _NEW_FILE, 0o666, dir_fd=folder)
    try:
        mode = os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)
    try:
        yield mode
    except OSError:
        os.unlink(name, dir_fd=folder)
        raise


def _check_size(data: bytes, label: str) -> None:
    if len(data) > MAX_EDIT_BYTES:
        limit = f"{format_size(MAX_EDIT_BYTES)}, the size limit for writing"
        raise PathRefused(f"{quote_path(label)} would be larger than {limit}.")


def _stat(status: os.stat_result) -> FileStat:
    kinds: dict[int, FileKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "other")
    return FileStat(kind, status.st_size, status.st_nlink, status.st_mtime_ns, stat.S_IMODE(status.st_mode) & 0o777)
