"""URIs and relative paths of files, and the error messages for invalid ones.

The functions perform no I/O and do not follow links.
"""

from __future__ import annotations

import errno
import json
import os
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import quote_from_bytes, unquote_to_bytes

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


_ESCAPE = re.compile(r"%(?:[0-9A-Fa-f]{2})")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_FORBIDDEN_ESCAPE = re.compile(r"%(?:00|2f|5c)", re.IGNORECASE)
_UNRESERVED = frozenset(string.ascii_letters + string.digits + "-._~")
# The characters that remain unescaped after the scheme of a URI.
_URI_SAFE = "!#$%&'()*+,/:;=?@[]~"
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")
# The characters that remain unescaped in paths, because no editor escapes them. Colons are escaped.
_PATH_SAFE = "/~"


def uri_to_path(uri: str) -> str:
    """Return the absolute path of a `file:` URI, without empty components and dots. Raises PathRefused.

    Bytes that are not valid UTF-8 become lone surrogates, as in the functions of `os`.
    """
    if not uri.startswith("file:"):
        raise PathRefused("Only `file:` URIs refer to files in a folder.")
    rest = uri.removeprefix("file:")
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        if authority not in ("", "localhost"):
            raise PathRefused("The URI refers to another machine; only files of this machine can be used.")
    if not rest.startswith("/") or rest.startswith("//"):
        raise PathRefused("The URI does not contain an absolute path.")
    if any(mark in rest for mark in "?#"):
        raise PathRefused("The URI has a query or a fragment, which `file:` URIs cannot have.")
    if not is_encodable(rest):
        raise PathRefused("The URI contains a lone surrogate, which file names cannot contain.")
    if "\0" in rest or "\\" in rest or _FORBIDDEN_ESCAPE.search(rest):
        raise PathRefused("The URI contains an escaped slash, a backslash or a NUL character.")
    if _BAD_ESCAPE.search(rest):
        raise PathRefused("The URI contains a percent sign that escapes nothing; write it as %25.")
    parts = os.fsdecode(unquote_to_bytes(rest.encode("utf-8", "surrogateescape"))).split("/")
    if ".." in parts:
        raise PathRefused("The URI contains `..`; use the file's own path.")
    return "/" + "/".join(part for part in parts if part not in ("", "."))


def format_uri(uri: str) -> str:
    """Return the path of a URI, or the URI itself if it has no path."""
    try:
        return uri_to_path(uri)
    except (PathRefused, UnicodeError):
        return uri


def extract_path_parts(uri: str) -> tuple[str, ...]:
    """Return the path components of a URI with any scheme, for checks of file names."""
    try:
        return tuple(part for part in uri_to_path(uri).split("/") if part)
    except (PathRefused, UnicodeError):
        return tuple(part for part in uri.partition(":")[2].split("/") if part not in ("", ".", ".."))


def path_to_uri(path: str) -> str:
    """Return the canonical `file:` URI of an absolute path. Special characters are escaped as UTF-8 bytes."""
    return "file://" + quote_from_bytes(os.fsencode(path), safe=_PATH_SAFE)


def escape_parts(names: Sequence[str]) -> Sequence[str]:
    """Escape path components as `path_to_uri` does."""
    # Check all names with one match, because names rarely need escaping.
    if _PLAIN.fullmatch("".join(names)):
        return names
    return [quote_from_bytes(os.fsencode(name), safe=_PATH_SAFE) for name in names]


def normalize_uri(uri: str) -> str:
    """Normalize a URI, so that different spellings can be compared. Never raises an exception.

    Letter case and Unicode normalization are preserved, because most disks use them to distinguish files.
    """
    try:
        return path_to_uri(uri_to_path(uri))
    except (PathRefused, UnicodeError):
        scheme, colon, rest = uri.partition(":")
        raw = rest.encode("utf-8", "surrogatepass")
        return scheme.lower() + colon + _ESCAPE.sub(_normalize_escape, quote_from_bytes(raw, safe=_URI_SAFE))


def _normalize_escape(match: re.Match[str]) -> str:
    char = chr(int(match[0][1:], 16))
    return char if char in _UNRESERVED else match[0].upper()
