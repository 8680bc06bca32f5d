"""Conversion between LSP positions in the client's encoding and offsets in code points."""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal

from lsprotocol.types import Position, Range

from thinklsp.core.lines import find_line_starts, split_lines

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_LINE_ENDS = "\r\n"


def split_keeping_ends(text: str) -> list[str]:
    """Split text into lines that include their line endings.

    The last item is the text after the last line ending, possibly an empty string.
    """
    lines = split_lines(text)
    if not lines or lines[-1][-1] in _LINE_ENDS:
        lines.append("")
    return lines


def count_units(text: str, encoding: Encoding) -> int:
    """Return the length of text in the client's encoding units."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-16":
        return len(text) + sum(1 for c in text if c > "\uffff")
    return len(text.encode("utf-8", "surrogatepass"))


def find_column(line: str, character: int, encoding: Encoding) -> int:
    """Return the number of code points before a column, which is given in the client's encoding units.

    A column beyond the end of the line is treated as the end of the line. A column inside a character is treated as the
    start of that character.
    """
    body = line.rstrip(_LINE_ENDS)
    if encoding == "utf-32" or body.isascii():
        return min(character, len(body))
    width = 0
    for index, char in enumerate(body):
        width += count_units(char, encoding)
        if width > character:
            return index
    return len(body)


class PositionMap:
    """A text and the offsets of its lines, used to convert offsets to positions and back."""

    def __init__(self, text: str, encoding: Encoding) -> None:
        self._text = text
        self._encoding: Encoding = encoding
        self._starts = find_line_starts(text)

    def to_position(self, offset: int) -> Position:
        line = bisect_right(self._starts, offset) - 1
        return Position(line, count_units(self._text[self._starts[line] : offset], self._encoding))

    def to_range(self, start: int, end: int) -> Range:
        return Range(self.to_position(start), self.to_position(end))

    def to_offset(self, line: int, character: int) -> int:
        """Return the offset of a position, clamped to the text as required by the LSP specification."""
        if line >= len(self._starts):
            return len(self._text)
        start = self._starts[line]
        end = self._starts[line + 1] if line + 1 < len(self._starts) else len(self._text)
        return start + find_column(self._text[start:end], character, self._encoding)
