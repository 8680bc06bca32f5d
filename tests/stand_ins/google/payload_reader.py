"""A reader for Gemini's JSON, which accepts fields in camel case and snake case and converts them to snake case.

The reader checks types and rejects unknown fields. The `contents` module checks the conversation. Bytes stay in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

from tests.stand_ins.rejections import RequestRejected, reject
from tests.stand_ins.tables import read_table

# The fields that determine the kind of a part. A valid part has exactly one of these fields.
DATA_FIELDS = (
    "text", "inline_data", "function_call", "function_response", "file_data", "executable_code",
    "code_execution_result", "tool_call", "tool_response", "audio_transcription",
)  # fmt: skip
MESSAGES: Mapping[str, Mapping[str, str]] = {
    message: {name: kind for kind, names in kinds.items() for name in names}
    for message, kinds in read_table("gemini")["messages"].items()
}
ENUMS: Mapping[str, list[str]] = read_table("gemini")["enums"]
GOOGLE_TYPE = "type.googleapis.com/google."
_PACKAGE = f"{GOOGLE_TYPE}ai.generativelanguage.v1beta."
_NUMBER = re.compile(r"-?\d+")
_SCALARS = {"string": "TYPE_STRING", "bool": "TYPE_BOOL", "int": "TYPE_INT32", "float": "TYPE_FLOAT"}


def read_message(value: Mapping[str, Any], message: str, own_parts: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Parse a protobuf message in JSON format. Field names in the result are in snake case.

    `own_parts` contains the names of parts that the scenario defines. Raises RequestRejected with a list of all invalid
    fields.
    """
    reader = _Reader(own_parts)
    result = reader.read_message(value, message, "")
    if reader.problems:
        violations = [{**({"field": place} if place else {}), "description": text} for place, text in reader.problems]
        detail = {"@type": f"{GOOGLE_TYPE}rpc.BadRequest", "fieldViolations": violations}
        raise RequestRejected(400, "\n".join(text for _, text in reader.problems), extra_fields={"details": [detail]})
    return result


def reject_fields(problems: Sequence[str]) -> NoReturn:
    """Reject a request with invalid fields. Each problem starts with the field's name."""
    reject("".join(f"* GenerateContentRequest.{problem}\n" for problem in problems))


def decode_base64(text: str) -> bytes | None:
    """Decode base64 text with the standard or the URL-safe alphabet, with or without padding.

    Return None if the text is not valid base64.
    """
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def list_data_fields(part: Mapping[str, Any], own_parts: frozenset[str] = frozenset()) -> list[str]:
    """Return the fields that determine the kind of a part. A valid part has exactly one of them."""
    return [name for name in part if name in DATA_FIELDS or name in own_parts]


@cache
def _build_spellings(message: str) -> Mapping[str, str]:
    spellings: dict[str, str] = {}
    for name in MESSAGES[message]:
        spellings[name] = name
        spellings[_convert_to_camel_case(name)] = name
    return spellings


def _convert_to_camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


class _Reader:
    """A reader for a request body. `problems` contains the path of each invalid field and an error message."""

    def __init__(self, own_parts: frozenset[str]) -> None:
        self.problems: list[tuple[str, str]] = []
        self._own_parts = own_parts

    def read_message(self, value: Any, message: str, place: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self._report_wrong_type(value, message, place)
            return {}
        result: dict[str, Any] = {}
        for key, item in value.items():
            name = _build_spellings(message).get(key)
            if name is None and message == "Part" and key in self._own_parts:
                result[key] = item
            elif name is None:
                at = f" at '{place}'" if place else ""
                self._report(place, f'Invalid JSON payload received. Unknown name "{key}"{at}: Cannot find field.')
            elif item is not None:
                result[name] = self._read_field(item, MESSAGES[message][name], f"{place}.{name}".removeprefix("."))
        if message == "Part":
            self._check_one_of(value, result, place)
        return result

    def _read_field(self, value: Any, kind: str, place: str) -> Any:
        if kind.startswith("["):
            return self._read_list(value, kind[1:-1], place)
        if kind.startswith("{"):
            return self._read_map(value, kind[1:-1], place)
        if isinstance(value, list) and kind not in ("any", "struct"):
            holder, _, name = place.rpartition(".")
            at = f" at '{holder}'" if holder else ""
            text = f'Invalid JSON payload received. Unknown name "{name}"{at}: '
            self._report(holder, f"{text}Proto field is not repeating, cannot start list.")
            return None
        if kind in MESSAGES:
            return self.read_message(value, kind, place)
        return self._read_scalar(value, kind, place)

    def _read_list(self, value: Any, kind: str, place: str) -> list[Any]:
        # The service accepts a single element instead of a list with one element.
        items: Sequence[Any] = value if isinstance(value, list) else [value]
        return [self._read_field(item, kind, f"{place}[{index}]") for index, item in enumerate(items)]

    def _read_map(self, value: Any, kind: str, place: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self._report_wrong_type(value, f"Schema.{place.rpartition('.')[2].title()}Entry", place)
            return {}
        return {
            key: self._read_field(item, kind, f"{place}[{index}].value")
            for index, (key, item) in enumerate(value.items())
        }

    def _read_scalar(self, value: Any, kind: str, place: str) -> Any:
        result: Any = None
        match kind:
            case "any":
                return value
            case "struct":
                if not isinstance(value, Mapping):
                    text = _format_value(value)
                    self._report(place, f"Invalid value at '{place}' ({GOOGLE_TYPE}protobuf.Struct), {text}")
                    return {}
                return value
            case "bytes":
                return self._read_bytes(value, place)
            case "string":
                result = value if isinstance(value, str) else None
            case "bool":
                result = value if isinstance(value, bool) else None
            case "int":
                result = _parse_integer(value)
            case "float":
                result = value if isinstance(value, int | float) and not isinstance(value, bool) else None
            case _:
                result = value.upper() if isinstance(value, str) and value.upper() in ENUMS[kind] else None
        if result is None:
            self._report(
                place, f"Invalid value at '{place}' ({_SCALARS.get(kind) or _PACKAGE + kind}), {_format_value(value)}"
            )
        return result

    def _read_bytes(self, value: Any, place: str) -> str:
        if not isinstance(value, str):
            self._report(place, f"Invalid value at '{place}' (TYPE_BYTES), {_format_value(value)}")
            return ""
        if decode_base64(value) is None:
            self._report(
                place, f"Invalid value at '{place}' (TYPE_BYTES), Base64 decoding failed for {_format_value(value)}"
            )
        return value

    def _check_one_of(self, value: Mapping[str, Any], part: Mapping[str, Any], place: str) -> None:
        fields = list_data_fields(part, self._own_parts)
        if len(fields) > 1:
            key_in_request = next(
                (key for key in value if _build_spellings("Part").get(key, key) == fields[1]), fields[1]
            )
            text = f"oneof field 'data' is already set. Cannot set '{key_in_request}'"
            self._report(place, f"Invalid value at '{place}' (oneof), {text}")

    def _report_wrong_type(self, value: Any, message: str, place: str) -> None:
        self._report(place, f"Invalid value at '{place}' ({_PACKAGE}{message}), {_format_value(value)}")

    def _report(self, place: str, text: str) -> None:
        self.problems.append((place, text))


def _parse_integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if _NUMBER.fullmatch(value) and len(value) <= 20 else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None


def _format_value(value: Any) -> str:
    return json.dumps(value)
