"""What a turn did to its files, over all its edits, and the edit set that takes it back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from thinklsp.core.edits import FileEdit
from thinklsp.lsp.edits.ledger import standing
from thinklsp.lsp.edits.undoing import Undo, undo_of
from thinklsp.sessions.ledger import Intent, LedgerEdit, LedgerEntry, PlannedWrite, WrittenTurn, sha256

A, B = "file:///a.py", "file:///b.py"
THREE = "1\n2\n3\n4\n5\n6\n7\n"


def entry(write: PlannedWrite) -> LedgerEntry:
    return LedgerEntry(
        write, sha256(write.before), sha256(write.after), "applied", undone=False, made=datetime.now(UTC)
    )


def write(uri: str, before: str | None, after: str | None, new_uri: str | None = None) -> PlannedWrite:
    return PlannedWrite(uri, uri[-4:], before, after, None, new_uri)


def undo(*writes: PlannedWrite) -> Undo:
    edits = tuple(LedgerEdit(Intent(str(n), "s"), "w", "t", (entry(write),)) for n, write in enumerate(writes))
    return undo_of(WrittenTurn("t", "s", edits), "edit a.py")


ONE_EDIT: list[tuple[PlannedWrite, tuple[str, str | None, str | None, str | None]]] = [
    (write(A, "x", "y"), (A, "y", "x", None)),
    (write(A, None, "y"), (A, "y", None, None)),
    (write(A, "x", None), (A, None, "x", None)),
    (write(A, "x", "y", B), (B, "y", "x", A)),
]


@pytest.mark.parametrize(("written", "back"), ONE_EDIT)
def test_one_edit_of_each_kind(written: PlannedWrite, back: tuple[str, str | None, str | None, str | None]) -> None:
    found = undo(written)
    assert [parts(file) for file in found.files] == [back]
    assert (found.places, found.left_out) == ({back[0]: (A,)}, ())


def parts(file: FileEdit) -> tuple[str, str | None, str | None, str | None]:
    return file.uri, file.before, file.after, file.new_uri


SEVERAL: dict[str, tuple[list[PlannedWrite], tuple[str, str | None, str | None, str | None]]] = {
    "one after the other": ([write(A, "x", "y"), write(A, "y", "z")], (A, "z", "x", None)),
    "the same twice, as the first was lost": ([write(A, "x", "y"), write(A, "x", "y")], (A, "y", "x", None)),
    "typed between": (
        [write(A, THREE, THREE.replace("2", "II")), write(A, "mine\n" + THREE.replace("2", "II"), "mine\n1\nII\n")],
        (A, "mine\n1\nII\n", "mine\n" + THREE, None),
    ),
    "renamed, then changed": ([write(A, "x", "x", B), write(B, "x", "y")], (B, "y", "x", A)),
    "created, then renamed": ([write(A, None, "x"), write(A, "x", "y", B)], (B, "y", None, None)),
    "renamed, then deleted": ([write(A, "x", "x", B), write(B, "x", None)], (A, None, "x", None)),
    "deleted, then created": ([write(A, "x", None), write(A, None, "y")], (A, "y", "x", None)),
    "renamed there and back": ([write(A, "x", "x", B), write(B, "x", "y", A)], (A, "y", "x", None)),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_several_edits_of_one_file_are_one(case: str) -> None:
    writes, back = SEVERAL[case]
    found = undo(*writes)
    assert [parts(file) for file in found.files] == [back]
    assert set(found.places[back[0]]) == {write.uri for write in writes}


def test_edits_that_cannot_be_told_from_the_users_are_left_out() -> None:
    found = undo(write(A, "x\n", "y\n"), write(A, "mine\n", "z\n"), write(B, "x", "y"))
    assert [file.uri for file in found.files] == [B]
    assert [(status.uri, status.status) for status in found.left_out] == [(A, "conflict")]


STANDING: list[tuple[PlannedWrite, tuple[str | None, ...], str]] = [
    (write(A, "x", "y"), ("x",), "refused"),
    (write(A, "x", "y"), ("y",), "applied"),
    (write(A, "x", "y"), ("\ufeffy",), "applied"),
    (write(A, "\ufeffx", "\ufeffy"), ("x",), "refused"),
    (write(A, "x", "y"), ("z",), "unknown"),
    (write(A, "x", "y"), (None,), "unknown"),
    (write(A, None, "y"), (None,), "refused"),
    (write(A, None, "y"), ("",), "unknown"),
    (write(A, "x", None), (None,), "applied"),
    (write(A, "x", "y", B), ("x", None), "refused"),
    (write(A, "x", "y", B), (None, "y"), "applied"),
    (write(A, "x", "y", B), (None, "x"), "unknown"),
    (write(A, "x", "y", B), ("x", "y"), "unknown"),
]


@pytest.mark.parametrize(("written", "texts", "outcome"), STANDING)
def test_what_the_files_say_about_an_edit_without_an_answer(
    written: PlannedWrite, texts: tuple[str | None, ...], outcome: str
) -> None:
    assert standing(entry(written), *texts) == outcome
