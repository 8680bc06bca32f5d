"""Earlier edits of a file as a later process reads them, with the answer and the model of each turn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.stored_sessions import USAGE, answer, connection_of, opened
from thinklsp.core.messages import AssistantMessage, TextBlock, ToolResultBlock, ToolUseBlock, UserMessage, UserPrompt
from thinklsp.sessions.ledger import EarlierEdit, PlannedWrite
from thinklsp.sessions.session import Session
from thinklsp.sessions.spending import CallUsage
from thinklsp.sessions.store import SessionStore

A = "file:///a.py"
WEEK = timedelta(days=7)


def write(before: str | None, after: str | None, uri: str = A, new_uri: str | None = None) -> PlannedWrite:
    return PlannedWrite(uri, uri.rpartition("/")[2], before, after, new_uri=new_uri)


async def take_turn(
    store: SessionStore, session: Session, turn_id: str, *texts: str, model: str = "m", joined: str = ""
) -> Session:
    """Store a turn with one step for each text. `joined` is the turn id of a prompt that joins after each step."""
    prompt = UserPrompt("Do it.", turn_id)
    session = await store.update(session.id, lambda now: now.add_user_message("Do it.", prompt=prompt))
    for number, text in enumerate(texts, 1):
        use, result = ToolUseBlock(f"{turn_id}-{number}", "t", {}), ToolResultBlock(f"{turn_id}-{number}", '"turn":"')
        more = (TextBlock("And that.", prompt=UserPrompt("And that.", joined)),) if joined else ()
        step = (AssistantMessage((TextBlock(text), use), "tool_use"), UserMessage((result, *more)))
        if number == len(texts):
            step = (answer(text), None)
        spent = CallUsage(turn_id, "p", model, USAGE)
        session = await store.update(session.id, lambda now, step=step: now.add_step(*step, USAGE), spent)
    return session


async def record(
    store: SessionStore, session: Session, turn_id: str, *writes: PlannedWrite, undo: bool = False
) -> None:
    intent = await store.record_intent(session.id, "w", turn_id, writes, is_undo=undo)
    await store.settle_edit(intent, {one.uri: "applied" for one in writes})


async def read(
    store: SessionStore, *uris: str, workspace: str = "w", age: timedelta = WEEK, limit: int = 20
) -> Sequence[EarlierEdit]:
    return await store.list_earlier_edits(workspace, uris or (A,), datetime.now(UTC) - age, limit)


async def test_edits_of_a_file_are_listed_with_their_answers(tmp_path: Path) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        session = await take_turn(first, await first.create("w"), "t1", "Looking.", "Done one.", model="m1")
        await record(first, session, "t1", write("1", "2"), write("x", "y", "file:///b.py"))
        session = await take_turn(first, session, "t2", "Hm.", "  ", model="m2", joined="queued")
        await record(first, session, "t2", write("2", "3"))
        other = await take_turn(first, await first.create("w"), "t3", "Renamed.")
        await record(first, other, "t3", write("x", "x", "file:///c.py", A))
        found = await read(second)
        assert [(edit.turn_id, edit.before, edit.after) for edit in found] == [
            ("t1", "1", "2"), ("t2", "2", "3"), ("t3", "x", "x"),
        ]  # fmt: skip
        assert [(edit.answer, edit.model) for edit in found] == [
            ("Done one.", "m1"), ("Hm.", "m2"), ("Renamed.", "m"),
        ]  # fmt: skip
        assert [edit.turn_id for edit in await read(second, "file:///c.py", "file:///b.py")] == ["t1"]
        assert [edit.turn_id for edit in await read(second, limit=2)] == ["t2", "t3"]
        assert await read(second, workspace="v") == ()
        assert await read(second, age=-WEEK) == ()
        assert await read(first) == await read(second)


async def test_an_undone_refused_or_deleted_edit_is_not_listed(tmp_path: Path) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        session = await take_turn(first, await first.create("w"), "t1", "One.")
        await record(first, session, "t1", write("1", "2"))
        await record(first, session, "t1", write("2", "1"), undo=True)
        turn = await first.find_written_turn("w", "t1")
        assert turn is not None
        await first.mark_undone(turn)
        refused = await first.record_intent(session.id, "w", "t2", (write("1", "3"),))
        await first.settle_edit(refused, {A: "refused"})
        assert await read(second) == ()
        await record(first, session, "t3", write("1", "4"))
        assert [edit.turn_id for edit in await read(second)] == ["t3"]
        await first.delete(session.id, "w")
        assert await read(second) == ()


@pytest.mark.parametrize("when", ["between the turns", "within the turn"])
async def test_the_answer_is_found_behind_a_compaction(tmp_path: Path, when: str) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        session = await take_turn(first, await first.create("w"), "t1", "First.")
        await record(first, session, "t1", write("1", "2"))
        if when == "between the turns":
            summary = (UserMessage.from_text("summary"), answer("Understood."))
            await first.compact(session.id, lambda now: now.replace_conversation(summary), "note")
            session = await take_turn(first, session, "t2", "Second.")
        else:
            prompt = UserPrompt("Do it.", "t2")
            await first.update(session.id, lambda now: now.add_user_message("Do it.", prompt=prompt))
            again = (
                UserMessage.from_text("summary"),
                answer("Yes."),
                UserMessage((TextBlock("Do it.", prompt=prompt),)),
            )
            await first.compact(session.id, lambda now: now.replace_conversation(again), "note")
            spent = CallUsage("t2", "p", "m", USAGE)
            await first.update(session.id, lambda now: now.add_step(answer("Second."), None, USAGE), spent)
        await record(first, session, "t2", write("2", "3"))
        assert [edit.answer for edit in await read(second)] == ["First.", "Second."]


async def test_edits_of_a_damaged_session_have_no_answer(tmp_path: Path) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        session = await take_turn(first, await first.create("w"), "t1", "One.")
        await record(first, session, "t1", write(None, "2"))
        connection_of(first).execute("UPDATE message SET blocks = ?", (b'[{"kind":"text","turn":"',))
        [edit] = await read(second)
        assert (edit.before, edit.after, edit.answer, edit.model) == (None, "2", "", "m")
        connection_of(first).execute("DELETE FROM usage")
        assert [edit.model for edit in await read(second)] == [""]


async def test_version_changes_only_if_another_store_writes(tmp_path: Path) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        session = await take_turn(first, await first.create("w"), "t1", "One.")
        before = await first.read_data_version(), await second.read_data_version()
        await record(first, session, "t1", write("1", "2"))
        assert await first.read_data_version() == before[0]
        after = await second.read_data_version()
        assert after != before[1]
        assert await second.read_data_version() == after
