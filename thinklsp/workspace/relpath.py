"""Relative paths in a workspace folder, and the error messages for invalid paths. This module performs no I/O."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from typing import NoReturn

from thinklsp.core.errors import PathRefused

_MAX_NAME_BYTES = 255
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class RelPath:
    """A path below a workspace folder, split into components. `label` is its name in messages."""

    parts: tuple[str, ...]
    label: str

    @staticmethod
    def build(parts: tuple[str, ...], label: str | None = None) -> RelPath:
        """Build a path from components. Raises PathRefused if a component is not allowed."""
        label = "/".join(parts) if label is None else label
        for part in parts:
            if part in ("", ".", "..") or "/" in part or "\0" in part:
                raise PathRefused(f"{quote_path(label)} is not a plain path: components may not be empty, `.` or `..`.")
            if not is_encodable(part):
                raise PathRefused(f"{quote_path(label)} contains a lone surrogate, which file names cannot contain.")
            if len(os.fsencode(part)) > _MAX_NAME_BYTES:
                raise PathRefused("The path contains a name longer than 255 bytes.")
        if len(parts) > _MAX_DEPTH:
            raise PathRefused(f"The path is deeper than {_MAX_DEPTH} folders.")
        return RelPath(parts, label)

    def join(self, name: str) -> RelPath:
        return RelPath((*self.parts, name), f"{self.label}/{name}" if self.parts else name)


def is_encodable(text: str) -> bool:
    """Return True if the text can be encoded as a file name."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def quote_path(path: str) -> str:
    """Quote a path for a message. The result contains no line breaks."""
    return f"`{path}`" if path.isprintable() and "`" not in path else json.dumps(path)


NO_LINKS = "and tools do not follow links. If the file is in the workspace, use its own path."
_REASONS = {
    errno.ELOOP: f"leads through a symbolic link, {NO_LINKS}",
    errno.EMLINK: f"leads through a symbolic link, {NO_LINKS}",
    errno.ENOENT: "does not exist.",
    errno.EEXIST: "already exists.",
    errno.EACCES: "cannot be used: permission denied.",
    errno.EPERM: "cannot be used: permission denied.",
    errno.ENXIO: "is not a regular file.",
    errno.ENOTDIR: "is not a folder.",
    errno.EISDIR: "is a folder, not a file.",
    errno.ENAMETOOLONG: "has a name that is too long.",
    errno.ENOSPC: "cannot be written: the disk is full.",
    errno.EROFS: "cannot be written: the disk is read-only.",
}


def refuse(subject: str, error: OSError) -> NoReturn:
    """Raise PathRefused for a system error. `subject` is the path with which the message begins."""
    reason = _REASONS.get(error.errno or 0, "cannot be used: the system refused it.")
    raise PathRefused(f"{subject} {reason}") from error


def check_regular(kind: str, links: int, label: str) -> None:
    """Raise PathRefused unless the file is a regular file without additional hard links."""
    match kind:
        case "file":
            if links > 1:
                raise PathRefused(f"{quote_path(label)} has a second name (hard link) and cannot be changed by tools.")
        case "directory":
            raise PathRefused(f"{quote_path(label)} is a folder, not a file.")
        case "link":
            raise PathRefused(f"{quote_path(label)} is a symbolic link, {NO_LINKS}")
        case _:
            raise PathRefused(f"{quote_path(label)} is not a regular file.")
