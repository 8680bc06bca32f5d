"""JSON as the Gemini service reads it: the fields of each message, both spellings in, snake_case out, all else refused.

It knows types, not meanings: what a conversation may look like is `contents`' business. Bytes stay the text that came.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from thinklsp.simulator.dialect import parse_json
from thinklsp.simulator.google.errors import invalid, invalid_payload

# The fields of a part that make out what it is; a part has exactly one.
DATA = (
    "text", "inline_data", "function_call", "function_response", "file_data", "executable_code",
    "code_execution_result", "tool_call", "tool_response", "audio_transcription",
)  # fmt: skip
_CONTENT = {"role": "string", "parts": "[Part]"}
_ANY_PART = ("media_resolution", "media_processing", "video_metadata", "part_metadata", "speech_metadata")
_DOCUMENTS = ("document_metadata", "spreadsheet_metadata", "audio_metadata")
_SEARCHES = ("google_search", "google_search_retrieval", "google_maps", "code_execution", "url_context")

MESSAGES: Mapping[str, Mapping[str, str]] = {
    "GenerateContentRequest": {
        "model": "string",
        "contents": "[Content]",
        "system_instruction": "Content",
        "tools": "[Tool]",
        "tool_config": "ToolConfig",
        "generation_config": "GenerationConfig",
        "safety_settings": "[SafetySetting]",
        "cached_content": "string",
        "continuation_token": "bytes",
        "service_tier": "any",
        "store": "bool",
        "labels": "any",
    },
    "CountTokensRequest": {
        "model": "string",
        "contents": "[Content]",
        "generate_content_request": "GenerateContentRequest",
    },
    "Content": _CONTENT,
    "Part": {
        "text": "string",
        "thought": "bool",
        "thought_signature": "bytes",
        "function_call": "FunctionCall",
        "function_response": "FunctionResponse",
        "inline_data": "Blob",
        "file_data": "any",
        "executable_code": "any",
        "code_execution_result": "any",
        "tool_call": "any",
        "tool_response": "any",
        "audio_transcription": "any",
        **dict.fromkeys((*_ANY_PART, *_DOCUMENTS), "any"),
    },
    "Blob": {"mime_type": "string", "data": "bytes", "display_name": "string"},
    "FunctionCall": {
        "id": "string",
        "name": "string",
        "args": "struct",
        "partial_args": "any",
        "will_continue": "bool",
    },
    "FunctionResponse": {
        "id": "string",
        "name": "string",
        "response": "struct",
        "parts": "any",
        "will_continue": "bool",
        "scheduling": "any",
    },
    "Tool": {
        "function_declarations": "[FunctionDeclaration]",
        **dict.fromkeys((*_SEARCHES, "computer_use", "file_search", "mcp_servers"), "any"),
    },
    "FunctionDeclaration": {
        "name": "string",
        "description": "string",
        "parameters": "Schema",
        "parameters_json_schema": "any",
        "response": "Schema",
        "response_json_schema": "any",
        "behavior": "any",
    },
    # A subset of OpenAPI, and not JSON Schema: keys that only that knows are refused.
    "Schema": {
        **dict.fromkeys(("title", "description", "format", "pattern", "ref"), "string"),
        **dict.fromkeys(("minimum", "maximum"), "float"),
        **dict.fromkeys(("min_items", "max_items", "min_length", "max_length"), "int"),
        **dict.fromkeys(("min_properties", "max_properties"), "int"),
        **dict.fromkeys(("required", "enum", "property_ordering"), "[string]"),
        **dict.fromkeys(("default", "example", "additional_properties"), "any"),
        **dict.fromkeys(("properties", "defs"), "{Schema}"),
        "type": "Schema.Type",
        "nullable": "bool",
        "items": "Schema",
        "any_of": "[Schema]",
    },
    "ToolConfig": {
        "function_calling_config": "FunctionCallingConfig",
        "retrieval_config": "any",
        "include_server_side_tool_invocations": "bool",
    },
    "FunctionCallingConfig": {"mode": "FunctionCallingConfig.Mode", "allowed_function_names": "[string]"},
    "GenerationConfig": {
        "thinking_config": "ThinkingConfig",
        "stop_sequences": "[string]",
        "response_modalities": "[string]",
        "response_mime_type": "string",
        **dict.fromkeys(("candidate_count", "max_output_tokens", "seed", "logprobs"), "int"),
        **dict.fromkeys(("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty"), "float"),
        **dict.fromkeys(("response_logprobs", "enable_enhanced_civic_answers"), "bool"),
        **dict.fromkeys(("response_schema", "response_json_schema", "response_format"), "any"),
        **dict.fromkeys(("media_resolution", "speech_config", "image_config"), "any"),
        **dict.fromkeys(("audio_transcription_config", "translation_config"), "any"),
    },
    "ThinkingConfig": {
        "include_thoughts": "bool",
        "thinking_budget": "int",
        "thinking_level": "ThinkingConfig.ThinkingLevel",
    },
    "SafetySetting": {"category": "string", "threshold": "string", "method": "string"},
}  # fmt: skip
ENUMS: Mapping[str, frozenset[str]] = {
    "ThinkingConfig.ThinkingLevel": frozenset(
        {"THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"}
    ),
    "FunctionCallingConfig.Mode": frozenset({"MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"}),
    "Schema.Type": frozenset({"TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"}),
}
_PACKAGE = "type.googleapis.com/google.ai.generativelanguage.v1beta."
_NUMBER = re.compile(r"-?\d+")
_SCALARS = {"string": "TYPE_STRING", "bool": "TYPE_BOOL", "int": "TYPE_INT32", "float": "TYPE_FLOAT"}


def parse_body(raw: bytes) -> Mapping[str, Any]:
    try:
        body = parse_json(raw)
    except ValueError as error:
        invalid(f"Invalid JSON payload received. {error}")
    if not isinstance(body, dict):
        invalid("Invalid JSON payload received. Root element must be a message.")
    return body


def read(value: Mapping[str, Any], message: str, own_parts: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The message with snake_case names. `own_parts`: names of parts that the scenario brings in itself.

    Raises Refused with every problem found.
    """
    reader = _Reader(own_parts)
    found = reader.message(value, message, "")
    if reader.problems:
        invalid_payload(reader.problems)
    return found


