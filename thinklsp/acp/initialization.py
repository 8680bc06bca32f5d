"""The answer to `initialize`, the features of the client, and a fast answer that is sent before any library is loaded.

Only an ordinary `initialize` request is answered so. The full server answers everything else.
"""

from __future__ import annotations

from thinklsp import __version__
from thinklsp.jsonrpc.first_message import FirstInput, answer_first_message, build_response, parse_initialize

# Do not import `typing`. Its import takes as long as the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


PROTOCOL_VERSION = 1
KEY_METHOD, SETUP_METHOD = "settings", "setup"
_MAX_LINE_BYTES = 1024 * 1024
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


def answer_initialize(source: int = 0, target: int = 1) -> FirstInput:
    """Wait for the first line and answer it if it is an ordinary `initialize` request. Client errors are ignored."""
    return answer_first_message(_extract_first_line, _build_frame, source, target)


def _extract_first_line(data: bytes) -> bytes | None:
    line, end, _ = data.partition(b"\n")
    return line if end else b"" if len(data) > _MAX_LINE_BYTES else None


def _build_frame(line: bytes) -> bytes | None:
    reply = build_initialize_reply(line)
    return None if reply is None else reply + b"\n"


def build_initialize_reply(line: bytes) -> bytes | None:
    """Return the reply to an ordinary `initialize` request, or None for any other message."""
    request = parse_initialize(line)
    if request is None or not is_valid_version(request[1].get("protocolVersion")):
        return None
    return build_response(request[0], build_initialize_result(AnnouncedFeatures(request[1])))
