"""The answer to `initialize`, the features of the client, and a fast answer that is sent before any library is loaded.

Only an ordinary `initialize` request is answered so. The full server answers everything else.
"""

from __future__ import annotations

import json
import os

from thinklsp import __version__

# Do not import `typing`. Its import takes as long as the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


PROTOCOL_VERSION = 1
KEY_METHOD, SETUP_METHOD = "settings", "setup"
SETUP_HINT = "`thinklsp acp --setup` stores a key."


class AnnouncedFeatures:
    """The features that a client announced. A malformed value counts as absent.

    `has_own_texts` is True if the client can read its buffers, and `can_write` if it can write them, too.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        announced = _get_object(params, "clientCapabilities")
        files = _get_object(announced, "fs")
        session = _get_object(announced, "session")
        self.has_own_texts = files.get("readTextFile") is True
        self.can_write = self.has_own_texts and files.get("writeTextFile") is True
        self.shows_notices = isinstance(session.get("notices"), dict)
        self.asks_forms = isinstance(_get_object(announced, "elicitation").get("form"), dict)
        self.has_terminal_login = _get_object(announced, "auth").get("terminal") is True


def build_initialize_result(features: AnnouncedFeatures) -> dict[str, Any]:
    """Return the result of `initialize`. A client that speaks another version decides if it goes on with version 1."""
    methods: list[dict[str, Any]] = [
        {
            "id": KEY_METHOD,
            "name": "Key from the settings",
            "description": "Uses the key of a provider from the environment or from thinklsp's settings.",
        }
    ]
    if features.has_terminal_login:
        methods.append({"type": "terminal", "id": SETUP_METHOD, "name": "Set up a key", "args": ["--setup"]})
    supported = ("list", "delete", "resume", "close", "additionalDirectories")
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": False},
            "sessionCapabilities": {name: {} for name in supported},
        },
        "authMethods": methods,
        "agentInfo": {"name": "thinklsp", "title": "thinklsp", "version": __version__},
    }


def is_valid_version(version: object) -> bool:
    return type(version) is int and 0 <= version <= 0xFFFF


def _get_object(container: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = container.get(name)
    return value if isinstance(value, dict) else {}


_CHUNK_BYTES = 64 * 1024
_MAX_LINE_BYTES = 1024 * 1024
_MAX_ID_LENGTH = 256
# So the message cannot nest deeper than the full server allows.
_MAX_BRACKETS = 64


class EarlyInput:
    """The input read before the server started.

    `announced` contains the params of the `initialize` request that has been answered, or None. `data` is the rest.
    """

    def __init__(self, data: bytes = b"", announced: Mapping[str, Any] | None = None) -> None:
        self.data = data
        self.announced = announced


def answer_initialize(source: int = 0, target: int = 1) -> EarlyInput:
    """Wait for the first line and answer it if it is an ordinary `initialize` request. Client errors are ignored."""
    data = b""
    try:
        while b"\n" not in data:
            chunk = os.read(source, _CHUNK_BYTES)
            data += chunk
            if not chunk or len(data) > _MAX_LINE_BYTES:
                return EarlyInput(data)
        line, _, rest = data.partition(b"\n")
        request = parse_initialize(line)
        if request is None:
            return EarlyInput(data)
        reply = build_reply(*request)
        while reply:
            reply = reply[os.write(target, reply) :]
    except OSError:
        return EarlyInput(data)
    return EarlyInput(rest, request[1])


def parse_initialize(line: bytes) -> tuple[int | str, Mapping[str, Any]] | None:
    """Return the id and the params of an ordinary `initialize` request, or None for any other line."""
    if line.count(b"{") + line.count(b"[") > _MAX_BRACKETS:
        return None
    try:
        message = json.loads(line.decode(), parse_constant=_reject_constant, object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or set(message) != {"jsonrpc", "id", "method", "params"}:
        return None
    request_id, params = message["id"], message["params"]
    if message["jsonrpc"] != "2.0" or message["method"] != "initialize" or not isinstance(params, dict):
        return None
    is_short_text = isinstance(request_id, str) and request_id.isascii() and len(request_id) <= _MAX_ID_LENGTH
    if not (type(request_id) is int or is_short_text) or not is_valid_version(params.get("protocolVersion")):
        return None
    return request_id, params


def build_reply(request_id: int | str, params: Mapping[str, Any]) -> bytes:
    result = build_initialize_result(AnnouncedFeatures(params))
    reply = {"jsonrpc": "2.0", "id": request_id, "result": result}
    return json.dumps(reply, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate member")
    return result


def _reject_constant(name: str) -> Any:
    raise ValueError(name)
