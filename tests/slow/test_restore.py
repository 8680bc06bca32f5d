"""Undo of compactions from outside: in the editor, in a chat document and in the terminal. No prompt is lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from tests.e2e.conformance.slow.test_chat_ends import LONG, SUMMARY, document_with_talk, prompt
from tests.e2e.conformance.slow.test_sessions import refused, sessions, terminal
from tests.e2e.conftest import Begin
from tests.support.client.actions import ResponseError
from tests.support.outside import Outside, said
from tests.support.signing_server import Hold, Text, Thinking, answer

NO_ARCHIVE = "This session has no archive, so there is no compaction or repair to undo."
UNKNOWN = "This session has no such archive. `thinklsp sessions show` lists its archives."
NOTICE = re.compile(r"restore archive `([0-9a-f]{32})` with `/restore` in a chat or `thinklsp sessions restore`")


async def compacted(begin: Begin) -> tuple[Outside, str, str, str]:
    """Return a chat document with two compacted exchanges and one after them, its session, and the archive."""
    outside, uri, session = await document_with_talk(begin)
    outside.provider.say(answer(Text(SUMMARY)), answer(Thinking(), Text("Three.")))
    prompt(outside, uri, "/compact")
    told = (await outside.turn("thinklsp.send", {"uri": uri}))["text"]
    found = NOTICE.search(told)
    assert found, told
    prompt(outside, uri, "Three?")
    await outside.turn("thinklsp.send", {"uri": uri})
    assert LONG not in said(outside.provider.requests[-1].body)
    return outside, uri, session, found[1]


async def shown(outside: Outside, session: str) -> tuple[str, list[str]]:
    """Return the talk of the session without its head, which has the time, and its archives."""
    found = await sessions(outside.client, "show", sessionId=session)
    return found["text"].partition("## You")[2], [archive["archiveId"] for archive in found["archives"]]


async def by_command(outside: Outside, session: str, archive: str) -> str:
    if archive not in (await shown(outside, session))[1]:
        return await refused(outside.client, "restore", sessionId=session, archiveId=archive)
    done = await sessions(outside.client, "restore", sessionId=session, archiveId=archive)
    assert done == {
        "sessionId": session, "title": "Count from one.", "messages": {"before": 4, "after": 6}, "archiveId": archive,
    }  # fmt: skip
    return f"Restored archive `{archive}`: the conversation had 4 messages and now has 6."


async def by_slash(outside: Outside, uri: str, archive: str) -> str:
    prompt(outside, uri, f"/restore {archive}".rstrip())
    return str((await outside.turn("thinklsp.send", {"uri": uri}))["text"])


async def in_terminal(outside: Outside, *arguments: str) -> str:
    done = await asyncio.to_thread(terminal, outside, "sessions", "restore", *arguments)
    assert done.returncode == (0 if done.stdout else 1)
    return (done.stdout or done.stderr.removeprefix("thinklsp sessions: ")).rstrip("\n")


# Without an archive, the newest one is restored.
RESTORES: dict[str, Callable[[Outside, str, str, str], Awaitable[str]]] = {
    "by command": lambda outside, _uri, session, archive: by_command(outside, session, archive),
    "by slash": lambda outside, uri, _session, archive: by_slash(outside, uri, archive),
    "newest by slash": lambda outside, uri, _session, _archive: by_slash(outside, uri, ""),
    "in terminal": lambda outside, _uri, session, archive: in_terminal(outside, session[:8], "--archive", archive),
    "newest in terminal": lambda outside, _uri, _session, _archive: in_terminal(outside),
}


@pytest.mark.parametrize("way", RESTORES)
async def test_a_compaction_is_undone_and_what_was_said_since_stays(begin: Begin, way: str) -> None:
    """A-7: the notice names the archive; `restore` brings it back once, and the next prompt continues with it."""
    outside, uri, session, archive = await compacted(begin)
    text, archives = await shown(outside, session)
    assert archives == [archive]
    told = await RESTORES[way](outside, uri, session, archive)
    assert told == f"Restored archive `{archive}`: the conversation had 4 messages and now has 6."
    assert await shown(outside, session) == (text, [])
    # A second restore has nothing to undo.
    again = await RESTORES[way](outside, uri, session, archive)
    assert again == (NO_ARCHIVE if "newest" in way else UNKNOWN)
    assert await shown(outside, session) == (text, [])
    # The answer to "Three?" goes back without its thinking, which is bound to the summary.
    outside.provider.conversations.elsewhere = True
    outside.provider.say(answer(Text("Four.")))
    prompt(outside, uri, "Four?")
    await outside.turn("thinklsp.send", {"uri": uri})
    sent = said(outside.provider.requests[-1].body)
    assert all(words in sent for words in ("Count from one.", LONG, "And on?", "Three?", "Three.", "Four?"))
    assert "Began with one." not in sent


async def test_what_cannot_be_restored_is_said_and_changes_nothing(begin: Begin) -> None:
    """A-7: an unknown archive, one of another session, and fields that are missing or belong to another op."""
    outside, uri, session, archive = await compacted(begin)
    client = outside.client
    outside.provider.say(answer(Text("Other.")))
    other = (await outside.turn("thinklsp.chat", {"prompt": "Other?"}))["sessionId"]
    before = await shown(outside, session)
    for wanted in ("0" * 32, "%", archive[:8]):
        assert await refused(client, "restore", sessionId=session, archiveId=wanted) == UNKNOWN
    assert await refused(client, "restore", sessionId=other, archiveId=archive) == UNKNOWN
    assert "session has this id" in await refused(client, "restore", sessionId="0" * 32, archiveId=archive)
    for wrong, field in (({}, "archiveId"), ({"archiveId": ""}, "archiveId"), ({"archiveId": "x", "step": 1}, "step")):
        with pytest.raises(ResponseError, match=f"`{field}`|{field}") as caught:
            await sessions(client, "restore", sessionId=session, **wrong)
        assert caught.value.code == -32602
    assert await by_slash(outside, uri, "unknown") == UNKNOWN
    assert await shown(outside, session) == before
    done = await asyncio.to_thread(terminal, outside, "sessions", "restore", session, "--archive", "x", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"thinklsp sessions: {UNKNOWN}\n")
    assert await shown(outside, session) == before


async def test_nothing_is_restored_while_a_turn_runs(begin: Begin) -> None:
    """A-7: editor and terminal are refused with a sentence; afterwards the archive is restored with the turn."""
    outside, uri, session, archive = await compacted(begin)
    hold = Hold()
    outside.provider.say(answer(Text("Four."), before=hold))
    prompt(outside, uri, "Four?")
    turn = outside.client.command("thinklsp.send", {"uri": uri}, token="t")
    await hold.reached.wait()
    running = await refused(outside.client, "restore", sessionId=session, archiveId=archive)
    assert running == "A turn is running in this session. Stop it or wait for it to finish."
    denied = await asyncio.to_thread(terminal, outside, "sessions", "restore", session)
    assert (denied.returncode, denied.stdout) == (1, "")
    assert denied.stderr.startswith("thinklsp sessions: This session is in use by another thinklsp (process ")
    hold.release()
    await outside.result(turn)
    done = await sessions(outside.client, "restore", sessionId=session, archiveId=archive)
    assert done["messages"] == {"before": 6, "after": 8}
    text, _ = await shown(outside, session)
    assert all(words in text for words in ("Count from one.", "And on?", "Three?", "Four?", "Four."))
