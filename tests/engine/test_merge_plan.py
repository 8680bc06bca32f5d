"""A turn's edit set merged with the files as they are now, and for each file that stays as it is the reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from thinklsp.core.edits import FileEdit
from thinklsp.engine.merge_plan import FileState, MergePlan, UndoPlan, plan_merge, plan_undo
from thinklsp.sessions.ledger import EditIntent, LedgerEdit, LedgerEntry, PlannedWrite, WrittenTurn, compute_sha256

A, B = "file:///ws/a.py", "file:///ws/b.py"
BASE = "one\ntwo\nthree\nfour\n"
OPERATIONS = frozenset(("create", "rename", "delete"))


def edit(before: str | None = BASE, after: str | None = BASE.replace("two", "2"), **more: Any) -> FileEdit:
    return FileEdit(A, "a.py", before, after, **more)


def made(
    file: FileEdit,
    now: FileState,
    can: frozenset[str] = OPERATIONS,
    *,
    wins: bool = False,
    target: FileState | None = None,
) -> MergePlan:
    present = {file.uri: now}
    if file.new_uri is not None:
        present[file.new_uri] = target or FileState(None)
    told = {file.uri: now.text} if wins and now.text is not None else {}
    return plan_merge([file], present, can, conflict_texts=told)


def text_of(result: MergePlan) -> str | None:
    [proposal] = result.mergeable
    assert result.rejected == ()
    return proposal.after


RENAME = edit(new_uri=B, new_path="b.py")
BOM = "\ufeff"

# name -> the turn's edit, the file as it is now, and the text that it will have or the status it gets.
DRAFTS: dict[str, tuple[FileEdit, FileState, str | None]] = {
    "unchanged": (edit(version=3), FileState(BASE, 3), "one\n2\nthree\nfour\n"),
    "not open": (edit(), FileState(BASE), "one\n2\nthree\nfour\n"),
    "merged": (edit(version=3), FileState(f"zero\n{BASE}".replace("four", "4"), 9), "zero\none\n2\nthree\n4\n"),
    "the same change by the user": (edit(), FileState(BASE.replace("two", "2"), 4), "applied"),
    "the same place": (edit(), FileState(BASE.replace("two", "zwei"), 4), "conflict"),
    "the next line": (edit(), FileState(BASE.replace("three", "drei"), 4), "conflict"),
    "deleted meanwhile": (edit(), FileState(None), "conflict"),
    "out of step": (edit(), FileState(BASE, 4, is_desynced=True), "refused"),
    "refused by its path": (edit(), FileState(None, refusal="`a.py` is protected."), "refused"),
    "created": (edit(None, "new\n"), FileState(None), "new\n"),
    "created empty": (edit(None, ""), FileState(None), ""),
    "created meanwhile": (edit(None, "new\n"), FileState("other\n"), "conflict"),
    "created meanwhile with this text": (edit(None, "new\n"), FileState("new\n"), "applied"),
    "deleted": (edit(after=None), FileState(BASE), None),
    "deleted after a change": (edit(after=None), FileState(f"{BASE}more\n"), "conflict"),
    "renamed": (edit(after=BASE, new_uri=B), FileState(BASE), BASE),
    "renamed and changed": (RENAME, FileState(BASE, 4), "one\n2\nthree\nfour\n"),
    "a mark in the buffer only": (edit(), FileState(f"{BOM}{BASE}", 4), f"{BOM}one\n2\nthree\nfour\n"),
    "a mark in the turn's text only": (edit(BOM + BASE, f"{BOM}1\n{BASE[4:]}"), FileState(BASE), f"1\n{BASE[4:]}"),
    "a mark in all, its line changed": (
        edit(BOM + BASE, f"{BOM}1\n{BASE[4:]}"), FileState(BOM + BASE, 4), f"{BOM}1\n{BASE[4:]}"
    ),
    "a mark, deleted": (edit(BOM + BASE, None), FileState(BOM + BASE), None),
    "a mark on one side, deleted": (edit(BASE, None), FileState(BOM + BASE), None),
}  # fmt: skip
STATUSES = {"applied", "conflict", "refused"}


@pytest.mark.parametrize(("file", "now", "expected"), DRAFTS.values(), ids=DRAFTS)
def test_drafts(file: FileEdit, now: FileState, expected: str | None) -> None:
    result = made(file, now)
    if expected not in STATUSES:
        assert text_of(result) == expected
        return
    assert result.mergeable == ()
    [status] = result.rejected
    assert (status.uri, status.status) == (A, expected)
    assert (status.reason is None) == (expected == "applied")


@pytest.mark.parametrize(
    ("now", "after"),
    [
        (FileState(BASE.replace("two", "zwei"), 4), "one\n2\nthree\nfour\n"),
        (FileState(BASE.replace("two", "zwei").replace("four", "4"), 4), "one\n2\nthree\n4\n"),
    ],
)
def test_known_conflict_is_resolved_with_the_turn_text(now: FileState, after: str) -> None:
    assert text_of(made(edit(), now, wins=True)) == after


def test_a_conflict_names_the_lines_that_the_user_sees() -> None:
    [status] = made(edit(), FileState(BASE.replace("two", "zwei"), 4)).rejected
    assert status.reason is not None
    assert "line 2" in status.reason


ABILITIES: list[tuple[str, FileEdit, FileState]] = [
    ("create", edit(None, "x"), FileState(None)),
    ("delete", edit(after=None), FileState(BASE)),
    ("rename", RENAME, FileState(BASE)),
]


@pytest.mark.parametrize(("ability", "file", "now"), ABILITIES)
def test_what_the_editor_cannot_do_is_refused_with_the_reason(ability: str, file: FileEdit, now: FileState) -> None:
    for can in (OPERATIONS - {ability}, frozenset[str]()):
        [status] = made(file, now, can).rejected
        assert status.status == "refused"
        assert status.reason == f"this editor does not let thinklsp {ability} files"
    assert made(file, now).mergeable


def test_file_created_in_the_meantime_is_not_overwritten() -> None:
    [status] = made(RENAME, FileState(BASE), target=FileState("theirs\n")).rejected
    assert status.status == "conflict"


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
