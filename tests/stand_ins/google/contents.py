"""The conversation in a Gemini request. This module checks contents, the order of turns, and function responses."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.stand_ins.google.payload_reader import decode_base64, list_data_fields, reject_fields
from tests.stand_ins.image_checks import find_image_fault
from tests.stand_ins.rejections import reject
from tests.stand_ins.service_state import CacheUnit, build_cache_units, estimate_tokens
from thinklsp.offline.script import ConversationState, DialoguePart, read_conversation_state

_CALL_TURN_ERROR = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
_RESPONSE_TURN_ERROR = "Please ensure that function response turn comes immediately after a function call turn."
_COUNT_ERROR = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
_MULTI_TURN_END_ERROR = "Please ensure that multiturn requests ends with a user role or a function response."
_SINGLE_TURN_END_ERROR = "Please ensure that single turn requests end with a user role or the role field is empty."
_FIRST_ROLE_ERROR = "Please ensure that multiturn requests begin with a user role."
_NO_DATA_ERROR = "data: required oneof field 'data' must have one initialized field"
# The lifetime of automatically cached prefixes, which is the same as Anthropic's default lifetime.
_LIFETIME = "5m"
_BLOB_TOKENS = 258
# The service also accepts `image/heic` and `image/heif`, which thinklsp never sends. It does not accept GIF.
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")
_MAX_IMAGE_CHARS = 20 << 20


@dataclass(frozen=True, slots=True)
class GoogleContent:
    """A `Content` object and its index in the conversation. Field names in its parts are in snake case."""

    number: int
    role: str
    parts: tuple[Mapping[str, Any], ...]

    @property
    def calls(self) -> list[Mapping[str, Any]]:
        return [part["function_call"] for part in self.parts if "function_call" in part]

    @property
    def responses(self) -> list[Mapping[str, Any]]:
        return [part["function_response"] for part in self.parts if "function_response" in part]


@dataclass(frozen=True, slots=True)
class GoogleConversation:
    """The conversation in a request.

    `turn_start` is the index after the user's last prompt. Contents with function responses are not prompts.
    """

    contents: tuple[GoogleContent, ...]
    state: ConversationState
    turn_start: int


def read_conversation(body: Mapping[str, Any], own_parts: frozenset[str]) -> GoogleConversation:
    """Check the conversation in a parsed request body and return the conversation.

    Raises RequestRejected for an invalid conversation.
    """
    contents = read_contents(body, own_parts)
    _check_ends(contents)
    _check_turns(contents)
    turns = [content.number + 1 for content in contents if content.role == "user" and not content.responses]
    return GoogleConversation(contents, read_conversation_state(_iter_parts(contents)), max(turns, default=0))


def read_contents(body: Mapping[str, Any], own_parts: frozenset[str]) -> tuple[GoogleContent, ...]:
    """Check each `Content` object on its own and return all objects. Raises RequestRejected for an invalid object."""
    values = body.get("contents") or []
    if not values:
        reject_fields(["contents: contents is not specified"])
    contents = tuple(
        GoogleContent(number, _read_role(value, alone=len(values) == 1), tuple(value.get("parts") or ()))
        for number, value in enumerate(values)
    )
    sections = [(content.parts, f"contents[{content.number}]", content.role) for content in contents]
    system = body.get("system_instruction")
    if system is not None:
        sections.append((tuple(system.get("parts") or ()), "system_instruction", "user"))
    problems = [problem for parts, place, role in sections for problem in _find_problems(parts, place, role, own_parts)]
    if problems:
        reject_fields(problems)
    return contents


def join_response_text(response: Mapping[str, Any]) -> str:
    """Return the text of a function response. If the response has no usual field for text, return all of it as JSON."""
    value = response.get("response") or {}
    result = next((value[name] for name in ("output", "error", "result") if name in value), value)
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _read_role(value: Mapping[str, Any], *, alone: bool) -> str:
    role = value.get("role") or ""
    if role not in ("user", "model") and (role or not alone):
        reject("Please use a valid role: user, model.")
    return role or "user"


def _find_problems(
    parts: Sequence[Mapping[str, Any]], place: str, role: str, own_parts: frozenset[str]
) -> Iterator[str]:
    if not parts:
        yield f"{place}.parts: contents.parts must not be empty."
    for index, part in enumerate(parts):
        yield from _find_part_problems(part, f"{place}.parts[{index}]", role, own_parts)


def _find_part_problems(part: Mapping[str, Any], place: str, role: str, own_parts: frozenset[str]) -> Iterator[str]:
    signed = role == "model" and "thought_signature" in part
    fields = list_data_fields(part, own_parts)
    if not fields and not signed:
        yield f"{place}.{_NO_DATA_ERROR}"
    if role == "user" and part.get("text") == "":
        yield f"{place}.{_NO_DATA_ERROR}"
    blob = part.get("inline_data") or {}
    if str(blob.get("mime_type", "")).startswith("image/"):
        _check_image(blob)
    if "function_call" in part:
        if not part["function_call"].get("name"):
            yield f"{place}.function_call.name: Name cannot be empty."
        if role == "user":
            yield f"{place}.function_call: function_call must have the role model."
    if "function_response" in part:
        if not part["function_response"].get("name"):
            yield f"{place}.function_response.name: Name cannot be empty."
        if "response" not in part["function_response"]:
            yield f"{place}.function_response.response: response is required."


def _check_image(blob: Mapping[str, Any]) -> None:
    media_type, data = str(blob["mime_type"]), str(blob.get("data") or "")
    if media_type not in _IMAGE_TYPES:
        reject(f"Unsupported MIME type: {media_type}")
    # The reader has already rejected invalid base64, and it accepts the URL-safe alphabet, too.
    content = base64.b64encode(decode_base64(data) or b"").decode("ascii")
    match find_image_fault(content, media_type, _MAX_IMAGE_CHARS):
        case "size":
            reject("Request payload size exceeds the limit: 20971520 bytes.")
        case "base64" | "type" | "content":
            reject("Provided image is not valid.")
        case None:
            pass


def _check_ends(contents: Sequence[GoogleContent]) -> None:
    if contents[0].role == "model":
        # The service sends a different error message if the conversation begins with a function call.
        reject(
            _SINGLE_TURN_END_ERROR
            if len(contents) == 1
            else _CALL_TURN_ERROR
            if contents[0].calls
            else _FIRST_ROLE_ERROR
        )
    if contents[-1].role == "model":
        reject(_MULTI_TURN_END_ERROR)


def _check_turns(contents: Sequence[GoogleContent]) -> None:
    before: GoogleContent | None = None
    for content in contents:
        calls = before.calls if before is not None else []
        if content.role == "model":
            _check_model_turn(content, before)
        elif content.responses:
            # A message with function responses must not contain any other parts.
            if not calls or len(content.responses) != len(content.parts):
                reject(_RESPONSE_TURN_ERROR)
            _check_answers(content, calls)
        elif calls:
            reject(_COUNT_ERROR)
        before = content


def _check_model_turn(content: GoogleContent, before: GoogleContent | None) -> None:
    if content.responses:
        reject(_RESPONSE_TURN_ERROR)
    if before is not None and before.role == "model":
        if before.calls:
            reject(_COUNT_ERROR)
        if content.calls:
            reject(_CALL_TURN_ERROR)


def _check_answers(content: GoogleContent, calls: Sequence[Mapping[str, Any]]) -> None:
    """Check that each function call has a response with the same name. The ID or the position identifies it."""
    if len(content.responses) != len(calls):
        reject(_COUNT_ERROR)
    by_id = {call["id"]: call for call in calls if call.get("id")}
    answered: set[str] = set()
    for index, (response, call) in enumerate(zip(content.responses, calls, strict=True)):
        place = f"contents[{content.number}].parts[{index}].function_response"
        name = response.get("id") or ""
        if name:
            if name not in by_id or name in answered:
                reject_fields([f"{place}.id: The id {name} does not match a function call of the function call turn."])
            answered.add(name)
            call = by_id[name]
        if response["name"] != call["name"]:
            text = f"The name {response['name']} does not match the function call {call['name']}."
            reject_fields([f"{place}.name: {text}"])


def _iter_parts(contents: Sequence[GoogleContent]) -> Iterator[DialoguePart]:
    for content in contents:
        for part in content.parts:
            result = join_response_text(part["function_response"]) if "function_response" in part else None
            yield DialoguePart(
                content.number, content.role == "model", str(part["text"]) if "text" in part else None, result
            )


def list_cache_units(body: Mapping[str, Any], contents: tuple[GoogleContent, ...], key: str) -> tuple[CacheUnit, ...]:
    """Divide a request into units for the prompt cache, in the order tools, system instruction, contents.

    `key` selects the cache by model and API key.
    """
    return build_cache_units(key, ((unit, tokens, _LIFETIME) for unit, tokens in _iter_contents(body, contents)))


def _iter_contents(body: Mapping[str, Any], contents: tuple[GoogleContent, ...]) -> Iterator[tuple[str, int]]:
    for name in ("tools", "system_instruction"):
        if body.get(name):
            text = json.dumps(body[name], ensure_ascii=False)
            yield f"{name} {text}", estimate_tokens(text)
    for content in contents:
        for part in content.parts:
            yield f"{content.role} {json.dumps(part, ensure_ascii=False)}", 1 + _count_part_tokens(part)


def _count_part_tokens(part: Mapping[str, Any]) -> int:
    if "inline_data" in part or "file_data" in part:
        return _BLOB_TOKENS
    bare = {name: value for name, value in part.items() if name not in ("thought_signature", "thought")}
    return estimate_tokens(str(bare["text"]) if set(bare) == {"text"} else json.dumps(bare, ensure_ascii=False))
