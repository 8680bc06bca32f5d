"""JSON that is written once: what a conversation holds goes out with every request, and most of it went out before."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar

from thinklsp.core.body import Body
from thinklsp.core.memo import IdentityMemo
from thinklsp.core.messages import Part
from thinklsp.core.strict_json import json_bytes

# The request, its list of messages, a message, its list of parts.
_LEVELS = 4
_SHORT = 40


class Written(dict[str, Any]):
    """A JSON object that nobody changes any more, with its bytes once they were wanted."""

    __slots__ = ("json",)

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.json = b""

    def __repr__(self) -> str:
        """It can hold what a service has sealed."""
        return "<written>"


Given = ParamSpec("Given")
Fields = TypeVar("Fields", bound=dict[str, Any] | None)


class WrittenParts:
    """The JSON objects that one adapter has made of parts of conversations, one for each part that still exists.

    Mutable, one for each module that encodes; it keeps nothing that is not in the parts themselves.
    """

    def __init__(self) -> None:
        self._memo: IdentityMemo[tuple[object, Any]] = IdentityMemo()

    def encode(
        self, part: Part, key: object, make: Callable[Given, Fields], *given: Given.args, **named: Given.kwargs
    ) -> Fields:
        """Return what `make` gives for a part, and call it only once for a key.

        `key`: all that the result depends on, besides the part.
        """
        known = self._memo.find(part)
        if known is None or (known[0] is not key and known[0] != key):
            fields: Any = make(*given, **named)
            known = self._memo.keep(part, (key, fields and Written(fields)))
        made: Fields = known[1]
        return made


def extended(part: dict[str, Any], longer: dict[str, Any], field: tuple[str, object], closing: bytes) -> Written:
    """`longer`, which is `part` with one field more in the last object that its bytes hold; `closing`: how these end,
    from the end of that object on."""
    made = Written(longer)
    if isinstance(part, Written):
        name, value = field
        made.json = b"%b,%b:%b%b" % (_bytes(part)[: -len(closing)], _word(name), json_bytes(value), closing)
    return made


def _bytes(part: Written) -> bytes:
    part.json = part.json or json_bytes(part)
    return part.json


def written(body: dict[str, Any]) -> Body:
    """The same bytes as `json_bytes` gives."""
    pieces: list[bytes] = []
    _write(body, _LEVELS, pieces)
    return Body(pieces)


def _write(value: object, levels: int, pieces: list[bytes]) -> None:
    if type(value) is Written:
        pieces.append(value.json or _bytes(value))
    elif isinstance(value, str):
        pieces.append(_word(value) if len(value) < _SHORT else json_bytes(value))
    elif levels and isinstance(value, list) and value:
        before = b"["
        for item in value:
            pieces.append(before)
            # Nearly all of a long conversation has been written.
            if type(item) is Written and item.json:
                pieces.append(item.json)
            else:
                _write(item, levels - 1, pieces)
            before = b","
        pieces.append(b"]")
    elif levels and isinstance(value, dict) and value:
        before = b"{"
        for key, item in value.items():
            pieces += (before, _word(key), b":")
            _write(item, levels - 1, pieces)
            before = b","
        pieces.append(b"}")
    else:
        pieces.append(json_bytes(value))


@lru_cache(maxsize=256)
def _word(text: str) -> bytes:
    """Names of fields, roles and the like."""
    return json_bytes(text)
