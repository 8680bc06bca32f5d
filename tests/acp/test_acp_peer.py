"""The JSON-RPC peer: each request has one answer, whenever it is cancelled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Hashable
from typing import Any

import pytest

from tests.support.watching import HANG_SECONDS
from thinklsp.acp.peer import AcpPeer, Params, Result

Json = Any


class Written:
    """A writer that keeps the messages."""

    is_full = False

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.added = asyncio.Event()

    def write(self, body: bytes, *, coalesce_key: Hashable = None) -> None:
        self.messages.append(json.loads(body))
        self.added.set()


async def wait_for_ever(params: Params) -> Result:
    await asyncio.Event().wait()
    raise AssertionError


def receive(peer: AcpPeer, **message: Any) -> None:
    peer.receive(json.dumps({"jsonrpc": "2.0"} | message).encode())


@pytest.fixture
async def written() -> Written:
    return Written()


@pytest.fixture
async def peer(written: Written) -> AcpPeer:
    peer = AcpPeer(written)
    peer.handlers["wait"] = wait_for_ever
    return peer


async def test_request_cancelled_before_its_first_step_is_answered(peer: AcpPeer, written: Written) -> None:
    """Both lines come in one read, so the task of the request has not run when the cancel arrives."""
    receive(peer, id=1, method="wait", params={})
    receive(peer, method="$/cancel_request", params={"requestId": 1})
    async with asyncio.timeout(HANG_SECONDS):
        await written.added.wait()
    [answer] = written.messages
    assert (answer["id"], answer["error"]["code"]) == (1, -32800)
    written.messages.clear()
    receive(peer, id=1, method="wait", params={})
    assert written.messages == [], "the id is free again"
    await peer.close()


async def test_requests_are_answered_when_the_peer_closes(peer: AcpPeer, written: Written) -> None:
    for number in range(3):
        receive(peer, id=number, method="wait", params={})
    await peer.close()
    assert sorted(answer["id"] for answer in written.messages) == [0, 1, 2]


async def test_own_request_that_is_cancelled_is_withdrawn_once(peer: AcpPeer, written: Written) -> None:
    task = asyncio.create_task(peer.request("fs/read_text_file", {}, 60))
    async with asyncio.timeout(HANG_SECONDS):
        await written.added.wait()
    task.cancel()
    assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
    asked, withdrawn = written.messages
    assert withdrawn["method"] == "$/cancel_request"
    assert withdrawn["params"] == {"requestId": asked["id"]}
    receive(peer, id=asked["id"], result={"content": "late"})
    assert len(written.messages) == 2
