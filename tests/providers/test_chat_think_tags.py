"""`<think>` tags in text: what they divide, and that it does not depend on where the text is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.providers.chat_reasoning import ThinkTagSplitter, split_unopened


def split(*texts: str) -> tuple[str, str]:
    splitter = ThinkTagSplitter()
    pieces = [piece for text in texts for piece in splitter.feed(text)] + splitter.finish()
    # Thinking comes first, and no piece is empty.
    assert [piece.kind for piece in pieces] == sorted((piece.kind for piece in pieces), reverse=True)
    assert all(piece.text for piece in pieces)
    return (
        "".join(piece.text for piece in pieces if piece.kind == "thinking"),
        "".join(piece.text for piece in pieces if piece.kind == "text"),
    )


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("", "", ""),
        ("plain", "", "plain"),
        ("<think>a</think>b", "a", "b"),
        ("\n <think>\na\n</think>\n\n b", "a\n", "b"),
        ("<think>\n\n</think>\n\nb", "", "b"),
        ("<think>a", "a", ""),
        ("<think>a</thin", "a</thin", ""),
        ("<think>a<</think>b", "a<", "b"),
        ("<think>a<think>b</think>c</think>d", "a<think>b", "c</think>d"),
        ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        ("so <think>a</think>", "", "so <think>a</think>"),
        ("<thinking>a</thinking>", "", "<thinking>a</thinking>"),
        ("<thi", "", "<thi"),
        ("a</think>b", "", "a</think>b"),
        ("  \n", "", "  \n"),
        (" " * 64 + "<think>a", "a", ""),
        (" " * 65 + "<think>a", "", " " * 65 + "<think>a"),
    ],
)
def test_what_tags_divide(text: str, thinking: str, answer: str) -> None:
    assert split(text) == (thinking, answer)
    assert split(*text) == (thinking, answer)


_TEXTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "/", "think", ">", "\n", " ", "a", " " * 40, "</", "é"]), max_size=14
).map("".join)


@settings(max_examples=examples(300), deadline=None)
@given(_TEXTS, st.data())
def test_where_the_text_is_cut_makes_no_difference(text: str, data: st.DataObject) -> None:
    places = [0, *sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8))), len(text)]
    assert split(*(text[one:other] for one, other in pairwise(places))) == split(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hm\n</think>\n\nb", ("hm", "b")),
        ("\nhm\n  </think> \r\nb", ("hm", "b")),
        ("hm\n</think>", ("hm", "")),
        ("</think>\nb", ("", "b")),
        ("a\n</think>\nb\n</think>\nc", ("a", "b\n</think>\nc")),
        ("write </think> here", None),
        ("hm</think>\nb", None),
        ("`</think>`", None),
        ("plain", None),
    ],
)
def test_a_closing_tag_alone_on_its_line(text: str, parts: tuple[str, str] | None) -> None:
    assert split_unopened(text) == parts
