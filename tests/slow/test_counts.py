"""What goes out whole from many threads, and what is left of messages that have been dealt with."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import say
from tests.slow.test_load import BURDENED, echo, loaded
from tests.support.gauges import gauge
from tests.support.in_process import InProcess, in_process
from tests.support.raw_client import RawClient, ResponseError
from tests.support.signing_script import Text, answer
from tests.support.signing_server import SigningServer
from tests.support.sizes import tries
from thinklsp.lsp.protocol.writer import FrameWriter, header_of

Json = Any
THREADS, SIZE = 8, 200_000
_HEADER = re.compile(rb"Content-Length: (\d+)\r\n\r\n")
URI = "file:///ws/a.py"
ACTION = {
    "textDocument": {"uri": URI},
    "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}},
    "context": {"diagnostics": []},
}


class Unlocked:
    """What a writer without a lock does."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, body: bytes) -> None:
        frame = memoryview(header_of(body) + body)
        while frame:
            frame = frame[os.write(self._descriptor, frame) :]

    def close(self) -> None:
        os.close(self._descriptor)


def sent(make: Callable[[int], Any], count: int) -> tuple[int, int]:
    """Whole messages, and bytes that belong to none, of those that eight threads have sent at once."""
    reading, writing = os.pipe()
    writer = make(writing)
    each = count // THREADS

    def send(name: int) -> None:
        for number in range(each):
            head = json.dumps({"thread": name, "number": number, "text": ""})[:-2]
            writer.write((head + str(name) * (SIZE - len(head) - 2) + '"}').encode())

    threads = [threading.Thread(target=send, args=(name,)) for name in range(THREADS)]
    ended = threading.Thread(target=lambda: ([thread.join() for thread in threads], writer.close()))
    for thread in (*threads, ended):
        thread.start()
    seen: dict[int, list[int]] = {name: [] for name in range(THREADS)}
    unread, broken = bytearray(), 0
    while chunk := os.read(reading, 1 << 20):
        unread += chunk
        while (header := _HEADER.match(unread)) and len(unread) >= header.end() + int(header[1]):
            body = bytes(unread[header.end() : header.end() + int(header[1])])
            del unread[: header.end() + int(header[1])]
            # Each letter of the text names its thread.
            if body.count(body[-3:-2]) >= SIZE - 100 and len(body) == SIZE:
                seen[int(body[-3:-2])].append(json.loads(body)["number"])
            else:
                broken += len(body)
    ended.join()
    os.close(reading)
    assert broken or all(numbers == sorted(numbers) for numbers in seen.values()), "out of order"
    return sum(map(len, seen.values())), broken + len(unread)


def test_many_threads_send_at_once(tally: Callable[[str, int], None]) -> None:
    """A-11. A writer gives up on a client that reads nothing; this one reads all the time."""
    count = tries("A-11")
    assert sent(FrameWriter, count) == (count, 0)
    tally("A-11", count)


def test_a_writer_without_a_lock_is_noticed() -> None:
    whole, broken = sent(Unlocked, 80)
    assert whole < 80
    assert broken > 0


NOTIFICATIONS, REQUESTS, PROGRESS = 25_000, 5_000, 1_000


def tables(editor: InProcess) -> dict[str, int]:
    """Whatever the server and its rooms keep by some key, by class and name, and what there is of tasks and futures."""
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
    assert editor.server.protocol.progress.tokens == {}
    return found


async def batch(editor: InProcess, provider: SigningServer, share: int) -> None:
    """A share of all that the figure asks for. Turns are the dearest; each has a progress."""
    for number in range(NOTIFICATIONS // share // 5):
        editor.notify("$/setTrace", {"value": "off"})
        editor.notify("test/unknown", {"a": number})
        editor.notify("textDocument/didChange", change(editor, number))
        editor.notify("$/cancelRequest", {"id": 10**6})
        editor.notify("window/workDoneProgress/cancel", {"token": "nobody's"})
    for number in range(REQUESTS // share):
        editor.request(number, "textDocument/codeAction", ACTION)
        if number % 50 == 49:
            await editor.settled()
    for number in range(PROGRESS // share):
        # One that fails at once, and now and then a whole turn.
        argument: Json = {"prompt": "x", "sessionId": "none of ours"}
        if number % 25 == 0:
            provider.say(answer(Text("Yes.")))
            argument = {"prompt": "x"}
        params = {"command": "thinklsp.chat", "arguments": [argument], "workDoneToken": f"t{number}"}
        editor.request(f"turn {number}", "workspace/executeCommand", params)
        if number % 25 == 24:
            await editor.settled()
    await editor.settled()
    editor.received.clear()


def change(editor: InProcess, number: int) -> Json:
    document = editor.server.state.documents.get(URI)
    assert document is not None
    whole = {"text": f"x = {number}\n"}
    return {"textDocument": {"uri": URI, "version": document.version + 1}, "contentChanges": [whole]}


async def grown(rounds: int) -> dict[str, tuple[int, int]]:
    """The tables that are larger after so many rounds of all than after a tenth of one."""
    async with SigningServer("sk-ant-canary-0123456789-0123456789-0123456789") as provider:
        async with in_process({"THINKLSP_CONFIG": "/nonexistent/config.toml", **provider.environment()}) as editor:
            await editor.initialize()
            item = {"uri": URI, "languageId": "python", "version": 1, "text": "x = 1\n"}
            editor.notify("textDocument/didOpen", {"textDocument": item})
            await batch(editor, provider, 10)
            before = tables(editor)
            for _ in range(10 * rounds):
                await batch(editor, provider, 10)
            after = tables(editor)
    return {name: (before.get(name, 0), now) for name, now in after.items() if now > before.get(name, 0) + LEAVE.get(name, 0)}


# What grows on purpose, and is bounded by a count of its own.
LEAVE: dict[str, int] = {}


async def test_nothing_is_left_of_what_was_dealt_with(tally: Callable[[str, int], None]) -> None:
    """A-13: every table is as it was."""
    messages = tries("A-13", 1)
    rounds = max(1, messages // (NOTIFICATIONS + REQUESTS + PROGRESS))
    assert await grown(rounds) == {}
    tally("A-13", rounds * (NOTIFICATIONS + REQUESTS + PROGRESS))
