"""A minimal pygls server: one feature that answers immediately."""

from lsprotocol import types
from pygls.lsp.server import LanguageServer

server = LanguageServer("bare", "1")


@server.feature(
    types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
)
def code_actions(params: types.CodeActionParams) -> list[types.CodeAction]:
    return [types.CodeAction(title="fix", kind=types.CodeActionKind.QuickFix)]


server.start_io()
