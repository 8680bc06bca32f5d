"""Lines as editors define them, and the lines that two texts have in common.

A line ends only at ``\\n``, ``\\r\\n`` or ``\\r``, while `str.splitlines` also splits at form feeds and U+2028. Lines
are compared only for equality. The changes between two texts are those that `git merge-file` finds, so that a merge
agrees with Git. First comes a short edit script. Then insertions and deletions move along equal lines to a place that
does not depend on the script. The search is cut short for large changes, so that its cost grows with the number of
lines: the rest of such texts is split at lines that occur once in each text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise

# Characters that `str.splitlines` treats as line endings but editors do not.
_OTHER_SEPARATORS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# The maximum number of steps of a search from each of its ends. The cost of a search is the square of its steps. Once
# all searches together have reached the maximum cost, the others get fewer steps.
_MAX_STEPS, _FEW_STEPS = 256, 16
_MAX_COST = 30 * _MAX_STEPS**2
# The maximum number of times that a region is split at lines that occur once in each text, and its parts again.
_MAX_LEVELS = 8
# A line is frequent if the other text repeats it this often, or as often as the square root of the number of lines.
_MAX_FREQUENT = 1024
# The number of lines before and after a frequent line that decide whether the search uses it.
_NEAR_LINES = 100
_MISSING, _RARE, _FREQUENT = "mrf"
# A position outside all texts.
_FAR = 1 << 60

MatchingBlock = tuple[int, int, int]
"""A tuple `(i, j, n)`, meaning that `a[i:i+n] == b[j:j+n]` for the lines `a` and `b` of two texts."""
ChangedBlock = tuple[int, int, int, int]
"""A tuple `(i1, i2, j1, j2)`, meaning that `b[j1:j2]` replaced the lines `a[i1:i2]`."""
_Gap = tuple[int, int]
"""A tuple `(common, count)`: after so many common lines, a text has `count` lines that the other text does not have."""


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


def count_line_ends(text: str) -> dict[str, int]:
    """Count the line endings of each style."""
    both = text.count("\r\n")
    return {"\n": text.count("\n") - both, "\r\n": both, "\r": text.count("\r") - both}


def find_line_end(text: str) -> str:
    """Return the most common line ending in the text."""
    ends = count_line_ends(text)
    return max(ends, key=ends.__getitem__)


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

    They are the changes that `git merge-file` finds, unless the search is cut short. If equal lines leave a choice,
    changes that can meet are one change, and other insertions and deletions are as far down as possible.
    """
    removed, added = _find_gaps(a, b)
    removed = _slide_gaps(a, removed, added)
    added = _slide_gaps(b, added, removed)
    removed_at, added_at = dict(removed), dict(added)
    changes: list[ChangedBlock] = []
    i = j = 0
    for common in sorted({*removed_at, *added_at}):
        i1, j1 = common + i, common + j
        i += removed_at.get(common, 0)
        j += added_at.get(common, 0)
        changes.append((i1, common + i, j1, common + j))
    return changes


def _find_gaps(a: Sequence[str], b: Sequence[str]) -> tuple[list[_Gap], list[_Gap]]:
    """Return the gaps of both texts, in ascending order, as the search finds them."""
    # Skip the common lines at the beginning and the end, because texts usually differ in only a few lines.
    head = _count_common_head(a, b, 0, len(a), 0, len(b))
    tail = _count_common_tail(a, b, head, len(a), head, len(b))
    blocks = [(0, 0, head)]
    # Counting the lines of both texts takes most of the time, and most edits replace lines by other lines.
    if not set(a[head : len(a) - tail]).isdisjoint(b[head : len(b) - tail]):
        at_a = _select_lines(a, range(head, len(a) - tail), Counter(b))
        at_b = _select_lines(b, range(head, len(b) - tail), Counter(a))
        matches = _match([a[at] for at in at_a], [b[at] for at in at_b])
        blocks += ((at_a[i + k], at_b[j + k], 1) for i, j, count in matches for k in range(count))
    removed: list[_Gap] = []
    added: list[_Gap] = []
    i = j = common = 0
    for start, other, count in (*blocks, (len(a) - tail, len(b) - tail, tail)):
        if i < start:
            removed.append((common, start - i))
        if j < other:
            added.append((common, other - j))
        i, j, common = start + count, other + count, common + count
    return removed, added


