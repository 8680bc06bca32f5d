"""A three-way, line-based merge of the turn's changes (ours) and the user's changes (theirs).

The result agrees with `git merge-file`: changes are merged if at least one unchanged line lies between them. Adjacent
changes are a conflict unless they are equal, and the user's text is kept. Editors change byte order marks and line
endings when they open or save a file. Such a change is not a conflict, and the turn's text is adapted to the current
format of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from thinklsp.core.lines import find_changed_blocks, split_lines


@dataclass(frozen=True, slots=True)
class MergedText:
    text: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A conflict, with the regions that both sides changed.

    Each region is a pair `(first, last)` of line numbers in the base, numbered from 1. An insertion before line `n` is
    represented as `(n, n - 1)`.
    """

    regions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Change:
    """A change on one side, which replaces the lines `[start, end)` of the base with `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]
    is_ours: bool


@dataclass(slots=True)
class _Region:
    start: int
    end: int
    changes: list[_Change]


def merge(base: str, ours: str, theirs: str, *, ours_wins: bool = False) -> MergedText | Conflict:
    """Merge the turn's changes with the user's changes.

    If `ours_wins` is true, the turn's changes win all conflicts.
    """
    if ours == theirs or base == theirs:
        return MergedText(ours)
    if base == ours:
        return MergedText(theirs)
    lines = split_lines(base)
    merged: list[str] = []
    conflicts: list[tuple[int, int]] = []
    at = 0
    regions = _group_changes([*_find_changes(lines, ours, is_ours=True), *_find_changes(lines, theirs, is_ours=False)])
    for region in regions:
        merged += lines[at : region.start]
        at = region.end
        replacement = _choose_replacement(lines, region, ours_wins=ours_wins)
        if replacement is None:
            conflicts.append((region.start + 1, region.end))
        else:
            merged += replacement
    merged += lines[at:]
    if not conflicts and not ours_wins and not _has_explained_lines(lines, ours, theirs, merged):
        conflicts = [(region.start + 1, region.end) for region in regions]
    return Conflict(tuple(conflicts)) if conflicts else MergedText("".join(merged))


def _has_explained_lines(base: list[str], ours: str, theirs: str, merged: list[str]) -> bool:
    """Return False if a line occurs more or less often than the changes of both sides explain.

    Repeated lines can be matched in several ways. Two sides that are matched differently would double or lose a line.
    """
    before, mine, yours, result = (
        Counter(base),
        Counter(split_lines(ours)),
        Counter(split_lines(theirs)),
        Counter(merged),
    )
    for line in mine.keys() | yours.keys() | before.keys():
        counts = (mine[line], yours[line], mine[line] + yours[line] - before[line])
        if not min(counts) <= result[line] <= max(counts):
            return False
    return True


def _find_changes(base: list[str], text: str, *, is_ours: bool) -> list[_Change]:
    lines = split_lines(text)
    return [_Change(i1, i2, tuple(lines[j1:j2]), is_ours) for i1, i2, j1, j2 in find_changed_blocks(base, lines)]


def _group_changes(changes: list[_Change]) -> list[_Region]:
    """Group the changes that overlap or touch each other."""
    regions: list[_Region] = []
    for change in sorted(changes, key=lambda change: (change.start, change.end)):
        if regions and change.start <= regions[-1].end:
            regions[-1].changes.append(change)
            regions[-1].end = max(regions[-1].end, change.end)
        else:
            regions.append(_Region(change.start, change.end, [change]))
    return regions


def _choose_replacement(base: list[str], region: _Region, *, ours_wins: bool) -> list[str] | None:
    sides = {change.is_ours for change in region.changes}
    if ours_wins and True in sides:
        return _build_side(base, region, ours=True)
    versions = [_build_side(base, region, ours=is_ours) for is_ours in sides]
    return versions[0] if all(version == versions[0] for version in versions) else None


def _build_side(base: list[str], region: _Region, *, ours: bool) -> list[str]:
    """Return the lines of a region with the changes of one side: the turn (`ours`) or the user."""
    lines: list[str] = []
    at = region.start
    for change in region.changes:
        if change.is_ours == ours:
            lines += (*base[at : change.start], *change.lines)
            at = change.end
    return lines + base[at : region.end]


_BOM = "\ufeff"
_END = re.compile(r"\r\n|\r|\n")
_LAST_END = re.compile(r"(?:\r\n|\r|\n)\Z")


def merge_onto(now: str, before: str, after: str, *, ours_wins: bool = False) -> MergedText | Conflict:
    """Apply the turn's change from `before` to `after` to the current text `now`, keeping the format of `now`.

    If `ours_wins` is true, the turn's change wins in regions that both sides changed.
    """
    mark, plain = _split_bom(now)
    merged = merge(*_convert_format(plain, _split_bom(before)[1], _split_bom(after)[1]), plain, ours_wins=ours_wins)
    return MergedText(mark + merged.text) if isinstance(merged, MergedText) else merged


def is_equal_ignoring_format(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    plain = _split_bom(one)[1]
    return _convert_format(plain, _split_bom(other)[1], "")[0] == plain


def _split_bom(text: str) -> tuple[str, str]:
    """Split the byte order mark off, because it is not part of the first line."""
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def _convert_format(plain: str, before: str, after: str) -> tuple[str, str]:
    old, new = _find_line_ends(before), _find_line_ends(plain)
    if len(new) == 1 and len(old) <= 1 and old != new:
        [end] = new
        before, after = _END.sub(end, before), _END.sub(end, after)
    if before and plain and _has_final_line_end(before) != _has_final_line_end(plain):
        before, after = _match_final_line_end(plain, before), _match_final_line_end(plain, after)
    return before, after


def _find_line_ends(text: str) -> set[str]:
    """Return the kinds of line endings in a text.

    Most texts use only one kind, which is detected without scanning each line.
    """
    if "\r" not in text:
        return {"\n"} if "\n" in text else set()
    return set(_END.findall(text))


def _has_final_line_end(text: str) -> bool:
    return text[-1:] in ("\r", "\n")


def _match_final_line_end(plain: str, text: str) -> str:
    end = _LAST_END.search(plain)
    if end is None:
        return _LAST_END.sub("", text)
    return text if not text or _has_final_line_end(text) else text + end[0]
