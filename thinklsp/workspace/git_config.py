"""Git's configuration without what logs in: `.git/config` often holds a token in a URL or a header.

The result is for reading only. Whatever cannot be parsed is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# Of the names that a component may have; folded by the caller.
_NAMES = frozenset((".gitconfig", ".gitmodules"))
_IN_GIT = frozenset(("config", "config.worktree"))
_GIT = ".git"

_CONTINUED = re.compile(rb"(?<!\\)((?:\\\\)*)\\\r?\n")
# A longer line is left out: to look through it could take long.
_MAX_LINE_BYTES = 4096
_SECTION = re.compile(rb'\s*(\[\s*([\w.-]+)\s*(?:"(?:[^"\\]|\\.)*")?\s*\])')
_ENTRY = re.compile(rb"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=|$)")
_USER = re.compile(rb"(://)[^/?#\s]*@")
_HIDDEN_SECTION = b"credential"
_HIDDEN_KEY = re.compile(rb"extraheader|helper|pass|token|secret|api-?key|auth|cookie", re.IGNORECASE)
_HIDDEN_VALUE = re.compile(rb"authorization|bearer\s|(?:passw(?:or)?d|token|secret|api-?key)\s*[=:]", re.IGNORECASE)


def is_config_name(name: str) -> bool:
    """Whether a file of this name is git's configuration if it lies in a git directory, or anywhere."""
    return name.lower() in _IN_GIT | _NAMES


def is_git_config(folded: Sequence[str]) -> bool:
    """Whether a path, in folded components, is git's configuration in a git directory that is called `.git`."""
    return bool(folded) and (folded[-1] in _NAMES or (folded[-1] in _IN_GIT and _GIT in folded))


def without_logins(data: bytes) -> bytes:
    """Return the configuration without users in URLs, extra headers, credential helpers and the like. Equal to `data`
    if there is nothing to hide."""
    lines = tuple(_lines(data))
    if all(shown == line for line, shown in lines):
        return data
    return b"".join(shown + b"\n" for _, shown in lines if shown)


def _lines(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each logical line and what is shown of it."""
    section = b""
    for line in _CONTINUED.sub(rb"\1", data.removeprefix(b"\xef\xbb\xbf")).split(b"\n"):
        line = line.removesuffix(b"\r")
        if len(line) > _MAX_LINE_BYTES:
            yield line, b""
            continue
        found = _SECTION.match(line)
        head, rest = (b"", line) if found is None else (found[1], line[found.end() :])
        section = section if found is None else found[2].lower()
        yield line, _USER.sub(rb"\1", line) if _is_shown(section, rest) else _USER.sub(rb"\1", head)


def _is_shown(section: bytes, entry: bytes) -> bool:
    if not entry.strip() or entry.lstrip().startswith((b"#", b";")):
        return not _HIDDEN_VALUE.search(entry)
    found = _ENTRY.match(entry)
    if found is None or section.partition(b".")[0] == _HIDDEN_SECTION:
        return False
    return not _HIDDEN_KEY.search(found[1]) and not _HIDDEN_VALUE.search(entry[found.end() :])
