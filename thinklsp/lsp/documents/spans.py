"""Parts of a text, followed through its changes. Pure; offsets are code points of the text that they refer to."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from thinklsp.core.lines import changed_blocks, line_bodies, matching_blocks, split_lines

Span = tuple[int, int]
"""`[start, end)`, never empty."""


def trimmed(old: str, new: str) -> Span:
    """How many characters two texts have in common at their beginning, and behind that at their end."""
    head = _common(old, new)
    shortest = min(len(old), len(new)) - head
    tail = 0 if not shortest else _common(old[: -shortest - 1 : -1], new[: -shortest - 1 : -1])
    return head, tail


def _common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def followed(spans: Iterable[Span], start: int, end: int, length: int) -> Iterator[Span]:
    """What is left of the spans, and where it is, after `[start, end)` was replaced by `length` characters."""
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


def written(before: str, after: str, now: str) -> list[Span]:
    """The lines that a change from `before` to `after` wrote, where they still stand in `now`. Line ends do not count,
    and nor do lines that are blank."""
    new = line_bodies(after)
    blocks = changed_blocks(line_bodies(before), new)
    changed = [j for _, _, j1, j2 in blocks for j in range(j1, j2) if new[j].strip()]
    if not changed:
        return []
    lines, bodies = split_lines(now), line_bodies(now)
    starts = [0, *accumulate(map(len, lines))]
    found: list[Span] = []
    last = -2
    for i, j, count in matching_blocks(new, bodies):
        for number in changed[bisect_left(changed, i) : bisect_left(changed, i + count)]:
            at = j + number - i
            end = starts[at] + len(bodies[at])
            if at == last + 1 and found:
                found[-1] = (found[-1][0], end)
            else:
                found.append((starts[at], end))
            last = at
    return found


def first_lines(spans: Sequence[Span], lines: Sequence[str], near: int) -> list[int]:
    """The line, from 0, on which each group of spans begins; groups are more than `near` lines apart. `lines` with
    their ends."""
    starts = [0, *accumulate(map(len, lines))]
    found: list[int] = []
    last = -near - 2
    for start, end in sorted(spans):
        line = bisect_right(starts, start) - 1
        if line - last > near:
            found.append(line)
        last = max(last, bisect_right(starts, end - 1) - 1)
    return found
