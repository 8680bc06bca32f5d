"""The records of edits: what the files say about an edit without an answer, and the title of a turn that has none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from tests.support.stored_sessions import full_session, opened
from thinklsp.engine.edit_records import build_files_title, classify_unconfirmed, settle_unconfirmed
from thinklsp.engine.merge_plan import FileState
from thinklsp.engine.results import EditOutcome
from thinklsp.sessions.ledger import LedgerEntry, PlannedWrite, compute_sha256
from thinklsp.sessions.sqlite_store import SqliteStore

OLD, NEW = "one\n", "two\n"


def entry(before: str | None, after: str | None, new_uri: str | None = None) -> LedgerEntry:
    write = PlannedWrite("file:///a", "a", before, after, new_uri=new_uri)
    return LedgerEntry(write, compute_sha256(before), compute_sha256(after), None, False, datetime.now(UTC))


# Before and after of an edit, the text that is there now (of a rename: under both names) -> what came of the edit.
STANDING: list[tuple[LedgerEntry, tuple[str | None, ...], EditOutcome]] = [
    (entry(OLD, NEW), (NEW,), "applied"),
    (entry(OLD, NEW), ("two\r\n",), "applied"),
    (entry(OLD, NEW), (f"\ufeff{NEW}",), "applied"),
    (entry(OLD, NEW), (OLD,), "refused"),
    (entry(OLD, NEW), ("one\r\n",), "refused"),
    (entry(f"\ufeff{OLD}", f"\ufeff{NEW}"), (OLD,), "refused"),
    (entry(OLD, NEW), ("three\n",), "unknown"),
    (entry(OLD, NEW), (None,), "unknown"),
    (entry(None, NEW), (None,), "refused"),
    (entry(None, NEW), ("",), "unknown"),
    (entry(OLD, None), (None,), "applied"),
    # An edit of nothing but the form cannot be told from an editor that changes it.
    (entry(OLD, "one\r\n"), ("one",), "unknown"),
    (entry(OLD, "one\r\n"), ("one\r\n",), "applied"),
    (entry(OLD, NEW, "file:///b"), (None, NEW), "applied"),
    (entry(OLD, NEW, "file:///b"), (OLD, None), "refused"),
    (entry(OLD, NEW, "file:///b"), (None, OLD), "unknown"),
    (entry(OLD, NEW, "file:///b"), (OLD, NEW), "unknown"),
    (entry(OLD, NEW, "file:///b"), (None, None), "unknown"),
]


@pytest.mark.parametrize(("written", "now", "outcome"), STANDING)
def test_what_the_files_say_about_an_edit(
    written: LedgerEntry, now: tuple[str | None, ...], outcome: EditOutcome
) -> None:
    assert classify_unconfirmed(written, *now) == outcome


TITLES = {1: "f0", 3: "f0, f1, f2", 9: "f0, f1, f2, f3, f4, f5, f6, f7 and 1 more"}


@pytest.mark.parametrize(("number", "names"), TITLES.items())
def test_a_turn_without_a_title_is_named_after_its_files(number: int, names: str) -> None:
    """Each name once, and the time as the user's clock shows it."""
    paths = [f"src/f{place}" for place in range(number)]
    time = datetime(2024, 5, 6, 12, 30, tzinfo=UTC)
    assert build_files_title([*paths, "tests/f0"], time) == f"{names} ({time.astimezone():%H:%M})"


URI, MOVED = "file:///w/a.py", "file:///w/b.py"
CHANGE = PlannedWrite(URI, "a.py", OLD, NEW)


@dataclass
class Killed:
    """The store of a later process, and the files that it finds."""

    store: SqliteStore
    session_id: str
    files: dict[str, FileState]

    async def read_state(self, uri: str) -> FileState:
        return self.files.get(uri, FileState(None))

    async def settle(self, *, only_applied: bool = False) -> list[dict[str, str]]:
        edits = await self.store.list_unknown_edits("w")
        settle = partial(settle_unconfirmed, self.store, "w", read_state=self.read_state, only_applied=only_applied)
        return [dict(await settle(edit)) for edit in edits]

    async def can_undo(self) -> bool:
        return await self.store.find_written_turn("w", "t") is not None


async def leave(folder: Path, *undo: PlannedWrite, change: PlannedWrite = CHANGE) -> str:
    """Record a change that was applied and its undo without an outcome; or, without an undo, a change without one."""
    async with opened(folder) as gone:
        session = await gone.update((await gone.create("w")).id, full_session)
        intent = await gone.record_intent(session.id, "w", "t", [change])
        if undo:
            await gone.settle_edit(intent, {change.uri: "applied"})
            await gone.record_intent(session.id, "w", "t", undo, is_undo=True)
        return session.id


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (FileState(NEW), "applied"),
        (FileState(OLD), "refused"),
        (FileState("other\n"), "unknown"),
        (FileState(None, refusal="no"), "unknown"),
        (FileState(NEW, is_desynced=True), "unknown"),
    ],
)
async def test_files_show_the_outcome(tmp_path: Path, state: FileState, outcome: str) -> None:
    session_id = await leave(tmp_path)
    async with opened(tmp_path) as store:
        killed = Killed(store, session_id, {URI: state})
        assert await killed.settle(only_applied=True) == [{URI: outcome}]
        assert await killed.settle() == ([] if outcome == "applied" else [{URI: outcome}])
        assert await killed.settle() == [], "it is settled"
        assert await killed.can_undo() is (outcome == "applied")


@pytest.mark.parametrize("arrived", [True, False])
async def test_undo_that_arrived_marks_its_turn(tmp_path: Path, arrived: bool) -> None:
    session_id = await leave(tmp_path, PlannedWrite(URI, "a.py", NEW, OLD))
    async with opened(tmp_path) as store:
        killed = Killed(store, session_id, {URI: FileState(OLD if arrived else NEW)})
        assert await killed.settle() == [{URI: "applied" if arrived else "refused"}]
        assert await killed.can_undo() is not arrived


async def test_undo_of_a_rename_is_found_by_the_new_name(tmp_path: Path) -> None:
    renamed = PlannedWrite(URI, "a.py", OLD, OLD, new_uri=MOVED)
    session_id = await leave(tmp_path, PlannedWrite(MOVED, "b.py", OLD, OLD, new_uri=URI), change=renamed)
    async with opened(tmp_path) as store:
        killed = Killed(store, session_id, {URI: FileState(OLD)})
        assert await killed.settle() == [{MOVED: "applied"}]
        assert not await killed.can_undo()
