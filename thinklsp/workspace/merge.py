"""Three-way merge of texts by lines: what the turn wrote (ours) onto what the user has meanwhile (theirs).

Changes with at least one unchanged line between them are both kept; changes that touch are a conflict, unless both
sides made the same one. There are no conflict markers: a conflicted text is left to its owner.
"""

from __future__ import annotations

from dataclasses import dataclass

from thinklsp.core.lines import changed_blocks, split_lines


@dataclass(frozen=True, slots=True)
class Merged:
    text: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Regions in which both sides changed something: `(first, last)` line numbers of the base, counted from 1.

    An insertion between two lines is named by the line that it stands before: `(n, n - 1)`.
    """

    regions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Change:
    """Base lines `[start, end)` become `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]
    ours: bool


@dataclass(slots=True)
class _Region:
    start: int
    end: int
    changes: list[_Change]


def merge(base: str, ours: str, theirs: str, *, ours_wins: bool = False) -> Merged | Conflict:
    """`ours_wins`: regions that both sides changed become what ours has, so that there is no conflict."""
    if ours == theirs or base == theirs:
        return Merged(ours)
    if base == ours:
        return Merged(theirs)
    lines = split_lines(base)
    merged: list[str] = []
    conflicts: list[tuple[int, int]] = []
    at = 0
    for region in _regions([*_changes(lines, ours, ours=True), *_changes(lines, theirs, ours=False)]):
        merged += lines[at : region.start]
        at = region.end
        replacement = _replacement(lines, region, ours_wins=ours_wins)
        if replacement is None:
            conflicts.append((region.start + 1, region.end))
        else:
            merged += replacement
    if conflicts:
        return Conflict(tuple(conflicts))
    return Merged("".join((*merged, *lines[at:])))


def _changes(base: list[str], text: str, *, ours: bool) -> list[_Change]:
    lines = split_lines(text)
    return [_Change(i1, i2, tuple(lines[j1:j2]), ours) for i1, i2, j1, j2 in changed_blocks(base, lines)]


def _regions(changes: list[_Change]) -> list[_Region]:
    """Changes of both sides, joined where they overlap or touch."""
    regions: list[_Region] = []
    for change in sorted(changes, key=lambda change: (change.start, change.end)):
        if regions and change.start <= regions[-1].end:
            regions[-1].changes.append(change)
            regions[-1].end = max(regions[-1].end, change.end)
        else:
            regions.append(_Region(change.start, change.end, [change]))
    return regions


def _replacement(base: list[str], region: _Region, *, ours_wins: bool) -> list[str] | None:
    sides = {change.ours for change in region.changes}
    if ours_wins and True in sides:
        return _side(base, region, ours=True)
    versions = [_side(base, region, ours=ours) for ours in sides]
    return versions[0] if all(version == versions[0] for version in versions) else None


def _side(base: list[str], region: _Region, *, ours: bool) -> list[str]:
    """The region as one side has it."""
    lines: list[str] = []
    at = region.start
    for change in region.changes:
        if change.ours == ours:
            lines += (*base[at : change.start], *change.lines)
            at = change.end
    return lines + base[at : region.end]
