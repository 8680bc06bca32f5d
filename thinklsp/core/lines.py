"""Lines of a text as editors count them, and which lines two texts have in common.

A line ends at ``\\n``, ``\\r\\n`` or ``\\r`` only: `str.splitlines` would also cut at form feeds and U+2028.
The matching is linear in practice: small changes are found by a bounded greedy search for the shortest edit script,
large ones are first cut at lines that occur once in both texts. It never reads more into the texts than equality.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

# Where `splitlines` cuts too.
_NO_ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# Edit scripts longer than this are not searched for step by step: the cost grows with its square.
_LONGEST_SCRIPT = 300
# How often the search may go on from the best place that it has come to, where no line occurs only once.
_MOST_STAGES = 20

Block = tuple[int, int, int]
"""`(i, j, n)`: `a[i:i+n] == b[j:j+n]`."""


def split_lines(text: str) -> list[str]:
    """Lines with their ends; joined they give `text` again. An empty text has none."""
    if any(end in text for end in _NO_ENDS):
        return _LINE.findall(text)
    return text.splitlines(keepends=True)


def line_bodies(text: str) -> list[str]:
    """The same lines without their ends."""
    if any(end in text for end in _NO_ENDS):
        return [line.rstrip("\r\n") for line in _LINE.findall(text)]
    return text.splitlines()


def matching_blocks(a: Sequence[str], b: Sequence[str]) -> list[Block]:
    """Common lines in rising order, neighbouring blocks joined, none empty."""
    # Most texts differ in few places.
    head = _common_head(a, b, 0, len(a), 0, len(b))
    tail = _common_tail(a, b, head, len(a), head, len(b))
    between = ((i + head, j + head, n) for i, j, n in _match(a[head : len(a) - tail], b[head : len(b) - tail]))
    joined: list[Block] = []
    for i, j, n in ((0, 0, head), *between, (len(a) - tail, len(b) - tail, tail)):
        if not n:
            continue
        if joined and (joined[-1][0] + joined[-1][2], joined[-1][1] + joined[-1][2]) == (i, j):
            joined[-1] = (joined[-1][0], joined[-1][1], joined[-1][2] + n)
        else:
            joined.append((i, j, n))
    return joined


def changed_blocks(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """`(i1, i2, j1, j2)`: `a[i1:i2]` became `b[j1:j2]`; at least one common line lies between two of them."""
    changes: list[tuple[int, int, int, int]] = []
    i = j = 0
    for start, other, count in [*matching_blocks(a, b), (len(a), len(b), 0)]:
        if (i, j) != (start, other):
            changes.append((i, start, j, other))
        i, j = start + count, other + count
    return changes


def _match(a: Sequence[str], b: Sequence[str]) -> list[Block]:
    """An explicit stack instead of recursion: anchors of a large file may nest deeply."""
    found: list[Block] = []
    open_regions = [(0, len(a), 0, len(b))]
    stages = 0
    while open_regions:
        i1, i2, j1, j2 = open_regions.pop()
        head = _common_head(a, b, i1, i2, j1, j2)
        tail = _common_tail(a, b, i1 + head, i2, j1 + head, j2)
        found.extend(block for block in ((i1, j1, head), (i2 - tail, j2 - tail, tail)) if block[2])
        i1, i2, j1, j2 = i1 + head, i2 - tail, j1 + head, j2 - tail
        if i1 == i2 or j1 == j2:
            continue
        blocks, (x, y) = _shortest_script(a[i1:i2], b[j1:j2])
        if (x, y) == (i2 - i1, j2 - j1):
            found.extend((i + i1, j + j1, n) for i, j, n in blocks)
            continue
        anchors = _anchors(a[i1:i2], b[j1:j2])
        for i, j in anchors:
            found.append((i + i1, j + j1, 1))
        edges = [(-1, -1), *anchors, (i2 - i1, j2 - j1)]
        if anchors:
            open_regions.extend(
                (i1 + edges[k][0] + 1, i1 + edges[k + 1][0], j1 + edges[k][1] + 1, j1 + edges[k + 1][1])
                for k in range(len(edges) - 1)
            )
        elif blocks and stages < _MOST_STAGES:
            stages += 1
            found.extend((i + i1, j + j1, n) for i, j, n in blocks)
            open_regions.append((i1 + x, i2, j1 + y, j2))
    return sorted(found)


def _common_head(a: Sequence[str], b: Sequence[str], i1: int, i2: int, j1: int, j2: int) -> int:
    """Whole stretches are compared at once, which takes a tenth of the time: longer ones, then shorter ones."""
    count, most, stretch = 0, min(i2 - i1, j2 - j1), 1
    while count < most and stretch:
        stretch = min(stretch, most - count)
        at, other = i1 + count, j1 + count
        if a[at : at + stretch] == b[other : other + stretch]:
            count, stretch = count + stretch, 4 * stretch
        else:
            stretch = stretch // 4 or int(stretch > 1)
    return count


def _common_tail(a: Sequence[str], b: Sequence[str], i1: int, i2: int, j1: int, j2: int) -> int:
    count, most, stretch = 0, min(i2 - i1, j2 - j1), 1
    while count < most and stretch:
        stretch = min(stretch, most - count)
        at, other = i2 - count, j2 - count
        if a[at - stretch : at] == b[other - stretch : other]:
            count, stretch = count + stretch, 4 * stretch
        else:
            stretch = stretch // 4 or int(stretch > 1)
    return count


def _shortest_script(a: Sequence[str], b: Sequence[str]) -> tuple[list[Block], tuple[int, int]]:
    """Greedy search along diagonals (Myers), and where it has come to: the end of both, unless more than
    `_LONGEST_SCRIPT` lines differ; then the place for which the most lines have been read."""
    n, m = len(a), len(b)
    furthest = {1: 0}
    trail: list[dict[int, int]] = []
    for steps in range(min(n + m, _LONGEST_SCRIPT) + 1):
        trail.append(dict(furthest))
        for k in range(-steps, steps + 1, 2):
            down = k == -steps or (k != steps and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            y = x - k
            if x < n and y < m and a[x] == b[y]:
                run = _common_head(a, b, x, n, y, m)
                x, y = x + run, y + run
            furthest[k] = x
            if x >= n and y >= m:
                return _walk_back(trail, n, m), (n, m)
    last = len(trail) - 1
    reached = [(furthest[k], furthest[k] - k) for k in range(-last, last + 1, 2)]
    x, y = max(((x, y) for x, y in reached if x <= n and y <= m), key=sum, default=(0, 0))
    return (_walk_back(trail, x, y) if x + y else []), (x, y)


def _walk_back(trail: list[dict[int, int]], x: int, y: int) -> list[Block]:
    blocks: list[Block] = []
    for steps in range(len(trail) - 1, -1, -1):
        furthest, k = trail[steps], x - y
        down = k == -steps or (k != steps and furthest[k - 1] < furthest[k + 1])
        before = k + 1 if down else k - 1
        came_x = furthest[before]
        came_y = came_x - before
        start = came_x if down else came_x + 1
        if x > start:
            blocks.append((start, start - k, x - start))
        x, y = came_x, came_y
    blocks.reverse()
    return blocks


def _anchors(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Lines that occur once in each text, the longest run of them that keeps the order of both."""
    in_a, in_b = Counter(a), Counter(b)
    where = {line: j for j, line in enumerate(b) if in_b[line] == 1 and in_a.get(line) == 1}
    pairs = [(i, where[line]) for i, line in enumerate(a) if line in where]
    ends: list[int] = []
    chain: list[int] = []
    previous: list[int | None] = []
    for index, (_, j) in enumerate(pairs):
        at = bisect_left(ends, j)
        previous.append(chain[at - 1] if at else None)
        ends[at : at + 1] = [j]
        chain[at : at + 1] = [index]
    result: list[tuple[int, int]] = []
    step = chain[-1] if chain else None
    while step is not None:
        result.append(pairs[step])
        step = previous[step]
    result.reverse()
    return result
