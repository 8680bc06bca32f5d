"""A buffer for the arguments of a tool call, which some compatible servers send more than once."""

from __future__ import annotations

import json
from collections.abc import Iterator

from thinklsp.core.json_bytes import read_json
from thinklsp.core.stream_events import TextBuffer

_PLACEHOLDERS = ("{}", "null")
_DECODER = json.JSONDecoder()
# Pieces beyond this many characters count only if they replace the pieces before them.
_MAX_PLAIN_CHARS = 1024 * 1024


class ArgumentBuffer(TextBuffer):
    """The pieces of a call's arguments. `str(buffer)` joins them, and repairs the result only if it is not JSON.

    A piece that begins with everything so far replaces it. An equal complete object is a repetition. An empty object or
    null in front of an object is a placeholder. `size` is the number of characters without the replaced pieces.
    """

    __slots__ = ("_merged", "_plain_size", "size")

    def __init__(self) -> None:
        super().__init__()
        self._merged = TextBuffer()
        self._plain_size = self.size = 0

    def append(self, text: str) -> None:
        self._plain_size += len(text)
        if self._plain_size <= _MAX_PLAIN_CHARS:
            super().append(text)
        if self.size <= len(text) and text.lstrip().startswith("{") and self._is_replaced_by(text):
            self._merged, self.size = TextBuffer(text), len(text)
        else:
            self._merged.append(text)
            self.size += len(text)

    def __str__(self) -> str:
        plain, merged = super().__str__(), str(self._merged)
        if self._plain_size > _MAX_PLAIN_CHARS:
            plain = merged
        if not plain.strip() or _is_json(plain):
            return plain
        if _is_json(merged):
            return merged
        return _find_only_object(merged) or plain

    def _is_replaced_by(self, text: str) -> bool:
        merged = str(self._merged)
        return text.startswith(merged) or merged.strip() in _PLACEHOLDERS


def _is_json(text: str) -> bool:
    try:
        read_json(text)
    except ValueError:
        return False
    return True


def _find_only_object(text: str) -> str | None:
    """Return the object that the text consists of, repeated or behind placeholders, or None otherwise."""
    try:
        values = list(_split_values(text))
    except (ValueError, RecursionError):
        return None
    first = next((place for place, (value, _) in enumerate(values) if value), len(values) - 1)
    found, source = values[first]
    is_only = all(value is None or value == {} for value, _ in values[:first]) and all(
        value == found for value, _ in values[first:]
    )
    return source if is_only and isinstance(found, dict) else None


def _split_values(text: str) -> Iterator[tuple[object, str]]:
    """Yield the JSON values of a text, each with its source. Raise ValueError if the text has anything else."""
    start, length = 0, len(text)
    while start < length:
        if text[start].isspace():
            start += 1
            continue
        value, end = _DECODER.raw_decode(text, start)
        yield value, text[start:end]
        start = end
