"""A blocking client. Its own cost is very small, and the same for each server."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.bench.measure import TREE, clean_environment, resident_megabytes
from tests.support.client.editor import VSCODE

_HEADER = re.compile(rb"(?:Content-Type[^\r]*\r\n)?Content-Length: (\d+)\r\n(?:Content-Type[^\r]*\r\n)?\r\n")


class Lockstep:
    """A server process and a blocking client. `begun`: the time of the spawn. `passed`: the messages that were not
    answers, with the time when each was read. `answered`: all answers by id. `limit_seconds` is the longest wait for an
    answer."""

    limit_seconds = 120.0

    def __init__(self, argv: Sequence[str], folder: Path, **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # thinklsp does not open a workspace folder that contains the user's home folder.
        home = {
            "HOME": str(folder.parent / "home"),
            "THINKLSP_STATE_DIR": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder),
        }
        self.folder = folder
        self._read = b""
        self.passed: list[tuple[float, Any]] = []
        self.answered: dict[int, Any] = {}
        self._ids = itertools.count(1_000)
        # Python finds the package `thinklsp` in the current folder.
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            cwd=TREE, env=clean_environment(**(home | environment)),
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._input, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the server, but do not wait for the end of its output, which a process of the server may hold open."""
        self.process.kill()
        self.process.wait(self.limit_seconds)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def elapsed(self) -> float:
        """The milliseconds since the spawn."""
        return (time.perf_counter() - self.begun) * 1000

    @property
    def resident(self) -> float:
        return resident_megabytes(self.process.pid)

    def send(self, *messages: dict[str, Any]) -> None:
        """Send all messages in one write, if the pipe has room for them."""
        frames = (self._frame(json.dumps({"jsonrpc": "2.0"} | message).encode()) for message in messages)
        rest, give_up = memoryview(b"".join(frames)), time.monotonic() + self.limit_seconds
        while rest:
            if not select.select([], [self._input], [], max(0.0, give_up - time.monotonic()))[1]:
                raise TimeoutError("the server did not read")
            rest = rest[os.write(self._input, rest) :]

    def receive(self, identity: int) -> Any:
        """Wait for the answer to a request. Requests of the server are answered with null."""
        give_up = time.monotonic() + self.limit_seconds
        while True:
            message = self._next(give_up)
            if "method" in message:
                self.passed.append((time.monotonic(), message))
                if "id" in message:
                    self.send({"id": message["id"], "result": None})
            elif (number := message.get("id")) is not None:
                self.answered[number] = message
                if number == identity:
                    return message

    def ask(self, message: dict[str, Any]) -> Any:
        """Send a request and return its result. Fails if the server answers with an error."""
        self.send(message)
        answer = self.receive(message["id"])
        assert "result" in answer, answer
        return answer["result"]

    def initialize(self) -> Any:
        uri = self.folder.as_uri()
        params = {
            "processId": os.getpid(), "clientInfo": {"name": "bench", "version": "1"}, "rootUri": uri,
            "workspaceFolders": [{"uri": uri, "name": self.folder.name}], "capabilities": VSCODE,
        }  # fmt: skip
        self.send({"id": 1, "method": "initialize", "params": params})
        return self.receive(1)

    def first_code_action(self, delay: float = 0.0) -> Any:
        """Send `initialized`, a document and a code action request in one write, as an editor with an open file does.
        With a delay, send the request that many seconds later."""
        text = "def function(value):\n    return value + 1\n\n\n" * 100
        document = {"uri": (self.folder / "a.py").as_uri(), "languageId": "python", "version": 1, "text": text}
        opening = [
            {"method": "initialized", "params": {}},
            {"method": "textDocument/didOpen", "params": {"textDocument": document}},
        ]
        if delay:
            self.send(*opening)
            opening = []
            time.sleep(delay)
        self.send(*opening, {"id": 2} | self.code_action_request("a.py"))
        return self.receive(2)

    def code_action_request(self, name: str) -> dict[str, Any]:
        here = {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 10}}
        problem = {"range": here, "severity": 1, "source": "bench", "message": "something is wrong"}
        context = {"diagnostics": [problem], "triggerKind": 1}
        document = {"uri": (self.folder / name).as_uri()}
        params = {"textDocument": document, "range": here, "context": context}
        return {"method": "textDocument/codeAction", "params": params}

    def next_id(self) -> int:
        return next(self._ids)

    def _next(self, give_up: float) -> Any:
        while (body := self._take_body()) is None:
            if not select.select([self._output], [], [], max(0.0, give_up - time.monotonic()))[0]:
                raise TimeoutError("the server did not answer")
            piece = os.read(self._output, 1 << 16)
            if not piece:
                raise EOFError("the server ended")
            self._read += piece
        if time.monotonic() > give_up:
            raise TimeoutError("the server did not answer")
        return json.loads(body)

    def _frame(self, body: bytes) -> bytes:
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    def _take_body(self) -> bytes | None:
        """Remove the next message from the bytes that were read, and return its body."""
        header = _HEADER.match(self._read)
        if header is None or len(self._read) < (end := header.end() + int(header[1])):
            return None
        body, self._read = self._read[header.end() : end], self._read[end:]
        return body


class AgentLockstep(Lockstep):
    """An agent process and a blocking client of the Agent Client Protocol, which announces nothing."""

    def initialize(self) -> Any:
        self.send({"id": 1, "method": "initialize", "params": {"protocolVersion": 1, "clientCapabilities": {}}})
        return self.receive(1)

    def new_session(self) -> str:
        params = {"cwd": str(self.folder), "mcpServers": []}
        return str(self.ask({"id": self.next_id(), "method": "session/new", "params": params})["sessionId"])

    def prompt(self, session_id: str, text: str = "Go on.") -> Any:
        params = {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
        return self.ask({"id": self.next_id(), "method": "session/prompt", "params": params})

    def _frame(self, body: bytes) -> bytes:
        return body + b"\n"

    def _take_body(self) -> bytes | None:
        body, end, rest = self._read.partition(b"\n")
        if not end:
            return None
        self._read = rest
        return body
