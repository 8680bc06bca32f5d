"""The lookup of edits that other processes made in open documents, such as an earlier server.

A document is looked up in the background after it was opened, and at a hover if another process has written to the
store since. The session store reads in its own thread, and texts are compared in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from thinklsp.core.errors import SessionError
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.documents.spans import Span, find_written_spans
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.edit_attribution import MAX_TURNS, Attribution, EarlierText
from thinklsp.lsp.edits.edit_ledger import HISTORY, EditLedger
from thinklsp.lsp.edits.edit_offers import UndoableTurn
from thinklsp.sessions.ledger import EarlierEdit
from thinklsp.sessions.store import SessionStore

_log = logging.getLogger(__name__)

_MAX_LENGTH = 2_000_000


class EditLookup:
    def __init__(self, state: ConnectionState, snapshots: Snapshots, ledger: EditLedger, store: SessionStore) -> None:
        self._state = state
        self._snapshots = snapshots
        self._ledger = ledger
        self._store = store
        # The open documents to look up, in order. A dict is used as an ordered set.
        self._waiting: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        # The version of the store's data with which each open document was looked up.
        self._versions: dict[str, tuple[int, ...]] = {}
        state.documents.on_open.append(self.request)
        state.documents.on_close.append(self._forget_document)
        for document in state.documents.list_documents():
            self.request(document.uri)

    def request(self, uri: str) -> None:
        """Start a lookup in the background, unless nothing was written since the document's last lookup."""
        if self._state.is_stopped:
            return
        self._waiting[uri] = None
        if self._task is None or self._task.done():
            self._task = self._state.spawn(self._look_up_all())

    def _forget_document(self, uri: str) -> None:
        self._waiting.pop(uri, None)
        self._versions.pop(uri, None)

    async def _look_up_all(self) -> None:
        while self._waiting:
            uri = next(iter(self._waiting))
            del self._waiting[uri]
            try:
                await self._look_up(uri)
            except SessionError as error:
                _log.info("cannot look up the edits of a document: %s", error)

    async def _look_up(self, uri: str) -> None:
        await asyncio.to_thread(self._state.file_keys.learn, [uri])
        version = await self._ledger.refresh()
        document = self._state.documents.get(uri)
        if document is None or self._versions.get(uri) == version:
            return
        uris = self._ledger.list_ledger_uris(uri)
        if uris and len(document.text) <= _MAX_LENGTH:
            since = datetime.now(UTC) - HISTORY
            edits = await self._store.list_earlier_edits(self._snapshots.key, uris, since, MAX_TURNS)
            await self._attribute(document, edits)
        if self._state.documents.get(uri) is document:
            self._versions[uri] = version

    async def _attribute(self, document: Document, edits: Sequence[EarlierEdit]) -> None:
        known, text = self._ledger.attribution.list_earlier_edits(document.uri), document.text
        new = [edit for edit in edits if edit.id not in known]
        spans = await asyncio.to_thread(_find_spans, new, text) if new else []
        spans_by_edit = {edit.id: found for edit, found in zip(new, spans, strict=True)}
        if self._state.documents.get(document.uri) is document:
            added = [
                EarlierText(edit.id, _build_attribution(edit, turn), spans_by_edit.get(edit.id, ()))
                for edit in edits
                # A turn that was undone in the meantime is unknown now.
                if (turn := self._ledger.find_turn(document.uri, edit.turn_id)) is not None
            ]
            self._ledger.attribution.add_earlier(document, text, added)


def _build_attribution(edit: EarlierEdit, turn: UndoableTurn) -> Attribution:
    return Attribution(turn, edit.answer.text, edit.answer.model, "", edit.created.astimezone())


def _find_spans(edits: Sequence[EarlierEdit], text: str) -> list[list[Span]]:
    return [[] if edit.after is None else find_written_spans(edit.before or "", edit.after, text) for edit in edits]
