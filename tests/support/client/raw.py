"""A language client over real stdio or a socket that knows LSP 3.17 and nothing of the product.

It frames and reads bytes itself, keeps every byte that the server writes, answers the server's requests as an editor
does, really applies workspace edits, and has all traffic checked by `editor`. It never sleeps: `wait_for` waits
on what was observed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any, Literal, Self

from tests.support.client.actions import Editing, Process, Received, Request
from tests.support.client.editor import VSCODE, Editor
from tests.support.client.wires import StdioWire, TcpWire, WebSocketWire, Wire, take_body
from tests.support.watching import HANG_SECONDS

Json = Any


class RawClient(Editing):
    """Start with `await RawClient.start(...)`, then `initialize`, and `close` at the end.

    `editor` holds what a test may set: settings, handlers of server requests, answers to questions. `wire`: the way to
    the server, if it is not the process's own pipes. `token`: what `initialize` has to bring.
    """

    def __init__(self, process: Process, wire: Wire | None = None, *, token: str | None = None) -> None:
        super().__init__(process)
        self.token = token
        self.wire: Wire = wire or StdioWire(process)
        self.editor = Editor(self.checker, self.open, self._change)
        self.server: Json = {}
        self._ids = itertools.count(1)
        self._futures: dict[int, asyncio.Future[Json]] = {}
        self._unread = bytearray()
        self._tasks = [asyncio.create_task(self._read_stdout()), asyncio.create_task(self._read_stderr())]
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def on_pipes(cls, process: Process) -> Self:
        return cls(process)

    @classmethod
    async def on_socket(cls, process: Process, kind: Literal["tcp", "ws"], port: int, token: str) -> Self:
        if kind == "tcp":
            return cls(process, await TcpWire.open(port), token=token)
        return cls(process, await WebSocketWire.upgraded(port, f"Authorization: Bearer {token}"))

    # Life cycle

    async def initialize(
        self,
        root: Path | None,
        *,
        announce: Json = None,
        options: Json = None,
        folders: bool = True,
        process: int | None = None,
    ) -> Json:
        """`process`: the editor's, if that is not ours."""
        self.editor.capabilities = VSCODE if announce is None else announce
        uri = root.as_uri() if root else None
        if self.token is not None:
            options = {"thinklsp": (options or {}) | {"token": self.token}}
        folder = [{"uri": uri, "name": root.name}] if root and folders else None
        params = {"processId": process or os.getpid(), "clientInfo": {"name": self.editor.name, "version": "1"}}
        params |= {"rootUri": uri, "workspaceFolders": folder}
        params |= {"capabilities": self.editor.capabilities, "initializationOptions": options}
        result = await self.request("initialize", params)
        self.server = result["capabilities"]
        self.desk.encoding = self.server.get("positionEncoding", "utf-16")
        self.notify("initialized", {})
        return result

    @property
    def has_gone(self) -> bool:
        return self._tasks[0].done()

    async def gone(self) -> int:
        """Waits until the process, or the socket, and its streams have ended."""
        try:
            async with asyncio.timeout(HANG_SECONDS):
                await asyncio.gather(*self._tasks)
                code = await self.wire.ended()
        except TimeoutError:
            self.kill()
            await self.wire.ended()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.checker.blame("the server did not end and had to be killed")
            code = -9
        for task in self._answering:
            task.cancel()
        self.wire.close()
        self.checker.finish()
        return code

    def kill(self) -> None:
        """The process, or the socket, at once."""
        self.wire.kill()

    # Talking

    def request(self, method: str, params: Json = None) -> Request:
        identity = next(self._ids)
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._futures[identity] = future
        self._send({"id": identity, "method": method} | ({} if params is None else {"params": params}))
        return Request(identity, method, future, self.describe)

    def notify(self, method: str, params: Json = None) -> None:
        self._send({"method": method} | ({} if params is None else {"params": params}))

    def answer(self, identity: Json, result: Json) -> None:
        """To a request of the server, beside the editor's own answer."""
        self._send({"id": identity, "result": result})

    def run_action(self, action: Json, *, token: str | int | None = None) -> Request:
        """Executes the command of a CodeAction (or the plain Command) as an editor does."""
        command = action["command"] if isinstance(action["command"], dict) else action
        params = {"command": command["command"], "arguments": command.get("arguments", [])}
        return self.request("workspace/executeCommand", params | ({} if token is None else {"workDoneToken": token}))

    def forget(self) -> None:
        """What was received so far, and all that has ended: a run of hours would fill our own memory with it."""
        self.received.clear()
        self.stdout.clear()
        self._futures = {identity: future for identity, future in self._futures.items() if not future.done()}
        self.checker.forget()

    def describe(self) -> str:
        last = [json.dumps(r.message, ensure_ascii=False)[:400] for r in self.received[-8:]]
        log = self.stderr[-1500:].decode(errors="replace")
        return "\n".join(["last messages of the server:", *last, "its stderr:", log, *self.checker.violations])

    # Reading and answering

    async def _read_stderr(self) -> None:
        while chunk := await self.wire.read_log():
            self.stderr += chunk

    async def _read_stdout(self) -> None:
        while chunk := await self.wire.read():
            self.stdout += chunk
            self._unread += chunk
            while (body := take_body(self._unread)) is not None:
                self._take(body)
        if self._unread:
            self.checker.blame(f"bytes on stdout that are no message: {bytes(self._unread[:120])!r}")
        for future in self._futures.values():
            if not future.done():
                future.set_result({"error": {"code": 0, "message": f"the server has gone\n{self.describe()}"}})
        self.changed()

    def _take(self, body: bytes) -> None:
        try:
            message = json.loads(body.decode())
        except ValueError:
            self.checker.blame(f"a message that is no JSON in UTF-8: {body[:200]!r}")
            return
        self.checker.received(message)
        self.received.append(Received(time.monotonic(), message, message.get("params")))
        if "method" in message and "id" in message:
            task = asyncio.create_task(self._answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answered)
        elif "method" not in message and message.get("id") in self._futures:
            future = self._futures[message["id"]]
            if not future.done():
                future.set_result(message)
        self.changed()

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        if not task.cancelled() and (broken := task.exception()) is not None:
            self.checker.blame(f"the editor could not answer: {broken!r}")

    async def _answer(self, message: Json) -> None:
        self._send({"id": message["id"]} | await self.editor.answer(message["method"], message.get("params")))

    def _send(self, message: Json) -> None:
        message = {"jsonrpc": "2.0"} | message
        self.checker.sent(message)
        self.wire.write(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        self.changed()
