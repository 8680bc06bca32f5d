"""Lines as editors define them, and the lines that two texts have in common.

A line ends only at ``\\n``, ``\\r\\n`` or ``\\r``, while `str.splitlines` also splits at form feeds and U+2028. Lines
are compared only for equality, which takes linear time in practice. A bounded greedy search finds the shortest edit
script for small changes. Large changes are first split at lines that occur once in each text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

# Characters that `str.splitlines` treats as line endings but editors do not.
_OTHER_SEPARATORS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# The maximum length of an edit script. The cost of the search grows with the square of this length.
_MAX_SCRIPT_LINES = 300
# The maximum number of times that the search restarts from its farthest position. It restarts only if no line occurs
# exactly once in both texts.
_MAX_STAGES = 20

# The maximum number of steps by which changes move along equal lines, for each line of both texts.
_MAX_SLIDES_PER_LINE = 8

MatchingBlock = tuple[int, int, int]
"""A tuple `(i, j, n)`, meaning that `a[i:i+n] == b[j:j+n]` for the lines `a` and `b` of two texts."""
ChangedBlock = tuple[int, int, int, int]
"""A tuple `(i1, i2, j1, j2)`, meaning that `b[j1:j2]` replaced the lines `a[i1:i2]`."""


def split_lines(text: str) -> list[str]:
    """Split text into lines, including their line endings.

    Joining the lines restores `text`. Empty text has no lines.
    """
    if any(end in text for end in _OTHER_SEPARATORS):
        return _LINE.findall(text)
    return text.splitlines(keepends=True)


def split_without_ends(text: str) -> list[str]:
    """Split text into lines without their line endings."""
    if any(end in text for end in _OTHER_SEPARATORS):
        return [line.rstrip("\r\n") for line in _LINE.findall(text)]
    return text.splitlines()


def find_line_starts(text: str) -> list[int]:
    """Return the offset of each line. The text after the last line ending is a line, even if it is empty."""
    lines = split_lines(text)
    if lines and lines[-1][-1] not in "\r\n":
        lines.pop()
    return [0, *accumulate(map(len, lines))]


def find_matching_blocks(a: Sequence[str], b: Sequence[str]) -> list[MatchingBlock]:
    """Return the common lines as non-empty blocks in ascending order. Adjacent blocks are merged."""
    blocks: list[MatchingBlock] = []
    i = j = 0
    for change in [*find_changed_blocks(a, b), (len(a), len(a), len(b), len(b))]:
        if i < change[0]:
            blocks.append((i, j, change[0] - i))
        _, i, _, j = change
    return blocks


def find_changed_blocks(a: Sequence[str], b: Sequence[str]) -> list[ChangedBlock]:
    """Return the changes in ascending order, separated by at least one common line.

    If equal lines leave a choice, changes that can meet are one change, and a pure insertion or deletion is as far down
    as possible. So two texts with the same insertion have the same change of their common base.
    """
    slider = _Slider(a, b)
    changes: list[ChangedBlock] = []
    for change in reversed(_find_separate_changes(a, b)):
        lowest = slider.slide_down(change, changes[-1][0] if changes else len(a))
        while changes and (joined := slider.join(lowest, changes[-1])):
            changes.pop()
            lowest = slider.slide_down(joined, changes[-1][0] if changes else len(a))
        changes.append(lowest)
    return changes[::-1]


def _find_separate_changes(a: Sequence[str], b: Sequence[str]) -> list[ChangedBlock]:
    # Skip the common lines at the beginning and the end, because texts usually differ in only a few lines.
    head = _count_common_head(a, b, 0, len(a), 0, len(b))
    tail = _count_common_tail(a, b, head, len(a), head, len(b))
    between = ((i + head, j + head, n) for i, j, n in _match(a[head : len(a) - tail], b[head : len(b) - tail]))
    changes: list[ChangedBlock] = []
    i, j = head, head
    for start, other, count in (*between, (len(a) - tail, len(b) - tail, tail)):
        if (i, j) != (start, other):
            changes.append((i, start, j, other))
        i, j = start + count, other + count
    return changes


class _Slider:
    """Moves pure insertions and deletions along equal lines.

    Inserting `x` before or after an equal line `x` gives the same text. The number of steps is limited, so that the
    cost grows with the number of lines.
    """

    def __init__(self, a: Sequence[str], b: Sequence[str]) -> None:
        self._a, self._b = a, b
        self._steps = _MAX_SLIDES_PER_LINE * (len(a) + len(b))

    def join(self, above: ChangedBlock, below: ChangedBlock) -> ChangedBlock | None:
        """Return both changes as one if they touch or the lower one can slide up to the other. Else return None."""
        gap = below[0] - above[1]
        if self._count_steps(below, -1, gap) < gap:
            return None
        return (above[0], below[1] - gap, above[2], below[3] - gap)

    def slide_down(self, change: ChangedBlock, limit: int) -> ChangedBlock:
        """Move a change down as far as possible, but not beyond the line `limit` of the first text."""
        i1, i2, j1, j2 = change
        count = self._count_steps(change, 1, limit - i2)
        return (i1 + count, i2 + count, j1 + count, j2 + count)

    def _count_steps(self, change: ChangedBlock, step: int, most: int) -> int:
        """Count the lines by which a change can move down (`step` is 1) or up (-1). A replacement cannot move."""
        i1, i2, j1, j2 = change
        if i1 != i2 and j1 != j2:
            return 0
        lines, start, end = (self._b, j1, j2) if i1 == i2 else (self._a, i1, i2)
        at, other = (start, end) if step == 1 else (start - 1, end - 1)
        count, most = 0, min(most, self._steps)
        while count < most and lines[at + step * count] == lines[other + step * count]:
            count += 1
        self._steps -= count
        return count


def _match(a: Sequence[str], b: Sequence[str]) -> list[MatchingBlock]:
    """Find the common blocks with an explicit stack, because recursion could go too deep for large files."""
    matches: list[MatchingBlock] = []
    open_regions = [(0, len(a), 0, len(b))]
    stages = 0
    while open_regions:
        i1, i2, j1, j2 = open_regions.pop()
        head = _count_common_head(a, b, i1, i2, j1, j2)
        tail = _count_common_tail(a, b, i1 + head, i2, j1 + head, j2)
        matches.extend(block for block in ((i1, j1, head), (i2 - tail, j2 - tail, tail)) if block[2])
        i1, i2, j1, j2 = i1 + head, i2 - tail, j1 + head, j2 - tail
        if i1 == i2 or j1 == j2:
            continue
        blocks, (x, y) = _find_shortest_script(a[i1:i2], b[j1:j2])
        if (x, y) == (i2 - i1, j2 - j1):
            matches.extend((i + i1, j + j1, n) for i, j, n in blocks)
            continue
        anchors = _find_anchors(a[i1:i2], b[j1:j2])
        for i, j in anchors:
            matches.append((i + i1, j + j1, 1))
        edges = [(-1, -1), *anchors, (i2 - i1, j2 - j1)]
        if anchors:
            open_regions.extend(
                (i1 + edges[k][0] + 1, i1 + edges[k + 1][0], j1 + edges[k][1] + 1, j1 + edges[k + 1][1])
                for k in range(len(edges) - 1)
            )
        elif blocks and stages < _MAX_STAGES:
            stages += 1
            matches.extend((i + i1, j + j1, n) for i, j, n in blocks)
            open_regions.append((i1 + x, i2, j1 + y, j2))
    return sorted(matches)


def _count_common_head(a: Sequence[str], b: Sequence[str], i1: int, i2: int, j1: int, j2: int) -> int:
    """Return the number of leading lines that both texts share.

    Slices are compared instead of single lines, which is ten times faster.
    """
    count, most, stretch = 0, min(i2 - i1, j2 - j1), 1
    while count < most and stretch:
        stretch = min(stretch, most - count)
        at, other = i1 + count, j1 + count
        if a[at : at + stretch] == b[other : other + stretch]:
            count, stretch = count + stretch, 4 * stretch
        else:
            stretch = stretch // 4 or int(stretch > 1)
    return count


def _count_common_tail(a: Sequence[str], b: Sequence[str], i1: int, i2: int, j1: int, j2: int) -> int:
    return _count_common_head(a[i1:i2][::-1], b[j1:j2][::-1], 0, i2 - i1, 0, j2 - j1)


def _find_shortest_script(a: Sequence[str], b: Sequence[str]) -> tuple[list[MatchingBlock], tuple[int, int]]:
    """Return the matching blocks found by Myers' greedy search, and the positions at which the search ended.

    If at most `_MAX_SCRIPT_LINES` lines differ, the search ends at the end of both texts. Otherwise, the search ends at
    the farthest position that it reached.
    """
    n, m = len(a), len(b)
    furthest = {1: 0}
    trail: list[dict[int, int]] = []
    for steps in range(min(n + m, _MAX_SCRIPT_LINES) + 1):
        trail.append(dict(furthest))
        for k in range(-steps, steps + 1, 2):
            down = k == -steps or (k != steps and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            y = x - k
            if x < n and y < m and a[x] == b[y]:
                run = _count_common_head(a, b, x, n, y, m)
                x, y = x + run, y + run
            furthest[k] = x
            if x >= n and y >= m:
                return _walk_back(trail, n, m), (n, m)
    last = len(trail) - 1
    reached = [(furthest[k], furthest[k] - k) for k in range(-last, last + 1, 2)]
    x, y = max(((x, y) for x, y in reached if x <= n and y <= m), key=sum, default=(0, 0))
    return (_walk_back(trail, x, y) if x + y else []), (x, y)


def _walk_back(trail: list[dict[int, int]], x: int, y: int) -> list[MatchingBlock]:
    blocks: list[MatchingBlock] = []
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


def _find_anchors(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Return the longest chain of common lines that occur exactly once in each text, as pairs of line indexes."""
    in_a, in_b = Counter(a), Counter(b)
    positions = {line: j for j, line in enumerate(b) if in_b[line] == 1 and in_a.get(line) == 1}
    pairs = [(i, positions[line]) for i, line in enumerate(a) if line in positions]
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
