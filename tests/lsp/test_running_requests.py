"""Requests that take their time: cancelled, shut down, too many of them; and those that nobody asks an answer for."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from tests.support.bodies import RESULT, answers
from tests.support.in_process import in_process
from thinklsp.lsp.protocol import errors


@pytest.fixture
def hanging() -> dict[str, Any]:
    """A handler that hangs until it is cancelled, and who was."""
    state: dict[str, Any] = {"started": 0, "ended": 0, "go": asyncio.Event()}

    async def hang(params: Any) -> Any:
        state["started"] += 1
        try:
            await state["go"].wait()
        finally:
            state["ended"] += 1
        return params

    return state | {"handler": hang, "state": state}


async def test_cancel_is_for_the_request_of_that_very_id(hanging: dict[str, Any]) -> None:
    async with in_process() as editor:
        await editor.initialize()
        editor.server.protocol.handlers["test/hang"] = hanging["handler"]
        editor.request(3, "test/hang", {"n": 1})
        editor.request("3", "test/hang", {"n": 2})
        editor.request(3, "test/hang")  # B-15: this id is in flight.
        await editor.answer(3)
        assert answers(editor.received) == [(3, errors.INVALID_REQUEST)]
        editor.received.clear()
        editor.send(b'{"jsonrpc":"2.0","id":3,"result":"not yours"}')  # B-24: an answer with the id of a request.
        for _ in range(3):
            editor.notify("$/cancelRequest", {"id": "3"})  # B-26: 3 is not "3".
        await editor.answer("3")
        assert answers(editor.received) == [("3", -32800)]
        hanging["go"].set()
        assert (await editor.answer(3))["result"] == {"n": 1}
        editor.notify("$/cancelRequest", {"id": 3})  # B-25: it has ended.
        editor.request(3, "test/hang")  # The id is free again.
        await editor.settled()
        assert answers(editor.received) == [("3", -32800), (3, RESULT), (3, RESULT)]


async def test_a_request_cancelled_before_it_began_is_answered(hanging: dict[str, Any]) -> None:
    async with in_process() as editor:
        await editor.initialize()
        editor.server.protocol.handlers["test/hang"] = hanging["handler"]
        editor.request(1, "test/hang")
        editor.notify("$/cancelRequest", {"id": 1})
        assert answers(await editor.settled()) == [(1, -32800)]
        assert hanging["state"]["started"] == 0


async def test_shutdown_answers_at_once_and_ends_what_runs(hanging: dict[str, Any]) -> None:
    async with in_process() as editor:
        await editor.initialize()
        editor.server.protocol.handlers["test/hang"] = hanging["handler"]
        for number in range(5):
            editor.request(number, "test/hang")
        editor.request(9, "shutdown")
        await editor.wait_for(lambda: len(editor.received) == 6)
        assert answers(editor.received) == [(9, RESULT), *((number, -32800) for number in range(5))]


async def test_too_many_requests_at_once_are_refused_with_a_sentence(hanging: dict[str, Any]) -> None:
    async with in_process() as editor:  # B-56
        await editor.initialize()
        editor.server.protocol.handlers["test/hang"] = hanging["handler"]
        for number in range(1000):
            editor.request(number, "test/hang")
        await editor.wait_for(lambda: len(editor.received) == 936)
        assert {code for _, code in answers(editor.received)} == {-32803}
        hanging["go"].set()
        await editor.settled()
        assert sorted(number for number, _ in answers(editor.received)) == list(range(1000))


async def test_a_request_without_an_id_does_nothing(hanging: dict[str, Any]) -> None:
    async with in_process() as editor:
        await editor.initialize()
        editor.server.protocol.handlers["test/hang"] = hanging["handler"]
        editor.notify("test/hang", {})
        # A coroutine that nobody awaits would be told as a warning, which fails the test.
        gc.collect()
        await editor.settled()
        assert editor.received == []
