"""A client that blocks: what it costs itself is next to nothing, and the same for every server."""

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
from types import TracebackType
from typing import Any, Self

from tests.bench.measure import TREE, clean_environment, resident_megabytes
from tests.support.raw_editor import VSCODE

_HEADER = re.compile(rb"(?:Content-Type[^\r]*\r\n)?Content-Length: (\d+)\r\n(?:Content-Type[^\r]*\r\n)?\r\n")
_SECONDS = 60.0


class Lockstep:
    """A server process from its spawn on. `begun`: when that was. `passed`: its notifications, and when they were read;
    `answered`: all its answers."""

    def __init__(self, argv: Sequence[str], folder: Path, **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        home = {"HOME": str(folder), "THINKLSP_STATE_DIR": str(folder / "state"), "XDG_CONFIG_HOME": str(folder)}
        self.folder = folder
        self._read = b""
        self.passed: list[tuple[float, Any]] = []
        self.answered: dict[int, Any] = {}
        self._ids = itertools.count(1_000)
        # We are found in the folder that we are started in.
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            cwd=TREE, env=clean_environment(**(home | environment)),
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def elapsed(self) -> float:
        """Milliseconds since the spawn."""
        return (time.perf_counter() - self.begun) * 1000

    @property
    def resident(self) -> float:
        return resident_megabytes(self.process.pid)

    def send(self, *messages: dict[str, Any]) -> None:
        """All of them in one write."""
        frames = []
        for message in messages:
            body = json.dumps({"jsonrpc": "2.0"} | message).encode()
            frames.append(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(frames))

    def receive(self, identity: int) -> Any:
        """The answer to a request; what else comes is passed over, and requests of the server get null."""
        while True:
            message = self._next()
            if "method" in message:
                self.passed.append((time.monotonic(), message))
                if "id" in message:
                    self.send({"id": message["id"], "result": None})
            elif (number := message.get("id")) is not None:
                self.answered[number] = message
                if number == identity:
                    return message

    def initialize(self) -> Any:
        uri = self.folder.as_uri()
        params = {
            "processId": os.getpid(),
            "clientInfo": {"name": "bench", "version": "1"},
            "rootUri": uri,
            "workspaceFolders": [{"uri": uri, "name": self.folder.name}],
            "capabilities": VSCODE,
        }
        self.send({"id": 1, "method": "initialize", "params": params})
        return self.receive(1)

    def first_code_action(self, delay: float = 0.0) -> Any:
        """The handshake's end, a document and a request in one write, as an editor with an open file sends them. With a
        delay the request goes that many seconds later."""
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

    def _next(self) -> Any:
        give_up = time.monotonic() + _SECONDS
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while True:
            header = _HEADER.match(self._read)
            if header is not None and len(self._read) >= header.end() + int(header[1]):
                body = self._read[header.end() : header.end() + int(header[1])]
                self._read = self._read[header.end() + int(header[1]) :]
                return json.loads(body)
            if not select.select([descriptor], [], [], max(0.0, give_up - time.monotonic()))[0]:
                raise TimeoutError("the server did not answer")
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                raise EOFError("the server ended")
            self._read += piece
