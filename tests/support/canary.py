"""Finds secrets in bytes, however they were dressed, whole or in part.

Looks for any window of 24 characters of a secret: raw, JSON- and `\\u`-escaped, base64 and base64url at the three
offsets, hex, percent-encoded, UTF-16, and inside gzip members. Shares no code with the product.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

WINDOW = 24
# All pieces of 16 are known, and places are looked at in steps of 8: each window of 24 holds such a piece whole.
_PIECE, _STRIDE = 16, 8


@dataclass(frozen=True)
class Leak:
    secret: str
    form: str
    where: str

    def __str__(self) -> str:
        return f"{self.secret} ({self.form}) in {self.where}"


class Canary:
    """Made once for all secrets of a run; `search` many places with it. Secrets are ASCII of 24 characters or more."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._pieces: dict[bytes, tuple[str, str]] = {}
        for name, secret in secrets.items():
            if len(secret) < WINDOW:
                raise ValueError(f"{name} is too short to be told from chance")
            for form, text in _encoded(secret.encode("ascii")):
                for start in range(len(text) - _PIECE + 1):
                    self._pieces[text[start : start + _PIECE]] = (name, form)

    def search(self, data: bytes, where: str) -> list[Leak]:
        """At most one leak of each secret."""
        leaks: dict[str, Leak] = {}
        for view, text in _views(data):
            for start in range(0, len(text) - _PIECE + 1, _STRIDE):
                found = self._pieces.get(text[start : start + _PIECE])
                if found is not None:
                    name, form = found
                    leaks.setdefault(name, Leak(name, form + view, where))
        return list(leaks.values())

    def search_messages(self, messages: list[Any], where: str) -> list[Leak]:
        """Over message boundaries: the strings of each member of the messages, one behind the other."""
        members: dict[str, list[str]] = {}
        for message in messages:
            _collect(message, "", members)
        streams = (("".join(strings).encode("utf-8", "replace"), name) for name, strings in members.items())
        return [leak for text, name in streams for leak in self.search(text, f"{where}, member {name!r}")]

    def search_tree(self, root: Path, *, store_may_hold: bool = True) -> list[Leak]:
        """Search all files below `root`, and their names. `store_may_hold`: a database holds signatures, but no key."""
        leaks = []
        for path in sorted(p for p in root.rglob("*") if p.is_file() and not p.is_symlink()):
            found = self.search(path.read_bytes(), str(path)) + self.search(path.name.encode(), f"the name {path}")
            kept = store_may_hold and is_store(path)
            leaks += [leak for leak in found if not kept or leak.secret.endswith("key")]
        return leaks


def is_store(path: Path) -> bool:
    """An SQLite file or what belongs to one."""
    main = path.with_name(re.sub(r"-(wal|shm|journal)$", "", path.name))
    return main.is_file() and main.read_bytes()[:16] == b"SQLite format 3\0"


def _encoded(secret: bytes) -> Iterator[tuple[str, bytes]]:
    yield "raw", secret
    for offset in range(3):
        # Groups of four letters stand for three bytes; the last, incomplete group depends on what follows.
        whole = secret[offset:][: (len(secret) - offset) // 3 * 3]
        yield f"base64+{offset}", base64.b64encode(whole)
        yield f"base64url+{offset}", base64.urlsafe_b64encode(whole)


def _views(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield "", data
    unescaped = re.sub(rb"\\+u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)).encode("utf-8", "replace"), data)
    unescaped = re.sub(rb"\\+([/\"\\])", rb"\1", unescaped)
    decoders = {" escaped": unescaped, " percent": unquote_to_bytes(data), " utf-16": data.replace(b"\0", b"")}
    for name, view in decoders.items():
        if view != data:
            yield name, view
    for run in re.findall(rb"(?:[0-9a-fA-F]{2}[ :]?){%d,}" % WINDOW, data):
        digits = re.sub(rb"[ :]", b"", run).decode()
        yield " hex", bytes.fromhex(digits[: len(digits) // 2 * 2])
        yield " hex", bytes.fromhex(digits[1:][: (len(digits) - 1) // 2 * 2])
    for member in re.finditer(rb"\x1f\x8b\x08", data):
        unpacked = _gunzip(data[member.start() :])
        if unpacked:
            yield " gzip", unpacked


def _gunzip(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(data)
    except zlib.error:
        return b""


def _collect(value: Any, name: str, members: dict[str, list[str]]) -> None:
    if isinstance(value, str):
        members.setdefault(name, []).append(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(item, key, members)
    elif isinstance(value, list):
        for item in value:
            _collect(item, name, members)
