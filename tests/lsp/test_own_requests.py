"""What the server asks the client: one answer each, whatever comes back, and none that is waited for without end."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from lsprotocol import types

from tests.support.in_process import InProcess, in_process
from tests.support.watching import HANG_SECONDS
from thinklsp.jsonrpc.rpc_messages import ClientError
from thinklsp.lsp.protocol.lsp_protocol import LspProtocol


async def ask(protocol: LspProtocol, params: Any, seconds: float | None) -> Any:
    async with asyncio.timeout(seconds):
        return await protocol.send_request_async("test/ask", params)


def find_requests(editor: InProcess, method: str) -> list[Any]:
    return [message for message in editor.received if message.get("method") == method]


async def last_id(editor: InProcess, number: int, method: str = "test/ask") -> Any:
    """Wait until there are so many requests; return the id of the last."""
    await editor.wait_for(lambda: len(find_requests(editor, method)) == number)
    return find_requests(editor, method)[-1]["id"]


# What one message or several add to the id -> the result, or the error.
ANSWERS: dict[str, tuple[list[str], Any]] = {
    "twice": ([',"result":{"a":1}', ',"result":"twice"'], {"a": 1}),
    "an error": ([',"error":{"code":-1,"message":"no"}'], ClientError),
    "two results": ([',"result":1,"result":2'], ClientError),
    "nested too deep": ([f',"result":{"[" * 70}{"]" * 70}'], ClientError),
    "a result that some leave out": ([""], None),
}


async def test_requests_of_the_server(editor: InProcess) -> None:
    protocol = editor.server.protocol
    for number, (answers, expected) in enumerate(ANSWERS.values(), 1):
        task = asyncio.create_task(ask(protocol, {"n": number}, HANG_SECONDS))
        identity = await last_id(editor, number)
        for answer in answers:
            editor.send(f'{{"jsonrpc":"2.0","id":{identity}{answer}}}'.encode())
        if expected is ClientError:
            with pytest.raises(ClientError):
                await task
        else:
            assert await task == expected

    gone = asyncio.create_task(ask(protocol, {}, HANG_SECONDS))
    identity = await last_id(editor, len(ANSWERS) + 1)
    gone.cancel()
    await asyncio.wait([gone])
    editor.send({"jsonrpc": "2.0", "id": identity, "result": 1})  # F-29: too late, and no error.

    with pytest.raises(TimeoutError):
        await ask(protocol, {}, 0.0)
    assert len(protocol._pending) == 0


async def test_requests_that_are_never_answered_do_not_pile_up(editor: InProcess) -> None:
    tasks = [asyncio.create_task(ask(editor.server.protocol, {}, None)) for _ in range(101)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert [task.done() for task in tasks] == [True] + [False] * 100
    with pytest.raises(ClientError):
        await tasks[0]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_request_that_cannot_be_written_leaves_nothing(editor: InProcess) -> None:
    with pytest.raises(ValueError, match="JSON"):
        await ask(editor.server.protocol, math.nan, None)
    assert len(editor.server.protocol._pending) == 0


async def test_an_answer_that_is_no_result_of_its_method_is_an_error(editor: InProcess) -> None:
    protocol, method = editor.server.protocol, types.WORKSPACE_WORKSPACE_FOLDERS
    answers: list[Any] = []
    good = protocol.send_request(method, None, callback=answers.append)
    identity = await last_id(editor, 1, method)
    editor.send({"jsonrpc": "2.0", "id": identity, "result": [{"uri": "file:///a", "name": "a"}]})
    folders = (types.WorkspaceFolder("file:///a", "a"),)
    assert await asyncio.wrap_future(good) == folders
    assert answers == [folders]

    bad = protocol.send_request(method)
    editor.send({"jsonrpc": "2.0", "id": await last_id(editor, 2, method), "result": [{"uri": 1}]})
    with pytest.raises(ClientError, match="workspaceFolders"):
        await asyncio.wrap_future(bad)


async def test_nothing_is_sent_before_there_is_a_writer() -> None:
    async with in_process() as editor:
        protocol = LspProtocol(editor.server, editor.server.protocol._converter)
        with pytest.raises(RuntimeError, match="writer"):
            protocol.notify("test/told", {})
