"""The ledger of edits: written before an edit leaves, so that a crash leaves a question and never a second edit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.stored_sessions import connection_of, full_session, opened
from thinklsp.core.errors import SessionError
from thinklsp.sessions.ledger import PlannedWrite, WrittenTurn, sha256
from thinklsp.sessions.sqlite_store import MemoryStore
from thinklsp.sessions.store import SessionStore

CHANGE = PlannedWrite("file:///a.py", "a.py", "one\n", "two\n", version=3)
CREATE = PlannedWrite("file:///new.py", "new.py", None, "new \ud83d\n")
DELETE = PlannedWrite("file:///old.py", "old.py", "old\n", None)
RENAME = PlannedWrite("file:///b.py", "b.py", "b\n", "b\n", new_uri="file:///c.py")
WRITES = (CHANGE, CREATE, DELETE, RENAME)


async def wrote(store: SessionStore, turn_id: str, *writes: PlannedWrite, workspace: str = "w") -> str:
    session = await store.update((await store.create(workspace)).id, full_session)
    intent = await store.intend(session.id, workspace, turn_id, writes)
    await store.settle(intent, {write.uri: "applied" for write in writes})
    return session.id


def uris(turn: WrittenTurn | None) -> list[str]:
    return [] if turn is None else [entry.write.uri for edit in turn.edits for entry in edit.entries]


async def test_an_undo_finds_all_files_of_the_newest_turn_that_wrote() -> None:
    store = MemoryStore()
    session_id = await wrote(store, "t1", CHANGE)
    await wrote(store, "t2", *WRITES)
    await wrote(store, "elsewhere", CHANGE, workspace="v")
    turn = await store.last_written("w")
    assert turn is not None
    assert (turn.turn_id, uris(turn)) == ("t2", [write.uri for write in WRITES])
    entries = turn.edits[0].entries
    assert tuple(entry.write for entry in entries) == WRITES
    assert [entry.write.kind for entry in entries] == ["change", "create", "delete", "rename"]
    assert (entries[0].before_sha256, entries[0].after_sha256) == (sha256("one\n"), sha256("two\n"))
    assert [entries[0].state_of(text) for text in ("one\n", "two\n", "three\n", None)] == [
        *("as before", "as after", "other", "other"),
    ]
    assert (entries[1].state_of(None), entries[2].state_of(None)) == ("as before", "as after")
    earlier = await store.last_written("w", "t1")
    assert earlier is not None
    assert (earlier.session_id, uris(earlier)) == (session_id, [CHANGE.uri])
    assert await store.last_written("w", "unknown") is None
    assert await store.last_written("v", "t1") is None, "another workspace's turn"
    await store.aclose()


async def test_what_is_undone_is_not_undone_again() -> None:
    store = MemoryStore()
    await wrote(store, "t1", CHANGE)
    await wrote(store, "t2", *WRITES)
    turn = await store.last_written("w")
    assert turn is not None
    await store.mark_undone(turn, [CHANGE.uri, DELETE.uri])
    assert uris(await store.last_written("w")) == [CREATE.uri, RENAME.uri], "the rest had a conflict"
    await store.mark_undone(turn)
    again = await store.last_written("w")
    assert again is not None
    assert again.turn_id == "t1"
    await store.mark_undone(again)
    assert await store.last_written("w") is None
    await store.aclose()


async def test_the_edit_of_an_undo_is_found_by_no_undo(tmp_path: Path) -> None:
    back = PlannedWrite(CHANGE.uri, CHANGE.path, CHANGE.after, CHANGE.before)
    async with opened(tmp_path) as store:
        session_id = await wrote(store, "t1", CHANGE, RENAME)
        written = await store.written_files("w", datetime.now(UTC) - timedelta(days=1))
        assert [(file.turn_id, file.uri) for file in written] == [("t1", CHANGE.uri), ("t1", RENAME.new_uri)]
        assert await store.written_files("w", datetime.now(UTC) + timedelta(days=1)) == ()
        assert await store.written_files("v", datetime.now(UTC) - timedelta(days=1)) == ()
        intent = await store.intend(session_id, "w", "t1", (back,), undo=True)
        await store.settle(intent, {back.uri: "applied"})
        turn = await store.last_written("w")
        assert turn is not None
        assert [len(edit.entries) for edit in turn.edits] == [2]
        await store.mark_undone(turn, [CHANGE.uri])
        assert uris(await store.last_written("w")) == [RENAME.uri]
        written = await store.written_files("w", datetime.now(UTC) - timedelta(days=1))
        assert [file.uri for file in written] == [RENAME.new_uri]


async def test_a_session_is_kept_while_the_answer_to_an_edit_is_awaited(tmp_path: Path) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        session = await first.update((await first.create("w")).id, full_session)
        intent = await first.intend(session.id, "w", "t", (CHANGE,))
        await first.release(session.id)
        with pytest.raises(SessionError, match="in use"):
            await second.update(session.id, lambda now: now.renamed("Mine."))
        await first.settle(intent, {CHANGE.uri: "applied"})
        await second.update(session.id, lambda now: now.renamed("Mine."))
        with pytest.raises(SessionError, match="in use"):
            await first.intend(session.id, "w", "t", (CHANGE,))


async def test_only_what_was_applied_is_undone_over_several_edits_of_a_turn() -> None:
    store = MemoryStore()
    session = await store.update((await store.create("w")).id, full_session)
    first = await store.intend(session.id, "w", "t", (CHANGE, CREATE))
    await store.settle(first, {CHANGE.uri: "refused", CREATE.uri: "applied"})
    second = await store.intend(session.id, "w", "t", (CHANGE,))
    assert uris(await store.last_written("w")) == [CREATE.uri]
    await store.settle(second, {CHANGE.uri: "applied"})
    assert uris(await store.last_written("w")) == [CREATE.uri, CHANGE.uri]
    await store.aclose()


async def test_an_edit_without_an_outcome_is_unknown_once_its_process_is_gone(tmp_path: Path) -> None:
    async with opened(tmp_path) as first:
        session = await first.update((await first.create("w")).id, full_session)
        intent = await first.intend(session.id, "w", "t", (CHANGE, CREATE))
        await first.settle(intent, {CREATE.uri: "applied"})
        async with opened(tmp_path) as second:
            assert await first.unknown_edits("w") == (), "it is still waiting for its answer"
            assert await second.unknown_edits("w") == (), "so it is for the other one"
    async with opened(tmp_path) as third:
        assert await third.unknown_edits("v") == ()
        [unknown] = await third.unknown_edits("w")
        assert (unknown.turn_id, unknown.intent) == ("t", intent)
        assert [entry.write for entry in unknown.entries] == [CHANGE]
        assert uris(await third.last_written("w")) == [CREATE.uri], "unknown is not applied"
        await third.update(session.id, lambda now: now.with_user("More."))
        assert len(await third.unknown_edits("w")) == 1, "also when the session is in use here"
        await third.settle(unknown.intent, {CHANGE.uri: "unknown"})
        assert await third.unknown_edits("w") == (), "told once"


async def test_texts_of_old_edits_are_forgotten(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await wrote(store, "old", CHANGE)
        await wrote(store, "new", CREATE)
        connection_of(store).execute("UPDATE ledger SET made = made - 31 * 86400 * 1000000000 WHERE turn = 'old'")
    async with opened(tmp_path) as store:
        assert await store.last_written("w", "old") is None
        assert uris(await store.last_written("w")) == [CREATE.uri]


async def test_a_damaged_text_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert await store.last_written("w") is None
        await wrote(store, "t", CHANGE)
        connection_of(store).execute("UPDATE ledger SET before = X'6F6EFF0A', after = 'no bytes'")
        turn = await store.last_written("w")
        assert turn is not None
        [entry] = turn.edits[0].entries
        assert (entry.write.before, entry.write.after) == ("on\ufffd\n", None)
        # What was written is still known by its digest.
        assert [entry.state_of(text) for text in ("one\n", "two\n", "on\ufffd\n")] == ["as before", "as after", "other"]
