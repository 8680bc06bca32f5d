"""The first message of a client, which is read and answered before any library is loaded.

Only an ordinary `initialize` request is answered so. The full server answers everything else.
"""

from __future__ import annotations

import json
import os

# Do not import `typing`. Its import takes as long as the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_CHUNK_BYTES = 64 * 1024
_MAX_ID_LENGTH = 256
_MAX_DEPTH = 32


class FirstInput:
    """The input read before the server started, with the first message.

    `is_answered` is True if the `initialize` request in the input has been answered.
    """

    def __init__(self, data: bytes = b"", *, is_answered: bool = False) -> None:
        self.data = data
        self.is_answered = is_answered


def answer_first_message(
    extract_body: Callable[[bytes], bytes | None],
    build_frame: Callable[[bytes], bytes | None],
    source: int,
    target: int,
) -> FirstInput:
    """Wait for the first message, and answer it if `build_frame` returns an answer. Client errors are ignored.

    `extract_body` returns the body of the message, None if it is incomplete, or empty bytes if it is not answered here.
    """
    data = b""
    try:
        while (body := extract_body(data)) is None:
            chunk = os.read(source, _CHUNK_BYTES)
            if not chunk:
                return FirstInput(data)
            data += chunk
        frame = answer = build_frame(body) if body else None
        while frame:
            frame = frame[os.write(target, frame) :]
    except OSError:
        return FirstInput(data)
    return FirstInput(data, is_answered=answer is not None)


def parse_initialize(body: bytes) -> tuple[int | str, Mapping[str, Any]] | None:
    """Return the id and the params of an ordinary `initialize` request, or None for any other message."""
    try:
        # Do not answer a message that a strict JSON parser rejects. int() raises ValueError for NaN and infinity.
        message = json.loads(body.decode(), parse_constant=int, object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or set(message) != {"jsonrpc", "id", "method", "params"}:
        return None
    request_id, params = message["id"], message["params"]
    is_short_text = isinstance(request_id, str) and request_id.isascii() and len(request_id) <= _MAX_ID_LENGTH
    if message["jsonrpc"] != "2.0" or message["method"] != "initialize" or not isinstance(params, dict):
        return None
    return (request_id, params) if (type(request_id) is int or is_short_text) and _is_shallow(message) else None


def build_response(request_id: int | str, result: object) -> bytes:
    """Return the body of a response, in the same encoding as `encode_json`."""
    response = {"jsonrpc": "2.0", "id": request_id, "result": result}
    return json.dumps(response, separators=(",", ":"), ensure_ascii=False).encode()


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate member")
    return result


def _is_shallow(value: object) -> bool:
    """Return whether a value is nested at most 32 levels deep. The loop is safe for any depth."""
    level, depth = [value], _MAX_DEPTH
    while level and depth:
        depth -= 1
        below: list[object] = []
        for item in level:
            below += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        level = below
    return not level
