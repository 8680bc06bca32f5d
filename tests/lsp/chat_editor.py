"""An editor with chat documents, beside the server in the test's process, and a model that answers when it is told to.

Every character of a document is known to be the user's or the server's, so that a test can say who took it away.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.client.documents import offset_at, position_at
from tests.support.in_process import InProcess
from tests.support.scripted_model import says
from thinklsp.agent.model_call import CallEvent, CallFinished
from thinklsp.core.events import TextStreamed
from thinklsp.providers.base import ModelRequest

Json = Any
_SESSION_LINE = re.compile(r"\ufeff?<!-- thinklsp session:[^\r\n]*")


@dataclass
class Text:
    """A document as the editor has it. `users`: by character, whether the user wrote it."""

    uri: str
    text: str
    users: list[bool]
    version: int = 1
    former: list[tuple[str, list[bool]]] = field(default_factory=list)

    def replace(self, start: int, end: int, new: str, *, by_user: bool) -> None:
        self.text = self.text[:start] + new + self.text[end:]
        self.users[start:end] = [by_user] * len(new)


class HeldModel:
    """Every call waits until the test gives its text, or the error that it ends with."""

    def __init__(self, editor: ChatEditor) -> None:
        self._editor = editor
        self.waiting: list[tuple[ModelRequest, asyncio.Future[str | Exception]]] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        future: asyncio.Future[str | Exception] = asyncio.get_running_loop().create_future()
        entry = (request, future)
        self.waiting.append(entry)
        self._editor.changed()
        try:
            given = await future
        finally:
            self.waiting.remove(entry)
        if isinstance(given, Exception):
            raise given
        answer = says(given)
        yield TextStreamed(given)
        yield CallFinished(answer.message, answer.usage)


class ChatEditor(InProcess):
    """`applied` are the labels of the edits that were carried out, by document; `faults` what an edit did wrong.

    `race`: text that the user types at the beginning of a document while the next edits of it arrive.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self.texts: dict[str, Text] = {}
        self.applied: dict[str, list[str]] = {}
        self.faults: list[str] = []
        self.race: list[str] = []
        self._answered: set[int] = set()

    def open(self, uri: str, text: str) -> None:
        self.texts[uri] = Text(uri, text, [True] * len(text))
        item = {"uri": uri, "languageId": "markdown", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def close(self, uri: str) -> Text:
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        return self.texts.pop(uri)

    def write(self, uri: str, start: int, end: int, new: str) -> None:
        """The user replaces a part by what they type."""
        document = self.texts[uri]
        document.former.append((document.text, list(document.users)))
        self._change(document, start, end, new, by_user=True)

    def undo(self, uri: str) -> None:
        """The user takes back the last change, also one of the server."""
        document = self.texts[uri]
        if document.former:
            text, users = document.former.pop()
            self._change(document, 0, len(document.text), text, by_user=True)
            document.users = users

    def take(self, descriptor: int) -> None:
        super().take(descriptor)
        for message in list(self.received):
            if "method" in message and "id" in message and message["id"] not in self._answered:
                self._answered.add(message["id"])
                result = self._apply(message["params"]) if message["method"] == "workspace/applyEdit" else None
                self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _apply(self, params: Json) -> Json:
        [change] = params["edit"]["documentChanges"]
        document = self.texts.get(change["textDocument"]["uri"])
        if document is None or "kind" in change:
            return {"applied": False}
        if self.race:
            self.write(document.uri, 0, 0, self.race.pop())
        if change["textDocument"]["version"] != document.version:
            return {"applied": False, "failureReason": "typed meanwhile"}
        document.former.append((document.text, list(document.users)))
        spans = []
        for number, edit in enumerate(change["edits"]):
            start = offset_at(document.text, edit["range"]["start"])
            end = offset_at(document.text, edit["range"]["end"])
            if any(document.users[start:end]) and not _SESSION_LINE.fullmatch(document.text[start:end]):
                self.faults.append(f"taken from the user: {document.text[start:end]!r}")
            spans.append((start, end, number, edit["newText"]))
        # From the end backwards, so that offsets stay right; inserts at one place keep their order.
        for start, end, _, text in sorted(spans, reverse=True):
            self._change(document, start, end, text, by_user=False)
        self.applied.setdefault(document.uri, []).append(params["label"])
        return {"applied": True}

    def _change(self, document: Text, start: int, end: int, new: str, *, by_user: bool) -> None:
        place = {"start": position_at(document.text, start), "end": position_at(document.text, end)}
        document.replace(start, end, new, by_user=by_user)
        document.version += 1
        identifier = {"uri": document.uri, "version": document.version}
        changes = [{"range": place, "text": new}]
        self.notify("textDocument/didChange", {"textDocument": identifier, "contentChanges": changes})
        # Typed long ago: an answer need not wait for a pause.
        self.server.state.documents.get(document.uri).changed_at = -math.inf
