"""`file:` URIs and paths, strictly, and the comparison of URIs that editors spell in different ways.

Nothing here looks at a disk, follows a link or knows which folders are open.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Sequence
from urllib.parse import quote_from_bytes, unquote_to_bytes

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.relpath import nameable

_ESCAPE = re.compile(r"%(?:[0-9A-Fa-f]{2})")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_FORBIDDEN_ESCAPE = re.compile(r"%(?:00|2f|5c)", re.IGNORECASE)
_UNRESERVED = frozenset(string.ascii_letters + string.digits + "-._~")
# What may stand unescaped behind the scheme of any URI: unreserved and reserved characters, and the escape sign.
_KEPT = "!#$%&'()*+,/:;=?@[]~"
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")
# Unescaped in a path that we spell: what every editor leaves as it is. The colon is not among them.
_PATH_KEPT = "/~"


def uri_to_path(uri: str) -> str:
    """The absolute path that a `file:` URI names, without empty or `.` components. Raises PathRefused.

    Bytes that are not UTF-8 come as lone surrogates, the way `os` spells them.
    """
    if not uri.startswith("file:"):
        raise PathRefused("Only file: URIs name files of a folder.")
    rest = uri.removeprefix("file:")
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        if authority not in ("", "localhost"):
            raise PathRefused("The URI names another machine; only files of this one can be used.")
    if not rest.startswith("/") or rest.startswith("//"):
        raise PathRefused("The URI does not hold an absolute path.")
    if any(mark in rest for mark in "?#"):
        raise PathRefused("The URI has a query or a fragment, which files do not have.")
    if not nameable(rest):
        raise PathRefused("The URI holds half of a character, which is in no name of a file.")
    if "\0" in rest or "\\" in rest or _FORBIDDEN_ESCAPE.search(rest):
        raise PathRefused("The URI holds an escaped slash, a backslash or a NUL character.")
    if _BAD_ESCAPE.search(rest):
        raise PathRefused("The URI holds a percent sign that escapes nothing; it is spelled %25.")
    parts = os.fsdecode(unquote_to_bytes(rest.encode("utf-8", "surrogateescape"))).split("/")
    if ".." in parts:
        raise PathRefused("The URI holds `..`; name the file by its own path.")
    return "/" + "/".join(part for part in parts if part not in ("", "."))


def path_parts(uri: str) -> tuple[str, ...]:
    """Components of the path in a URI, for the rules about names; any scheme may carry one."""
    try:
        return tuple(part for part in uri_to_path(uri).split("/") if part)
    except (PathRefused, UnicodeError):
        return tuple(part for part in uri.partition(":")[2].split("/") if part not in ("", ".", ".."))


def path_to_uri(path: str) -> str:
    """The canonical `file:` URI of an absolute path: UTF-8, everything but unreserved characters escaped."""
    return "file://" + quote_from_bytes(os.fsencode(path), safe=_PATH_KEPT)


def escaped(names: Sequence[str]) -> Sequence[str]:
    """Components of such paths, as they stand in their URIs."""
    # One look for the many folders in which every name is plain.
    if _PLAIN.fullmatch("".join(names)):
        return names
    return [quote_from_bytes(os.fsencode(name), safe=_PATH_KEPT) for name in names]


def uri_key(uri: str) -> str:
    """Equal for all spellings of one URI; not for display and not for the wire. Never raises.

    Letter case of paths counts and Unicode forms are left alone: on most disks they tell files apart.
    """
    try:
        return path_to_uri(uri_to_path(uri))
    except (PathRefused, UnicodeError):
        scheme, colon, rest = uri.partition(":")
        raw = rest.encode("utf-8", "surrogatepass")
        return scheme.lower() + colon + _ESCAPE.sub(_normal_escape, quote_from_bytes(raw, safe=_KEPT))


def _normal_escape(match: re.Match[str]) -> str:
    char = chr(int(match[0][1:], 16))
    return char if char in _UNRESERVED else match[0].upper()
