"""Open documents against a plain model: one string, offsets, and the protocol's own words about lines and positions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.lsp.documents.open_documents import Document, Documents
from thinklsp.lsp.protocol import forms
from thinklsp.lsp.protocol.convert import Encoding

ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
URI = "file:///ws/a.py"

Range = tuple[int, int, int, int]


@dataclass
class Model:
    """What the protocol says, in the most literal way. `marks` are offsets that the changes carry along."""

    text: str
    encoding: Encoding
    marks: dict[tuple[int, int], int | None] = field(default_factory=dict)

    def lines(self) -> list[str]:
        return re.split(r"\r\n|\r|\n", self.text)

    def starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", self.text))]

    def width(self, text: str) -> int:
        size = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[self.encoding]
        return len(text.encode(f"{self.encoding}{'' if size == 1 else '-le'}", "surrogatepass")) // size

    def offset(self, line: int, character: int) -> int:
        if line >= len(self.lines()):
            return len(self.text)
        content = self.lines()[line]
        inside = [index for index in range(len(content) + 1) if self.width(content[:index]) <= character]
        return self.starts()[line] + inside[-1]

    def position(self, offset: int) -> tuple[int, int]:
        line = max(number for number, start in enumerate(self.starts()) if start <= offset)
        return line, self.width(self.lines()[line][: offset - self.starts()[line]])

    def change(self, where: Range | None, text: str) -> None:
        if where is None:
            self.text = text
            self.marks = dict.fromkeys(self.marks)
            return
        start, end = sorted((self.offset(*where[:2]), self.offset(*where[2:])))
        shift = len(text) - (end - start)
        self.text = self.text[:start] + text + self.text[end:]
        for name, mark in self.marks.items():
            if mark is not None and mark > start:
                self.marks[name] = mark + shift if mark >= end else None
        self.marks = {name: None if mark is None else self._sayable(mark) for name, mark in self.marks.items()}

    def _sayable(self, offset: int) -> int:
        """No position lies between \\r and \\n: it means the end of the line."""
        return offset - 1 if self.text[offset - 1 : offset + 1] == "\r\n" else offset


def document(text: str, encoding: Encoding = "utf-16", version: int = 1) -> Document:
    return Document(forms.Opened(URI, "python", version, text), encoding)


def partial(where: Range, text: str) -> forms.Change:
    return forms.Change(forms.Range(forms.Position(*where[:2]), forms.Position(*where[2:])), text)


def event(where: Range | None, text: str) -> forms.Change:
    return forms.Change(None, text) if where is None else partial(where, text)


# Every kind of line end and of seam, what is no line end here but elsewhere, one to four bytes, one and two units.
_texts = st.text(st.sampled_from("ab\r\n\f\v\u0085\u2028é€😀\ud800"), max_size=12)
_lines = st.integers(0, 6)
_columns = st.one_of(st.integers(0, 8), st.just(2**31 - 1))
_ranges = st.tuples(_lines, _columns, _lines, _columns)
_changes = st.tuples(st.one_of(_ranges, _ranges, _ranges, st.none()), _texts)
# Few characters in short lines, so that changes and points meet at the seams.
_seams = st.text(st.sampled_from("a\r\n\r\n😀"), max_size=5)
_near = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))


@settings(max_examples=examples(400), deadline=None)
@given(st.sampled_from(ENCODINGS), _texts, st.lists(st.lists(_changes, max_size=3), max_size=5))
def test_any_edits_give_the_text_that_the_client_has(
    encoding: Encoding, text: str, versions: list[list[tuple[Range | None, str]]]
) -> None:
    model, live = Model(text, encoding), document(text, encoding)
    for version, changes in enumerate(versions, 2):
        live.apply(version, [event(*change) for change in changes])
        for change in changes:
            model.change(*change)
        assert live.text == model.text
        assert live.line_count == len(model.lines())
        assert [live.line(number) for number in range(-1, live.line_count + 1)] == ["", *model.lines(), ""]
        assert (live.version, live.desynced) == (version, False)


@settings(max_examples=examples(600), deadline=None)
@given(
    st.sampled_from(ENCODINGS),
    _seams,
    st.lists(st.lists(st.tuples(_near, _seams), max_size=2), min_size=1, max_size=3),
    st.data(),
)
def test_points_of_earlier_versions_are_found_again(
    encoding: Encoding, text: str, versions: list[list[tuple[Range, str]]], data: st.DataObject
) -> None:
    model, live = Model(text, encoding), document(text, encoding)
    asked: list[tuple[int, tuple[int, int], tuple[int, int]]] = []
    for version, changes in enumerate(versions, 2):
        offset = model.offset(*data.draw(_near)[:2])
        point, name = model.position(offset), (version - 1, offset)
        model.marks[name] = offset
        asked.append((version - 1, point, name))
        live.apply(version, [event(*change) for change in changes])
        for change in changes:
            model.change(*change)
    for version, point, name in asked:
        mark = model.marks[name]
        assert live.moved(point, version) == (None if mark is None else model.position(mark)), (version, point)


def test_points_of_versions_that_nobody_knows_are_not_guessed() -> None:
    live = document("abc\n", version=5)
    live.apply(6, [partial((0, 0, 0, 0), "x")])
    assert live.moved((0, 1), 5) == (0, 2)
    assert live.moved((0, 1), 6) == (0, 1)
    assert live.moved((0, 1), 4) is None
    assert live.moved((0, 1), 7) is None
    for version in range(7, 600):
        live.apply(version, [partial((0, 0, 0, 0), "x")])
    assert live.moved((0, 1), 5) is None
    assert live.moved((0, 1), 598) == (0, 2)


def test_a_column_that_means_the_end_of_the_line_stays_one() -> None:
    live = document("abc\n")
    live.apply(2, [partial((0, 0, 0, 0), "x")])
    assert live.moved((0, 2**31 - 1), 1) == (0, 2**31 - 1)


@pytest.mark.parametrize("version", [5, 4, -1])
def test_a_version_that_does_not_grow_puts_the_document_out_of_step(version: int) -> None:
    live = document("a\n", version=5)
    live.apply(version, [partial((0, 0, 0, 0), "x")])
    assert live.desynced
    live.apply(9, [partial((0, 0, 0, 0), "y")])
    assert live.desynced, "more of the same does not heal it"
    live.apply(10, [forms.Change(None, "whole\n")])
    assert (live.desynced, live.text, live.version) == (False, "whole\n", 10)
    assert live.moved((0, 0), 9) is None


def test_opening_again_replaces_and_heals() -> None:
    documents = Documents()
    documents.opened(forms.Opened(URI, "python", 3, "old"))
    old = documents.get(URI)
    assert old is not None
    documents.changed(forms.Changed(URI, 2, [partial((0, 0, 0, 0), "late ")]))
    assert old.desynced
    documents.opened(forms.Opened(URI, "python", 1, "new"))
    new = documents.get(URI)
    assert new is not None
    assert (new.text, new.version, new.desynced, len(documents.all())) == ("new", 1, False, 1)


def test_changes_of_what_is_not_open_are_ignored() -> None:
    documents = Documents()
    change = forms.Changed(URI, 2, [partial((0, 0, 0, 0), "x")])
    documents.changed(change)
    assert documents.all() == ()
    documents.opened(forms.Opened(URI, "python", 1, ""))
    documents.closed(URI)
    documents.closed(URI)
    documents.changed(change)
    assert documents.get(URI) is None
