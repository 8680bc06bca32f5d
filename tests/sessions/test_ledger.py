"""The edit ledger, which records an edit before it is sent, so that a crash never sends an edit twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.stored_sessions import connection_of, full_session, opened
from thinklsp.core.errors import SessionError
from thinklsp.sessions.ledger import PlannedWrite, WrittenTurn, compute_sha256
from thinklsp.sessions.sqlite_store import MemoryStore
from thinklsp.sessions.store import SessionStore

CHANGE = PlannedWrite("file:///a.py", "a.py", "one\n", "two\n", version=3)
CREATE = PlannedWrite("file:///new.py", "new.py", None, "new \ud83d\n")
DELETE = PlannedWrite("file:///old.py", "old.py", "old\n", None)
RENAME = PlannedWrite("file:///b.py", "b.py", "b\n", "b\n", new_uri="file:///c.py")
WRITES = (CHANGE, CREATE, DELETE, RENAME)
STATES = ["as before", "as after", "other"]


async def wrote(store: SessionStore, turn_id: str, *writes: PlannedWrite, workspace: str = "w") -> str:
    session = await store.update((await store.create(workspace)).id, full_session)
    intent = await store.record_intent(session.id, workspace, turn_id, writes)
    await store.settle_edit(intent, {write.uri: "applied" for write in writes})
    return session.id


async def find_turn(store: SessionStore, turn_id: str | None = None) -> WrittenTurn:
    turn = await store.find_written_turn("w", turn_id)
    assert turn is not None
    return turn


def uris(turn: WrittenTurn | None) -> list[str]:
    return [] if turn is None else [entry.write.uri for edit in turn.edits for entry in edit.entries]


async def test_an_undo_finds_all_files_of_the_newest_turn_that_wrote() -> None:
    store = MemoryStore()
    session_id = await wrote(store, "t1", CHANGE)
    await wrote(store, "t2", *WRITES)
    await wrote(store, "elsewhere", CHANGE, workspace="v")
    turn = await find_turn(store)
    assert (turn.turn_id, uris(turn)) == ("t2", [write.uri for write in WRITES])
    entries = turn.edits[0].entries
    assert tuple(entry.write for entry in entries) == WRITES
    assert [entry.write.kind for entry in entries] == ["change", "create", "delete", "rename"]
    assert (entries[0].before_sha256, entries[0].after_sha256) == (compute_sha256("one\n"), compute_sha256("two\n"))
    assert [*map(entries[0].compare_text, ("one\n", "two\n", "three\n", None))] == [*STATES, "other"]
    assert (entries[1].compare_text(None), entries[2].compare_text(None)) == ("as before", "as after")
    earlier = await find_turn(store, "t1")
    assert (earlier.session_id, uris(earlier)) == (session_id, [CHANGE.uri])
    assert await store.find_written_turn("w", "unknown") is None
    assert await store.find_written_turn("v", "t1") is None, "another workspace's turn"
    await store.aclose()


async def test_what_is_undone_is_not_undone_again() -> None:
    store = MemoryStore()
    await wrote(store, "t1", CHANGE)
    await wrote(store, "t2", *WRITES)
    turn = await find_turn(store)
    await store.mark_undone(turn, [CHANGE.uri, DELETE.uri])
    assert uris(await store.find_written_turn("w")) == [CREATE.uri, RENAME.uri], "the rest had a conflict"
    await store.mark_undone(turn)
    again = await find_turn(store)
    assert again.turn_id == "t1"
    await store.mark_undone(again)
    assert await store.find_written_turn("w") is None
    await store.aclose()


async def test_the_edit_of_an_undo_is_found_by_no_undo(tmp_path: Path) -> None:
    back = PlannedWrite(CHANGE.uri, CHANGE.path, CHANGE.after, CHANGE.before)
    async with opened(tmp_path) as store:
        session_id = await wrote(store, "t1", CHANGE, RENAME)
        written = await store.list_written_files("w", datetime.now(UTC) - timedelta(days=1))
        assert [(file.turn_id, file.uri) for file in written] == [("t1", CHANGE.uri), ("t1", RENAME.new_uri)]
        assert await store.list_written_files("w", datetime.now(UTC) + timedelta(days=1)) == ()
        assert await store.list_written_files("v", datetime.now(UTC) - timedelta(days=1)) == ()
        intent = await store.record_intent(session_id, "w", "t1", (back,), is_undo=True)
        await store.settle_edit(intent, {back.uri: "applied"})
        turn = await find_turn(store)
        assert [len(edit.entries) for edit in turn.edits] == [2]
        await store.mark_undone(turn, [CHANGE.uri])
        assert uris(await store.find_written_turn("w")) == [RENAME.uri]
        written = await store.list_written_files("w", datetime.now(UTC) - timedelta(days=1))
        assert [file.uri for file in written if not file.is_undone] == [RENAME.new_uri]
        assert {file.uri for file in written if file.is_undone} == {CHANGE.uri}


async def test_session_is_kept_while_an_edit_is_unanswered(tmp_path: Path) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        session = await first.update((await first.create("w")).id, full_session)
        intent = await first.record_intent(session.id, "w", "t", (CHANGE,))
        await first.release(session.id)
        with pytest.raises(SessionError, match="in use"):
            await second.update(session.id, lambda now: now.rename("Mine."))
        await first.settle_edit(intent, {CHANGE.uri: "applied"})
        await second.update(session.id, lambda now: now.rename("Mine."))
        with pytest.raises(SessionError, match="in use"):
            await first.record_intent(session.id, "w", "t", (CHANGE,))


async def test_undo_reverts_only_applied_edits_of_a_turn() -> None:
    store = MemoryStore()
    session = await store.update((await store.create("w")).id, full_session)
    first = await store.record_intent(session.id, "w", "t", (CHANGE, CREATE))
    await store.settle_edit(first, {CHANGE.uri: "refused", CREATE.uri: "applied"})
    second = await store.record_intent(session.id, "w", "t", (CHANGE,))
    assert uris(await store.find_written_turn("w")) == [CREATE.uri]
    await store.settle_edit(second, {CHANGE.uri: "applied"})
    assert uris(await store.find_written_turn("w")) == [CREATE.uri, CHANGE.uri]
    await store.aclose()


async def test_edit_without_outcome_is_unknown_after_exit(tmp_path: Path) -> None:
    async with opened(tmp_path) as first:
        session = await first.update((await first.create("w")).id, full_session)
        intent = await first.record_intent(session.id, "w", "t", (CHANGE, CREATE))
        await first.settle_edit(intent, {CREATE.uri: "applied"})
        async with opened(tmp_path) as second:
            assert await first.list_unknown_edits("w") == (), "it is still waiting for its answer"
            assert await second.list_unknown_edits("w") == (), "so it is for the other one"
    async with opened(tmp_path) as third:
        assert await third.list_unknown_edits("v") == ()
        [unknown] = await third.list_unknown_edits("w")
        assert (unknown.turn_id, unknown.intent) == ("t", intent)
        assert [entry.write for entry in unknown.entries] == [CHANGE]
        assert uris(await third.find_written_turn("w")) == [CREATE.uri], "unknown is not applied"
        await third.update(session.id, lambda now: now.add_user_message("More."))
        assert len(await third.list_unknown_edits("w")) == 1, "also when the session is in use here"
        await third.settle_edit(unknown.intent, {CHANGE.uri: "unknown"})
        assert await third.list_unknown_edits("w") == (), "told once"


async def test_texts_of_old_edits_are_forgotten(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await wrote(store, "old", CHANGE)
        await wrote(store, "new", CREATE)
        connection_of(store).execute("UPDATE ledger SET made = made - 31 * 86400 * 1000000000 WHERE turn = 'old'")
    async with opened(tmp_path) as store:
        assert await store.find_written_turn("w", "old") is None
        assert uris(await store.find_written_turn("w")) == [CREATE.uri]


async def test_a_damaged_text_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert await store.find_written_turn("w") is None
        await wrote(store, "t", CHANGE)
        connection_of(store).execute("UPDATE ledger SET before = X'6F6EFF0A', after = 'no bytes'")
        [entry] = (await find_turn(store)).edits[0].entries
        assert (entry.write.before, entry.write.after) == ("on\ufffd\n", None)
        # What was written is still known by its digest.
        assert [*map(entry.compare_text, ("one\n", "two\n", "on\ufffd\n"))] == STATES
