"""From the bytes of one message to a checked JSON-RPC envelope. Pure; what stands in `params` is checked elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from thinklsp.core.strict_json import is_shallow
from thinklsp.lsp.protocol import errors

Id = int | str
Json = Mapping[str, Any]

_LONGEST_NAME = 256
_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Request:
    id: Id
    method: str
    message: Json


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    message: Json


@dataclass(frozen=True, slots=True)
class Reply:
    """The client's answer to one of our requests."""

    id: Id
    failed: bool
    result: Any


@dataclass(frozen=True, slots=True)
class Fault:
    """What has to be answered with an error. `id` is None where the message has no usable one."""

    id: Id | None
    code: int
    text: str


Message = Request | Notification | Reply | Fault | None
"""None is what must be passed over in silence: a notification or a reply that is none."""


def read(body: bytes) -> Message:
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            repeated.append("")
        return made

    try:
        message = json.loads(body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return Fault(None, errors.PARSE_ERROR, "The message is not valid JSON.")
    if not isinstance(message, dict):
        return Fault(None, errors.INVALID_REQUEST, "A message must be one JSON object.")
    known = message["id"] if is_id(message.get("id")) else None
    wrong: tuple[int, str] | None = None
    if not is_shallow(message, _DEPTH):
        wrong = errors.PARSE_ERROR, f"The message nests deeper than {_DEPTH} levels."
    elif repeated:
        wrong = errors.INVALID_REQUEST, "An object of the message has a member twice."
    if "method" not in message and known is not None:
        # Never answered: its id is one of ours, and may be one of the client's, too.
        return Reply(known, wrong is not None or message.get("error") is not None, message.get("result"))
    if wrong is not None:
        return Fault(known, *wrong)
    if "method" in message:
        return _call(message, known)
    if "id" not in message:
        return Fault(None, errors.INVALID_REQUEST, "The message is neither a request nor a response.")
    return None


def is_id(value: object) -> bool:
    """An integer or a short text. Half of a character pair is none: nobody could be sent it back as it came."""
    if isinstance(value, str):
        return len(value) <= _LONGEST_NAME and not any("\ud800" <= char <= "\udfff" for char in value)
    return isinstance(value, int) and not isinstance(value, bool)


def _call(message: Json, known: Id | None) -> Request | Notification | Fault | None:
    method = message["method"]
    is_valid = message.get("jsonrpc") == "2.0" and isinstance(method, str) and 0 < len(method) <= _LONGEST_NAME
    if "id" not in message:
        return Notification(method, message) if is_valid else None
    if known is None:
        return Fault(None, errors.INVALID_REQUEST, "The id of a request must be an integer or a short text.")
    if not is_valid:
        return Fault(known, errors.INVALID_REQUEST, "The request is not valid JSON-RPC 2.0.")
    return Request(known, method, message)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
