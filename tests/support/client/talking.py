"""What the raw clients of both protocols share: their requests and answers, their log, and the end of the other side.

Shares no code with the product.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from typing import Any

from tests.support.client.actions import Received, Request
from tests.support.watching import HANG_SECONDS, Watched

Json = Any


class Talking(Watched):
    """A client has `editor`, `checker`, `received`, `stdout` and `stderr` when it calls `begin`.

    `wire`: the way to the other side. `own`, `other`: what reports call the two sides. A protocol adds `_encode`, which
    gives the bytes of a message, `_take_bodies`, which takes whole messages off `_unread`, and `_check`, which gives a
    message, or None if it cannot be read.
    """

    own, other = "editor", "server"

    def begin(self, wire: Any, *, first_id: int = 1) -> None:
        self.wire = wire
        self._ids = itertools.count(first_id)
        self._futures: dict[Json, asyncio.Future[Json]] = {}
        self._unread = bytearray()
        self._tasks = [asyncio.create_task(self._read_stdout()), asyncio.create_task(self._read_stderr())]
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def has_gone(self) -> bool:
        return self._tasks[0].done()

    async def gone(self) -> int:
        """Wait until the process, or the socket, and its streams have ended."""
        try:
            async with asyncio.timeout(HANG_SECONDS):
                await asyncio.gather(*self._tasks)
                code: int = await self.wire.ended()
        except TimeoutError:
            self.kill()
            await self.wire.ended()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.checker.blame(f"the {self.other} did not end and had to be killed")
            code = -9
        for task in self._answering:
            task.cancel()
        self.wire.close()
        return code

    def kill(self) -> None:
        """End the process, or the socket, at once."""
        self.wire.kill()

    def request(self, method: str, params: Json = None, *, identity: Json = None) -> Request:
        identity = next(self._ids) if identity is None else identity
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._futures[identity] = future
        self.send({"id": identity, "method": method} | ({} if params is None else {"params": params}))
        return Request(identity, method, future, self.describe)

    def notify(self, method: str, params: Json = None) -> None:
        self.send({"method": method} | ({} if params is None else {"params": params}))

    def send(self, message: Json) -> None:
        message = {"jsonrpc": "2.0"} | message
        self.checker.sent(message)
        self.wire.write(self._encode(message))
        self.changed()

    def describe(self) -> str:
        last = [json.dumps(r.message, ensure_ascii=False)[:400] for r in self.received[-8:]]
        log = self.stderr[-1500:].decode(errors="replace")
        return "\n".join([f"last messages of the {self.other}:", *last, "its stderr:", log, *self.checker.violations])

    # Reading and answering

    async def _read_stderr(self) -> None:
        while chunk := await self.wire.read_log():
            self.stderr += chunk
            self.changed()

    async def _read_stdout(self) -> None:
        while chunk := await self.wire.read():
            self.stdout += chunk
            self._unread += chunk
            for body in self._take_bodies():
                self._take(body)
        if self._unread:
            self.checker.blame(f"bytes on stdout that are no message: {bytes(self._unread[:120])!r}")
        for future in self._futures.values():
            if not future.done():
                future.set_result({"error": {"code": 0, "message": f"the {self.other} has gone\n{self.describe()}"}})
        self.changed()

    def _take(self, body: bytes) -> None:
        message = self._check(body)
        if message is None:
            return
        self.received.append(Received(time.monotonic(), message, message.get("params")))
        if "method" in message and "id" in message:
            task = asyncio.create_task(self._answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answered)
        elif "method" not in message and isinstance(identity := message.get("id"), str | int):
            future = self._futures.get(identity)
            if future is not None and not future.done():
                future.set_result(message)
        self.changed()

    async def _answer(self, message: Json) -> None:
        self.send({"id": message["id"]} | await self.editor.answer(message["method"], message.get("params")))

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        if not task.cancelled() and (broken := task.exception()) is not None:
            self.checker.blame(f"the {self.own} could not answer: {broken!r}")
