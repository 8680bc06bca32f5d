"""The server capabilities, and a fast reply to `initialize`, sent before any library is loaded.

The reply depends only on the client's position encodings, so this module can build it without the protocol libraries.
The full server then handles the request without sending a second reply. Only the full server answers unusual requests.
A test checks that both replies are equal.
"""

from __future__ import annotations

import re

from thinklsp import __version__
from thinklsp.jsonrpc.first_message import FirstInput, answer_first_message, build_response, parse_initialize

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
_MAX_BODY_BYTES = 1024 * 1024
_HEADER = re.compile(rb"Content-Length: ([1-9][0-9]{0,6})\r\n\r\n")
_MAX_HEADER_BYTES = 64
_ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")


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


def answer_initialize(source: int = 0, target: int = 1) -> FirstInput:
    """Wait for the first message and answer it if it is an ordinary `initialize` request. Client errors are ignored."""
    return answer_first_message(_extract_first_body, _build_frame, source, target)


def _extract_first_body(data: bytes) -> bytes | None:
    """Return the first message's body, None if it is incomplete, or empty bytes if its header is unusual."""
    header = _HEADER.match(data)
    if header is None:
        return b"" if len(data) > _MAX_HEADER_BYTES else None
    length, start = int(header[1]), header.end()
    if length > _MAX_BODY_BYTES:
        return b""
    return data[start : start + length] if len(data) >= start + length else None


def _build_frame(body: bytes) -> bytes | None:
    answer = build_initialize_reply(body)
    return None if answer is None else b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer)


def build_initialize_reply(body: bytes) -> bytes | None:
    """Return the reply to an ordinary `initialize` request, or None for any other message."""
    request = parse_initialize(body)
    if request is None:
        return None
    capabilities = build_capabilities(choose_encoding(request[1].get("capabilities")))
    result = {"capabilities": capabilities, "serverInfo": {"name": "thinklsp", "version": __version__}}
    return build_response(request[0], result)


def choose_encoding(capabilities: object) -> Encoding:
    """Return the first supported encoding in the client's list. Values that do not fit are ignored."""
    general = capabilities.get("general") if isinstance(capabilities, dict) else None
    offered = general.get("positionEncodings") if isinstance(general, dict) else None
    names = offered if isinstance(offered, list) else []
    return next((name for name in names if name in _ENCODINGS), "utf-16")
