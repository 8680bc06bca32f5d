"""Changes of the user's files: planned from what is on disk, then written, all of them or none."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from thinklsp.core.errors import ThinkLspError

_NEW_FILE_MODE = 0o600


@dataclass(frozen=True)
class FileChange:
    """A change of one file. None as `before` or `after` means that there is no file.

    `path` is the name that the editor uses, and `target` the file behind links. `keeps` is the folder that stays if a
    removal leaves it empty.
    """

    path: Path
    target: Path
    before: bytes | None
    after: bytes | None
    keeps: Path

    @property
    def is_linked(self) -> bool:
        return self.path != self.target


def plan_change(path: Path, keeps: Path, edit: Callable[[bytes | None], bytes | None]) -> FileChange | None:
    """Return the change that `edit` makes to the file, or None if the content stays the same.

    Raises ThinkLspError if the file cannot be read.
    """
    target = Path(os.path.realpath(path))
    before = _read(path, target)
    after = edit(before)
    if before == after:
        return None
    # The link stays, because the user made it.
    after = b"" if after is None and path.is_symlink() else after
    # If only a folder above the file is a link, the file is not a link.
    return FileChange(path, target if path.is_symlink() else path, before, after, keeps)


def check_writable(changes: Sequence[FileChange]) -> None:
    """Raises ThinkLspError if a file could not be written."""
    for change in changes:
        _check_writable(change.path, change.target)


def read_file(path: Path) -> bytes | None:
    """Return the content of a file, or None if there is no file. Raises ThinkLspError."""
    return _read(path, Path(os.path.realpath(path)))


def apply_changes(changes: Sequence[FileChange]) -> None:
    """Write all changes. If one fails, take back the ones before. Raises ThinkLspError."""
    done: list[FileChange] = []
    try:
        for change in changes:
            _check_unchanged(change)
            _write(change.target, change.after, change.keeps)
            done.append(change)
    except (OSError, ThinkLspError) as error:
        for change in reversed(done):
            with suppress(OSError):
                _write(change.target, change.before, change.keeps)
        if isinstance(error, ThinkLspError):
            raise
        raise ThinkLspError(
            f"Cannot write {error.filename or change.path}: {error.strerror}. Nothing was changed."
        ) from None


def _check_unchanged(change: FileChange) -> None:
    if _read(change.path, change.target) != change.before:
        raise ThinkLspError(f"{change.path} has changed in the meantime, so nothing was changed. Try again.")


def _read(path: Path, target: Path) -> bytes | None:
    try:
        if not stat.S_ISREG(os.stat(target).st_mode):
            kind = "a folder" if target.is_dir() else "not a regular file"
            raise ThinkLspError(f"{path} is {kind}, so nothing was changed. Move it away, then try again.")
        return target.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise ThinkLspError(f"{path} is a link to {target}, which does not exist. Delete the link.") from None
        return None
    except OSError as error:
        raise ThinkLspError(f"Cannot read {path}: {error.strerror}. Nothing was changed.") from None


def _check_writable(path: Path, target: Path) -> None:
    """Refuse a file that its owner has made read-only, although a rename could replace it."""
    existing = target
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    # The superuser may write anything, so the mode is checked, too.
    is_locked = existing == target and not os.stat(target).st_mode & 0o222
    if is_locked or not os.access(existing, os.W_OK):
        raise ThinkLspError(
            f"{path if existing == target else existing} is read-only, so nothing was changed. Make it writable, or "
            f"copy the lines that `--print` shows to your configuration."
        )
    if existing != target and not existing.is_dir():
        raise ThinkLspError(f"{existing} is not a folder, so nothing was changed. Move it away, then try again.")


def _write(target: Path, data: bytes | None, keeps: Path) -> None:
    if data is None:
        with suppress(FileNotFoundError):
            target.unlink()
        _remove_empty_folders(target.parent, keeps)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, stat.S_IMODE(os.stat(target).st_mode) if target.exists() else _NEW_FILE_MODE)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, target)
    finally:
        # After the replacement, the name is gone.
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _remove_empty_folders(folder: Path, keeps: Path) -> None:
    """Remove the folder and those above it, as far as they are empty and below `keeps`."""
    while folder != keeps and folder.is_relative_to(keeps):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
