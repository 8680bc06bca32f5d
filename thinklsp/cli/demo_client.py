"""The client's side of the language server protocol, just enough of it: a process, frames, requests and answers.

Written from the specification and sharing nothing with the server, so that what the demo shows is what an editor gets.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import IO, Any, Protocol

from thinklsp.core.errors import ThinkLspError

_GOODBYE_SECONDS = 3.0
_METHOD_NOT_FOUND = -32601
_INTERNAL_ERROR = -32603
_GONE = "The server ended before it had answered."


class DemoFailed(ThinkLspError):
    """The demo did not come to its good end; the sentence says where."""


class ServerGone(DemoFailed):
    """The server's process ended too early."""


class Answering(Protocol):
    """What the editor does with what the server sends of its own accord."""

    def requested(self, method: str) -> Callable[[Any], Any] | None:
        """The function, plain or async, that answers a request of this method; None where it is not known."""

    def notified(self, method: str, params: Any) -> None: ...


class ServerProcess:
    """One running server. Requests may overlap; everything that arrives is handled in order."""

    def __init__(self, process: asyncio.subprocess.Process, editor: Answering) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process must be started with pipes")
        self._process, self._in, self._out = process, process.stdin, process.stdout
        self._editor = editor
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._number = 0

    async def request(self, method: str, params: Any) -> Any:
        """The result. Raises DemoFailed with the server's sentence for an error, ServerGone when it has ended."""
        if self._process.returncode is not None:
            raise ServerGone(_GONE)
        self._number += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = future
        self._send({"id": self._number, "method": method, "params": params})
        return await future

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    async def leave(self) -> None:
        """The orderly end: `shutdown`, `exit`, and the process is gone with code 0. Raises DemoFailed otherwise."""
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self.request("shutdown", None)
                self.notify("exit", None)
                code = await self._process.wait()
        except TimeoutError:
            raise DemoFailed("The server did not leave when it was asked to.") from None
        if code != 0:
            raise DemoFailed(f"The server left with exit code {code} instead of 0.")

    async def listen(self) -> None:
        """Reads until the server ends; requests that are still open then fail."""
        try:
            while (message := await self._receive()) is not None:
                self._handle(message)
        finally:
            for answer in self._answers:
                answer.cancel()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ServerGone(_GONE))

    def _send(self, message: Mapping[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def _receive(self) -> Any:
        try:
            head = await self._out.readuntil(b"\r\n\r\n")
            fields = dict(line.split(b": ", 1) for line in head.strip().split(b"\r\n"))
            return json.loads(await self._out.readexactly(int(fields[b"Content-Length"])))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def _handle(self, message: Mapping[str, Any]) -> None:
        if "method" not in message:
            self._settle(message)
        elif "id" in message:
            answer = asyncio.get_running_loop().create_task(self._answer(message))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)
        else:
            self._editor.notified(message["method"], message.get("params"))

    def _settle(self, message: Mapping[str, Any]) -> None:
        future = self._waiting.pop(message["id"], None)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(DemoFailed(str(message["error"].get("message"))))
        else:
            future.set_result(message.get("result"))

    async def _answer(self, message: Mapping[str, Any]) -> None:
        handler = self._editor.requested(message["method"])
        if handler is None:
            error = {"code": _METHOD_NOT_FOUND, "message": f"The demo does not know {message['method']}."}
            self._send({"id": message["id"], "error": error})
            return
        try:
            result = handler(message.get("params"))
            if inspect.isawaitable(result):
                result = await result
        except ThinkLspError as refused:
            self._send({"id": message["id"], "error": {"code": _INTERNAL_ERROR, "message": str(refused)}})
        else:
            self._send({"id": message["id"], "result": result})


@asynccontextmanager
async def started(
    argv: Sequence[str], editor: Answering, *, environment: Mapping[str, str], folder: str, log: IO[bytes]
) -> AsyncIterator[ServerProcess]:
    """A server that is running, and is certainly gone afterwards. `log` takes its standard error."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
        env=environment,
        cwd=folder,
        start_new_session=True,  # Ctrl-C is for the demo, which then ends its server in good order.
    )
    server = ServerProcess(process, editor)
    listening = asyncio.get_running_loop().create_task(server.listen())
    try:
        yield server
        await server.leave()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await asyncio.gather(listening, return_exceptions=True)
