"""Offsets and positions: each is the other's inverse, in every encoding, whatever the text holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lsp.test_documents import ENCODINGS, Model
from thinklsp.lsp.protocol.convert import Encoding, Lines, column_of, split_keeping_ends, units

_texts = st.text(st.sampled_from("ab\r\n\f\u2028é€😀\ud800"), max_size=30)


@settings(max_examples=300, deadline=None)
@given(_texts, st.sampled_from(ENCODINGS))
def test_every_offset_has_its_position_and_back(text: str, encoding: Encoding) -> None:
    lines, model = Lines(text, encoding), Model(text, encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] == "\r\n":
            continue  # No position means the place between them.
        position = lines.position(offset)
        assert (position["line"], position["character"]) == model.position(offset)
        assert lines.offset(position["line"], position["character"]) == offset
    assert lines.range(0, len(text)) == {"start": lines.position(0), "end": lines.position(len(text))}


@settings(max_examples=300, deadline=None)
@given(_texts, st.sampled_from(ENCODINGS), st.integers(0, 40), st.integers(0, 40))
def test_positions_outside_the_text_are_clamped(text: str, encoding: Encoding, line: int, character: int) -> None:
    assert Lines(text, encoding).offset(line, character) == Model(text, encoding).offset(line, character)


@given(_texts)
def test_lines_joined_are_the_text(text: str) -> None:
    lines = split_keeping_ends(text)
    assert "".join(lines) == text
    assert [line.rstrip("\r\n") for line in lines] == Model(text, "utf-32").lines()


@pytest.mark.parametrize(("encoding", "width"), [("utf-8", 9), ("utf-16", 4), ("utf-32", 3)])
def test_widths(encoding: Encoding, width: int) -> None:
    assert units("é€😀"[:3], encoding) == width
    assert units("abc", encoding) == 3


@pytest.mark.parametrize(("character", "column"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (99, 3)])
def test_a_position_inside_a_character_means_before_it(character: int, column: int) -> None:
    assert column_of("a😀b\r\n", character, "utf-16") == column
