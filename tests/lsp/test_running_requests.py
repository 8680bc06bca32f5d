"""Requests that take their time: cancelled, shut down, too many of them; and those that nobody asks an answer for."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.lsp.bodies import RESULT, answers
from tests.support.in_process import InProcess
from thinklsp.jsonrpc import rpc_messages
from thinklsp.lsp.editor.turn_progress import TurnProgress
from thinklsp.lsp.protocol.fast_initialize import COMMANDS
from thinklsp.lsp.turns.turn_run import TurnRun


@dataclass
class Hanging:
    """The requests `test/hang`: how many have begun, and what lets them end."""

    started: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)


@pytest.fixture
def hanging(editor: InProcess) -> Hanging:
    state = Hanging()

    async def hang(params: Any) -> Any:
        state.started += 1
        await state.go.wait()
        return params

    editor.server.feature("test/hang")(hang)
    return state


async def test_cancel_is_for_the_request_of_that_very_id(editor: InProcess, hanging: Hanging) -> None:
    editor.request(3, "test/hang", {"n": 1})
    editor.request("3", "test/hang", {"n": 2})
    editor.request(3, "test/hang")  # B-15: this id is in flight.
    await editor.answer(3)
    assert answers(editor.received) == [(3, rpc_messages.INVALID_REQUEST)]
    editor.received.clear()
    editor.send(b'{"jsonrpc":"2.0","id":3,"result":"not yours"}')  # B-24: an answer with the id of a request.
    for _ in range(3):
        editor.notify("$/cancelRequest", {"id": "3"})  # B-26: 3 is not "3".
    await editor.answer("3")
    assert answers(editor.received) == [("3", -32800)]
    hanging.go.set()
    assert (await editor.answer(3))["result"] == {"n": 1}
    editor.notify("$/cancelRequest", {"id": 3})  # B-25: it has ended.
    editor.request(3, "test/hang")  # The id is free again.
    await editor.settled()
    assert answers(editor.received) == [("3", -32800), (3, RESULT), (3, RESULT)]


async def test_a_request_cancelled_before_it_began_is_answered(editor: InProcess, hanging: Hanging) -> None:
    editor.request(1, "test/hang")
    editor.notify("$/cancelRequest", {"id": 1})
    assert answers(await editor.settled()) == [(1, -32800)]
    assert hanging.started == 0


async def test_shutdown_answers_at_once_and_ends_what_runs(editor: InProcess, hanging: Hanging) -> None:
    for number in range(5):
        editor.request(number, "test/hang")
    editor.request(9, "shutdown")
    await editor.wait_for(lambda: len(editor.received) == 6)
    assert answers(editor.received) == [(9, RESULT), *((number, -32800) for number in range(5))]


async def test_too_many_requests_at_once_are_refused_with_a_sentence(editor: InProcess, hanging: Hanging) -> None:
    # B-56
    for number in range(1000):
        editor.request(number, "test/hang")
    await editor.wait_for(lambda: len(editor.received) == 936)
    assert {code for _, code in answers(editor.received)} == {-32803}
    hanging.go.set()
    await editor.settled()
    assert sorted(number for number, _ in answers(editor.received)) == list(range(1000))


async def test_a_request_without_an_id_does_nothing(editor: InProcess, hanging: Hanging) -> None:
    editor.notify("test/hang", {})
    # A coroutine that nobody awaits would be told as a warning, which fails the test.
    gc.collect()
    await editor.settled()
    assert editor.received == []


CHAT = {"command": "thinklsp.chat", "arguments": [{"prompt": "Hello."}]}


async def test_client_leaving_during_engine_load_leaves_no_state(editor: InProcess) -> None:
    editor.request(1, "workspace/executeCommand", CHAT)
    await asyncio.sleep(0)
    await editor.server.close()
    assert editor.server.assistant is None
    assert editor.server.state.tasks == set()
    assert editor.server.protocol._request_futures == {}


async def test_starting_turn_can_be_cancelled_by_command(editor: InProcess) -> None:
    editor.request(1, "workspace/executeCommand", CHAT | {"workDoneToken": "t"})
    editor.request(2, "workspace/executeCommand", {"command": "thinklsp.cancel"})
    [turn_id] = (await editor.answer(2))["result"]["cancelled"]
    assert len(turn_id) == 16


async def test_every_announced_command_is_registered(editor: InProcess) -> None:
    await editor.server.load()
    assert tuple(editor.server.protocol.fm.commands) != ()
    assert set(editor.server.protocol.fm.commands) == set(COMMANDS)


def start_run(editor: InProcess, *, is_cancelled: bool = False) -> tuple[TurnRun, asyncio.Event]:
    """Return a run that waits forever, and the event that it has begun."""
    begun, nothing = asyncio.Event(), cast("Any", None)

    async def work(_: TurnRun) -> Any:
        begun.set()
        await asyncio.get_running_loop().create_future()

    progress = TurnProgress(editor.server.state.client, "chat", "w")
    return TurnRun("s", None, progress, work, lambda: None, nothing, nothing, is_cancelled), begun


@pytest.mark.parametrize("by_user", [True, False])
async def test_a_cancel_ends_in_the_run_or_goes_on_to_the_caller(editor: InProcess, by_user: bool) -> None:
    run, begun = start_run(editor)
    task = asyncio.create_task(run.run())
    await begun.wait()
    (run if by_user else task).cancel()
    await asyncio.wait([task])
    assert (run.is_cancelled, task.cancelled(), task.cancelling()) == (by_user, not by_user, not by_user)
    assert run.ended.result()["stopReason"] == "cancelled"


@pytest.mark.parametrize("is_early", [True, False])
async def test_a_run_cancelled_before_its_first_step_does_no_work(editor: InProcess, is_early: bool) -> None:
    run, begun = start_run(editor, is_cancelled=is_early)
    task = asyncio.create_task(run.run())
    run.cancel()
    assert ((await task)["stopReason"], begun.is_set(), task.cancelling()) == ("cancelled", False, 0)
