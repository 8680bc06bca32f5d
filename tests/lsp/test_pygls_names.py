"""The private names of pygls and lsprotocol that the protocol overrides or uses: a new minor version may move them."""

from __future__ import annotations

import gc
import inspect
import weakref

import pytest
from lsprotocol import types
from pygls.capabilities import ServerCapabilitiesBuilder
from pygls.lsp.server import LanguageServer
from pygls.protocol import JsonRPCNotification, JsonRPCRequestMessage, LanguageServerProtocol
from pygls.workspace import TextDocument, Workspace

from tests.support.in_process import in_process
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.protocol.lsp_protocol import LspProtocol
from thinklsp.lsp.transport.connection import create_server
from thinklsp.settings.startup_settings import StartupSettingsReader

# Method of pygls' protocol and its parameters, as we override or call it.
PROTOCOL = {
    "_handle_request": ["msg_id", "method_name", "params"],
    "_handle_notification": ["method_name", "params"],
    "_handle_cancel_notification": ["msg_id"],
    "_execute_handler": ["msg_id", "handler", "callback", "args", "kwargs"],
    "_send_handler_result": ["future", "msg_id"],
    "_check_handler_result": ["future"],
    "_send_data": ["data"],
    "_serialize_message": ["data"],
    "get_message_type": ["method"],
    "get_result_type": ["method"],
    "send_request": ["method", "params", "callback", "msg_id"],
    "send_request_async": ["method", "params", "msg_id"],
    "notify": ["method", "params"],
    "lsp_initialize": ["params"],
    "lsp_initialized": ["args"],
    "lsp_shutdown": ["args"],
    "lsp_exit": ["args"],
    "lsp_workspace__execute_command": ["params"],
    "lsp_text_document__did_open": ["params"],
    "lsp_text_document__did_change": ["params"],
    "lsp_text_document__did_close": ["params"],
    "lsp_work_done_progress_cancel": ["params"],
    "lsp_workspace__did_change_workspace_folders": ["params"],
}


@pytest.mark.parametrize(("name", "parameters"), PROTOCOL.items())
def test_overridden_protocol_methods_keep_their_parameters(name: str, parameters: list[str]) -> None:
    method = inspect.unwrap(getattr(LanguageServerProtocol, name))
    assert list(inspect.signature(method).parameters)[1:] == parameters


def test_every_override_is_in_the_table() -> None:
    ours = {name for name in vars(LspProtocol) if not name.startswith("__")}
    assert {name for name in ours if hasattr(LanguageServerProtocol, name)} <= set(PROTOCOL)


def test_the_state_of_the_protocol_is_there() -> None:
    protocol = LanguageServer("x", "1").protocol
    assert (protocol._request_futures, protocol._shutdown) == ({}, False)
    assert protocol._converter is not None
    assert {"initialize", "notebookDocument/didOpen"} <= set(protocol.fm.builtin_features)
    assert (protocol.fm.features, protocol.fm.commands) == ({}, {})


def test_documents_and_messages_are_made_as_we_make_them() -> None:
    assert list(inspect.signature(Workspace.put_text_document).parameters)[1:] == ["text_document", "notebook_uri"]
    assert {"remove_text_document", "get_text_document", "text_documents", "folders"} <= set(dir(Workspace))
    assert Workspace(None)._folders == {}
    assert {"source", "lines", "offset_at_position", "apply_change"} <= set(dir(TextDocument))
    assert JsonRPCNotification(method="m", params=None, jsonrpc="2.0").method == "m"
    assert JsonRPCRequestMessage(id=1, method="m", params=None, jsonrpc="2.0").id == 1
    nothing = types.ClientCapabilities()
    assert ServerCapabilitiesBuilder.choose_position_encoding(nothing) == types.PositionEncodingKind.Utf16
    assert types.METHOD_TO_TYPES[types.TEXT_DOCUMENT_HOVER][:2] == (types.HoverRequest, types.HoverResponse)


async def test_server_workspace_is_used_as_in_pygls() -> None:
    async with in_process() as editor:
        await editor.initialize(workspaceFolders=[{"uri": "file:///ws", "name": "ws"}])
        opened = {"uri": "file:///ws/a.py", "languageId": "python", "version": 1, "text": "a\u2028b\nc"}
        editor.notify("textDocument/didOpen", {"textDocument": opened})
        workspace = editor.server.workspace
        document = workspace.get_text_document("file:///ws/a.py")
        assert (type(document), document.source) == (Document, "a\u2028b\nc")
        assert document.offset_at_position(types.Position(1, 9)) == 5
        assert (list(workspace.text_documents), list(workspace.folders)) == (["file:///ws/a.py"], ["file:///ws"])


def test_no_connection_is_kept_by_a_cache() -> None:
    """Pygls caches methods that hold the protocol."""
    early = StartupSettingsReader({"THINKLSP_CONFIG": "/nonexistent/config.toml"})
    made: list[weakref.ref[LspProtocol]] = []
    for _ in range(200):
        server = create_server(early)
        made.append(weakref.ref(server.protocol))
        for method in (types.TEXT_DOCUMENT_HOVER, types.EXIT):
            server.protocol.get_message_type(method)
            server.protocol.get_result_type(method)
    del server
    gc.collect()
    assert [one for one in made if one() is not None] == []
