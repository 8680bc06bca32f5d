"""Splitting an edit into kept and declined hunks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.edits import FileEdit, apply_edits, compute_hunks
from thinklsp.lsp.edits.edit_comparison import number_hunks, parse_hunks, split_hunks

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
