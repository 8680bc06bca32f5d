"""Conversion between LSP positions in the client's encoding and offsets, and spans that follow changes of a text.

Offsets are in code points.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Literal

from lsprotocol.types import Position, Range

from thinklsp.core.lines import (
    find_changed_blocks,
    find_line_starts,
    find_matching_blocks,
    split_lines,
    split_without_ends,
)

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
    """A text and the offsets of its lines, used to convert offsets to positions."""

    def __init__(self, text: str, encoding: Encoding) -> None:
        self._text = text
        self._encoding: Encoding = encoding
        self._starts = find_line_starts(text)

    def to_position(self, offset: int) -> Position:
        line = bisect_right(self._starts, offset) - 1
        return Position(line, count_units(self._text[self._starts[line] : offset], self._encoding))

    def to_range(self, start: int, end: int) -> Range:
        return Range(self.to_position(start), self.to_position(end))


Span = tuple[int, int]
"""A half-open range of offsets, `[start, end)`, that is never empty."""


def count_common_ends(old: str, new: str) -> Span:
    """Return the lengths of the common prefix of two texts and of the common suffix of the remaining texts."""
    head = _count_common_prefix(old, new)
    shortest = min(len(old), len(new)) - head
    tail = 0 if not shortest else _count_common_prefix(old[: -shortest - 1 : -1], new[: -shortest - 1 : -1])
    return head, tail


def _count_common_prefix(left: str, right: str) -> int:
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def shift_spans(spans: Iterable[Span], start: int, end: int, length: int) -> Iterator[Span]:
    """Yield the parts of the spans that remain after the text in `[start, end)` was replaced by `length` characters."""
    shift = length - (end - start)
    for first, last in spans:
        if end <= first:
            yield first + shift, last + shift
        elif start >= last:
            yield first, last
        else:
            if first < start:
                yield first, start
            if end < last:
                yield end + shift, last + shift


def find_written_spans(before: str, after: str, now: str) -> list[Span]:
    """Return the lines written by the change from `before` to `after` that still exist in `now`, as spans.

    Line endings and blank lines are ignored.
    """
    new = split_without_ends(after)
    blocks = find_changed_blocks(split_without_ends(before), new)
    changed = [j for _, _, j1, j2 in blocks for j in range(j1, j2) if new[j].strip()]
    if not changed:
        return []
    lines, bodies = split_lines(now), split_without_ends(now)
    starts = [0, *accumulate(map(len, lines))]
    spans: list[Span] = []
    last = -2
    for i, j, count in find_matching_blocks(new, bodies):
        for number in changed[bisect_left(changed, i) : bisect_left(changed, i + count)]:
            line = j + number - i
            end = starts[line] + len(bodies[line])
            if line == last + 1 and spans:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((starts[line], end))
            last = line
    return spans


def find_first_lines(spans: Sequence[Span], lines: Sequence[str], near: int) -> list[int]:
    """Return the zero-based line on which each group of spans begins.

    Groups are more than `near` lines apart. `lines` must include line endings.
    """
    starts = [0, *accumulate(map(len, lines))]
    result: list[int] = []
    last = -near - 2
    for start, end in sorted(spans):
        line = bisect_right(starts, start) - 1
        if line - last > near:
            result.append(line)
        last = max(last, bisect_right(starts, end - 1) - 1)
    return result
