"""An open file of an editor that another program edits by snapshots, while the user types.

A buffer is a list of pieces: those of the last snapshot, and those that were added since. Shares no code with the
product.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

_MAX_COMPARED = 20_000


@dataclass(frozen=True)
class Piece:
    """`start`: where the text stands in the last snapshot; None: it was added since."""

    start: int | None
    text: str


class Buffer:
    """`text` is what the user sees. `snapshot` is what another program has read last, None if it has not."""

    def __init__(self, text: str) -> None:
        self.snapshot: str | None = None
        self._pieces = [Piece(None, text)]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self._pieces)

    def take_snapshot(self) -> str:
        self.snapshot = self.text
        self._pieces = [Piece(0, self.snapshot)]
        return self.snapshot

    def replace(self, start: int, end: int, new: str) -> None:
        """Type: `new` comes in the place of what stands there now."""
        before, rest = _split(self._pieces, start)
        _, after = _split(rest, end - start)
        self._pieces = [piece for piece in (*before, Piece(None, new), *after) if piece.text]

    def type(self, old: str, new: str) -> None:
        """Type `new` in the place of the first `old`."""
        at = self.text.index(old)
        self.replace(at, at + len(old), new)

    def write(self, content: str) -> None:
        """Apply the difference between the last snapshot, or else the buffer, and `content`.

        As Zed does, a range of the snapshot is replaced with all that was typed inside it since, and the snapshot
        stays: a text that is written twice without being read again is there twice.
        """
        if self.snapshot is None:
            self.take_snapshot()
        assert self.snapshot is not None
        for start, end, new in reversed(differences(self.snapshot, content)):
            self.replace(self._place(start), self._end_place(start, end), new)

    def _place(self, offset: int) -> int:
        """Return the place of a character of the snapshot, of the next one that is left, or the end."""
        at = 0
        for piece in self._pieces:
            if piece.start is not None and offset < piece.start + len(piece.text):
                return at + max(0, offset - piece.start)
            at += len(piece.text)
        return at

    def _end_place(self, start: int, end: int) -> int:
        """Return the place behind the last character of a range that is left; the start, if none is left."""
        at, found = 0, self._place(start)
        for piece in self._pieces:
            if piece.start is not None and max(start, piece.start) < min(end, piece.start + len(piece.text)):
                found = at + min(len(piece.text), end - piece.start)
            at += len(piece.text)
        return found


def _split(pieces: list[Piece], at: int) -> tuple[list[Piece], list[Piece]]:
    before: list[Piece] = []
    for number, piece in enumerate(pieces):
        if at < len(piece.text):
            start = piece.start
            head = Piece(start, piece.text[:at])
            tail = Piece(None if start is None else start + at, piece.text[at:])
            return [*before, head] if at else before, [tail, *pieces[number + 1 :]]
        at -= len(piece.text)
        before.append(piece)
    return before, []


def differences(old: str, new: str) -> list[tuple[int, int, str]]:
    """Return the ranges of `old` with what replaces each: of lines first, then of the characters in changed lines."""
    found = []
    for start, end, lines in _compare(old.splitlines(keepends=True), new.splitlines(keepends=True)):
        if start == end or not lines or max(end - start, len(lines)) > _MAX_COMPARED:
            found.append((start, end, lines))
            continue
        inner = _compare(list(old[start:end]), list(lines))
        found += [(start + first, start + last, text) for first, last, text in inner]
    return found


def _compare(old: list[str], new: list[str]) -> list[tuple[int, int, str]]:
    offsets = [0]
    for part in old:
        offsets.append(offsets[-1] + len(part))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=len(old) > 5_000)
    return [(offsets[i], offsets[j], "".join(new[k:m])) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"]
