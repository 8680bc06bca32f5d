"""Spans of text that are adjusted as the text changes. Offsets are in code points."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from thinklsp.core.lines import find_changed_blocks, find_matching_blocks, split_lines, split_without_ends

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
