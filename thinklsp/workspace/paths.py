"""The gate: the only module that opens files of the workspace, and the way to them is part of the decision.

A `Root` holds a descriptor of its folder. Every operation walks from it component by component without following a
link, and what was checked is the descriptor that is used, so nothing can be swapped in between. Reading is all that
tools need; `create`, `replace`, `delete` and `rename` serve terminal commands that apply an edit after the user said
yes. The language server itself never calls them: its edits are made by the editor.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.git_config import is_config_name, is_git_config, without_logins
from thinklsp.workspace.protected import ProtectedPaths, folded
from thinklsp.workspace.refusals import check_regular, refuse
from thinklsp.workspace.relpath import RelPath, quoted
from thinklsp.workspace.uri import path_to_uri, uri_key, uri_to_path

READ_LIMIT = 5 * 1024 * 1024
EDIT_LIMIT = 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Kind = Literal["file", "directory", "link", "other"]


@dataclass(frozen=True, slots=True)
class FileStat:
    kind: Kind
    size: int
    links: int
    modified_ns: int
    mode: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Names in one folder, sorted. Links and special files are left out."""

    directories: tuple[str, ...]
    files: tuple[str, ...]


def real_path(path: str) -> str:
    """Where a folder or program really is. For comparison and display; opening goes by descriptor."""
    return os.path.realpath(path)


def workspace_key(uri: str) -> str:
    """What the sessions of a folder are found by: the same for all spellings of its URI and for links to it."""
    try:
        return path_to_uri(os.path.realpath(uri_to_path(uri)))
    except (PathRefused, UnicodeError, OSError):
        return uri_key(uri)


