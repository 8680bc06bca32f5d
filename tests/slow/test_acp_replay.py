"""Long sessions that are loaded over ACP: at most 10,000 updates, the oldest folded, in order and in time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acp.client import ARGUMENTS, AcpClient, Peer
from tests.acp.fake_zed import FakeZed
from tests.acp.talk import ARGV, Talk, begin_talk
from tests.slow.running import Tally
from tests.slow.running import say as write_line
from tests.support.forking import Nursery
from tests.support.stored_sessions import USAGE, answer, one_turn, opened
from thinklsp.core.messages import AssistantMessage, TextBlock
from thinklsp.sessions.session import Session
from thinklsp.workspace.paths import compute_workspace_key
from thinklsp.workspace.uri import path_to_uri

pytestmark = pytest.mark.timing
Json = Any
MAX_UPDATES, MAX_SECONDS = 10_000, 5.0
MAX_CHUNK_BYTES = 32_000
MB = 1_000_000
# Every so many lines are checked against the schema.
CHECKED = 20
# What a step in the middle of a text must not break.
LINE = "The quick brown fox 🙂 é jumps over the lazy dog.\u2028\r\n"


def many_turns(session: Session) -> Session:
    """Each turn is three updates: the prompt, the tool call and the answer."""
    for number in range(4_000):
        session = one_turn(number, session)
    return session


def large_turns(session: Session) -> Session:
    """5 MB, of which 1 MB is one answer."""
    size = len(LINE.encode())
    for number in range(40):
        asked = session.add_user_message(f"prompt {number}\n" + LINE * (50_000 // size))
        session = asked.add_step(answer(f"answer {number}\n" + LINE * (50_000 // size)), None, USAGE)
    whole = AssistantMessage((TextBlock("answer 40\n" + LINE * (MB // size)),))
    return session.add_user_message("prompt 40").add_step(whole, None, USAGE)


class LateClient(AcpClient):
    """A client that keeps the lines of a load until its answer comes, since its checks take longer than the agent."""

    keeps = False

    def __init__(self, process: Any, peer: Peer) -> None:
        super().__init__(process, peer)
        self.kept: list[bytes] = []

    def _take(self, line: bytes) -> None:
        if self.keeps:
            self.kept.append(line)
            # What follows the answer is no longer part of the load.
            self.keeps = b'"result"' not in line[:100]
            self.changed()
        else:
            super()._take(line)

    async def load(self, params: Json) -> tuple[list[Json], float]:
        """Load a session. Return the updates before the answer, and the seconds. A part of the lines is checked."""
        self.keeps = True
        begun = time.monotonic()
        loading = self.request("session/load", params)
        await self.wait_for(lambda: not self.keeps, within=60)
        took = time.monotonic() - begun
        *updates, _ = map(json.loads, self.kept)
        for line in (*self.kept[:-1:CHECKED], self.kept[-1]):
            super()._take(line)
        await loading
        return [message["params"]["update"] for message in updates], took


async def load(talk: Talk, fill: Callable[[Session], Session]) -> tuple[list[Json], float]:
    """Store a session and load it. Return the updates and the seconds."""
    key = compute_workspace_key(path_to_uri(str(talk.root)))
    async with opened(talk.outside.home / "state") as store:
        talk.session = (await store.update((await store.create(key)).id, fill)).id
    client: LateClient = talk.client
    return await client.load({"sessionId": talk.session, "cwd": str(talk.root), "mcpServers": []})


def texts(updates: list[Json], kind: str) -> list[str]:
    """Return the texts of the messages of a kind, each with its chunks together."""
    found: dict[str, str] = {}
    for update in updates:
        if update["sessionUpdate"] == kind:
            found[update["messageId"]] = found.get(update["messageId"], "") + update["content"]["text"]
    return [*found.values()]


def check_many(updates: list[Json]) -> None:
    assert len(updates) == MAX_UPDATES
    note, *rest = updates
    assert note["content"]["text"] == "*The first 2,001 entries of this session are not shown.*"
    kinds = ["user_message_chunk", "tool_call", "agent_message_chunk"]
    assert [update["sessionUpdate"] for update in rest] == [kinds[n % 3] for n in range(2_001, 12_000)]
    assert texts(rest, kinds[0]) == [f"prompt {number}" for number in range(667, 4_000)]
    assert texts(rest, kinds[2]) == [f"answer {number}" for number in range(667, 4_000)]
    calls = [update["toolCallId"] for update in rest if update["sessionUpdate"] == "tool_call"]
    assert len(set(calls)) == len(calls)


def check_large(updates: list[Json]) -> None:
    sizes = [len(update["content"]["text"].encode()) for update in updates]
    assert sum(sizes) > 4.9 * MB
    assert max(sizes) <= MAX_CHUNK_BYTES
    for kind, name in (("user_message_chunk", "prompt"), ("agent_message_chunk", "answer")):
        found = texts(updates, kind)
        assert [text.partition("\n")[0] for text in found] == [f"{name} {number}" for number in range(41)]
        assert all(set(text.rstrip().split(LINE)[1:]) <= {"", LINE.rstrip()} for text in found)


CASES = {"12,000 updates": (many_turns, check_many), "5 MB": (large_turns, check_large)}


@pytest.mark.parametrize("case", CASES)
async def test_long_session_is_loaded(tmp_path: Path, nursery: Nursery | None, case: str, tally: Tally) -> None:
    fill, check = CASES[case]

    async def connect(root: Path, variables: Mapping[str, str]) -> LateClient:
        if nursery is None:
            return await LateClient.start(ARGV, cwd=root, env=variables, peer=FakeZed(root))
        return LateClient(await nursery.process(ARGUMENTS, root, variables), FakeZed(root))

    talk = await begin_talk(tmp_path, connect=connect, session=False)
    try:
        updates, took = await load(talk, fill)
        write_line(f"{case}: {len(updates):,} updates in {took:.2f} s")
        assert took < MAX_SECONDS
        check(updates)
        await talk.outside.finish()
    finally:
        await talk.outside.stop()
    tally("A-43", 1)
