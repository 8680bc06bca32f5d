"""What is left of messages that have been dealt with: nothing."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from tests.bench.source import build_prompt
from tests.slow.rough_client import ACTION
from tests.slow.running import Tally, say
from tests.slow.test_load import echo, loaded
from tests.support.client.actions import ResponseError
from tests.support.epilogue import gauge
from tests.support.in_process import InProcess, in_process
from tests.support.signing_server import SigningServer, Text, answer
from tests.support.sizes import tries

pytestmark = pytest.mark.timing
Json = Any
URI = "file:///ws/a.py"
NOTIFICATIONS, REQUESTS, PROGRESS = 25_000, 5_000, 1_000


def tables() -> dict[str, int]:
    """Return the sizes of all collections of the server's objects, and the number of tasks and futures."""
    gc.collect()
    found = {"tasks": 0, "futures": 0}
    for one in gc.get_objects():
        kind = type(one)
        if isinstance(one, asyncio.Future):
            found["tasks" if isinstance(one, asyncio.Task) else "futures"] += 1
        elif kind.__module__.startswith(("thinklsp.", "pygls.")):
            names = [*getattr(one, "__dict__", ()), *getattr(kind, "__slots__", ())]
            for name in names:
                value = getattr(one, name, None)
                if isinstance(value, dict | set | list) or type(value).__name__ == "deque":
                    key = f"{kind.__name__}.{name}"
                    found[key] = found.get(key, 0) + len(value)
    return found


async def batch(editor: InProcess, provider: SigningServer, sessions: list[str], share: int) -> None:
    """Send a share of all messages. Each command has a progress; every 25th is a turn that runs."""
    for number in range(NOTIFICATIONS // share // 5):
        editor.notify("$/setTrace", {"value": "off"})
        editor.notify("test/unknown", {"a": number})
        editor.notify("textDocument/didChange", change(editor, number))
        editor.notify("$/cancelRequest", {"id": 10**6})
        editor.notify("window/workDoneProgress/cancel", {"token": "nobody's"})
    for number in range(REQUESTS // share):
        editor.request(number, "textDocument/codeAction", ACTION | {"textDocument": {"uri": URI}})
        if number % 50 == 49:
            await editor.settled()
    for number in range(PROGRESS // share):
        argument: Json = {"prompt": "x", "sessionId": "none of ours"}
        if runs := number % 25 == 0:
            provider.say(answer(Text("Yes.")))
            argument = {"prompt": "x"} | ({"sessionId": sessions[number // 25 % 4]} if len(sessions) >= 4 else {})
        params = {"command": "thinklsp.chat", "arguments": [argument], "workDoneToken": f"t{number}"}
        editor.request(f"turn {number}", "workspace/executeCommand", params)
        if runs:
            sessions.append((await editor.answer(f"turn {number}"))["result"]["sessionId"])
        elif number % 25 == 24:
            await editor.settled()
    await editor.settled()
    # Background tasks of code actions and turns.
    await asyncio.gather(*editor.server.state.tasks)
    editor.received.clear()


def change(editor: InProcess, number: int) -> Json:
    document = editor.server.state.documents.get(URI)
    assert document is not None
    whole = {"text": f"x = {number}\n"}
    return {"textDocument": {"uri": URI, "version": document.version + 1}, "contentChanges": [whole]}


async def grown(rounds: int, *, leaking: bool = False) -> dict[str, tuple[int, int]]:
    """Return the tables that are larger after all rounds than after a tenth of one."""
    async with (
        SigningServer("sk-ant-canary-0123456789-0123456789-0123456789") as provider,
        in_process({"THINKLSP_CONFIG": "/nonexistent/config.toml", **provider.environment()}) as editor,
    ):
        await editor.initialize()
        if leaking:
            kept: list[Any] = []
            leave = asyncio.get_running_loop().create_future
            editor.server.feature("test/unknown")(lambda _: kept.append(leave()))
        item = {"uri": URI, "languageId": "python", "version": 1, "text": "x = 1\n"}
        editor.notify("textDocument/didOpen", {"textDocument": item})
        sessions: list[str] = []
        await batch(editor, provider, sessions, 10)
        before = tables()
        for _ in range(round(10 * rounds)):
            await batch(editor, provider, sessions, 10)
        after = tables()
    return {name: (before.get(name, 0), now) for name, now in after.items() if now > before.get(name, 0)}


ALL = NOTIFICATIONS + REQUESTS + PROGRESS


async def test_every_table_is_as_it_was(tally: Tally) -> None:
    rounds = tries("A-13", 0.5) / ALL
    assert await grown(rounds) == {}
    tally("A-13", round(rounds * ALL))


async def test_what_is_left_on_purpose_is_noticed() -> None:
    left = await grown(0.1, leaking=True)
    assert left["futures"][1] - left["futures"][0] >= NOTIFICATIONS // 100


async def remaining(place: Path, share: float, plant: str = "") -> float:
    """Return the megabytes that a share of all messages leaves, after a fifth of it as a warm-up."""
    async with loaded(place, plant, finish=not plant) as outside:
        client = outside.client
        uri = outside.open("a.py")

        async def some(part: float) -> None:
            for number in range(round(part * NOTIFICATIONS / 500)):
                for _ in range(125):
                    client.notify("$/setTrace", {"value": "off"})
                    client.notify("test/unknown", {"a": number})
                    client.notify("$/cancelRequest", {"id": 10**6})
                    client.change(uri, "x", "x")
                await echo(client)
            for _ in range(round(part * REQUESTS / 50)):
                await asyncio.gather(*(client.code_actions(uri, "x") for _ in range(50)))
            for _ in range(round(part * PROGRESS / 25)):
                await outside.turn("thinklsp.chat", {"prompt": build_prompt(1, 1)})
                failing = {"prompt": "x", "sessionId": "none of ours"}
                asked = [client.command("thinklsp.chat", failing, token=outside.token()) for _ in range(24)]
                for request in asked:
                    with pytest.raises(ResponseError):
                        await request
                client.forget()

        await some(share / 5)
        before = gauge(client.process.pid)
        await some(share)
        after = gauge(client.process.pid)
    say(f"{share * ALL:.0f} messages: {before.private:.1f} MB before, {after.private:.1f} MB after")
    return after.private - before.private


async def test_memory_is_as_it_was(tmp_path: Path, tally: Tally) -> None:
    share = tries("A-13", 0.5) / ALL
    assert await remaining(tmp_path, share) < 3
    tally("A-13", round(share * ALL))


async def test_memory_that_is_left_on_purpose_is_noticed(tmp_path: Path) -> None:
    assert await remaining(tmp_path, 0.5, "kept notifications") > 3
