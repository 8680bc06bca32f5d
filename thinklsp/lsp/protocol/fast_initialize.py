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
    from collections.abc import Mapping
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


_MAX_BODY_BYTES = 1024 * 1024
_HEADER = re.compile(rb"Content-Length: ([1-9][0-9]{0,6})\r\n\r\n")
_MAX_HEADER_BYTES = 64
_ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")


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
    if request is None or not _has_ordinary_params(request[1]):
        return None
    encoding = choose_encoding(request[1]["capabilities"])
    if encoding is None:
        return None
    result = {"capabilities": build_capabilities(encoding), "serverInfo": {"name": "thinklsp", "version": __version__}}
    return build_response(request[0], result)


def _has_ordinary_params(params: Mapping[str, Any]) -> bool:
    process, root, path = params.get("processId"), params.get("rootUri"), params.get("rootPath")
    folders = params.get("workspaceFolders")
    return (
        (process is None or type(process) is int)
        and (root is None or _is_file(root))
        and (path is None or isinstance(path, str))
        and (folders is None or (isinstance(folders, list) and all(map(_is_folder, folders))))
        and isinstance(params.get("capabilities"), dict)
    )


def _is_file(uri: object) -> bool:
    return isinstance(uri, str) and uri.startswith("file:///")


def _is_folder(folder: object) -> bool:
    return isinstance(folder, dict) and _is_file(folder.get("uri")) and isinstance(folder.get("name"), str)


def choose_encoding(announced: Mapping[str, Any]) -> Encoding | None:
    """Return the first supported encoding in the client's list, or None if the list has an unexpected form."""
    general = announced.get("general")
    if general is None:
        return "utf-16"
    if not isinstance(general, dict) or set(general) - {"positionEncodings"} - set(_GENERAL_FIELDS):
        return None
    if not all(_matches_form(general.get(name), form) for name, form in _GENERAL_FIELDS.items()):
        return None
    offered = general.get("positionEncodings")
    if offered is None:
        return "utf-16"
    if not isinstance(offered, list) or not all(isinstance(name, str) for name in offered):
        return None
    return next((name for name in offered if name in _ENCODINGS), "utf-16")


# The members of `general` other than `positionEncodings`. Each field has a type and may be required.
_GENERAL_FIELDS: dict[str, dict[str, tuple[type, bool]]] = {
    "staleRequestSupport": {"cancel": (bool, True), "retryOnContentModified": (list, True)},
    "regularExpressions": {"engine": (str, True), "version": (str, False)},
    "markdown": {"parser": (str, True), "version": (str, False), "allowedTags": (list, False)},
}


def _matches_form(value: object, form: Mapping[str, tuple[type, bool]]) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or set(value) - set(form):
        return False
    for name, (kind, is_required) in form.items():
        item = value.get(name)
        if item is None and (is_required or name in value):
            return False
        if item is not None and not isinstance(item, kind):
            return False
        if isinstance(item, list) and not all(isinstance(element, str) for element in item):
            return False
    return True
