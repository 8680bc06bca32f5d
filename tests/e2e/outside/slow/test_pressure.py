"""A client that stops reading: its new requests are refused, everything else that it sends is obeyed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.e2e.acting import start_chat
from tests.e2e.conftest import Begin
from tests.support.client.actions import Request, ResponseError
from tests.support.client.raw import Ear
from tests.support.outside import Outside, diagnostic
from tests.support.signing_server import Hold, Thinking, answer, tool

Json = Any
# An answer holds the diagnostics that it was asked with: 16 of these are more than 8 MiB.
LONG = "x" * 1_000_000
REQUESTS = 16


@asynccontextmanager
async def deaf(outside: Outside) -> AsyncIterator[list[Request]]:
    """Does not read meanwhile, with more than 8 MiB waiting. Gives the requests that made them."""
    uri, ear = outside.open("a.py"), Ear(outside.client.wire)
    ear.open.clear()
    long = diagnostic("x = 1\n", "x", LONG)
    yield [outside.client.code_actions(uri, "x", diagnostics=[long], only=["quickfix"]) for _ in range(REQUESTS)]
    ear.open.set()


async def outcome(request: Request) -> Any:
    try:
        return await request
    except ResponseError as error:
        return error.code


async def test_a_client_that_does_not_read_is_refused_and_obeyed(begin: Begin) -> None:
    answering, held = asyncio.Event(), Hold()
    script = (answer(tool("ask_user", question="Which?", options=["A", "B"])), answer(Thinking(), held))
    outside = await begin(*script, files={"a.py": "x = 1\n", "b.py": "y = 1\n"})
    client = outside.client

    async def choose(_: Json) -> Json:
        await answering.wait()
        return {"title": "A"}

    client.editor.handlers["window/showMessageRequest"] = choose
    turn = start_chat(outside, "Ask me.", token="t")
    await client.wait_for(lambda: client.calls("window/showMessageRequest"), what="the question")
    async with deaf(outside) as requests:
        answering.set()
        await held.reached.wait()
        outside.open("b.py")
        client.cancel(turn)
        refused = client.request("workspace/executeCommand", {"command": "thinklsp.sessions"})
        await outside.provider.wait_for(lambda: outside.provider.requests[1].closed_at, what="the end of the turn")
        cancel = client.command("thinklsp.cancel", {"turnId": "none"})
    answers = [await outcome(request) for request in requests]
    assert -32803 not in answers[:4]
    assert answers[-4:] == [-32803] * 4
    assert await outcome(refused) == -32803
    assert await cancel == {"cancelled": []}
    assert await outcome(turn) == -32800
    assert await client.code_actions(outside.uri("b.py"), "y") != []
