"""What the system refuses, as a sentence for whoever asked for it."""

from __future__ import annotations

import errno
from typing import NoReturn

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.relpath import quoted

NO_LINKS = "and tools do not follow links. If the file lies in the workspace, name it by its own path."
_REASONS = {
    errno.ELOOP: f"leads through a symbolic link, {NO_LINKS}",
    errno.EMLINK: f"leads through a symbolic link, {NO_LINKS}",
    errno.ENOENT: "does not exist.",
    errno.EEXIST: "exists already.",
    errno.EACCES: "cannot be used: permission denied.",
    errno.EPERM: "cannot be used: permission denied.",
    errno.ENXIO: "is not a regular file.",
    errno.ENOTDIR: "is not a folder.",
    errno.EISDIR: "is a folder, not a file.",
    errno.ENAMETOOLONG: "has too long a name.",
    errno.ENOSPC: "cannot be written: the disk is full.",
    errno.EROFS: "cannot be written: the disk is read-only.",
}


def refuse(subject: str, error: OSError) -> NoReturn:
    """`subject`: what was to be used, as the beginning of a sentence."""
    reason = _REASONS.get(error.errno or 0, "cannot be used: the system refused it.")
    raise PathRefused(f"{subject} {reason}") from error


def check_regular(kind: str, links: int, shown: str) -> None:
    """Raise PathRefused unless this is a regular file with one name."""
    match kind:
        case "file":
            if links > 1:
                raise PathRefused(f"{quoted(shown)} has a second name (hard link) and cannot be changed by tools.")
        case "directory":
            raise PathRefused(f"{quoted(shown)} is a folder, not a file.")
        case "link":
            raise PathRefused(f"{quoted(shown)} is a symbolic link, {NO_LINKS}")
        case _:
            raise PathRefused(f"{quoted(shown)} is not a regular file.")
