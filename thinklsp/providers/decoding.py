"""Helper functions for parsing provider data.

Error messages never repeat the data, except for the provider's own error message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from thinklsp.core.errors import Overloaded, StreamProtocolError
from thinklsp.core.json_codec import is_shallow, read_json
from thinklsp.core.text_safety import make_excerpt

_MAX_NESTING = 100
# Matches stop reasons that mean that the answer was broken off, such as `network_error`.
_BROKEN_OFF = re.compile(r"error|abort|cancel|fail|interrupt|disconnect|insufficient|timeout|timed_out", re.IGNORECASE)


def parse_event(event: str, data: str, *, odd_numbers: Literal["refuse", "null"]) -> list[Mapping[str, Any]]:
    """Parse the data of a server-sent event as a JSON object, or as a list of objects.

    The data of an error event may also be plain text. Raises StreamProtocolError if the data is invalid or nested too
    deeply.
    """
    try:
        content = read_json(data, non_finite=odd_numbers)
    except ValueError:
        content = None
    if content is None or not is_shallow(content, _MAX_NESTING, data):
        content = data
    if isinstance(content, dict):
        return [content]
    contents: list[Any] = content if isinstance(content, list) else [content]
    if event == "error":
        contents = [{"type": "error", "error": item} if isinstance(item, str) else item for item in contents]
    if not all(isinstance(item, dict) for item in contents):
        raise build_malformed_error("an event")
    return contents


def parse_json_object(body: bytes | str) -> Mapping[str, Any]:
    """Parse a JSON object, or a list whose first item is an object. Return an empty object for any other data."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, dict) else {}


def read_object(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the object at `key`. Raise StreamProtocolError if the value is not an object."""
    value = content.get(key)
    if not isinstance(value, dict):
        raise build_malformed_error("an event")
    return value


def find_object(value: Mapping[str, Any], *keys: str) -> Mapping[str, Any] | None:
    """Return the object at a path of keys, or None if the path does not lead to an object."""
    for key in keys:
        inner = value.get(key)
        if not isinstance(inner, dict):
            return None
        value = inner
    return value


def read_index(content: Mapping[str, Any], key: str) -> int:
    """Return the integer at `key`. Raise StreamProtocolError if the value is not an integer."""
    value = content.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise build_malformed_error("an event")
    return value


def read_text(content: Mapping[str, Any], key: str, part: str = "a piece of a block") -> str:
    """Return the text at `key`, or an empty string if the value is missing or null.

    Raises StreamProtocolError for any other value.
    """
    value = content.get(key)
    if not isinstance(value, str | None):
        raise build_malformed_error(part)
    return value or ""


def read_count(content: object, key: str) -> int | None:
    """Return the count at `key`, or None if the value is missing or invalid."""
    value = content.get(key) if isinstance(content, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def merge_non_null(target: dict[str, Any], values: object) -> None:
    """Copy all non-null values to `target`. Later totals replace earlier totals."""
    if isinstance(values, dict):
        target.update({key: value for key, value in values.items() if value is not None})


def read_limit(content: object, key: str) -> int | None:
    """Return the limit at `key`, or None if the value is missing, invalid or 0."""
    return read_count(content, key) or None


def explain_unknown_ending(reason: str) -> str:
    """Return the notice about a stop reason that is not known. Raise Overloaded if the answer was broken off."""
    if _BROKEN_OFF.search(reason):
        raise Overloaded(f"The provider stopped the answer before it was complete ({make_excerpt(reason)}).")
    return f"The provider ended the answer for an unknown reason (`{make_excerpt(reason)}`): it may be incomplete."


def build_malformed_error(part: str) -> StreamProtocolError:
    """Return the error for a part of the stream that cannot be parsed."""
    return StreamProtocolError(f"The provider sent {part} that cannot be parsed.")
