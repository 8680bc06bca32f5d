"""Plants a fault in a server on purpose: `PLANT` names it, or several; this folder on PYTHONPATH brings it. With each
progress that the server sends it leaves something behind, is slow, or loses something.

Python imports a module of this name at its start, so that the server itself is the real one and nothing in it knows.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from thinklsp.lsp.editor.client import Client
from thinklsp.lsp.protocol.dispatch import Protocol

KEPT: list[Any] = []
_numbers = count(1)
_progress = Client.progress
_tell = Protocol.tell


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _fails() -> None:
    raise ValueError("planted")


def _fails_unseen() -> None:
    asyncio.get_running_loop().create_task(_fails())


def _never_awaits() -> None:
    coroutine = _fails()
    del coroutine


def _logs_traceback() -> None:
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logging.getLogger("thinklsp").exception("planted")


def _descriptor() -> None:
    KEPT.append(os.open(os.devnull, os.O_RDONLY))


def _thread() -> None:
    KEPT.append(thread := threading.Thread(target=threading.Event().wait, daemon=True))
    thread.start()


def _child() -> None:
    none = subprocess.DEVNULL
    KEPT.append(subprocess.Popen(["/bin/sleep", "60"], stdin=none, stdout=none, stderr=none))


def _ended(work: Callable[[], object]) -> None:
    """At the end of each turn."""
    before = Client.progress

    def progress(self: Client, token: Any, value: Any) -> None:
        if value["kind"] == "end":
            work()
        before(self, token, value)

    Client.progress = progress  # type: ignore[method-assign] # this is the planted fault


def _lost_text() -> None:
    def progress(self: Client, token: Any, value: Any) -> None:
        if value["kind"] != "text" or next(_numbers) % 50:
            _progress(self, token, value)

    Client.progress = progress  # type: ignore[method-assign] # this is the planted fault


def _flood() -> None:
    def progress(self: Client, token: Any, value: Any) -> None:
        for _ in range(10 if value["kind"] == "report" else 1):
            _tell(self._protocol, "$/progress", {"token": token, "value": value})

    Client.progress = progress  # type: ignore[method-assign] # this is the planted fault


def _late() -> None:
    heard: dict[Any, float] = {}

    def progress(self: Client, token: Any, value: Any) -> None:
        now = time.monotonic()
        if now - heard.setdefault(token, now) > 3 or value["kind"] == "end":
            _progress(self, token, value)

    Client.progress = progress  # type: ignore[method-assign] # this is the planted fault


def _stuck_loop() -> None:
    def progress(self: Client, token: Any, value: Any) -> None:
        if next(_numbers) == 30:
            time.sleep(8)
        _progress(self, token, value)

    Client.progress = progress  # type: ignore[method-assign] # this is the planted fault


def _restless() -> None:
    async def beat() -> None:
        for _ in range(10_000):
            await asyncio.sleep(0.1)

    _ended(lambda: KEPT.append(asyncio.get_running_loop().create_task(beat())))


def _kept_notifications() -> None:
    receive = Protocol._receive_notification

    def kept(self: Protocol, notification: Any) -> None:
        KEPT.append([asyncio.get_running_loop().create_future(), bytearray(200)])
        receive(self, notification)

    Protocol._receive_notification = kept  # type: ignore[method-assign] # this is the planted fault


PLANTS: dict[str, Callable[[], None]] = {
    "memory": lambda: _ended(lambda: KEPT.append(b"x" * 2_000_000)),
    "objects": lambda: _ended(lambda: KEPT.extend([] for _ in range(500))),
    "descriptor": lambda: _ended(_descriptor),
    "thread": lambda: _ended(_thread),
    "child": lambda: _ended(_child),
    "task": lambda: _ended(lambda: KEPT.append(asyncio.get_running_loop().create_task(_for_ever()))),
    "failure that nobody hears of": lambda: _ended(_fails_unseen),
    "traceback": lambda: _ended(_logs_traceback),
    "coroutine that is not awaited": lambda: _ended(_never_awaits),
    "lost text": _lost_text,
    "flood": _flood,
    "late": _late,
    "stuck loop": _stuck_loop,
    "restless": _restless,
    "kept notifications": _kept_notifications,
}

for plant in filter(None, os.environ.get("PLANT", "").split(", ")):
    PLANTS[plant]()
