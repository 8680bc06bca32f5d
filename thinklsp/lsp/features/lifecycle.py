"""The handlers for a connection's life: initialization, settings, folders, documents, the token and shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lsprotocol import types
from pygls.capabilities import ServerCapabilitiesBuilder

from thinklsp.core.errors import ThinkLspError
from thinklsp.jsonrpc.rpc_messages import InvalidParams, is_id
from thinklsp.lsp.editor.client import ClientFeatures
from thinklsp.lsp.protocol.fast_initialize import RENEW_TOKEN
from thinklsp.lsp.server import ThinkLspServer


def register(server: ThinkLspServer) -> None:
    state = server.state

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.process_id = params.process_id
        state.client.features = ClientFeatures.parse(server.protocol.capabilities, server.protocol.client_name)
        encoding = ServerCapabilitiesBuilder.choose_position_encoding(params.capabilities)
        server.workspace.encoding = types.PositionEncodingKind(encoding).value
        server.workspace.set_first_folders(params)
        if params.initialization_options is not None:
            server.configure(params.initialization_options)

    @server.feature(types.INITIALIZED)
    def start_engine(_: types.InitializedParams) -> None:
        state.spawn(_prepare_engine(server))

    @server.feature(types.SHUTDOWN)
    def stop_tasks(_: None) -> None:
        state.stop()

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def change_folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        server.workspace.change_folders(params)

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def change_configuration(params: types.DidChangeConfigurationParams) -> None:
        if params.settings is not None:
            server.configure(params.settings)
        elif state.client.features.configuration:
            state.spawn(_pull_configuration(server))

    @server.feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    def cancel_progress(params: types.WorkDoneProgressCancelParams) -> None:
        token = params.token
        if is_id(token) and not server.cancel_progress(token):
            # The command may not have started yet, because it arrived together with this notification. Try again
            # afterwards.
            asyncio.get_running_loop().call_soon(server.cancel_progress, token)

    _register_documents(server)
    _register_token_renewal(server)


def _register_documents(server: ThinkLspServer) -> None:
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


def _register_token_renewal(server: ThinkLspServer) -> None:
    if (access := server.access) is None:
        # The server does not know the request if clients are not identified by tokens that expire.
        return

    @server.feature(RENEW_TOKEN)
    async def renew_token(_: ThinkLspServer, params: object) -> Mapping[str, int]:
        # pygls passes the server to a handler whose first parameter has a type like `object`.
        token = params.get("token") if isinstance(params, Mapping) else None
        if not isinstance(token, str):
            raise InvalidParams("`token` must be a string.")
        return {"expiresInSeconds": int(await access.renew(token))}


async def _prepare_engine(server: ThinkLspServer) -> None:
    """Fetch the editor's settings and load the engine before the user needs it."""
    client = server.state.client
    if client.features.watch_configuration:
        # Register before fetching the settings, so that no change between the two requests is missed.
        server.state.spawn(client.watch_configuration())
    if client.features.configuration:
        await server.state.spawn(_pull_configuration(server, is_first=True), is_awaited=True)
    try:
        await server.load()
    except ThinkLspError as error:
        # Report the error immediately, because the user may not run a command for a while.
        client.show_message("error", f"{error} No turn runs until this is fixed; run `thinklsp.doctor` for details.")


async def _pull_configuration(server: ThinkLspServer, *, is_first: bool = False) -> None:
    """Fetch the editor's settings. The first answer replaces `initializationOptions` only if it is not empty.

    Some editors answer with an empty object for a section that they do not have.
    """
    raw = await server.state.client.fetch_configuration()
    if raw is not None and (raw or not is_first):
        server.configure(raw)
