"""What an editor changes of a text when it opens or saves it is no change of the user's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.workspace.forms import merge_onto, same_but_for_form
from thinklsp.workspace.merge import Merged

BOM = "\ufeff"

# name -> the text before the turn, after it, and as it is now; what comes of them.
TABLE = {
    "line ends": ("a\nb\n", "a\nB\n", "a\r\nb\r\n", "a\r\nB\r\n"),
    "line ends and typing": ("a\nb\nc\n", "a\nb\nC\n", "X\r\nb\r\nc\r\n", "X\r\nb\r\nC\r\n"),
    "mixed ends stay mixed": ("a\nb\r\nc\n", "a\nb\r\nC\n", "A\nb\r\nc\n", "A\nb\r\nC\n"),
    "an end for the last line": ("a\nb", "a\nB", "a\nb\n", "a\nB\n"),
    "none for the last line": ("a\nb\n", "a\nB\n", "a\nb", "a\nB"),
    "one line": ("b", "B", "b\r\n", "B\r\n"),
    "the turn ended the last line, too": ("a\nb", "a\nb\nc\n", "a\nb\n", "a\nb\nc\n"),
    "the turn's own line ends": ("a\nb\n", "a\r\nb\r\n", "a\nb\n", "a\r\nb\r\n"),
    "the turn's own last line": ("a\nb\n", "a\nb", "a\nb\n", "a\nb"),
    "a mark": ("a\nb\n", "a\nB\n", BOM + "a\nb\n", BOM + "a\nB\n"),
    "no mark": (BOM + "a\nb\n", BOM + "a\nB\n", "a\nb\n", "a\nB\n"),
    "a mark is no part of its line": (BOM + "b\n", BOM + "a\nb\n", BOM + "b\nc\n", BOM + "a\nb\nc\n"),
    "all at once": (BOM + "a\nb", BOM + "a\nB", "a\r\nb\r\n", "a\r\nB\r\n"),
    "typed at the same place": ("a\nb\n", "a\nB\n", "a\r\nc\r\n", None),
    "emptied": ("a\nb\n", "a\nB\n", "", None),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_merge_keeps_the_form_that_the_text_has_now(name: str) -> None:
    before, after, now, expected = TABLE[name]
    merged = merge_onto(now, before, after)
    assert (merged.text if isinstance(merged, Merged) else None) == expected


plain = (
    st.lists(st.sampled_from(["a", "b", "", "é"]), min_size=1, max_size=6)
    .map("\n".join)
    .filter(lambda text: text.strip("\n"))
)
forms = st.tuples(st.sampled_from(["", BOM]), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())


def formed(text: str, form: tuple[str, str, bool]) -> str:
    mark, end, ended = form
    return mark + (text.rstrip("\n") + "\n" * ended).replace("\n", end)


@given(plain, plain, forms, forms)
def test_whatever_an_editor_made_of_the_form_a_change_and_its_undo_arrive(
    before: str, after: str, old: tuple[str, str, bool], new: tuple[str, str, bool]
) -> None:
    now = formed(before, new)
    assert same_but_for_form(now, formed(before, old))
    merged = merge_onto(now, formed(before, old), formed(after, old))
    assert isinstance(merged, Merged)
    assert same_but_for_form(merged.text, formed(after, old))
    back = merge_onto(merged.text, formed(after, old), formed(before, old))
    assert isinstance(back, Merged)
    assert same_but_for_form(back.text, now)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(None, None, True), (None, "", False), ("", None, False), ("", "", True), ("a\n", "b\n", False), ("a", "", False)],
)
def test_texts_that_are_there_or_not(one: str | None, other: str | None, same: bool) -> None:
    assert same_but_for_form(one, other) is same
