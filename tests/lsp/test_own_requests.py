"""What the server asks the client: one answer each, whatever comes back, and none that is waited for without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.in_process import in_process
from thinklsp.lsp.protocol.errors import ClientError


async def test_requests_of_the_server() -> None:
    async with in_process() as editor:
        await editor.initialize()
        protocol = editor.server.protocol

        async def asked(number: int) -> asyncio.Task[Any]:
            task = asyncio.create_task(protocol.ask("test/ask", {"n": number}, 5.0))
            await editor.wait_for(lambda: len(asks()) == number)
            return task

        def asks() -> list[Any]:
            return [message for message in editor.received if message.get("method") == "test/ask"]

        def last_id() -> Any:
            return asks()[-1]["id"]

        good = await asked(1)
        editor.send({"jsonrpc": "2.0", "id": last_id(), "result": {"a": 1}})
        editor.send({"jsonrpc": "2.0", "id": last_id(), "result": "twice"})
        assert await good == {"a": 1}

        bad = await asked(2)
        editor.send({"jsonrpc": "2.0", "id": last_id(), "error": {"code": -1, "message": "no"}})
        with pytest.raises(ClientError):
            await bad

        for number, damage in enumerate(('"result":1,"result":2', f'"result":{"[" * 70}{"]" * 70}'), 3):
            unusable = await asked(number)
            editor.send(f'{{"jsonrpc":"2.0","id":{last_id()},{damage}}}'.encode())
            with pytest.raises(ClientError):
                await unusable

        dry = await asked(5)
        editor.send({"jsonrpc": "2.0", "id": last_id()})  # Some leave an absent result out.
        assert await dry is None

        gone = await asked(6)
        gone.cancel()
        await asyncio.wait([gone])
        editor.send({"jsonrpc": "2.0", "id": last_id(), "result": 1})  # F-29: too late, and no error.

        with pytest.raises(TimeoutError):
            await protocol.ask("test/ask", {}, 0.0)
        assert protocol._waiting == {}


async def test_requests_that_are_never_answered_do_not_pile_up() -> None:
    async with in_process() as editor:
        await editor.initialize()
        tasks = [asyncio.create_task(editor.server.protocol.ask("test/ask", {}, None)) for _ in range(101)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [task.done() for task in tasks] == [True] + [False] * 100
        with pytest.raises(ClientError):
            await tasks[0]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
