"""The server capabilities, as plain values that can be sent before any library is loaded."""

from __future__ import annotations

# Do not import `typing`. Its import takes as long as the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from thinklsp.lsp.protocol.positions import Encoding

# The commands that run a turn. Their progress begins before the engine is loaded.
TURN_COMMANDS = ("thinklsp.chat", "thinklsp.action", "thinklsp.send", "thinklsp.compact")
COMMANDS = (
    *TURN_COMMANDS,
    "thinklsp.cancel",
    "thinklsp.apply",
    "thinklsp.discard",
    "thinklsp.undo",
    "thinklsp.effort",
    "thinklsp.thinking",
    "thinklsp.model",
    "thinklsp.sessions",
    "thinklsp.usage",
    "thinklsp.skills",
    "thinklsp.doctor",
    "thinklsp.mcp",
)
# The request of a client that is identified by a token, and its announcement.
RENEW_TOKEN = "thinklsp/renewToken"  # noqa: S105 - a method, not a secret
TOKEN_CAPABILITIES = {"thinklsp": {"renewToken": True}}
QUICKFIX = "quickfix"
REWRITE = "refactor.rewrite"
COMPLETION_TRIGGERS = ("/", "@")


def build_capabilities(encoding: Encoding) -> dict[str, Any]:
    """Return the server capabilities. A test compares them with the capabilities that pygls builds."""
    return {
        "positionEncoding": encoding,
        "textDocumentSync": {"openClose": True, "change": 2, "save": True},
        "completionProvider": {"triggerCharacters": list(COMPLETION_TRIGGERS)},
        "hoverProvider": True,
        "codeActionProvider": {"codeActionKinds": [QUICKFIX, REWRITE]},
        "codeLensProvider": {"resolveProvider": False},
        "executeCommandProvider": {"commands": list(COMMANDS), "workDoneProgress": True},
        "workspace": {
            "workspaceFolders": {"supported": True, "changeNotifications": True},
            "fileOperations": {},
        },
    }
