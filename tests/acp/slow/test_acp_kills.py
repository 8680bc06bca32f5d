"""kill -9 of the agent in the phases of an edit: the next process finds out what happened, and sends nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.acp.client import NoAnswer
from tests.acp.conftest import Begin
from tests.acp.fake_zed import FilePeer
from tests.acp.talk import Talk
from tests.e2e.acting import edit_file, refused, say
from tests.slow.running import Tally
from tests.support.outside import Connect
from tests.support.signing_server import answer
from tests.support.stored_sessions import rows
from tests.support.watching import HANG_SECONDS

Json = Any
OLD, NEW, TYPED = "x = 1\ny = 1\n", "x = 2\ny = 1\n", "x = 3\ny = 1\n"
FILES = {"a.py": OLD}


@dataclass(frozen=True)
class Phase:
    """`method` is the request at which the agent is killed, the last one of several.

    `outcomes`: what the ledger says then, and `settled`: what the next process finds out. `text` is that of the file.
    """

    method: str
    writes: bool
    outcomes: list[str | None]
    settled: list[str | None]
    text: str
    typed: str | None = None


PHASES = {
    "before the intent": Phase("session/request_permission", False, [], [], OLD),
    "after the intent": Phase("fs/write_text_file", False, [None], ["refused"], OLD),
    "after the write": Phase("fs/write_text_file", True, [None], ["applied"], NEW),
    "before it is settled": Phase("fs/read_text_file", True, [None], ["applied"], NEW),
    "after the write, and the user has typed": Phase("fs/write_text_file", True, [None], ["unknown"], TYPED, TYPED),
}


def kill_at(talk: Talk, phase: Phase) -> asyncio.Event:
    """Kill the agent at a request of an edit. The event is set then."""
    peer, killed = talk.peer, asyncio.Event()
    usual = peer.handlers[phase.method]

    def handle(params: Json) -> Json:
        # The read before the write belongs to the merge.
        if phase.method == "fs/read_text_file" and not peer.writes:
            return usual(params)
        if phase.method == "fs/write_text_file" and phase.writes:
            usual(params)
        talk.client.kill()
        killed.set()
        raise NoAnswer

    peer.handlers[phase.method] = handle
    return killed


async def kill_in(talk: Talk, name: str, prompt: str = "Change it.") -> None:
    phase = PHASES[name]
    killed = kill_at(talk, phase)
    talk.send(prompt)
    async with asyncio.timeout(HANG_SECONDS):
        await killed.wait()
    await talk.client.gone()
    assert outcomes(talk) == phase.outcomes
    if phase.typed is not None:
        (talk.root / "a.py").write_text(phase.typed)
    assert (talk.root / "a.py").read_text() == phase.text


def outcomes(talk: Talk) -> list[str | None]:
    return [row.outcome for row in rows(talk.outside.home)]


async def reopen(talk: Talk) -> FilePeer:
    """Start another agent with a client that has seen nothing, and load the session."""
    await talk.outside.restart(kill=True)
    place = {"sessionId": talk.session, "cwd": str(talk.root), "mcpServers": []}
    await talk.client.request("session/load", place)
    peer: FilePeer = talk.peer
    assert peer.writes == []
    return peer


@pytest.mark.parametrize("name", PHASES)
async def test_next_agent_finds_out(begin: Begin, name: str, tally: Tally) -> None:
    phase = PHASES[name]
    talk = await begin(answer(edit_file("a.py", "x = 1", "x = 2")), say("Done."), files=FILES)
    await kill_in(talk, name)
    asked = len(talk.provider.requests)
    peer = await reopen(talk)
    # Without the client's texts, only an edit that the file on disk contains is certain.
    at_start = phase.settled if phase.settled == ["applied"] else phase.outcomes
    assert outcomes(talk) == at_start
    assert await talk.prompt("/undo") == "end_turn"
    assert len(talk.provider.requests) == asked
    is_undone = phase.settled == ["applied"]
    assert outcomes(talk) == phase.settled + ["applied"] * is_undone
    assert ("Nothing to undo" in talk.text) is not is_undone
    assert len(peer.writes) == is_undone
    assert (talk.root / "a.py").read_text() == (OLD if is_undone else phase.text)
    await check_goes_on(talk)
    tally("A-46", 1)


@pytest.mark.parametrize("name", PHASES)
async def test_language_server_finds_out(begin: Begin, servers: Connect, name: str, tally: Tally) -> None:
    phase = PHASES[name]
    talk = await begin(answer(edit_file("a.py", "x = 1", "x = 2")), say("Done."), files=FILES)
    await kill_in(talk, name)
    lsp = await servers(talk.root, talk.outside.variables)
    await lsp.initialize(talk.root)
    undo = lsp.command("thinklsp.undo")
    if phase.settled == ["applied"]:
        assert (await undo)["applied"] == "all"
    else:
        await refused(undo)
    is_undone = phase.settled == ["applied"]
    assert outcomes(talk) == phase.settled + ["applied"] * is_undone
    assert (talk.root / "a.py").read_text() == (OLD if is_undone else phase.text)
    assert len(lsp.edits()) == is_undone
    assert [text for text in lsp.messages() if "was being applied" not in text] == []
    assert len(lsp.messages()) == len(phase.settled)
    assert await lsp.close() == 0
    await reopen(talk)
    await check_goes_on(talk)
    tally("A-46", 1)


UNDO_PHASES: dict[str, Callable[[str], bool]] = {
    "after the intent": lambda text: text == NEW,
    "after the write": lambda text: text == OLD,
    "before it is settled": lambda text: text == OLD,
}


@pytest.mark.parametrize("name", UNDO_PHASES)
async def test_next_agent_finishes_an_undo(begin: Begin, name: str, tally: Tally) -> None:
    """The user may ask again. The file is never undone twice."""
    talk = await begin(answer(edit_file("a.py", "x = 1", "x = 2")), say("Done."), files=FILES)
    assert await talk.prompt("Change it.") == "end_turn"
    talk.peer.writes.clear()
    killed = kill_at(talk, PHASES[name])
    talk.send("/undo")
    async with asyncio.timeout(HANG_SECONDS):
        await killed.wait()
    await talk.client.gone()
    assert UNDO_PHASES[name]((talk.root / "a.py").read_text())
    peer = await reopen(talk)
    assert await talk.prompt("/undo") == "end_turn"
    assert (talk.root / "a.py").read_text() == OLD
    assert len(peer.writes) == (name == "after the intent")
    assert await talk.prompt("/undo") == "end_turn"
    assert talk.text.count("Nothing to undo") >= 1
    await check_goes_on(talk)
    tally("A-46", 1)


async def check_goes_on(talk: Talk) -> None:
    """Check that the provider accepts the transcript."""
    talk.provider.script[:] = [say("Here.")]
    assert await talk.prompt("Are you there?") == "end_turn"
    assert "Here." in talk.text
    talk.outside.told()
