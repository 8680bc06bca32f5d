"""A change and its hunks: which of them arrived, which of them the user kept, and which part is left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.core.edits import FileEdit, apply_edits, compute_hunks, count_hunks
from thinklsp.engine.results import HunkCounts
from thinklsp.lsp.edits.edit_comparison import (
    ObservedFile,
    compare_edit,
    describe_change,
    number_hunks,
    parse_hunks,
    split_hunks,
)

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


A, B = "file:///ws/a.py", "file:///ws/b.py"
TEXTS = st.lists(st.sampled_from(["a", "b", "c\r", "é🙂", ""]), max_size=9).map("\n".join)


@given(before=TEXTS, after=TEXTS, numbers=st.frozensets(st.integers(-1, 9)))
def test_the_kept_part_has_the_kept_text_edits(before: str, after: str, numbers: frozenset[int]) -> None:
    change = FileEdit(A, "a.py", before, after)
    split = split_hunks(change, numbers)
    kept, rest = split.applied_part, split.missing_part
    hunks = compute_hunks(before, after)
    part = apply_edits(before, [hunk for number, hunk in enumerate(hunks) if number in numbers])
    assert (kept.after if kept else before) == part
    assert (rest.before if rest else after) == part
    assert (rest.after if rest else after) == after
    assert split.hunks.pending == sum(number not in numbers for number in range(len(hunks)))


BEFORE, PART, AFTER = "1\n2\n3\n", "one\n2\n3\n", "one\n2\nthree\n"
RENAME = {"before": BEFORE, "after": AFTER, "new_uri": B, "new_path": "b.py"}
# The change, the kept hunks, the kept part and the declined part, each as (URI, before, after, new URI).
OPERATIONS: dict[str, tuple[dict[str, Any], set[int], Any, Any]] = {
    "a creation that is kept": ({"before": None, "after": "x"}, {0}, (A, None, "x", None), None),
    "a creation that is declined": ({"before": None, "after": "x"}, set(), None, (A, None, "x", None)),
    "a deletion that is declined": ({"before": "x", "after": None}, {1}, None, (A, "x", None, None)),
    "a rename with a hunk": (RENAME, {0, 2}, (A, BEFORE, PART, B), (B, PART, AFTER, None)),
    "a rename that is declined": (RENAME, {0, 1}, (A, BEFORE, AFTER, None), (A, AFTER, AFTER, B)),
    "a rename without hunks": (RENAME, {2}, (A, BEFORE, BEFORE, B), (B, BEFORE, AFTER, None)),
}


def shape(file: FileEdit | None) -> Any:
    return None if file is None else (file.uri, file.before, file.after, file.new_uri)


@pytest.mark.parametrize(("change", "kept", "part", "rest"), OPERATIONS.values(), ids=OPERATIONS)
def test_operations_on_whole_files_are_hunks(change: dict[str, Any], kept: set[int], part: Any, rest: Any) -> None:
    file = FileEdit(A, "a.py", **change)
    split = split_hunks(file, kept)
    assert shape(split.applied_part) == part
    assert shape(split.missing_part) == rest
    assert number_hunks(file) == (3 if file.new_uri else 1)


@pytest.mark.parametrize(
    ("message", "hunks"),
    [
        ({"files": [{"uri": A, "kept": [0, 2, "1", True, None]}]}, {A: {0, 2}}),
        ({"files": [{"uri": 3, "kept": [0]}, {"uri": A}, 7, {"uri": B, "kept": []}]}, {B: set()}),
        ({"files": "all"}, {}),
        (None, {}),
    ],
)
def test_invalid_entries_of_a_message_are_skipped(message: Any, hunks: Any) -> None:
    assert parse_hunks(message, "kept") == hunks