def decoded(text: str) -> bytes | None:
    """Base64 of either alphabet, padded or not; None where it is neither."""
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def data_fields(part: Mapping[str, Any], own_parts: frozenset[str] = frozenset()) -> list[str]:
    """What the part is: one name, where the part is right."""
    return [name for name in part if name in DATA or name in own_parts]


@cache
def _spellings(message: str) -> Mapping[str, str]:
    spellings: dict[str, str] = {}
    for name in MESSAGES[message]:
        spellings[name] = name
        spellings[_camel(name)] = name
    return spellings


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


class _Reader:
    """One pass over a body; `problems` are (place, sentence), in the order of the text."""

    def __init__(self, own_parts: frozenset[str]) -> None:
        self.problems: list[tuple[str, str]] = []
        self._own_parts = own_parts

    def message(self, value: Any, message: str, place: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self._no_message(value, message, place)
            return {}
        found: dict[str, Any] = {}
        for key, item in value.items():
            name = _spellings(message).get(key)
            if name is None and message == "Part" and key in self._own_parts:
                found[key] = item
            elif name is None:
                at = f" at '{place}'" if place else ""
                self._say(place, f'Invalid JSON payload received. Unknown name "{key}"{at}: Cannot find field.')
            elif item is not None:
                found[name] = self._field(item, MESSAGES[message][name], _inside(place, name))
        if message == "Part":
            self._one_of(value, found, place)
        return found

    def _field(self, value: Any, kind: str, place: str) -> Any:
        if kind.startswith("["):
            return self._list(value, kind[1:-1], place)
        if kind.startswith("{"):
            return self._map(value, kind[1:-1], place)
        if isinstance(value, list) and kind not in ("any", "struct"):
            holder, _, name = place.rpartition(".")
            at = f" at '{holder}'" if holder else ""
            text = f'Invalid JSON payload received. Unknown name "{name}"{at}: '
            self._say(holder, f"{text}Proto field is not repeating, cannot start list.")
            return None
        if kind in MESSAGES:
            return self.message(value, kind, place)
        return self._scalar(value, kind, place)

    def _list(self, value: Any, kind: str, place: str) -> list[Any]:
        # One element without brackets is read as a list of one, as the service does.
        items: Sequence[Any] = value if isinstance(value, list) else [value]
        return [self._field(item, kind, f"{place}[{index}]") for index, item in enumerate(items)]

    def _map(self, value: Any, kind: str, place: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self._no_message(value, f"Schema.{place.rpartition('.')[2].title()}Entry", place)
            return {}
        return {
            key: self._field(item, kind, f"{place}[{index}].value") for index, (key, item) in enumerate(value.items())
        }

    def _scalar(self, value: Any, kind: str, place: str) -> Any:
        right: Any = None
        match kind:
            case "any":
                return value
            case "struct":
                if not isinstance(value, Mapping):
                    text = _shown(value)
                    self._say(place, f"Invalid value at '{place}' (type.googleapis.com/google.protobuf.Struct), {text}")
                    return {}
                return value
            case "bytes":
                return self._bytes(value, place)
            case "string":
                right = value if isinstance(value, str) else None
            case "bool":
                right = value if isinstance(value, bool) else None
            case "int":
                right = _integer(value)
            case "float":
                right = value if isinstance(value, int | float) and not isinstance(value, bool) else None
            case _:
                right = value.upper() if isinstance(value, str) and value.upper() in ENUMS[kind] else None
        if right is None:
            self._say(place, f"Invalid value at '{place}' ({_SCALARS.get(kind) or _PACKAGE + kind}), {_shown(value)}")
        return right

    def _bytes(self, value: Any, place: str) -> str:
        if not isinstance(value, str):
            self._say(place, f"Invalid value at '{place}' (TYPE_BYTES), {_shown(value)}")
            return ""
        if decoded(value) is None:
            self._say(place, f"Invalid value at '{place}' (TYPE_BYTES), Base64 decoding failed for {_shown(value)}")
        return value

    def _one_of(self, value: Mapping[str, Any], found: Mapping[str, Any], place: str) -> None:
        fields = data_fields(found, self._own_parts)
        if len(fields) > 1:
            written = next((key for key in value if _spellings("Part").get(key, key) == fields[1]), fields[1])
            text = f"oneof field 'data' is already set. Cannot set '{written}'"
            self._say(place, f"Invalid value at '{place}' (oneof), {text}")

    def _no_message(self, value: Any, message: str, place: str) -> None:
        self._say(place, f"Invalid value at '{place}' ({_PACKAGE}{message}), {_shown(value)}")

    def _say(self, place: str, text: str) -> None:
        self.problems.append((place, text))


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if _NUMBER.fullmatch(value) and len(value) <= 20 else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None


def _shown(value: Any) -> str:
    return json.dumps(value)


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
