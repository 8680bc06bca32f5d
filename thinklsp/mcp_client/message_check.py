"""The check and parser for a line that an MCP server sent.

The structure of a line is checked before the line is parsed, because a few bytes of deeply nested or densely packed
JSON use much more memory and time as Python objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 64
# Brackets and commas outside of strings, which are about as many as the values.
MAX_VALUES = 100_000
_MAX_QUOTES = 5 * MAX_VALUES
# The SDK validates these lists on the event loop, where each entry takes up to 40 microseconds.
_MAX_ENTRIES = {"tools": 1_000, "content": 1_000, "inputRequests": 16}

_STRUCTURE = b"[]{},"
_OTHER_BYTES = bytes(set(range(256)) - set(_STRUCTURE))
# A surrogate as an escape, which is valid only in pairs and cannot be encoded alone.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_OPENING, _COMMA = b"[{", b","[0]


class BadMessage(ValueError):
    """Raised if a message exceeds a limit. The message is the end of a sentence about the server."""


def parse_message(line: bytes) -> dict[str, Any] | None:
    """Parse a line that contains a JSON-RPC message. Return None if the line contains something else.

    Raises BadMessage if the message exceeds a limit. A line of 4 MiB takes up to 0.1 s, so the caller should use a
    thread for long lines. No step holds the interpreter lock for longer than 50 ms.
    """
    check_structure(line)
    try:
        parsed: Any = json.loads(line.decode("utf-8"), parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    message: dict[str, Any] = parsed
    if _SURROGATE.search(line):
        message = {name: _replace_surrogates(value) for name, value in message.items()}
    result = message.get("result")
    for name, maximum in _MAX_ENTRIES.items():
        entries = result.get(name) if isinstance(result, dict) else None
        if isinstance(entries, list | dict) and len(entries) > maximum:
            raise BadMessage(f"sent a result with {len(entries):,} entries in `{name}`; at most {maximum:,} are read")
    return message


def check_structure(text: bytes) -> None:
    """Raise BadMessage if JSON text is nested too deeply or contains too many values."""
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > _MAX_QUOTES:
        raise _build_size_error()
    structure = b"".join(plain.split(b'"')[::2]).translate(None, _OTHER_BYTES)
    depth = 0
    for byte in structure[: MAX_VALUES + 1]:
        if byte in _OPENING:
            depth += 1
            if depth > MAX_DEPTH:
                raise BadMessage(f"sent a message that is nested more than {MAX_DEPTH} levels deep")
        elif byte != _COMMA:
            depth -= 1
    if len(structure) > MAX_VALUES:
        raise _build_size_error()


def _build_size_error() -> BadMessage:
    return BadMessage(f"sent a message with more than {MAX_VALUES:,} values")


def _replace_surrogates(value: Any) -> Any:
    """Replace surrogates without a partner in all strings."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_replace_surrogates(entry) for entry in value]
    if isinstance(value, dict):
        return {_replace_surrogates(name): _replace_surrogates(entry) for name, entry in value.items()}
    return value


def _reject_constant(name: str) -> Callable[[], None]:
    raise ValueError(name)
