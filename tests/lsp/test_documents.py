"""Open documents and positions against a plain model, and diagnostics that follow their lines through what is typed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types
from lsprotocol.types import Diagnostic, VersionedTextDocumentIdentifier

from tests.support.in_process import change, document, item, span
from tests.support.sizes import examples
from thinklsp.lsp.documents.open_documents import Document, Documents
from thinklsp.lsp.documents.tracked_diagnostics import map_diagnostics, track_diagnostics, update_tracked
from thinklsp.lsp.protocol.positions import Encoding, PositionMap, count_units, find_column, split_keeping_ends

ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
URI = "file:///ws/a.py"
AT_2 = VersionedTextDocumentIdentifier(2, URI)

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
        live.apply(version, [change(*one) for one in changes])
        for one in changes:
            model.change(*one)
        assert live.text == model.text
        assert live.line_count == len(model.lines())
        assert [live.get_line(number) for number in range(-1, live.line_count + 1)] == ["", *model.lines(), ""]
        assert (live.version, live.is_desynced) == (version, False)


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
        live.apply(version, [change(*one) for one in changes])
        for one in changes:
            model.change(*one)
    for version, point, name in asked:
        mark = model.marks[name]
        assert live.map_position(point, version) == (None if mark is None else model.position(mark)), (version, point)


def test_points_of_versions_that_nobody_knows_are_not_guessed() -> None:
    live = document("abc\n", version=5)
    live.apply(6, [change((0, 0, 0, 0), "x")])
    assert live.map_position((0, 1), 5) == (0, 2)
    assert live.map_position((0, 1), 6) == (0, 1)
    assert live.map_position((0, 1), 4) is None
    assert live.map_position((0, 1), 7) is None
    for version in range(7, 600):
        live.apply(version, [change((0, 0, 0, 0), "x")])
    assert live.map_position((0, 1), 5) is None
    assert live.map_position((0, 1), 598) == (0, 2)


def test_a_column_that_means_the_end_of_the_line_stays_one() -> None:
    live = document("abc\n")
    live.apply(2, [change((0, 0, 0, 0), "x")])
    assert live.map_position((0, 2**31 - 1), 1) == (0, 2**31 - 1)


@pytest.mark.parametrize("version", [5, 4, -1])
def test_version_that_does_not_grow_desynchronizes_document(version: int) -> None:
    live = document("a\n", version=5)
    live.apply(version, [change((0, 0, 0, 0), "x")])
    assert live.is_desynced
    live.apply(9, [change((0, 0, 0, 0), "y")])
    assert live.is_desynced, "more of the same does not heal it"
    live.apply(10, [change(None, "whole\n")])
    assert (live.is_desynced, live.text, live.version) == (False, "whole\n", 10)
    assert live.map_position((0, 0), 9) is None


def test_opening_again_replaces_and_heals() -> None:
    documents = Documents()
    documents.put_text_document(item("old", URI, 3))
    old = documents.get(URI)
    assert old is not None
    documents.change_text_document(AT_2, [change((0, 0, 0, 0), "late ")])
    assert old.is_desynced
    documents.put_text_document(item("new", URI))
    new = documents.get(URI)
    assert new is not None
    assert (new.text, new.version, new.is_desynced, len(documents.list_documents())) == ("new", 1, False, 1)


def test_changes_of_what_is_not_open_are_ignored() -> None:
    documents = Documents()
    typed = [change((0, 0, 0, 0), "x")]
    documents.change_text_document(AT_2, typed)
    assert documents.list_documents() == ()
    documents.put_text_document(item("", URI))
    documents.remove_text_document(URI)
    documents.remove_text_document(URI)
    documents.change_text_document(AT_2, typed)
    assert documents.get(URI) is None


_any_text = st.text(st.sampled_from("ab\r\n\f\u2028é€😀\ud800"), max_size=30)


@settings(max_examples=examples(300), deadline=None)
@given(_any_text, st.sampled_from(ENCODINGS))
def test_every_offset_has_its_position_and_back(text: str, encoding: Encoding) -> None:
    lines, model = PositionMap(text, encoding), Model(text, encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] == "\r\n":
            continue  # No position means the place between them.
        position = lines.to_position(offset)
        assert (position.line, position.character) == model.position(offset)
        assert model.offset(position.line, position.character) == offset
    assert lines.to_range(0, len(text)) == types.Range(lines.to_position(0), lines.to_position(len(text)))


@given(_any_text)
def test_lines_joined_are_the_text(text: str) -> None:
    lines = split_keeping_ends(text)
    assert "".join(lines) == text
    assert [line.rstrip("\r\n") for line in lines] == Model(text, "utf-32").lines()


@pytest.mark.parametrize(("encoding", "width"), [("utf-8", 9), ("utf-16", 4), ("utf-32", 3)])
def test_widths(encoding: Encoding, width: int) -> None:
    assert count_units("é€😀"[:3], encoding) == width
    assert count_units("abc", encoding) == 3


@pytest.mark.parametrize(("character", "column"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (99, 3)])
def test_a_position_inside_a_character_means_before_it(character: int, column: int) -> None:
    assert find_column("a😀b\r\n", character, "utf-16") == column


_LINES = 8
Typed = list[tuple[int, int, int, int, str]]
_EVERYTHING = span(0, 0, _LINES, 0)

changes = st.lists(
    st.tuples(
        st.integers(0, _LINES), st.integers(0, 7), st.integers(0, 2), st.integers(0, 7),
        st.sampled_from(["", "x", "\n", "new\n", "\nnew", "a\nb\nc", "🙂"]),
    ),
    max_size=6,
)  # fmt: skip


def diagnostic(line: int, start: int, end: int) -> Diagnostic:
    return Diagnostic(span(line, start, line, end), f"of {line}")


def edit(live: Document, start: tuple[int, int], end: tuple[int, int], text: str) -> None:
    live.apply(live.version + 1, [change((*start, *end), text)])


@settings(max_examples=examples(200), deadline=None)
@given(typed=changes, columns=st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_a_diagnostic_stands_on_its_line_or_is_given_up(typed: Typed, columns: tuple[int, int]) -> None:
    lines = [f"line {number}" for number in range(_LINES)]
    live = document("\n".join(lines))
    told = [diagnostic(number, min(columns), max(columns)) for number in range(_LINES)]
    track_diagnostics(live, _EVERYTHING, told)
    for first, start, count, end, text in typed:
        edit(live, (first, start), (first + count, end if count else max(start, end)), text)
        # Looking at them in between changes nothing about what is found in the end.
        live.tracked_diagnostics = update_tracked(live, live.tracked_diagnostics)
    for seen in live.tracked_diagnostics:
        number = int(seen.problem.message.removeprefix("of "))
        assert live.get_line(seen.problem.line - 1) == lines[number]
        assert seen.start <= seen.end
    assert all(1 <= problem.line <= live.line_count for problem in map_diagnostics(live, told, 1))


def test_a_line_that_is_whole_keeps_its_diagnostic() -> None:
    """Whatever is typed at its ends, by editors that put a new line in front of a text or behind one."""
    for where, text, expected in (
        ((1, 0, 1, 0), "new\n", 2),
        ((0, 6, 0, 6), "\nnew", 2),
        ((1, 6, 1, 6), "\nnew", 1),
        ((2, 0, 2, 0), "new\n", 1),
        ((0, 0, 1, 0), "", 0),
        ((0, 0, 0, 6), "", 1),
        ((1, 6, 2, 0), "", None),
        ((0, 6, 1, 0), "", None),
        ((1, 2, 1, 3), "", None),
        ((1, 0, 2, 0), "line 1\n", None),
    ):
        live = document("line 0\nline 1\nline 2")
        track_diagnostics(live, _EVERYTHING, [diagnostic(1, 0, 6)])
        edit(live, where[:2], where[2:], text)
        found = [seen.problem.line - 1 for seen in update_tracked(live, live.tracked_diagnostics)]
        assert found == ([] if expected is None else [expected]), (where, text)
