"""What a user does in an editor and sees there, over any client: documents, commands, code actions, progress, messages.

Shares no code with the product.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from tests.support.client.documents import Desk, Document, apply_text_edits, path_of, position_at, range_of
from tests.support.client.editor import Editor, TrafficChecker
from tests.support.watching import HANG_SECONDS, Watched

Json = Any
Process = asyncio.subprocess.Process


class ResponseError(Exception):
    def __init__(self, error: Json) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Json = error.get("data")


class Request:
    """A request on its way. Awaiting it gives the result, or raises ResponseError or TimeoutError."""

    def __init__(
        self, identity: int | str, method: str, answer: asyncio.Future[Json], describe: Callable[[], str]
    ) -> None:
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
            async with asyncio.timeout(HANG_SECONDS):
                message = await asyncio.shield(self._answer)
        except TimeoutError:
            raise TimeoutError(f"no answer to {self.method} within {HANG_SECONDS} s\n{self._describe()}") from None
        if "error" in message:
            raise ResponseError(message["error"])
        return message["result"]


@dataclass(frozen=True)
class Received:
    """A message of the server and when it came (`time.monotonic`). `params`: as the client reads them."""

    at: float
    message: Json
    params: Any


class Editing(Watched):
    """The base of the clients, which differ in how they send, read and answer."""

    editor: Editor

    def __init__(self, process: Any) -> None:
        super().__init__()
        self.process = process
        self.token: str | None = None
        self.checker = TrafficChecker()
        self.stdout, self.stderr = bytearray(), bytearray()
        self.received: list[Received] = []

    @classmethod
    async def start(cls, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Self:
        """Start a server of one's own, with the worst umask that a starter can have."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=dict(env), stdin=pipe, stdout=pipe, stderr=pipe, umask=0
        )
        return await cls.on_pipes(process)

    @classmethod
    @abstractmethod
    async def on_pipes(cls, process: Process) -> Self: ...

    @classmethod
    @abstractmethod
    async def on_socket(cls, process: Process, kind: Literal["tcp", "ws"], port: int, token: str) -> Self: ...

    @abstractmethod
    def request(self, method: str, params: Any = None) -> Request: ...

    @abstractmethod
    def notify(self, method: str, params: Any = None) -> None: ...

    @property
    @abstractmethod
    def has_gone(self) -> bool: ...

    @abstractmethod
    async def gone(self) -> int: ...

    async def close(self) -> int:
        """Shut down and exit in order; return the exit code, 0 of a socket that was closed."""
        if not self.has_gone:
            if not self.checker.is_shutting_down:
                await self.request("shutdown")
            self.notify("exit")
        return await self.gone()

    @property
    def desk(self) -> Desk:
        return self.editor.desk

    # Talking

    def cancel(self, request: Request) -> None:
        self.notify("$/cancelRequest", {"id": request.id})

    def command(self, name: str, argument: Json = None, *, token: str | int | None = None) -> Request:
        params = {"command": name, "arguments": [] if argument is None else [argument]}
        return self.request("workspace/executeCommand", params | ({} if token is None else {"workDoneToken": token}))

    def code_actions(self, uri: str, place: Json, **context: Any) -> Request:
        """`place`: a range, or a part of the document's text whose range is meant."""
        if isinstance(place, str):
            place = range_of(self.desk.open[uri].text, place, self.desk.encoding)
        context = {"diagnostics": [], "triggerKind": 1} | context
        params = {"textDocument": {"uri": uri}, "range": place, "context": context}
        return self.request("textDocument/codeAction", params)

    def lenses(self, uri: str) -> Request:
        return self.request("textDocument/codeLens", {"textDocument": {"uri": uri}})

    def complete(self, uri: str, behind: str) -> Request:
        """Asks what completes behind the last occurrence of a text."""
        document = self.desk.open[uri]
        nth = document.text.count(behind) - 1
        place = range_of(document.text, behind, self.desk.encoding, nth=nth)["end"]
        return self.request("textDocument/completion", {"textDocument": {"uri": uri}, "position": place})

    def hover(self, uri: str, part: str) -> Request:
        """Ask about the first occurrence of a text."""
        place = range_of(self.desk.text_of(uri) or "", part, self.desk.encoding)["start"]
        return self.request("textDocument/hover", {"textDocument": {"uri": uri}, "position": place})

    def stop(self, token: str | int) -> None:
        """Press the button of a progress that cancels."""
        self.notify("window/workDoneProgress/cancel", {"token": token})

    def save(self, uri: str) -> None:
        self.notify("textDocument/didSave", {"textDocument": {"uri": uri}})

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
            enumerate(edits), key=lambda e: (e[1]["range"]["start"]["line"], e[1]["range"]["start"]["character"], e[0])
        )
        changes = [{"range": e["range"], "text": e["newText"]} for _, e in reversed(ordered)]
        document.past_versions.add(document.version)
        document.text, document.version = text, document.version + 1
        identifier = {"uri": document.uri, "version": document.version}
        self.notify("textDocument/didChange", {"textDocument": identifier, "contentChanges": changes})

    def close_document(self, uri: str) -> None:
        self.desk.open.pop(uri, None)
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def text(self, uri: str) -> str | None:
        return self.desk.text_of(uri)

    # What was observed

    def calls(self, method: str) -> list[Received]:
        """Requests and notifications of the server by this name."""
        return [r for r in self.received if r.message.get("method") == method]

    def progress(self, token: str | int) -> list[Json]:
        told = [r.message["params"] for r in self.calls("$/progress")]
        return [params["value"] for params in told if params["token"] == token]

    def progress_kinds(self, token: str | int) -> list[str]:
        return [value["kind"] for value in self.progress(token)]

    def messages(self) -> list[str]:
        return [r.message["params"]["message"] for r in self.calls("window/showMessage")]

    def edits(self) -> list[Json]:
        """The workspace edits that the server sent."""
        return [r.params for r in self.calls("workspace/applyEdit")]
