"""A-14: after any change the document of the editor and ours are the same text, in all three encodings."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from lsprotocol import types

from tests.slow.running import Tally
from tests.support.sizes import SEED, tries
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.protocol.positions import Encoding

ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
SIZE = 40  # Changes of one document.

# Every line end, line ends of Python only, and characters of one to four bytes and one or two units.
PIECES = (
    *("\n", "\r\n", "\r", "\n", "\r\n", "\n\r", "\r\r\n"),
    *("\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"),
    *("a", "word ", "\t", "é", "ß", "€", "א", "語", "😀", "👩\u200d💻", "\U0010ffff", "\ufeff", "\0", "e\u0301"),
)

Point = tuple[int, int]


class Reference:
    """A list of units. A position inside of a character is the place before it."""

    def __init__(self, text: str, encoding: Encoding) -> None:
        self.codec, self.size = CODECS[encoding]
        self.units = self.of(text)

    def of(self, text: str) -> list[bytes]:
        data = text.encode(self.codec)
        return [data[at : at + self.size] for at in range(0, len(data), self.size)]

    @property
    def text(self) -> str:
        return b"".join(self.units).decode(self.codec)

    def lines(self) -> list[tuple[int, int]]:
        cr, lf = "\r".encode(self.codec), "\n".encode(self.codec)
        spans, start, at = [], 0, 0
        while at < len(self.units):
            unit = self.units[at]
            at += 1
            if unit in (cr, lf):
                spans.append((start, at - 1))
                at += unit == cr and self.units[at : at + 1] == [lf]
                start = at
        return [*spans, (start, at)]

    def place(self, point: Point) -> int:
        lines = self.lines()
        if point[0] >= len(lines):
            return len(self.units)
        start, end = lines[point[0]]
        at = min(start + point[1], end)
        while at < len(self.units) and self._continues(self.units[at]):
            at -= 1
        return at

    def _continues(self, unit: bytes) -> bool:
        if self.size == 1:
            return unit[0] & 0xC0 == 0x80
        return self.size == 2 and unit[1] & 0xFC == 0xDC

    def change(self, start: Point, end: Point, text: str) -> None:
        a, b = sorted((self.place(start), self.place(end)))
        self.units[a:b] = self.of(text)


Maker = Callable[[types.TextDocumentItem, Encoding], Any]


def some_text(rng: random.Random, most: int) -> str:
    return "".join(rng.choices(PIECES, k=rng.randrange(most + 1)))


def some_points(rng: random.Random, reference: Reference) -> tuple[Point, Point]:
    """Return points near to one another, sometimes in the wrong order, beyond the line or beyond the text."""
    lines = reference.lines()

    def point(line: int) -> Point:
        start, end = lines[min(max(line, 0), len(lines) - 1)]
        column = rng.choice((rng.randint(0, end - start), rng.randint(0, end - start + 3), rng.choice((0, 2**31 - 1))))
        return max(line, 0), column

    first = rng.randrange(len(lines) + 2)
    return point(first), point(first + rng.choice((0, 0, 0, 1, 1, 2, -1, 5)))


def differences(count: int, rng: random.Random, make: Maker = Document) -> Iterator[tuple[str, str]]:
    """Return the expected and the actual text of each wrong document; `SIZE` changes each."""
    for number in range(0, count, SIZE):
        encoding = ENCODINGS[number // SIZE % len(ENCODINGS)]
        text = some_text(rng, rng.choice((0, 5, 60, 200)))
        reference, live = Reference(text, encoding), make(types.TextDocumentItem("file:///a", "x", 1, text), encoding)
        left, version = min(SIZE, count - number), 1
        while left > 0:
            batch = min(left, rng.choice((1, 1, 2, 5)))
            left, version = left - batch, version + 1
            changes: list[types.TextDocumentContentChangeEvent] = []
            for _ in range(batch):
                start, end = some_points(rng, reference)
                new = some_text(rng, rng.choice((0, 1, 3, 12)))
                reference.change(start, end, new)
                changes.append(
                    types.TextDocumentContentChangePartial(
                        types.Range(types.Position(*start), types.Position(*end)), new
                    )
                )
            live.apply(version, changes)
            if live.text != reference.text:
                yield reference.text, live.text
                break


def test_random_edits_give_the_text_that_the_editor_has(tally: Tally) -> None:
    count = tries("A-14")
    assert list(differences(count, random.Random(SEED))) == []
    tally("A-14", count)


class Careless:
    """A document as it is often written: by `split`, code points, and a column that continues into the next line."""

    def __init__(self, text: str, encoding: Encoding, *, split: Callable[[str], list[str]], clamped: bool) -> None:
        self.text = text
        self._split, self._clamped, self._codec = split, clamped, CODECS[encoding]

    def apply(self, version: int, changes: Sequence[types.TextDocumentContentChangeEvent]) -> None:
        for change in changes:
            assert isinstance(change, types.TextDocumentContentChangePartial)
            a, b = sorted((self._offset(change.range.start), self._offset(change.range.end)))
            self.text = self.text[:a] + change.text + self.text[b:]

    def _offset(self, position: types.Position) -> int:
        lines = self._split(self.text)
        if position.line >= len(lines):
            return len(self.text)
        above, line = sum(map(len, lines[: position.line])), lines[position.line]
        body = line.rstrip("\r\n") if self._clamped else self.text[above:]
        codec, size = self._codec
        within = body.encode(codec)[: position.character * size]
        return above + len(within.decode(codec, "ignore"))


def by_line_ends(text: str) -> list[str]:
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]*\Z", text)


def by_python(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    return lines if lines and lines[-1].splitlines() == [lines[-1]] else [*lines, ""]


def by_line_feeds(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), last]


CARELESS: dict[str, Maker] = {
    "splitlines": lambda item, encoding: Careless(item.text, encoding, split=by_python, clamped=True),
    "line feeds alone": lambda item, encoding: Careless(item.text, encoding, split=by_line_feeds, clamped=True),
    "no clamp": lambda item, encoding: Careless(item.text, encoding, split=by_line_ends, clamped=False),
    "code points": lambda item, _: Document(item, "utf-32"),
}


@pytest.mark.parametrize("how", CARELESS)
def test_a_careless_document_is_found(how: str) -> None:
    assert next(differences(2_000, random.Random(SEED), CARELESS[how]), None) is not None


def test_a_careful_one_is_not() -> None:
    """The reference requires nothing that only our document does."""

    def careful(item: types.TextDocumentItem, encoding: Encoding) -> Careless:
        return Careless(item.text, encoding, split=by_line_ends, clamped=True)

    assert list(differences(2_000, random.Random(SEED), careful)) == []
