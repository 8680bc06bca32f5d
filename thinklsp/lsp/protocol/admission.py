"""Who may come in by a socket: the token, and on TCP the message that must bring it. Pure.

A client on TCP is nobody until its first message has been an `initialize` with the token in its
`initializationOptions`, as `{"thinklsp": {"token": …}}`. Where no token is demanded the first message must be an
`initialize` all the same: a web page can send bytes to a port of this machine, but none that begin like that.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from typing import Any

from thinklsp.lsp.protocol import envelope, errors
from thinklsp.lsp.protocol.frames import BadFrame

_WANTED = (
    'This server wants its token in the initializationOptions of initialize: {"thinklsp": {"token": "…"}}. It was '
    "printed when the server started, or stands in its token file."
)


class Refused(Exception):
    """`answer` is the message that says so to the client."""

    def __init__(self, request_id: envelope.Id | None, code: int, text: str) -> None:
        super().__init__(text)
        error = {"code": code, "message": text}
        self.answer = json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()


def is_token(given: Iterable[object], token: str) -> bool:
    """Whether one of them is it. How long this takes tells nothing about the token."""
    return any(isinstance(one, str) and secrets.compare_digest(_bytes(one), _bytes(token)) for one in given)


def admitted(first: bytes | BadFrame, token: str | None) -> bytes:
    """The first message without its token, which is none of the settings. Raises Refused."""
    message = None if isinstance(first, BadFrame) else envelope.read(first)
    if not isinstance(message, envelope.Request) or message.method != "initialize":
        known = message.id if isinstance(message, envelope.Request) else None
        raise Refused(known, errors.INVALID_REQUEST, "The first message to this server must be initialize.")
    params, given = _without_token(message.message.get("params"))
    if token is not None and not is_token(given, token):
        raise Refused(message.id, errors.REQUEST_FAILED, _WANTED)
    return json.dumps({**message.message, "params": params}).encode()


def full(admitted_request: bytes) -> Refused:
    """The refusal of a client with the token for which there is no place."""
    request_id = json.loads(admitted_request)["id"]
    return Refused(
        request_id, errors.REQUEST_FAILED, "This server has as many clients as it can serve. Try again later."
    )


def _without_token(params: Any) -> tuple[Any, list[object]]:
    """Settings come with or without the outer key, and so may the token."""
    options = params.get("initializationOptions") if isinstance(params, dict) else None
    if not isinstance(options, dict):
        return params, []
    given: list[object] = []
    inner = options.get("thinklsp")
    if isinstance(inner, dict) and "token" in inner:
        given.append(inner["token"])
        options = {**options, "thinklsp": {name: value for name, value in inner.items() if name != "token"}}
    if "token" in options:
        given.append(options["token"])
        options = {name: value for name, value in options.items() if name != "token"}
    return {**params, "initializationOptions": options}, given


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