class _Held:
    """A descriptor that is closed when nobody uses it any more."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class Root(AbstractContextManager["Root"]):
    """One workspace folder, opened once. Owned by whoever keeps the folders; safe to use from several threads.

    `written` is the path as it was given, `path` where it really is: a root that is itself a link is resolved here
    and never again. After `close` every operation is refused, also those of turns that still run.
    """

    def __init__(
        self, path: str, *, protected: ProtectedPaths | None = None, allow_wide: bool = False, read_only: bool = False
    ) -> None:
        self.written = os.path.normpath(path)
        self.path = real_path(path)
        self.protected = protected or ProtectedPaths()
        self.read_only = read_only
        if not allow_wide and _holds_home(self.path):
            raise PathRefused(
                f"{quoted(self.path)} holds the whole home folder; open a project folder, "
                "or allow this one in the user's own settings."
            )
        try:
            self._held: _Held | None = _Held(os.open(self.path, _FOLDER))
        except OSError as error:
            refuse(f"The workspace folder {quoted(path)}", error)

    def close(self) -> None:
        self._held = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def opened(self) -> AbstractContextManager[int]:
        """A descriptor of the folder itself, for a walk that opens no file of it."""
        return self._folder((), self.written)

    def stat(self, path: RelPath) -> FileStat | None:
        """None where nothing has this name; a link is named as one and not followed."""
        try:
            with self._parent(path) as folder:
                if not path.parts:
                    return _stat(os.fstat(folder))
                return _stat(os.stat(path.parts[-1], dir_fd=folder, follow_symlinks=False))
        except FileNotFoundError:
            return None
        except OSError as error:
            refuse(quoted(path.shown), error)

    def read(self, path: RelPath, *, limit: int = READ_LIMIT) -> bytes | None:
        """The bytes of a regular file, None where there is none. Secrets, links and special files are refused, and
        git's configuration is given without logins."""
        if (reason := self.protected.reading_refused(path.parts)) is not None:
            raise PathRefused(f"{quoted(path.shown)} {reason}")
        if not path.parts:
            raise PathRefused("A workspace folder is not a file.")
        try:
            with self._parent(path) as folder:
                descriptor = os.open(path.parts[-1], _FILE, dir_fd=folder)
            try:
                data = _read(descriptor, path.shown, limit)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            refuse(quoted(path.shown), error)
        return without_logins(data) if self.is_git_config(path.parts) else data

    def is_git_config(self, parts: tuple[str, ...]) -> bool:
        """Whether a path names git's configuration, in a git directory of whatever name."""
        names = folded(parts)
        return is_git_config(names) or (is_config_name(names[-1]) and self._is_git_directory(parts[:-1]))

    def list(self, path: RelPath) -> Listing | None:
        """None where there is no such folder."""
        directories: list[str] = []
        files: list[str] = []
        try:
            with self._folder(path.parts, path.shown) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        files.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        directories.append(entry.name)
        except FileNotFoundError:
            return None
        except OSError as error:
            refuse(quoted(path.shown), error)
        return Listing(tuple(sorted(directories)), tuple(sorted(files)))

    def check_writable(self, path: RelPath) -> None:
        """Raises PathRefused unless a file may be made here, or the regular file that is here may be changed."""
        if not path.parts:
            raise PathRefused("A workspace folder is not a file.")
        if self.read_only:
            raise PathRefused(f"{quoted(path.shown)} is in a folder that tools may read, not change (`extra_roots`).")
        if (reason := self.protected.writing_refused(path.parts)) is not None:
            raise PathRefused(f"{quoted(path.shown)} {reason}")
        for depth in range(len(path.parts)):
            if self._is_git_directory(path.parts[:depth]):
                raise PathRefused(f"{quoted(path.shown)} is inside a git directory and cannot be changed by tools.")
        found = self.stat(path)
        if found is not None:
            check_regular(found.kind, found.links, path.shown)
        # Editors open files by their path: an edit must not follow it into a folder that took this one's place.
        with self.opened() as folder, suppress(OSError):
            if os.path.samestat(os.stat(self.written), os.fstat(folder)):
                return
        raise PathRefused(f"{quoted(path.shown)} is in a folder that was moved or replaced. Open the folder again.")

    def create(self, path: RelPath, data: bytes) -> None:
        """A new file, and the folders above it. Never takes the place of one that exists."""
        self.check_writable(path)
        _check_size(data, path.shown)
        with self._changing(path, make_folders=True) as folder, _reserved(folder, path.parts[-1]) as mode:
            _put(folder, path.parts[-1], data, mode)

    def replace(self, path: RelPath, data: bytes, *, expected: bytes | None = None) -> None:
        """New content at once, with the mode bits of the old. With `expected`: only if the file still holds that."""
        self.check_writable(path)
        _check_size(data, path.shown)
        with self._changing(path) as folder:
            descriptor = os.open(path.parts[-1], _FILE, dir_fd=folder)
            try:
                status = os.fstat(descriptor)
                found = _stat(status)
                check_regular(found.kind, found.links, path.shown)
                if expected is not None and _read(descriptor, path.shown, READ_LIMIT) != expected:
                    raise PathRefused(f"{quoted(path.shown)} has changed on disk meanwhile and was left as it is.")
            finally:
                os.close(descriptor)
            _put(folder, path.parts[-1], data, status.st_mode)

    def delete(self, path: RelPath) -> None:
        self.check_writable(path)
        with self._changing(path) as folder:
            os.unlink(path.parts[-1], dir_fd=folder)

    def rename(self, old: RelPath, new: RelPath) -> None:
        """Moves a file below this root; never onto one that exists."""
        self.check_writable(old)
        self.check_writable(new)
        with (
            self._changing(old) as source,
            self._changing(new, make_folders=True) as target,
            _reserved(target, new.parts[-1]),
        ):
            os.rename(old.parts[-1], new.parts[-1], src_dir_fd=source, dst_dir_fd=target)

    @contextmanager
    def _changing(self, path: RelPath, *, make_folders: bool = False) -> Iterator[int]:
        """The folder of a file that is about to change; what the system refuses becomes a sentence."""
        try:
            with self._folder(path.parts[:-1], path.shown, make=make_folders) as folder:
                yield folder
        except OSError as error:
            refuse(quoted(path.shown), error)

    @contextmanager
    def _parent(self, path: RelPath) -> Iterator[int]:
        with self._folder(path.parts[:-1], path.shown) as folder:
            yield folder

    @contextmanager
    def _folder(self, parts: tuple[str, ...], shown: str, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder, reached without following a link."""
        # Another thread may close the root while this walk is under way. A lock would have the event loop wait for all.
        if (held := self._held) is None:
            raise PathRefused("The workspace folder has been closed; its files can no longer be used.")
        # Opened anew: duplicates share the place up to which a folder has been read, and two listings the entries.
        descriptor = os.open(".", _FOLDER, dir_fd=held.number)
        try:
            for part in parts:
                below = _enter(descriptor, part, shown, make=make)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def _is_git_directory(self, parts: tuple[str, ...]) -> bool:
        """By what it holds: a git directory can have any name (a bare repository, `--separate-git-dir`)."""
        try:
            with self._folder(parts, "/".join(parts)) as folder:
                for name in ("HEAD", "objects", "refs"):
                    os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return True


def _enter(descriptor: int, part: str, shown: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=descriptor)
    try:
        return os.open(part, _FOLDER, dir_fd=descriptor)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "link") from None
        raise PathRefused(f"{quoted(shown)} leads through {quoted(part)}, which is not a folder.") from None


def _read(descriptor: int, shown: str, limit: int) -> bytes:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise PathRefused(f"{quoted(shown)} is a folder, not a file.")
    if not stat.S_ISREG(status.st_mode):
        raise PathRefused(f"{quoted(shown)} is not a regular file.")
    pieces: list[bytes] = []
    left = limit + 1
    # Read to the end, not to the size: a file may grow, and some report none.
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    if left <= 0:
        raise PathRefused(f"{quoted(shown)} is larger than {limit // 1024} KiB, more than tools read.")
    return b"".join(pieces)


def _put(folder: int, name: str, data: bytes, mode: int) -> None:
    """Writes beside the file and renames over it, so that nobody ever sees half of it."""
    temporary = f".{secrets.token_hex(8)}.tmp"
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
def _reserved(folder: int, name: str) -> Iterator[int]:
    """An empty file under a name that is free, for a rename to land on: a plain rename would replace what is there.

    Yields its mode bits; they are what the umask leaves to a new file. Taken back where the body fails.
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


def _check_size(data: bytes, shown: str) -> None:
    if len(data) > EDIT_LIMIT:
        raise PathRefused(f"{quoted(shown)} would be larger than {EDIT_LIMIT // 1024} KiB, more than tools write.")


def _stat(status: os.stat_result) -> FileStat:
    kinds: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "other")
    return FileStat(kind, status.st_size, status.st_nlink, status.st_mtime_ns, stat.S_IMODE(status.st_mode) & 0o777)


def _holds_home(path: str) -> bool:
    return os.path.commonpath((path, real_path(os.path.expanduser("~")))) == path
