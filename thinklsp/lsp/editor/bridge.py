"""What the editor knows, for the tools of one connection: asked of it where it answers `thinklsp/editor/…`.

Nothing here fails: an editor that does not answer, answers late or answers nonsense is one that does not know, and of
diagnostics it is said why. Live documents are looked at between two `await`s, so that versions, lines and texts of one
answer belong together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from thinklsp.core.lines import line_bodies
from thinklsp.lsp.documents.diagnostics import moved, present, problems_of
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.bridge_answers import Told, targets_of, told_of
from thinklsp.lsp.editor.bridge_symbols import parse_hover, parse_symbols
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.protocol.convert import units
from thinklsp.lsp.protocol.errors import ClientError
from thinklsp.tools.editor import DiagnosedDocument, Diagnostics, Failure, NamedTargets, Point, Target
from thinklsp.workspace.uri import uri_key

# Requests in flight, for all turns of a connection: a model may ask for many things at once.
_AT_ONCE = 4
_LONGEST_LOOK = 4.0
_CATCHING_UP = 0.5


class EditorBridge:
    """The `Editor` of a connection. Without the bridge, diagnostics are those that came along with code actions."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._documents = state.documents
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def diagnostics(self, uri: str | None) -> Diagnostics:
        told, failed = await self._told(uri)
        if told is not None:
            found = (self._from_servers(one) for one in told)
        else:
            wanted = None if uri is None else uri_key(uri)
            found = (_from_actions(one) for one in self._documents.all() if wanted in (None, uri_key(one.uri)))
        documents = tuple(one for one in found if one is not None)
        return Diagnostics(documents, complete=told is not None, failed=failed)

    async def definition(self, point: Point) -> tuple[Target, ...] | None:
        return await self._targets("definition", point)

    async def references(self, point: Point) -> tuple[Target, ...] | None:
        return await self._targets("references", point)

    async def hover(self, point: Point) -> str | None:
        try:
            return parse_hover(await self._ask_at("hover", point))
        except (ClientError, TimeoutError):
            return None

    async def outline(self, document: Point) -> NamedTargets | None:
        try:
            with self._unchanged(document) as uri:
                answer = await self._ask("symbols", {"uri": uri})
        except (ClientError, TimeoutError):
            return None
        return parse_symbols(answer, uri)

    async def symbols(self, query: str) -> NamedTargets | None:
        try:
            answer = await self._ask("symbols", {"query": query})
        except (ClientError, TimeoutError):
            return None
        return parse_symbols(answer, None)

    async def _targets(self, what: str, point: Point) -> tuple[Target, ...] | None:
        try:
            return targets_of(await self._ask_at(what, point))
        except (ClientError, TimeoutError):
            return None

    async def _ask_at(self, what: str, point: Point) -> Any:
        """Return the answer about a place. Raises ClientError or TimeoutError if there is none about this text."""
        with self._unchanged(point) as uri:
            document = self._open(uri)
            line = line_bodies(point.text)[point.line - 1] if document is None else document.line(point.line - 1)
            before = line[: point.column]
            position = {"line": point.line - 1, "character": units(before, self._documents.encoding)}
            return await self._ask(what, {"textDocument": {"uri": uri}, "position": position})

    @contextmanager
    def _unchanged(self, point: Point) -> Iterator[str]:
        """Give the URI as the editor spells it. Raises ClientError if the editor's text is another one than the
        caller's at the start or at the end."""
        before = self._version_of(point)
        document = self._open(point.uri)
        yield point.uri if document is None else document.uri
        if self._version_of(point) != before:
            raise ClientError("The text changed while the editor was asked.")

    def _version_of(self, point: Point) -> int | None:
        """Return None for a file that is not open. Raises ClientError if the editor has another text."""
        document = self._open(point.uri)
        if document is None and not point.is_open:
            return None
        if document is None or document.desynced or document.text != point.text:
            raise ClientError("The editor has another text.")
        return document.version

    async def _told(self, uri: str | None) -> tuple[tuple[Told, ...] | None, Failure | None]:
        """What the editor says, or why it was asked in vain. Where somebody typed while it looked it is asked once
        more."""
        told: tuple[Told, ...] | None = None
        failed: Failure | None = None
        if not self._answers("diagnostics"):
            return told, failed
        try:
            async with asyncio.timeout(_LONGEST_LOOK):
                for _ in range(2):
                    before = {document.uri: document.version for document in self._documents.all()}
                    read = told_of(await self._ask("diagnostics", {} if uri is None else {"uri": uri}))
                    if read is None:
                        failed = "unreadable"
                        break
                    told = read
                    await self._caught_up(told)
                    if not any(self._was_typed_in(one, before) for one in told):
                        break
        except ClientError:
            failed = "refused"
        except TimeoutError:
            failed = "silent"
        return told, failed if told is None else None

    def _answers(self, what: str) -> bool:
        return what in self._state.client.can.editor

    async def _ask(self, what: str, params: Mapping[str, Any]) -> Any:
        """Raises ClientError or TimeoutError where the editor does not say."""
        if not self._answers(what):
            raise ClientError("The editor does not answer this.")
        async with self._room:
            return await self._state.client.knows(what, params)

    async def _caught_up(self, told: tuple[Told, ...]) -> None:
        """Some editors tell of what was typed a little later than they answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CATCHING_UP):
                while any(self._is_behind(one) for one in told):
                    self._documents.touched.clear()
                    await self._documents.touched.wait()

    def _is_behind(self, told: Told) -> bool:
        document = self._open(told.uri)
        return document is not None and told.version is not None and document.version < told.version

    def _was_typed_in(self, told: Told, before: Mapping[str, int]) -> bool:
        document = self._open(told.uri)
        if document is None or told.version == document.version:
            return False
        return before.get(document.uri) != document.version

    def _open(self, uri: str) -> Document | None:
        """The document, however the editor spells its URI this time."""
        if (document := self._documents.get(uri)) is not None:
            return document
        key = uri_key(uri)
        return next((document for document in self._documents.all() if uri_key(document.uri) == key), None)

    def _from_servers(self, told: Told) -> DiagnosedDocument | None:
        """None where nothing can be said: a file that nobody has opened may not have been looked at."""
        document = self._open(told.uri)
        problems = problems_of(told.diagnostics)
        if document is None:
            return DiagnosedDocument(told.uri, problems, unread=told.unread) if problems or told.unread else None
        if document.desynced:
            return None
        if told.version == document.version:
            return DiagnosedDocument(document.uri, problems, document.text, unread=told.unread)
        if told.version is not None:
            problems = moved(document, told.diagnostics, told.version)
        elif not problems and not told.unread:
            return None
        return DiagnosedDocument(document.uri, problems, document.text, older=True, unread=told.unread)


def _from_actions(document: Document) -> DiagnosedDocument | None:
    seen = present(document, document.seen)
    if document.desynced or not seen:
        return None
    older = any(one.told != document.version for one in seen)
    return DiagnosedDocument(document.uri, tuple(one.problem for one in seen), document.text, older)
