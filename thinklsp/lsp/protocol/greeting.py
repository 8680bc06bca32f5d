"""The answer to `initialize`, given before anything is loaded.

The answer hangs on one thing only, the position encoding that the client prefers. So it is read off the first message
and sent at once; the libraries come afterwards, and then the message is handled as any other, but for its reply. What
is unusual in the least is left to them: nobody is greeted twice, and nobody with anything else than they would say.
A test holds both answers side by side.
"""

from __future__ import annotations

import json
import os
import re

from thinklsp import __version__
from thinklsp.lsp.announced import COMMANDS, COMPLETION_TRIGGERS, QUICKFIX, REWRITE

# `typing` alone would take as long to load as all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from thinklsp.lsp.protocol.convert import Encoding

_PIECE = 64 * 1024
_LONGEST = 1024 * 1024
_HEADER = re.compile(rb"Content-Length: ([1-9][0-9]{0,6})\r\n\r\n")
_LONGEST_HEADER = 64
_LONGEST_ID = 256
_DEPTH = 32
_ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")


class Greeting:
    """`read`: every byte that has been taken from the input. `answered`: its first message has had its reply."""

    def __init__(self, read: bytes = b"", *, answered: bool = False) -> None:
        self.read = read
        self.answered = answered


def greet(source: int = 0, target: int = 1) -> Greeting:
    """Waits for the first message. Never raises for what the client sends or does."""
    read = b""
    try:
        while (body := _first_body(read)) is None:
            piece = os.read(source, _PIECE)
            if not piece:
                return Greeting(read)
            read += piece
        answer = answer_to(body) if body else None
        if answer is not None:
            frame = b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer)
            while frame:
                frame = frame[os.write(target, frame) :]
    except OSError:
        return Greeting(read)
    return Greeting(read, answered=answer is not None)


def _first_body(read: bytes) -> bytes | None:
    """None while more has to come; empty where it is none of the plain kind."""
    header = _HEADER.match(read)
    if header is None:
        return b"" if len(read) > _LONGEST_HEADER else None
    length, start = int(header[1]), header.end()
    if length > _LONGEST:
        return b""
    return read[start : start + length] if len(read) >= start + length else None


def answer_to(body: bytes) -> bytes | None:
    """The reply to an `initialize` request of the usual form; None for everything else."""
    try:
        # With plain objects only, once: what a strict reader refuses is not for us to answer.
        message = json.loads(body.decode(), parse_constant=_refuse, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not _is_initialize(message) or not _is_shallow(message, _DEPTH):
        return None
    encoding = encoding_of(message["params"]["capabilities"])
    if encoding is None:
        return None
    result = {"capabilities": capabilities(encoding), "serverInfo": {"name": "thinklsp", "version": __version__}}
    reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    return json.dumps(reply, separators=(",", ":")).encode("ascii")


def capabilities(encoding: Encoding) -> dict[str, Any]:
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


def _is_initialize(message: Mapping[str, Any]) -> bool:
    params, identity = message.get("params"), message.get("id")
    if message.get("jsonrpc") != "2.0" or message.get("method") != "initialize" or not isinstance(params, dict):
        return False
    known = type(identity) is int or (isinstance(identity, str) and identity.isascii() and len(identity) <= _LONGEST_ID)
    process, root, path = params.get("processId"), params.get("rootUri"), params.get("rootPath")
    folders = params.get("workspaceFolders")
    return (
        known
        and set(message) == {"jsonrpc", "id", "method", "params"}
        and (process is None or type(process) is int)
        and (root is None or _is_file(root))
        and (path is None or isinstance(path, str))
        and (folders is None or (isinstance(folders, list) and all(map(_is_folder, folders))))
        and isinstance(params.get("capabilities"), dict)
    )


def _is_file(uri: object) -> bool:
    return isinstance(uri, str) and uri.startswith("file:///")


def _is_folder(folder: object) -> bool:
    return isinstance(folder, dict) and _is_file(folder.get("uri")) and isinstance(folder.get("name"), str)


def encoding_of(announced: Mapping[str, Any]) -> Encoding | None:
    """The first of the client's that we know, as the protocol wants it; None where its wish is of another form."""
    general = announced.get("general")
    if general is None:
        return "utf-16"
    if not isinstance(general, dict) or set(general) - {"positionEncodings"} - set(_GENERAL):
        return None
    if not all(_has_form(general.get(name), form) for name, form in _GENERAL.items()):
        return None
    offered = general.get("positionEncodings")
    if offered is None:
        return "utf-16"
    if not isinstance(offered, list) or not all(isinstance(name, str) for name in offered):
        return None
    return next((name for name in offered if name in _ENCODINGS), "utf-16")


# The other members of `general`, all of them read together with the encodings: name and type of each field, and
# whether it must be there.
_GENERAL: dict[str, dict[str, tuple[type, bool]]] = {
    "staleRequestSupport": {"cancel": (bool, True), "retryOnContentModified": (list, True)},
    "regularExpressions": {"engine": (str, True), "version": (str, False)},
    "markdown": {"parser": (str, True), "version": (str, False), "allowedTags": (list, False)},
}


def _has_form(value: object, form: Mapping[str, tuple[type, bool]]) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or set(value) - set(form):
        return False
    for name, (kind, needed) in form.items():
        found = value.get(name)
        if found is None and (needed or name in value):
            return False
        if found is not None and not isinstance(found, kind):
            return False
        if isinstance(found, list) and not all(isinstance(item, str) for item in found):
            return False
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a member twice")
    return made


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _is_shallow(value: object, depth: int) -> bool:
    """Level by level, so that no nesting is too deep to be looked at."""
    level = [value]
    while level and depth:
        depth -= 1
        below: list[object] = []
        for item in level:
            below += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        level = below
    return not level
