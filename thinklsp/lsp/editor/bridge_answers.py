"""Answers of the editor bridge, read: plain JSON of an editor becomes values, or None where it is not what was asked
for. Places of which one is wrong are wrong as a whole; of diagnostics only what is wrong is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from thinklsp.lsp.documents.open_documents import Point
from thinklsp.lsp.protocol.forms import is_message
from thinklsp.tools.editor import Target

_MOST_TARGETS = 500
_MOST_DOCUMENTS = 500
_MOST_DIAGNOSTICS = 1000
_LONGEST_URI = 4096

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Told:
    """Diagnostics of one document. `version`: None where the editor does not know for which they were made.
    `unread`: how many others cannot be read."""

    uri: str
    version: int | None
    diagnostics: tuple[Mapping[str, Any], ...]
    unread: int = 0


def told_of(answer: Any) -> tuple[Told, ...] | None:
    """Of `thinklsp/editor/diagnostics`."""
    if not isinstance(answer, list):
        return None
    found, unread = _readable(answer, _told, _MOST_DOCUMENTS)
    # A document that is not among them is not known about, so that nothing untrue is told by what is left.
    return None if unread and not found else found


def targets_of(answer: Any) -> tuple[Target, ...] | None:
    """Of a request for definitions or references: Location, Location[], LocationLink[] or null. Each place once."""
    if answer is None:
        return ()
    found = _all(answer if isinstance(answer, list) else [answer], _target, _MOST_TARGETS)
    return None if found is None else tuple(dict.fromkeys(found))


def _all(values: Iterable[Any], read: Callable[[Any], Item | None], most: int) -> tuple[Item, ...] | None:
    """At most so many; None where one of them is nothing of the kind."""
    found: list[Item] = []
    for value in values:
        item = read(value)
        if item is None:
            return None
        found.append(item)
        if len(found) == most:
            break
    return tuple(found)


def _readable(values: Iterable[Any], read: Callable[[Any], Item | None], most: int) -> tuple[tuple[Item, ...], int]:
    """At most so many, and how many between them are nothing of the kind."""
    found: list[Item] = []
    unread = 0
    for value in values:
        item = read(value)
        if item is None:
            unread += 1
        else:
            found.append(item)
        if len(found) == most:
            break
    return tuple(found), unread


def _told(value: Any) -> Told | None:
    if not isinstance(value, Mapping) or not isinstance(diagnostics := value.get("diagnostics"), list):
        return None
    uri = parse_uri(value.get("uri"))
    if uri is None:
        return None
    return Told(uri, parse_count(value.get("version")), *_readable(diagnostics, _diagnostic, _MOST_DIAGNOSTICS))


def _diagnostic(value: Any) -> Mapping[str, Any] | None:
    fits = isinstance(value, Mapping) and is_message(value.get("message"))
    return value if fits and parse_range(value.get("range")) is not None else None


def _target(value: Any) -> Target | None:
    if not isinstance(value, Mapping):
        return None
    is_link = "targetUri" in value
    uri = parse_uri(value.get("targetUri" if is_link else "uri"))
    where = parse_range(value.get("targetRange" if is_link else "range"))
    if uri is None or where is None or where[1] < where[0]:
        return None
    return Target(uri, *target_lines(where))


def target_lines(where: tuple[Point, Point]) -> tuple[int, int]:
    """Return the first and the last line of a range, counted from 1."""
    (first, _), (last, end) = where
    # A range that ends at the start of a line does not hold that line.
    return first + 1, max(first + 1, last if end == 0 else last + 1)


def parse_uri(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST_URI else None


def parse_range(value: Any) -> tuple[Point, Point] | None:
    if not isinstance(value, Mapping):
        return None
    start, end = _position(value.get("start")), _position(value.get("end"))
    return None if start is None or end is None else (start, end)


def _position(value: Any) -> Point | None:
    if not isinstance(value, Mapping):
        return None
    line, character = parse_count(value.get("line")), parse_count(value.get("character"))
    return None if line is None or character is None else (line, character)


def parse_count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None
