"""Edits of killed processes, which the files confirm or not. The front ends share this."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.stored_sessions import full_session, opened
from thinklsp.engine.edit_records import settle_unconfirmed
from thinklsp.engine.merge_plan import FileState
from thinklsp.sessions.ledger import PlannedWrite
from thinklsp.sessions.sqlite_store import SqliteStore

OLD, NEW = "old\n", "new\n"
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

    async def settle(self) -> list[dict[str, str]]:
        edits = await self.store.list_unknown_edits("w")
        return [dict(await settle_unconfirmed(self.store, "w", edit, self.read_state)) for edit in edits]

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
        assert await killed.settle() == [{URI: outcome}]
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
