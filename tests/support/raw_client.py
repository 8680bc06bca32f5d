"""A language client over real stdio or a socket that knows LSP 3.17 and nothing of the product.

It frames and reads bytes itself, keeps every byte that the server writes, answers the server's requests as an editor
does, really applies workspace edits, and has all traffic watched by `raw_protocol`. It never sleeps: `wait_for` waits
on what was observed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.raw_documents import Desk, Document, apply_text_edits, path_of, position_at, range_of
from tests.support.raw_editor import VSCODE, Editor
from tests.support.raw_protocol import TrafficChecker
from tests.support.raw_wires import StdioWire, Wire
from tests.support.watching import Watched

Json = Any
DEADLINE = 20.0
_HEADER = re.compile(rb"Content-Length: (\d+)\r\n(?:Content-Type: [^\r\n]+\r\n)?\r\n")


class ResponseError(Exception):
    def __init__(self, error: Json) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Json = error.get("data")


class Request:
    """A request on its way. Awaiting it gives the result, or raises ResponseError or TimeoutError."""

    def __init__(self, identity: int, method: str, answer: asyncio.Future[Json], describe: Callable[[], str]) -> None:
        self.id = identity
        self.method = method
        self._answer = answer
        self._describe = describe

    @property
    def answered(self) -> bool:
        return self._answer.done()

    def __await__(self) -> Generator[Any, None, Json]:
        return self._wait().__await__()

    async def _wait(self) -> Json:
        try:
            async with asyncio.timeout(DEADLINE):
                message = await asyncio.shield(self._answer)
        except TimeoutError:
            raise TimeoutError(f"no answer to {self.method} within {DEADLINE} s\n{self._describe()}") from None
        if "error" in message:
            raise ResponseError(message["error"])
        return message["result"]


@dataclass(frozen=True)
class Received:
    """A message of the server and when it came (`time.monotonic`)."""

    at: float
    message: Json

    @property
    def params(self) -> Json:
        return self.message.get("params")


class RawClient(Watched):
    """Start with `await RawClient.start(...)`, then `initialize`, and `close` at the end.

    `editor` holds what a test may set: settings, handlers of server requests, answers to questions. `wire`: the way to
    the server, if it is not the process's own pipes. `token`: what `initialize` has to bring.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, wire: Wire | None = None, *, token: str | None = None
    ) -> None:
        super().__init__()
        self.process = process
        self.token = token
        self.wire: Wire = wire or StdioWire(process)
        self.shutting_down = False
        self.stdout, self.stderr = bytearray(), bytearray()
        self.received: list[Received] = []
        self.checker = TrafficChecker()
        self.editor = Editor(self.checker, self.open, self._change)
        self.server: Json = {}
        self._ids = itertools.count(1)
        self._futures: dict[int, asyncio.Future[Json]] = {}
        self._unread = bytearray()
        self._tasks = [asyncio.create_task(self._read_stdout()), asyncio.create_task(self._read_stderr())]
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> RawClient:
        """With the worst umask that a starter can have."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=dict(env), stdin=pipe, stdout=pipe, stderr=pipe, umask=0
        )
        return cls(process)

    @property
    def desk(self) -> Desk:
        return self.editor.desk

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
        params = {
            "processId": process or os.getpid(),
            "clientInfo": {"name": "raw client", "version": "1"},
            "rootUri": uri,
            "capabilities": self.editor.capabilities,
            "initializationOptions": options,
            "workspaceFolders": [{"uri": uri, "name": root.name}] if root and folders else None,
        }
        result = await self.request("initialize", params)
        self.server = result["capabilities"]
        self.desk.encoding = self.server.get("positionEncoding", "utf-16")
        self.notify("initialized", {})
        return result

    async def close(self) -> int:
        """Shutdown and exit in order; returns the exit code, 0 of a socket that was closed. Afterwards the checker has
        the last word."""
        if not self._tasks[0].done():
            if not self.shutting_down:
                await self.request("shutdown")
            self.notify("exit")
        return await self.gone()

    async def gone(self) -> int:
        """Waits until the process, or the socket, and its streams have ended."""
        try:
            async with asyncio.timeout(DEADLINE):
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
        self.shutting_down |= method == "shutdown"
        identity = next(self._ids)
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._futures[identity] = future
        self._send({"id": identity, "method": method} | ({} if params is None else {"params": params}))
        return Request(identity, method, future, self.describe)

    def notify(self, method: str, params: Json = None) -> None:
        self._send({"method": method} | ({} if params is None else {"params": params}))

    def cancel(self, request: Request) -> None:
        self.notify("$/cancelRequest", {"id": request.id})

    def answer(self, identity: Json, result: Json) -> None:
        """To a request of the server, beside the editor's own answer."""
        self._send({"id": identity, "result": result})

    def command(self, name: str, argument: Json = None, *, token: str | int | None = None) -> Request:
        params = {"command": name, "arguments": [] if argument is None else [argument]}
        return self.request("workspace/executeCommand", params | ({} if token is None else {"workDoneToken": token}))

    def code_actions(self, uri: str, place: Json, **context: Any) -> Request:
        """`place`: a range, or a part of the document's text whose range is meant."""
        if isinstance(place, str):
            place = range_of(self.desk.open[uri].text, place, self.desk.encoding)
        context = {"diagnostics": [], "triggerKind": 1} | context
        return self.request(
            "textDocument/codeAction", {"textDocument": {"uri": uri}, "range": place, "context": context}
        )

    def run_action(self, action: Json, *, token: str | int | None = None) -> Request:
        """Executes the command of a CodeAction (or the plain Command) as an editor does."""
        command = action["command"] if isinstance(action["command"], dict) else action
        params = {"command": command["command"], "arguments": command.get("arguments", [])}
        return self.request("workspace/executeCommand", params | ({} if token is None else {"workDoneToken": token}))

    def lenses(self, uri: str) -> Request:
        return self.request("textDocument/codeLens", {"textDocument": {"uri": uri}})

    def complete(self, uri: str, behind: str) -> Request:
        """Asks what completes behind the last occurrence of a text."""
        document = self.desk.open[uri]
        nth = document.text.count(behind) - 1
        place = range_of(document.text, behind, self.desk.encoding, nth=nth)["end"]
        return self.request("textDocument/completion", {"textDocument": {"uri": uri}, "position": place})

    def configure(self, settings: Json) -> None:
        self.notify("workspace/didChangeConfiguration", {"settings": settings})

    # Documents

    def open(self, uri: str, text: str | None = None, *, language: str = "python", version: int = 1) -> str:
        """Opens with the given text, or with what is on disk. Returns the URI."""
        if text is None:
            text = path_of(uri).read_bytes().decode()
        self.desk.open[uri] = Document(uri, text, version, language)
        item = {"uri": uri, "languageId": language, "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})
        return uri

    def change(self, uri: str, old: str, new: str, *, nth: int = 0) -> None:
        """The user types: the nth `old` becomes `new`."""
        document = self.desk.open[uri]
        place = range_of(document.text, old, self.desk.encoding, nth=nth)
        self._change(document, [{"range": place, "newText": new}])

    def replace(self, uri: str, start: int, end: int, new: str) -> None:
        """The user types: what stands there, counted in code points, becomes `new`."""
        text, encoding = self.desk.open[uri].text, self.desk.encoding
        place = {"start": position_at(text, start, encoding), "end": position_at(text, end, encoding)}
        self._change(self.desk.open[uri], [{"range": place, "newText": new}])

    def _change(self, document: Document, edits: list[Json]) -> None:
        text = apply_text_edits(document.text, edits, self.desk.encoding)
        # Content changes apply one after the other; from the end of the text backwards the ranges stay right.
        ordered = sorted(
            enumerate(edits),
            key=lambda e: (e[1]["range"]["start"]["line"], e[1]["range"]["start"]["character"], e[0]),
        )
        changes = [{"range": e["range"], "text": e["newText"]} for _, e in reversed(ordered)]
        document.past_versions.add(document.version)
        document.text, document.version = text, document.version + 1
        identifier = {"uri": document.uri, "version": document.version}
        self.notify("textDocument/didChange", {"textDocument": identifier, "contentChanges": changes})

    def close_document(self, uri: str) -> None:
        del self.desk.open[uri]
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def text(self, uri: str) -> str | None:
        return self.desk.text_of(uri)

    # What was observed

    def calls(self, method: str) -> list[Received]:
        """Requests and notifications of the server by this name."""
        return [r for r in self.received if r.message.get("method") == method]

    def progress(self, token: str | int) -> list[Json]:
        return [r.params["value"] for r in self.calls("$/progress") if r.params["token"] == token]

    def progress_kinds(self, token: str | int) -> list[str]:
        return [value["kind"] for value in self.progress(token)]

    def messages(self) -> list[str]:
        return [r.params["message"] for r in self.calls("window/showMessage")]

    def edits(self) -> list[Json]:
        """The workspace edits that the server sent."""
        return [r.params for r in self.calls("workspace/applyEdit")]

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
            while (body := self._next_body()) is not None:
                self._take(body)
        if self._unread:
            self.checker.blame(f"bytes on stdout that are no message: {bytes(self._unread[:120])!r}")
        for future in self._futures.values():
            if not future.done():
                future.set_result({"error": {"code": 0, "message": f"the server has gone\n{self.describe()}"}})
        self.changed()

    def _next_body(self) -> bytes | None:
        header = _HEADER.match(self._unread)
        if header is None or len(self._unread) < header.end() + int(header[1]):
            return None
        end = header.end() + int(header[1])
        body = bytes(self._unread[header.end() : end])
        del self._unread[:end]
        return body

    def _take(self, body: bytes) -> None:
        try:
            message = json.loads(body.decode())
        except ValueError:
            self.checker.blame(f"a message that is no JSON in UTF-8: {body[:200]!r}")
            return
        self.checker.received(message)
        self.received.append(Received(time.monotonic(), message))
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
        answer = await self.editor.answer(message["method"], message.get("params"))
        self._send({"id": message["id"]} | answer)

    def _send(self, message: Json) -> None:
        message = {"jsonrpc": "2.0"} | message
        self.checker.sent(message)
        body = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
        self.wire.write(body)
        self.changed()
