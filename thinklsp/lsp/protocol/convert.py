"""Positions between editors and us: lines and columns in the client's encoding, offsets in code points here."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Any, Literal

from thinklsp.core.lines import split_lines

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_ENDS = "\r\n"


def split_keeping_ends(text: str) -> list[str]:
    """Lines with their ends; the last one is the rest after the last line end and may be empty."""
    lines = split_lines(text)
    if not lines or lines[-1][-1] in _ENDS:
        lines.append("")
    return lines


def units(text: str, encoding: Encoding) -> int:
    """Length of a text in the client's units."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-16":
        return len(text) + sum(1 for c in text if c > "\uffff")
    return len(text.encode("utf-8", "surrogatepass"))


def column_of(line: str, character: int, encoding: Encoding) -> int:
    """Code points before a column given in the client's units. Beyond the line means its end; a position inside a
    character means before it."""
    body = line.rstrip(_ENDS)
    if encoding == "utf-32" or body.isascii():
        return min(character, len(body))
    width = 0
    for index, char in enumerate(body):
        width += units(char, encoding)
        if width > character:
            return index
    return len(body)


class Lines:
    """A text with its line starts: offsets to positions and back."""

    def __init__(self, text: str, encoding: Encoding) -> None:
        self._text = text
        self._encoding: Encoding = encoding
        self._starts = [0, *accumulate(map(len, split_keeping_ends(text)[:-1]))]

    def position(self, offset: int) -> dict[str, int]:
        line = bisect_right(self._starts, offset) - 1
        return {"line": line, "character": units(self._text[self._starts[line] : offset], self._encoding)}

    def range(self, start: int, end: int) -> dict[str, Any]:
        return {"start": self.position(start), "end": self.position(end)}

    def offset(self, line: int, character: int) -> int:
        """Clamped to the text, as the protocol says."""
        if line >= len(self._starts):
            return len(self._text)
        start = self._starts[line]
        end = self._starts[line + 1] if line + 1 < len(self._starts) else len(self._text)
        return start + column_of(self._text[start:end], character, self._encoding)
