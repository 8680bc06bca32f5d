"""What a turn wants to change, as values: files before and after, and the minimal hunks between two texts.

Offsets are code points of the text they refer to; UTF-16 exists only in `lsp/protocol/convert`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from thinklsp.core.lines import changed_blocks, line_bodies, split_lines


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replace `[start, end)` by `new_text`."""

    start: int
    end: int
    new_text: str


@dataclass(frozen=True, slots=True)
class FileEdit:
    """The net change of one turn to one file.

    `before` is the text that the turn started from, None where the file did not exist; `after` is None where it is to
    be deleted. `new_uri` and `new_path` are set where it is renamed. `version` is that of the open document which
    `before` was read from, None for a file that was not open. `path` is what people and models call the file.
    The byte order mark of a file on disk belongs to neither text; that of an open document stands in both.
    """

    uri: str
    path: str
    before: str | None
    after: str | None
    version: int | None = None
    new_uri: str | None = None
    new_path: str | None = None

    @property
    def creates(self) -> bool:
        return self.before is None

    @property
    def deletes(self) -> bool:
        return self.after is None


@dataclass(frozen=True, slots=True)
class EditSet:
    files: tuple[FileEdit, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files)


def count_hunks(file: FileEdit) -> int:
    """Return the number of hunks in which a file can be accepted. Creating, deleting and renaming it are one each."""
    if file.before is None or file.after is None:
        return 1
    count = len(changed_blocks(split_comparable_lines(file.before), split_comparable_lines(file.after)))
    if not count and file.before != file.after:
        count = 1
    return count + (file.new_uri is not None)


def split_comparable_lines(text: str) -> list[str]:
    """Return the lines of a text in the form in which hunks compare them: without line ends and byte order mark."""
    return line_bodies(text.removeprefix("\ufeff"))


def hunks(before: str, after: str) -> tuple[TextEdit, ...]:
    """The smallest edits that turn `before` into `after`: sorted, disjoint, never between ``\\r`` and ``\\n``.

    Lines are compared first; inside a changed region the common beginning and end are left out.
    """
    old, new = split_lines(before), split_lines(after)
    edits = []
    i = at = 0
    for i1, i2, j1, j2 in changed_blocks(old, new):
        start = at + sum(map(len, old[i:i1]))
        i, at = i2, start + sum(map(len, old[i1:i2]))
        edits.append(_trimmed(before, start, at, "".join(new[j1:j2])))
    return tuple(edits)


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """`text` with all `edits` made at once; inserts at one place keep their order. ValueError where two overlap."""
    pieces: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if not at <= edit.start <= edit.end <= len(text):
            raise ValueError("the edits overlap or lie outside the text")
        pieces += (text[at : edit.start], edit.new_text)
        at = edit.end
    return "".join((*pieces, text[at:]))


def _trimmed(before: str, start: int, end: int, new_text: str) -> TextEdit:
    old = before[start:end]
    shortest = min(len(old), len(new_text))
    head = 0
    while head < shortest and old[head] == new_text[head]:
        head += 1
    if head and old[head - 1] == "\r" and "\n" in (old[head : head + 1], new_text[head : head + 1]):
        head -= 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new_text[-1 - tail]:
        tail += 1
    if tail and old[-tail] == "\n" and "\r" in (_before(old, tail), _before(new_text, tail)):
        tail -= 1
    return TextEdit(start + head, end - tail, new_text[head : len(new_text) - tail])


def _before(text: str, tail: int) -> str:
    """The character in front of the last `tail` ones."""
    return text[-tail - 1 : -tail]