def _select_lines(lines: Sequence[str], region: range, others: Counter[str]) -> list[int]:
    """Return the indexes of the lines in the region that take part in the search.

    Lines that the other text does not contain are left out. Frequent lines such as `}` are left out if most lines
    around them are: otherwise they would cut a rewritten function into pieces.
    """
    frequent = min(_MAX_FREQUENT, 1 << (len(lines).bit_length() + 1) // 2)
    kinds = "".join(
        _MISSING if not count else _RARE if count < frequent else _FREQUENT
        for count in (others[lines[at]] for at in region)
    )
    kept: list[int] = []
    for at, kind in enumerate(kinds):
        if kind == _FREQUENT:
            before = kinds[max(at - _NEAR_LINES, 0) : at].rpartition(_RARE)[2]
            after = kinds[at + 1 : at + 1 + _NEAR_LINES].partition(_RARE)[0]
            missing = before.count(_MISSING), after.count(_MISSING)
            if all(missing) and sum(missing) > 3 * (2 + len(before) + len(after) - sum(missing)):
                continue
        if kind != _MISSING:
            kept.append(region[at])
    return kept


def _slide_gaps(lines: Sequence[str], gaps: Sequence[_Gap], others: Sequence[_Gap]) -> list[_Gap]:
    """Move gaps down along equal lines and join those that meet.

    Adding `x` before or after an equal line `x` gives the same text. A gap moves as far as possible, or to the last gap
    of the other text (`others`) that is within its reach, because both gaps are then one change.
    """
    places = [common for common, _ in others]
    waiting, settled = [*reversed(gaps)], list[_Gap]()
    total = len(lines) - sum(count for _, count in gaps)
    above = 0  # The number of lines in the settled gaps.
    while waiting:
        common, count = waiting.pop()
        before = 0
        while before != count:
            before = count
            while True:
                room, start = common - (settled[-1][0] if settled else 0), common + above
                moved = _count_common_tail(lines, lines, start - room, start, start - room + count, start + count)
                common -= moved
                if moved < room or not settled:
                    break
                above -= settled[-1][1]
                count += settled.pop()[1]
            highest = common
            while True:
                room, start = (waiting[-1][0] if waiting else total) - common, common + above
                moved = _count_common_head(lines, lines, start, start + room, start + count, start + count + room)
                common += moved
                if moved < room or not waiting:
                    break
                count += waiting.pop()[1]
        index = bisect_right(places, common) - 1
        if index >= 0 and places[index] >= highest:
            common = places[index]
        settled.append((common, count))
        above += count
    return settled


def _match(a: Sequence[str], b: Sequence[str]) -> list[MatchingBlock]:
    """Find the common blocks with an explicit stack, because recursion could go too deep for large files.

    Once the maximum cost is reached, regions with large changes are split at lines that occur once in each text.
    """
    matches: list[MatchingBlock] = []
    open_regions = [(0, len(a), 0, len(b), 0)]
    cost = 0
    while open_regions:
        i1, i2, j1, j2, level = open_regions.pop()
        head = _count_common_head(a, b, i1, i2, j1, j2)
        tail = _count_common_tail(a, b, i1 + head, i2, j1 + head, j2)
        matches.extend(block for block in ((i1, j1, head), (i2 - tail, j2 - tail, tail)) if block[2])
        i1, i2, j1, j2 = i1 + head, i2 - tail, j1 + head, j2 - tail
        if i1 == i2 or j1 == j2:
            continue
        most = _MAX_STEPS if cost < _MAX_COST else _FEW_STEPS
        split, steps = _find_split(a, b, i1, i2, j1, j2, most)
        cost += steps * steps
        anchors: list[tuple[int, int]] = []
        if steps > most == _FEW_STEPS and level < _MAX_LEVELS:
            anchors = [(i1 + i, j1 + j) for i, j in _find_anchors(a[i1:i2], b[j1:j2])]
            level = level + 1 if anchors else _MAX_LEVELS
        edges = [(i1, j1), *(anchors or [split]), (i2, j2)]
        open_regions += ((i, i_end, j, j_end, level) for (i, j), (i_end, j_end) in pairwise(edges))
    return sorted(matches)


def _find_split(
    a: Sequence[str], b: Sequence[str], i1: int, i2: int, j1: int, j2: int, most: int
) -> tuple[tuple[int, int], int]:
    """Return a position on a shortest edit script of a region, and the number of steps that its search took.

    Myers' greedy search starts at both ends. If `most` steps are not enough, the position is the farthest one from
    either end, and the number is larger.
    """
    first, last = i1 - j1, i2 - j2
    is_odd = (first - last) % 2
    forward, backward = {first: i1}, {last: i2}
    for steps in range(1, most + 1):
        for k in _list_diagonals(first, steps, i1 - j2, i2 - j1):
            left, right = forward.get(k - 1, -1), forward.get(k + 1, -1)
            x = left + 1 if left >= right else right
            if x < i2 and x - k < j2 and a[x] == b[x - k]:
                x += _count_common_head(a, b, x, i2, x - k, j2)
            forward[k] = x
            if is_odd and k in backward and backward[k] <= x:
                return (x, x - k), steps
        for k in _list_diagonals(last, steps, i1 - j2, i2 - j1):
            left, right = backward.get(k - 1, _FAR), backward.get(k + 1, _FAR)
            x = left if left < right else right - 1
            if x > i1 and x - k > j1 and a[x - 1] == b[x - k - 1]:
                x -= _count_common_tail(a, b, i1, x, j1, x - k)
            backward[k] = x
            if not is_odd and k in forward and x <= forward[k]:
                return (x, x - k), steps
    ends = [(x, x - k) for k in _list_diagonals(first, most, i1 - j2, i2 - j1) for x in [min(forward[k], i2, j2 + k)]]
    starts = [(x, x - k) for k in _list_diagonals(last, most, i1 - j2, i2 - j1) for x in [max(backward[k], i1, j1 + k)]]
    end, start = max(ends, key=sum), min(starts, key=sum)
    return (end if i2 + j2 - sum(start) < sum(end) - i1 - j1 else start), most + 1


def _list_diagonals(middle: int, steps: int, lowest: int, highest: int) -> range:
    """Return the diagonals that a search from `middle` reaches in so many steps, from the highest to the lowest."""
    low = max(middle - steps, lowest + (lowest - middle + steps) % 2)
    high = min(middle + steps, highest - (highest - middle + steps) % 2)
    return range(high, low - 1, -2)


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
    """Return the number of lines at the end that both texts share, like `_count_common_head`."""
    count, most, stretch = 0, min(i2 - i1, j2 - j1), 1
    while count < most and stretch:
        stretch = min(stretch, most - count)
        at, other = i2 - count, j2 - count
        if a[at - stretch : at] == b[other - stretch : other]:
            count, stretch = count + stretch, 4 * stretch
        else:
            stretch = stretch // 4 or int(stretch > 1)
    return count


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
