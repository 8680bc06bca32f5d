"""The outcome of an edit in words: the files that wait, and the text that the user inserts by hand."""

from __future__ import annotations

import pytest

from thinklsp.core.edits import FileEdit
from thinklsp.engine.results import FileStatus
from thinklsp.lsp.edits.edit_outcomes import format_new_text, format_waiting

OLD = "one\ntwo\nthree\nfour\n"
# After, or the whole edit, and what the user reads behind the introduction.
CHANGES: dict[str, tuple[FileEdit | str | None, str]] = {
    "a line": (OLD.replace("two", "TWO"), "In `a.py`, replace line 2:\n\n```\nTWO\n```"),
    "several lines": (OLD.replace("two\nthree", "x\ny\nz"), "In `a.py`, replace lines 2–3:\n\n```\nx\ny\nz\n```"),
    "an insertion": (OLD.replace("two\n", "two\nnew\n"), "In `a.py`, insert after line 2:\n\n```\nnew\n```"),
    "at the beginning": (f"new\n{OLD}", "In `a.py`, insert before line 1:\n\n```\nnew\n```"),
    "a deletion": (OLD.replace("two\nthree\n", ""), "In `a.py`, delete lines 2–3."),
    "two places": (
        OLD.replace("one", "ONE").replace("four\n", ""),
        "In `a.py`, replace line 1:\n\n```\nONE\n```\n\nIn `a.py`, delete line 4.",
    ),
    "line endings": (OLD.replace("\n", "\r\n"), "Change the line endings of `a.py`."),
    "a fence": (OLD.replace("two", "```"), "In `a.py`, replace line 2:\n\n````\n```\n````"),
    "the file": (None, "Delete `a.py`."),
    "a new file": (FileEdit("file:///b", "b", None, "x"), "Create `b`:\n\n```\nx\n```"),
    "another name": (FileEdit("file:///b", "b", "x", "x", new_uri="file:///c", new_path="c"), "Rename `b` to `c`."),
    "a hidden character in a name": (FileEdit("file:///b", "b\u202e", "x", None), "Delete `b<U+202E>`."),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_every_change_is_described(change: FileEdit | str | None, expected: str) -> None:
    edit = change if isinstance(change, FileEdit) else FileEdit("file:///a.py", "a.py", OLD, change)
    introduction, _, text = format_new_text([edit]).partition("\n\n")
    assert introduction.endswith("before the changes.")
    assert text == expected


def test_nothing_to_insert_is_no_text() -> None:
    assert format_new_text([]) == ""


NAMED = {1: "f0 is", 3: "f0, f1 and f2 are", 9: "f0, f1, f2, f3, f4, f5 and 3 more are"}


@pytest.mark.parametrize(("number", "said"), NAMED.items())
def test_no_more_than_a_few_files_are_named(number: int, said: str) -> None:
    files = [FileEdit(f"file:///f{place}", f"f{place}", "", "x") for place in range(number)]
    statuses = [FileStatus(file.uri, "refused", is_pending=True) for file in files]
    assert format_waiting(statuses, files, None) == f"Nothing was changed; {said} waiting."
