"""Helpers for encoding requests, which all adapters share.

Each request contains the entire conversation, and most of it was already in the previous request. The encoded JSON of
the conversation's parts is therefore cached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any, ParamSpec, TypeVar

from thinklsp.core.json_codec import encode_json
from thinklsp.core.messages import (
    ContentBlock,
    ConversationPart,
    IdentityMemo,
    OpaqueState,
    Origin,
    ToolResultBlock,
    ToolSpec,
)

Wire = dict[str, Any]

# Cached parts occur at most four levels deep: in the request, its list of messages, a message, and its list of parts.
_MAX_LEVELS = 4
_MAX_CACHED_CHARS = 40

EMPTY_TEXT = "(no text)"
"""The text that replaces empty text, which some providers reject."""
_NO_RESULT = "Error: no result; the call was not run."
_INVALID_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME_LENGTH = 64
_DIGEST_LENGTH = 16


class EncodedJson(dict[str, Any]):
    """An immutable JSON object with its cached bytes."""

    __slots__ = ("json",)

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.json = b""

    def __repr__(self) -> str:
        """Return a fixed string, because the object may contain encrypted provider data."""
        return "<written>"


MakeParams = ParamSpec("MakeParams")
Fields = TypeVar("Fields", bound=dict[str, Any] | None)


class EncodedParts:
    """A cache for the encoded JSON of conversation parts. An entry is kept for as long as its part exists.

    Each adapter module has its own cache.
    """

    def __init__(self) -> None:
        self._memo: IdentityMemo[tuple[object, Any]] = IdentityMemo()

    def encode(
        self,
        part: ConversationPart | None,
        key: object,
        make: Callable[MakeParams, Fields],
        *args: MakeParams.args,
        **kwargs: MakeParams.kwargs,
    ) -> Fields:
        """Return the result of `make` for a part. `make` is called again only if `key` has changed.

        `key` must include everything that the result depends on, except the part itself. If `part` is None, the result
        is not cached.
        """
        if part is None:
            return make(*args, **kwargs)
        entry = self._memo.find(part)
        if entry is None or (entry[0] is not key and entry[0] != key):
            fields: Any = make(*args, **kwargs)
            entry = self._memo.store(part, (key, fields and EncodedJson(fields)))
        encoded: Fields = entry[1]
        return encoded

    def find_issued(self, block: ContentBlock, origin: Origin) -> dict[str, Any] | None:
        """Return the provider's own JSON for a block, or None if `origin` did not issue the block."""
        state = block.raw
        if state is None or not state.is_issued_by(origin):
            return None
        return self.encode(block, origin, open_state, state, origin)


def open_state(state: OpaqueState, origin: Origin) -> dict[str, Any]:
    """Return the JSON object in an opaque state. Raise ValueError unless `origin` issued the state."""
    fields: dict[str, Any] = json.loads(state.reveal_for(origin))
    return fields


def cache_encoded_tool(make: Callable[[ToolSpec], Wire]) -> Callable[[ToolSpec], Wire]:
    """Encode each tool definition once, because every request contains the same definitions."""
    memo: IdentityMemo[Wire] = IdentityMemo()
    return lambda tool: memo.find(tool) or memo.store(tool, EncodedJson(make(tool)))


class CallNames:
    """The tool call IDs used in a request, and the tool calls that do not have a result yet.

    IDs must be unique in a conversation. Some providers reuse IDs across answers, while other providers reject
    duplicate IDs.
    """

    def __init__(self, max_length: int = _MAX_NAME_LENGTH) -> None:
        self._max_length = max_length
        self._used_names: set[str] = set()
        self._pending_calls: list[tuple[str, str]] = []

    def claim(self, call_id: str, preferred: object) -> str:
        """Return the ID to use for `call_id` in the request. `preferred` is returned if it is valid and unused."""
        name = preferred if isinstance(preferred, str) and preferred else sanitize_name(call_id, self._max_length)
        stem, number = name, 1
        if name in self._used_names:
            name = sanitize_name(call_id, self._max_length)
        while name in self._used_names:
            number += 1
            name = sanitize_name(f"{stem}-{number}", self._max_length)
        self._used_names.add(name)
        self._pending_calls.append((call_id, name))
        return name

    def settle(self, results: Iterable[ToolResultBlock] = ()) -> list[tuple[ToolResultBlock | None, str]]:
        """Return the result and ID of each pending call. Results that match no pending call are omitted."""
        results_by_id = {block.tool_use_id: block for block in reversed(tuple(results))}
        waiting, self._pending_calls = self._pending_calls, []
        return [(results_by_id.get(call_id), name) for call_id, name in waiting]


def sanitize_name(name: str, max_length: int = _MAX_NAME_LENGTH) -> str:
    """Replace characters that providers reject in names, and shorten the name to at most `max_length` characters."""
    fit = _INVALID_NAME_CHARACTER.sub("_", name) or "_"
    if len(fit) <= max_length:
        return fit
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{fit[: max_length - _DIGEST_LENGTH - 1]}-{digest}"


def format_result(result: ToolResultBlock | None, empty: str = "") -> str:
    """Format a tool result for APIs without an error flag. `empty` replaces blank text."""
    if result is None:
        return _NO_RESULT
    text = result.text if result.text.strip() else empty or result.text
    return f"Error: {text}" if result.is_error else text


def extend_encoded(
    part: dict[str, Any], longer: dict[str, Any], field: tuple[str, object], closing: bytes
) -> EncodedJson:
    """Encode `longer`, reusing the encoded bytes of `part`.

    `longer` is `part` with `field` added to its last nested object. `closing` contains the bytes that follow the new
    field.
    """
    encoded = EncodedJson(longer)
    if isinstance(part, EncodedJson):
        name, value = field
        encoded.json = b"%b,%b:%b%b" % (
            _encode_part(part)[: -len(closing)],
            _encode_word(name),
            encode_json(value),
            closing,
        )
    return encoded


def _encode_part(part: EncodedJson) -> bytes:
    part.json = part.json or encode_json(part)
    return part.json


def encode_body(body: dict[str, Any]) -> bytes:
    """Encode a request body, reusing the bytes of cached parts."""
    pieces: list[bytes] = []
    _write(body, _MAX_LEVELS, pieces)
    return b"".join(pieces)


def _write(value: object, levels: int, pieces: list[bytes]) -> None:
    if type(value) is EncodedJson:
        pieces.append(value.json or _encode_part(value))
    elif isinstance(value, str):
        pieces.append(_encode_word(value) if len(value) < _MAX_CACHED_CHARS else encode_json(value))
    elif levels and isinstance(value, list) and value:
        before = b"["
        for item in value:
            pieces.append(before)
            # Use a fast path, because nearly all items in a long conversation are already encoded.
            if type(item) is EncodedJson and item.json:
                pieces.append(item.json)
            else:
                _write(item, levels - 1, pieces)
            before = b","
        pieces.append(b"]")
    elif levels and isinstance(value, dict) and value:
        before = b"{"
        for key, item in value.items():
            pieces += (before, _encode_word(key), b":")
            _write(item, levels - 1, pieces)
            before = b","
        pieces.append(b"}")
    else:
        pieces.append(encode_json(value))


@lru_cache(maxsize=256)
def _encode_word(text: str) -> bytes:
    return encode_json(text)
