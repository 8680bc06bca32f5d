"""A sent change compared, hunk by hunk, with the text that the editor or the disk shows. Pure.

A hunk is a block of changed lines. Line ends and a byte order mark do not count: editors change both when they open or
save a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from thinklsp.core.edits import FileEdit, count_hunks, split_comparable_lines
from thinklsp.core.lines import changed_blocks, matching_blocks, split_lines
from thinklsp.engine.results import Hunks
from thinklsp.lsp.documents.spans import trimmed

# Alignments that are followed at once. More than one occurs only if equal lines repeat.
_MAX_ALIGNMENTS = 64
_MAX_LINES = 10

_Block = tuple[int, int, int, int]
"""`(i1, i2, j1, j2)`: lines `[i1, i2)` of the text before became lines `[j1, j2)` of the text after."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A file after an edit was sent. `text` None: there is no such file. `moved`: it has its new name, and `text` is
    the text under that name."""

    text: str | None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """The two parts of a change: `written` is shown by the editor or the disk, `rest` is not. None: no such part."""

    hunks: Hunks
    written: FileEdit | None
    rest: FileEdit | None


def described(file: FileEdit) -> str:
    """A change in words, for the model."""
    if file.before is None:
        return f"{file.path} (not created)"
    if file.after is None:
        return f"{file.path} (not deleted)"
    blocks = changed_blocks(split_comparable_lines(file.before), split_comparable_lines(file.after))
    parts = [] if file.new_path is None else [f"not renamed to {file.new_path}"]
    if blocks:
        lines = ", ".join(str(block[0] + 1) for block in blocks[:_MAX_LINES])
        more = ", …" if len(blocks) > _MAX_LINES else ""
        parts.append(f"{len(blocks)} change{'s' * (len(blocks) > 1)}, at line {lines}{more}")
    return f"{file.path} ({'; '.join(parts) or 'its line ends'})"


def compare(sent: FileEdit, shown: Shown, *, exact: bool = False) -> Arrival:
    """Divide a sent change. `sent.before` is the text for which it was made, with the user's own typing.

    `exact`: a text that shows anything but parts of the change shows none.
    """
    if sent.after is None:
        return _whole(sent, done=shown.text is None)
    if sent.before is None:
        return _creation(sent, sent.after, shown.text, exact=exact)
    return _change(sent, sent.before, sent.after, shown, exact=exact)


def _whole(sent: FileEdit, *, done: bool) -> Arrival:
    return Arrival(Hunks(1, 0), sent, None) if done else Arrival(Hunks(0, 1), None, sent)


def _creation(sent: FileEdit, after: str, now: str | None, *, exact: bool) -> Arrival:
    """A file that was created without its text is empty; Neovim calls it one empty line."""
    if now == after or not is_blank(now):
        bodies, text = split_comparable_lines(after), split_comparable_lines(now or "")
        return _whole(sent, done=not bodies or bool(_accepted([], bodies, [(0, 0, 0, len(bodies))], text, exact=exact)))
    if now is None:
        return _whole(sent, done=False)
    return Arrival(Hunks(0, 1), replace(sent, after=now), sent)


def is_blank(text: str | None) -> bool:
    """Whether a file has no text, and so nothing that could be lost."""
    return not (text or "").strip("\r\n")


def _change(sent: FileEdit, before: str, after: str, shown: Shown, *, exact: bool) -> Arrival:
    if shown.text is None:
        return Arrival(Hunks(0, count_hunks(sent)), None, sent)
    old, new = split_comparable_lines(before), split_comparable_lines(after)
    blocks = changed_blocks(old, new)
    if not blocks and before != after:
        accepted, total = frozenset({0} if shown.text == after else ()), 1
        part = after if accepted else before
    else:
        accepted, total = _accepted(old, new, blocks, split_comparable_lines(shown.text), exact=exact), len(blocks)
        part = _part(before, after, blocks, accepted)
    renames = sent.new_uri is not None
    applied, all_hunks = len(accepted) + (renames and shown.moved), total + renames
    hunks = Hunks(applied, all_hunks - applied)
    if not hunks.waiting:
        return Arrival(hunks, sent, None)
    if not applied:
        return Arrival(hunks, None, sent)
    return Arrival(hunks, *_parts(sent, part, moved=shown.moved))


def _parts(sent: FileEdit, part: str, *, moved: bool) -> tuple[FileEdit, FileEdit]:
    """The written part, and the rest on top of it."""
    if sent.new_uri is None or not moved:
        return replace(sent, after=part, new_uri=None, new_path=None), replace(sent, before=part, version=None)
    return replace(sent, after=part), FileEdit(sent.new_uri, sent.new_path or sent.path, part, sent.after)


def _part(before: str, after: str, blocks: Sequence[_Block], accepted: frozenset[int]) -> str:
    """The text before with the accepted blocks alone."""
    if len(accepted) == len(blocks):
        return after
    old, new = split_lines(before), split_lines(after)
    lines: list[str] = []
    at = 0
    for number, (i1, i2, j1, j2) in enumerate(blocks):
        lines += old[at:i1]
        lines += new[j1:j2] if number in accepted else old[i1:i2]
        at = i2
    return "".join((*lines, *old[at:]))


def _accepted(
    old: list[str], new: list[str], blocks: Sequence[_Block], now: list[str], *, exact: bool
) -> frozenset[int]:
    """The numbers of the blocks that a text shows."""
    parsed = _parsed(old, new, blocks, now)
    if parsed is not None or exact:
        return parsed or frozenset()
    return _estimated(old, new, blocks, now)


def _parsed(old: list[str], new: list[str], blocks: Sequence[_Block], now: list[str]) -> frozenset[int] | None:
    """Read a text as the old one with some of the blocks. None: something else was changed, too."""
    # By position in `now`: the newest accepted block, and those before it.
    reached: dict[int, Any] = {0: None}
    at = 0
    for number, (i1, i2, j1, j2) in enumerate(blocks):
        further: dict[int, Any] = {}
        for place, chosen in reached.items():
            start = place + i1 - at
            if now[place:start] != old[at:i1]:
                continue
            for lines, path in ((new[j1:j2], (number, chosen)), (old[i1:i2], chosen)):
                if len(further) < _MAX_ALIGNMENTS and now[start : start + len(lines)] == lines:
                    further.setdefault(start + len(lines), path)
        reached, at = further, i2
    for place, chosen in reached.items():
        if now[place:] == old[at:]:
            return frozenset(_unrolled(chosen))
    return None


def _unrolled(chosen: Any) -> list[int]:
    numbers = []
    while chosen is not None:
        number, chosen = chosen
        numbers.append(number)
    return numbers


def _estimated(old: list[str], new: list[str], blocks: Sequence[_Block], now: list[str]) -> frozenset[int]:
    """The same for a text in which somebody has typed: a block is shown if its new lines are still untouched, or if
    the lines in its place are more like the new than like the old ones."""
    from_old, from_new = changed_blocks(old, now), changed_blocks(new, now)
    found = set()
    for number, (i1, i2, j1, j2) in enumerate(blocks):
        typed_on_old, typed_on_new = _touching(from_old, i1, i2), _touching(from_new, j1, j2)
        if not typed_on_new or (typed_on_old and _is_nearer(old, new, (i1, i2, j1, j2), typed_on_old, now)):
            found.add(number)
    return frozenset(found)


def _touching(changes: Sequence[_Block], start: int, end: int) -> list[_Block]:
    return [change for change in changes if change[0] <= end and change[1] >= start]


def _is_nearer(old: list[str], new: list[str], block: _Block, typed: Sequence[_Block], now: list[str]) -> bool:
    i1, i2, j1, j2 = block
    first, last = min(i1, typed[0][0]), max(i2, typed[-1][1])
    place = now[typed[0][2] - (typed[0][0] - first) : typed[-1][3] + (last - typed[-1][1])]
    as_old = old[first:last]
    as_new = [*old[first:i1], *new[j1:j2], *old[i2:last]]
    return _likeness(as_new, place) > _likeness(as_old, place)


def _likeness(one: Sequence[str], other: Sequence[str]) -> tuple[int, int]:
    """Common lines; if these are as many, common characters at both ends."""
    common = sum(count for _, _, count in matching_blocks(one, other))
    return 2 * common - len(one), sum(trimmed("\n".join(one), "\n".join(other)))
