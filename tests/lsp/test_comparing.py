"""A sent change against the text that is there: which hunks arrived, what was written, and what is left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.core.edits import FileEdit, count_hunks
from thinklsp.engine.results import HunkCounts
from thinklsp.lsp.edits.edit_comparison import ObservedFile, compare_edit, describe_change

TEN = "".join(f"l{number}\n" for number in range(1, 11))
ONE, LL2 = TEN.replace("l2", "L2"), TEN.replace("l2", "LL2")
THREE = TEN.replace("l2\n", "L2\n").replace("l5\n", "").replace("l8\n", "l8\nnew\n")


def edit(before: str | None = TEN, after: str | None = THREE, **more: Any) -> FileEdit:
    return FileEdit("file:///a", "a", before, after, **more)


# The change, and the file after it -> hunks that arrived and that wait, the text written, the text to which the rest is
# to lead from there. None: there is no such part.
Row = tuple[FileEdit, ObservedFile, tuple[int, int], str | None, tuple[str | None, str | None] | None]
RENAMED = edit(new_uri="file:///b", new_path="b")
CASES: dict[str, Row] = {
    "all": (edit(), ObservedFile(THREE), (3, 0), THREE, None),
    "none": (edit(), ObservedFile(TEN), (0, 3), None, (TEN, THREE)),
    "a file that is gone": (edit(), ObservedFile(None), (0, 3), None, (TEN, THREE)),
    "one": (edit(), ObservedFile(ONE), (1, 2), ONE, (ONE, THREE)),
    "in another form": (edit(), ObservedFile("\ufeff" + THREE.replace("\n", "\r\n")), (3, 0), THREE, None),
    "typed elsewhere": (edit(), ObservedFile("mine\n" + THREE), (3, 0), THREE, None),
    "typed elsewhere, none": (edit(), ObservedFile("mine\n" + TEN), (0, 3), None, (TEN, THREE)),
    "typed in it": (edit(TEN, LL2), ObservedFile(LL2.replace("LL2", "LL2!")), (1, 0), LL2, None),
    "only the line ends": (edit("a\n", "a\r\n"), ObservedFile("a\n"), (0, 1), None, ("a\n", "a\r\n")),
    "the line ends, too": (edit("a\n", "a\r\n"), ObservedFile("a\r\n"), (1, 0), "a\r\n", None),
    "created": (edit(None), ObservedFile(THREE), (1, 0), THREE, None),
    "created and formatted": (edit(None, "a\n\nb"), ObservedFile("a\n\nb\n"), (1, 0), "a\n\nb", None),
    "created empty": (edit(None), ObservedFile(""), (0, 1), "", (None, THREE)),
    "created with one empty line": (edit(None), ObservedFile("\n"), (0, 1), "\n", (None, THREE)),
    "created as an empty file": (edit(None, ""), ObservedFile(""), (1, 0), "", None),
    "an empty file, and another one is there": (edit(None, ""), ObservedFile("mine\n"), (1, 0), "", None),
    "not created": (edit(None), ObservedFile(None), (0, 1), None, (None, THREE)),
    "another file of the name": (edit(None), ObservedFile("mine\n"), (0, 1), None, (None, THREE)),
    "deleted": (edit(after=None), ObservedFile(None), (1, 0), None, None),
    "not deleted": (edit(after=None), ObservedFile(TEN), (0, 1), None, (TEN, None)),
    "renamed": (RENAMED, ObservedFile(THREE, is_moved=True), (4, 0), THREE, None),
    "renamed only": (RENAMED, ObservedFile(TEN, is_moved=True), (1, 3), TEN, (TEN, THREE)),
    "changed only": (RENAMED, ObservedFile(THREE), (3, 1), THREE, (THREE, THREE)),
}


@pytest.mark.parametrize("case", CASES)
def test_what_arrived(case: str) -> None:
    file, shown, hunks, written, rest = CASES[case]
    found = compare_edit(file, shown)
    assert found.hunks == HunkCounts(*hunks)
    assert sum(hunks) == count_hunks(file)
    assert (None if found.applied_part is None else found.applied_part.after) == written
    assert (None if found.missing_part is None else (found.missing_part.before, found.missing_part.after)) == rest
    if found.applied_part is not None and found.missing_part is not None and file.new_uri is not None:
        assert (found.applied_part.new_uri is None) != (found.missing_part.new_uri is None)


def test_typing_is_no_evidence_where_only_the_exact_text_counts() -> None:
    assert compare_edit(edit(), ObservedFile("mine\n" + THREE), exact=True).applied_part is None
    assert compare_edit(edit(), ObservedFile(ONE), exact=True).hunks == HunkCounts(1, 2)


lines = st.lists(st.sampled_from(["a\n", "b\n", "\n", "c\r\n", "x = 1\n", "é\n"]), max_size=12).map("".join)


@settings(max_examples=examples(300), deadline=None)
@given(before=lines, after=lines, chosen=st.sets(st.integers(0, 12)), typed=st.none() | lines)
def test_the_parts_make_the_whole(before: str, after: str, chosen: set[int], typed: str | None) -> None:
    """Whatever lines repeat and whatever was typed: a part and the rest give the change."""
    found = compare_edit(edit(before, after), ObservedFile(before if typed is None else typed))
    if found.applied_part is not None and found.missing_part is not None:
        assert found.applied_part.after == found.missing_part.before
    if found.applied_part is not None:
        assert found.applied_part.before == before
    if found.missing_part is not None:
        assert found.missing_part.after == after
    assert found.hunks.applied + found.hunks.pending == count_hunks(edit(before, after))


DESCRIBED: list[tuple[FileEdit, str]] = [
    (edit(), "a (3 changes, at line 2, 5, 9)"),
    (edit(None), "a (not created)"),
    (edit(after=None), "a (not deleted)"),
    (edit(after=TEN, new_uri="file:///b", new_path="b"), "a (not renamed to b)"),
    (edit("a\n", "a\r\n"), "a (line ends only)"),
    (edit("a\nb\n" * 12, "a\nc\n" * 12), "a (12 changes, at line 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, …)"),
]


@pytest.mark.parametrize(("file", "words"), DESCRIBED)
def test_a_change_in_words(file: FileEdit, words: str) -> None:
    assert describe_change(file).startswith(words)
