"""The undo of a turn: its edits of a file are taken back as one, without those that overlap with the user's."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from thinklsp.core.edits import FileEdit
from thinklsp.engine.merge_plan import UndoPlan, plan_undo
from thinklsp.sessions.ledger import EditIntent, LedgerEdit, LedgerEntry, PlannedWrite, WrittenTurn, compute_sha256

A, B = "file:///a.py", "file:///b.py"
THREE = "1\n2\n3\n4\n5\n6\n7\n"


def make_applied(write: PlannedWrite) -> LedgerEntry:
    hashes = compute_sha256(write.before), compute_sha256(write.after)
    return LedgerEntry(write, *hashes, "applied", undone=False, created=datetime.now(UTC))


def write(uri: str, before: str | None, after: str | None, new_uri: str | None = None) -> PlannedWrite:
    return PlannedWrite(uri, uri[-4:], before, after, None, new_uri)


def undo(*writes: PlannedWrite) -> UndoPlan:
    return plan(*map(make_applied, writes))


def plan(*entries: LedgerEntry) -> UndoPlan:
    edits = tuple(LedgerEdit(EditIntent(str(n), "s"), "w", "t", (entry,)) for n, entry in enumerate(entries))
    return plan_undo(WrittenTurn("t", "s", edits), "edit a.py")


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
    assert (found.ledger_uris, found.rejected) == ({back[0]: (A,)}, ())


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
    assert set(found.ledger_uris[back[0]]) == {write.uri for write in writes}


def test_edits_that_cannot_be_told_from_the_users_are_left_out() -> None:
    found = undo(write(A, "x\n", "y\n"), write(A, "mine\n", "z\n"), write(B, "x", "y"))
    assert [file.uri for file in found.files] == [B]
    assert [(status.uri, status.status) for status in found.rejected] == [(A, "conflict")]


@pytest.mark.parametrize("damage", [{"before": "one\ufffd"}, {"before": None}, {"after": "?"}])
def test_a_text_that_is_damaged_in_the_store_is_never_written(damage: dict[str, str | None]) -> None:
    """Without its text from before, a changed file looks like a created one."""
    intact = make_applied(write(A, "one", "two"))
    found = plan(replace(intact, write=replace(intact.write, **damage)), make_applied(write(B, "x", "y")))
    assert [file.uri for file in found.files] == [B]
    [status] = found.rejected
    assert (status.uri, status.status) == (A, "conflict")
    assert status.reason == "a text of this edit is damaged in the session store, or cannot be decrypted"
