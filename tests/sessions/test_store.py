"""The behaviour of every store: in memory, in a file and in PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from tests.support.postgres_server import PostgresServer, create_test_key
from tests.support.scripted_model import check_sendable
from tests.support.stored_sessions import RESULTS, USAGE, answer, full_session, one_turn
from thinklsp.core.errors import SessionError
from thinklsp.core.messages import (
    AssistantMessage,
    FileSight,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    collect_sight,
)
from thinklsp.core.usage import Usage
from thinklsp.sessions.repair import repair_conversation
from thinklsp.sessions.session import Session
from thinklsp.sessions.spending import CallUsage, read_utc_date
from thinklsp.sessions.sqlite_store import MemoryStore, SqliteStore
from thinklsp.sessions.store import SessionStore

SUMMARY = UserMessage.from_text("Summary of what was said.")


@pytest.fixture(params=["memory", "disk", "postgresql", "encrypted postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    made: SessionStore
    if request.param.endswith("postgresql"):
        server: PostgresServer = request.getfixturevalue("postgres")
        load_keys = create_test_key if request.param.startswith("encrypted") else None
        made = server.create_store(server.create_identity(), load_keys=load_keys)
    else:
        made = MemoryStore() if request.param == "memory" else SqliteStore(str(tmp_path))
    yield made
    assert made.problems == ()
    await made.aclose()


async def test_a_session_is_found_only_from_its_own_workspace(store: SessionStore) -> None:
    one, other = await store.create("one"), await store.create("other")
    await store.update(other.id, full_session)
    assert await store.get(one.id, "one") == one
    assert (await store.get(other.id, None)).id == other.id, "the terminal finds all"
    for session_id, workspace in ((one.id, "other"), (other.id, "one"), ("unknown", "one"), ("", "one"), ("x", None)):
        with pytest.raises(SessionError, match="sessionId"):
            await store.get(session_id, workspace)
        with pytest.raises(SessionError, match="sessionId"):
            await store.fork(session_id, workspace)
    with pytest.raises(SessionError, match="sessionId"):
        await store.delete(other.id, "one")
    with pytest.raises(SessionError):
        await store.find_latest("third")


async def test_ids_cannot_be_guessed(store: SessionStore) -> None:
    ids = {(await store.create("w")).id for _ in range(50)}
    assert len(ids) == 50
    assert min(len(identity) for identity in ids) >= 32


async def test_the_newest_is_the_one_that_was_used_last(store: SessionStore) -> None:
    first, second = await store.create("w"), await store.create("w")
    await store.create("other")
    assert await store.find_latest("w") == second
    first = await store.update(first.id, lambda session: session.add_user_message("x"))
    assert await store.find_latest("w") == first
    third = await store.create("w")
    assert await store.find_latest("w") == third
    first = await store.update(first.id, lambda session: session.cut_short())
    assert await store.find_latest("w") == first


async def test_no_update_is_lost(store: SessionStore) -> None:
    """Each change applies to the stored session, not to a copy in the caller."""
    session = await store.create("w")
    await asyncio.gather(
        store.update(session.id, lambda now: now.add_user_message("one")),
        store.update(session.id, lambda now: now.add_choices({"effort": "low"})),
        store.update(session.id, lambda now: now.add_step(answer("Hi."), None, USAGE)),
    )
    stored = await store.get(session.id, "w")
    assert (len(stored.conversation), stored.choices, stored.steps) == (2, {"effort": "low"}, 1)
    with pytest.raises(SessionError, match="deleted"):
        await store.update("unknown", lambda now: now)


async def test_a_change_that_fails_changes_nothing(store: SessionStore) -> None:
    session = await store.update((await store.create("w")).id, full_session)
    for wrong in (
        lambda now: now.add_step(AssistantMessage(()), UserMessage.from_text("x"), USAGE).with_step(1, 2, 3),
        lambda now: replace(now, id="other"),
        lambda now: replace(now, workspace="other"),
    ):
        with pytest.raises((ValueError, AttributeError)):
            await store.update(session.id, wrong)
    assert await store.get(session.id, "w") == session


async def test_cancelled_caller_does_not_cancel_its_write(store: SessionStore) -> None:
    session = await store.create("w")
    for number in range(30):
        writing = asyncio.create_task(store.update(session.id, lambda now, number=number: one_turn(number, now)))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        stored = await store.get(session.id, "w")
        assert stored.steps % 2 == 0
        check_sendable(stored.add_user_message("More.").conversation)
    assert (await store.get(session.id, "w")).steps >= 40


async def test_the_list_tells_what_there_is(store: SessionStore) -> None:
    empty, first, second = [await store.create(workspace) for workspace in ("w", "w", "v")]
    spent = CallUsage("t", "anthropic", "claude", USAGE)
    await store.update(first.id, lambda session: session.add_user_message("Hello there."))
    await store.update(first.id, lambda session: session.add_step(answer("Hi."), None, USAGE), spent)
    await store.update(second.id, lambda session: session.add_user_message("Other."))
    await store.update(empty.id, lambda session: session.add_choices({"effort": "low"}))
    [summary] = await store.list_sessions("w")
    assert (summary.id, summary.title, summary.workspace, summary.model) == (first.id, "Hello there.", "w", "claude")
    assert (summary.steps, summary.messages, summary.usage) == (1, 2, USAGE)
    assert summary.created < summary.updated
    assert summary.size > 50
    assert [entry.id for entry in await store.list_sessions(None)] == [second.id, first.id]


async def test_a_deleted_session_is_gone_and_its_cost_is_not(store: SessionStore) -> None:
    session, other = await store.create("w"), await store.create("w")
    for each in (session, other):
        await store.update(each.id, full_session, CallUsage("t" + each.id, "anthropic", "claude", USAGE))
    await store.delete(session.id, "w")
    for reaching in (store.get(session.id, "w"), store.update(session.id, full_session), store.delete(session.id, "w")):
        with pytest.raises(SessionError):
            await reaching
    assert [summary.id for summary in await store.list_sessions(None)] == [other.id]
    assert (await store.get(other.id, "w")).steps == 2
    assert await store.sum_day(read_utc_date()) == USAGE + USAGE
    new = await store.create("w")
    await store.delete(new.id, "w")
    with pytest.raises(SessionError):
        await store.get(new.id, "w")


async def test_a_fork_goes_its_own_way(store: SessionStore) -> None:
    session = await store.create("w")
    for number in range(3):
        session = await store.update(session.id, lambda now, number=number: one_turn(number, now))
    fork = await store.fork(session.id, "w", 2)
    assert (fork.steps, fork.conversation) == (2, session.conversation[:4])
    assert await store.find_latest("w") == fork
    await store.update(fork.id, lambda now: one_turn(99, now))
    assert await store.get(session.id, "w") == session
    assert (await store.fork(session.id, "w")).conversation == session.conversation
    for wrong in (-1, 7):
        with pytest.raises(SessionError, match="0 to 6"):
            await store.fork(session.id, "w", wrong)


def same(message: Message) -> Message:
    return message


def shortened(session: Session) -> Session:
    """Shorten a conversation to a summary and the last turn."""
    return session.replace_conversation((SUMMARY, *session.conversation[-4:]))


async def test_a_compaction_keeps_what_it_replaces_and_can_be_undone(store: SessionStore) -> None:
    session = await store.create("w")
    for number in range(4):
        session = await store.update(session.id, lambda now, number=number: one_turn(number, now))
    spent = CallUsage("t", "anthropic", "small", USAGE, "compaction")
    short, archive_id = await store.compact(session.id, shortened, "Made by hand.", spent)
    assert short.conversation == (SUMMARY, *session.conversation[-4:])
    assert await store.get(session.id, "w") == short
    [archive] = await store.list_archives(session.id)
    assert (archive.id, archive.note, archive.messages, archive.steps) == (archive_id, "Made by hand.", 16, 8)
    assert (await store.read_archive(session.id, archive_id)).conversation == session.conversation
    later = await store.update(session.id, lambda now: one_turn(9, now))
    assert (await store.fork(session.id, "w", 3)).conversation == session.conversation[:7], "from the archive"
    told = (*session.conversation, *later.conversation[-4:])
    assert await store.read_transcript(session.id, "w") == replace(later, conversation=told)
    again = await store.restore_archive(session.id, archive_id, same)
    assert again.conversation == told
    assert (again.steps, await store.get(session.id, "w")) == (10, again)
    assert await store.list_archives(session.id) == ()
    for failing in (store.restore_archive(session.id, archive_id, same), store.read_archive(session.id, archive_id)):
        with pytest.raises(SessionError, match="no such archive"):
            await failing
    assert await store.get(session.id, "w") == again
    more = await store.update(session.id, lambda now: one_turn(10, now))
    assert more.conversation[:20] == again.conversation


SIGHT = (FileSight("file:///a.py", "d1", is_whole=True), FileSight("file:///b.py", None, is_whole=True, is_own=True))


def summarized(session: Session) -> Session:
    return session.replace_conversation((UserMessage((TextBlock("Summary.", sight=SIGHT),)),))


async def test_sight_of_files_is_kept_by_every_way_of_a_session(store: SessionStore) -> None:
    session = await store.create("w")

    def see(now: Session) -> Session:
        call = AssistantMessage((ToolUseBlock("c", "t", {}),), "tool_use")
        results = UserMessage((ToolResultBlock("c", "result", sight=SIGHT[1:]),))
        return (
            now.add_user_message("x", sight=SIGHT[:1]).add_step(call, results, USAGE).add_step(answer("y"), None, USAGE)
        )

    await store.update(session.id, see)
    fork = await store.fork(session.id, "w", 1)
    _, archive_id = await store.compact(fork.id, summarized, "Made by hand.")
    found = [
        await store.get(session.id, "w"),
        await store.get(fork.id, "w"),
        await store.restore_archive(fork.id, archive_id, same),
        await store.read_transcript(session.id, "w"),
    ]
    assert [collect_sight(each.conversation).files for each in found] == [SIGHT] * 4


@pytest.mark.parametrize("names", [["2", "1"], ["1"]], ids=["one after the other", "both at once"])
async def test_several_compactions_are_undone(store: SessionStore, names: list[str]) -> None:
    """Every later prompt stays, and the removed conversations need no space."""
    session = await store.create("w")
    whole = await store.update(session.id, lambda now: one_turn(1, one_turn(0, now)))
    [before] = await store.list_sessions("w")
    once, first = await store.compact(session.id, shortened, "1")
    await store.update(session.id, lambda now: one_turn(2, now))
    twice, second = await store.compact(session.id, shortened, "2")
    assert len(twice.conversation) == 5
    more = await store.update(session.id, lambda now: one_turn(3, now))
    told = (*whole.conversation, *twice.conversation[-4:], *more.conversation[-4:])
    assert (await store.read_transcript(session.id, "w")).conversation == told
    assert [archive.note for archive in await store.list_archives(session.id)] == ["1", "2"]
    for name in names:
        restored = await store.restore_archive(session.id, {"1": first, "2": second}[name], same)
        assert restored.conversation == (told if name == "1" else (*once.conversation, *told[8:]))
        assert await store.get(session.id, "w") == restored
    assert (restored.steps, await store.list_archives(session.id)) == (8, ())
    [after] = await store.list_sessions("w")
    assert after.size == before.size * 2, "the turns have the same length"


async def test_a_repair_is_undone_as_it_was(store: SessionStore) -> None:
    """`restore` also undoes a repair, even if providers reject the restored conversation."""
    session = await store.create("w")
    call = AssistantMessage((ToolUseBlock("a", "t", {}),))
    broken = (UserMessage.from_text("Look."), call, UserMessage.from_text("More."))
    await store.update(session.id, lambda now: now.add_user_message("Look.").replace_conversation(broken))

    def repair(now: Session) -> Session:
        return now.replace_conversation(repair_conversation(now.recover().conversation).conversation)

    repaired, archive_id = await store.compact(session.id, repair, "Before.")
    later = await store.update(session.id, lambda now: one_turn(1, now))
    restored = await store.restore_archive(session.id, archive_id, same)
    assert restored.conversation == (*broken, *later.conversation[len(repaired.conversation) :])
    assert repair_conversation(restored.conversation).findings


async def test_names_of_calls_that_come_back_are_made_unique_again(store: SessionStore) -> None:
    """A call after a compaction can have the id of a call in the archive."""
    session = await store.create("w")
    await store.update(session.id, lambda now: one_turn(1, one_turn(0, now)))
    _, archive_id = await store.compact(session.id, shortened, "")
    again = one_turn(0, session).conversation
    other = UserMessage((ToolResultBlock("c0", "another result"),))
    await store.update(session.id, lambda now: now.add_user_message("Again.").add_step(again[1], other, USAGE))
    restored = await store.restore_archive(session.id, archive_id, same)
    check_sendable(restored.add_user_message("More.").conversation)
    assert [message.role for message in restored.conversation[8:]] == ["user", "assistant", "user"]
    assert await store.get(session.id, "w") == restored


async def test_a_failed_compaction_leaves_the_old_conversation(store: SessionStore) -> None:
    session = await store.update((await store.create("w")).id, full_session)
    with pytest.raises(ValueError, match="begin"):
        await store.compact(session.id, lambda now: now.replace_conversation(now.conversation[1:]), "x")
    assert await store.get(session.id, "w") == session
    assert await store.list_archives(session.id) == ()
    new = await store.create("w")
    with pytest.raises(SessionError, match="no messages"):
        await store.compact(new.id, shortened, "x")
    for identity in (new.id, session.id):
        with pytest.raises(SessionError, match="no such archive"):
            await store.restore_archive(identity, "x", same)
    assert await store.get(session.id, "w") == session


async def test_usage_is_summed_by_session_turn_model_and_day(store: SessionStore) -> None:
    one, other = await store.create("w"), await store.create("w")
    await store.update(one.id, full_session, CallUsage("t1", "p", "m", Usage(1, 2, cost_usd=0.5)))
    await store.update(one.id, lambda now: now, CallUsage("t1", "p", "m", Usage(3, None, 4)))
    await store.update(one.id, lambda now: now, CallUsage("t2", "p", "small", Usage(cost_usd=0.25), "compaction"))
    await store.update(other.id, full_session, CallUsage("t3", "p", "m", Usage(100)))
    report = await store.report_usage(one.id)
    assert report.total == Usage(4, 2, 4, cost_usd=0.75)
    assert list(report.by_turn.items()) == [("t1", Usage(4, 2, 4, cost_usd=0.5)), ("t2", Usage(cost_usd=0.25))]
    assert report.by_day == {read_utc_date(): report.total}
    assert report.by_model == {"m": Usage(4, 2, 4, cost_usd=0.5), "small": Usage(cost_usd=0.25)}
    assert (await store.report_usage(None)).total == Usage(104, 2, 4, cost_usd=0.75)
    assert await store.sum_day(read_utc_date()) == Usage(104, 2, 4, cost_usd=0.75)
    assert await store.sum_day(date(2001, 1, 1)) == Usage()
    spent = CallUsage("t4", "p", "m", USAGE)
    with pytest.raises(ValueError, match="result"):
        await store.update(one.id, lambda now: now.add_step(answer("x"), RESULTS, USAGE), spent)
    assert "t4" not in (await store.report_usage(one.id)).by_turn, "what is not committed is not counted"
