"""The handlers for documents that the editor opens, changes, saves and closes."""

from __future__ import annotations

from lsprotocol import types

from thinklsp.lsp.server import ThinkLspServer


def register(server: ThinkLspServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def open_document(params: types.DidOpenTextDocumentParams) -> None:
        server.workspace.put_text_document(params.text_document)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def change_document(params: types.DidChangeTextDocumentParams) -> None:
        server.workspace.change_text_document(params.text_document, params.content_changes)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def close_document(params: types.DidCloseTextDocumentParams) -> None:
        server.workspace.remove_text_document(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def record_save(params: types.DidSaveTextDocumentParams) -> None:
        if server.assistant is not None:
            server.assistant.ledger.attribution.mark_saved(params.text_document.uri)
            server.assistant.schedule_refresh()
