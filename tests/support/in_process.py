"""The real server of one connection inside the test's process, behind a real pipe: bodies in, messages out."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol.types import (
    Position,
    Range,
    TextDocumentContentChangeEvent,
    TextDocumentContentChangePartial,
    TextDocumentContentChangeWholeDocument,
    TextDocumentItem,
)

from tests.support.client.raw import take_body
from tests.support.watching import HANG_SECONDS, Watched
from thinklsp.jsonrpc.framing import build_frame
from thinklsp.jsonrpc.writer import FrameWriter
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.protocol.converter import load_converter
from thinklsp.lsp.protocol.positions import Encoding
from thinklsp.lsp.transport.connection import create_server

Json = Any


class InProcess(Watched):
    """`received` is everything that the server has written. `codes` are exit codes that it was left with."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__()
        assert "THINKLSP_STATE_DIR" in environment, "sessions would lie among those of the person who runs the tests"
        self.server = create_server()
        self.server.state.environment = dict(environment)
        self.received: list[Json] = []
        self.codes: list[int] = []
        self.server.protocol.on_exit = self.codes.append
        self._unread = bytearray()
        self._barriers = 0

    def send(self, message: Json) -> None:
        self.server.protocol.receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    def request(self, identity: Json, method: str, params: Json = None) -> None:
        self.send({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})

    def notify(self, method: str, params: Json = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def answer(self, identity: Json) -> Json:
        """The one answer to a request; waits for it."""

        def found() -> list[Json]:
            return [m for m in self.received if "method" not in m and m["id"] == identity]

        await self.wait_for(found, what=f"the answer to {identity!r}")
        [only] = found()
        return only

    async def initialize(self, capabilities: Json = None, *, root: Path | None = None, **more: Json) -> Json:
        folders = [{"uri": root.as_uri(), "name": root.name}] if root else None
        params = {"processId": None, "rootUri": None, "capabilities": capabilities or {}, "workspaceFolders": folders}
        self.request("initialize", "initialize", params | more)
        answer = await self.answer("initialize")
        self.received.remove(answer)
        self.notify("initialized", {})
        return answer["result"]

    async def settled(self) -> list[Json]:
        """What was received, once everything sent so far has been dealt with and nothing is running any more."""
        while running := [*self.server.protocol._request_futures.values()]:
            await asyncio.wait(running, timeout=HANG_SECONDS)
        self._barriers += 1
        name = f"barrier {self._barriers}"
        self.request(name, "$/barrier")
        self.received.remove(await self.answer(name))
        return self.received

    def take(self, descriptor: int) -> None:
        self._unread += os.read(descriptor, 1 << 20)
        while (body := take_body(self._unread)) is not None:
            self.received.append(json.loads(body))
        self.changed()

    def describe(self) -> str:
        return "\n".join(json.dumps(message)[:300] for message in self.received)


Editor = TypeVar("Editor", bound=InProcess)


@asynccontextmanager
async def in_process(environment: Mapping[str, str] | None = None) -> AsyncIterator[InProcess]:
    """`environment`: by default one without keys and without a file of settings."""
    given = {"THINKLSP_CONFIG": "/nonexistent/config.toml"} if environment is None else environment
    with tempfile.TemporaryDirectory() as state:
        async with connected(InProcess({"THINKLSP_STATE_DIR": state, **given})) as made:
            yield made


@asynccontextmanager
async def connected(made: Editor) -> AsyncIterator[Editor]:
    """The same for an editor that can do more."""
    reading, writing = os.pipe()
    writer = FrameWriter(writing, build_frame)
    made.server.protocol.connect(writer)
    loop = asyncio.get_running_loop()
    loop.add_reader(reading, made.take, reading)
    try:
        yield made
    finally:
        await made.server.close()
        loop.remove_reader(reading)
        writer.close()
        os.close(reading)


Place = tuple[int, int, int, int]


def as_json(value: Any) -> Any:
    return load_converter().unstructure(value)


def item(text: str, uri: str = "file:///ws/a.py", version: int = 1, language: str = "python") -> TextDocumentItem:
    return TextDocumentItem(uri, language, version, text)


def document(text: str, encoding: Encoding = "utf-16", **more: Any) -> Document:
    return Document(item(text, **more), encoding)


def span(start_line: int, start: int, end_line: int, end: int) -> Range:
    return Range(Position(start_line, start), Position(end_line, end))


def change(where: Place | None, text: str) -> TextDocumentContentChangeEvent:
    """`where` None: the whole text is replaced."""
    if where is None:
        return TextDocumentContentChangeWholeDocument(text)
    return TextDocumentContentChangePartial(span(*where), text)
