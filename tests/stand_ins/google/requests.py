"""What a Gemini request may contain: models, options, tools and contents."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from tests.stand_ins.rejections import Shape, find_image_fault, read_table, reject
from tests.stand_ins.service_state import CacheUnit, estimate_tokens
from thinklsp.offline.scenario import TableRow
from thinklsp.offline.script import ConversationState, DialoguePart, read_conversation_state

GOOGLE_TYPE = "type.googleapis.com/google."
_FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_CALL_TURN_ERROR = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
_RESPONSE_TURN_ERROR = "Please ensure that function response turn comes immediately after a function call turn."
_COUNT_ERROR = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
_BLOB_TOKENS = 258
# The service also accepts `image/heic` and `image/heif`, which thinklsp never sends. It does not accept GIF.
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")
_MAX_IMAGE_CHARS = 20 << 20
# The fields that determine the kind of a part. A valid part has exactly one of these fields.
_DATA_FIELDS = ("text", "inline_data", "function_call", "function_response")


class GoogleTraits(TableRow):
    """The behavior of a model and the options that it accepts.

    `levels` contains the thinking levels, or is empty if the model has only thinking budgets. `budget` is the range of
    thinking budgets, apart from -1 and 0, or None if the model accepts no budget. If `off` is true, a budget of 0 is
    accepted.
    """

    id: str
    generation: int
    levels: tuple[str, ...] = ()
    budget: tuple[int, int] | None = None
    off: bool = False
    thinks: Literal["unasked", "asked", "never"] = "unasked"
    functions: bool = True
    cache_minimum: int = 4096
    window: int = 1_048_576
    max_tokens: int = 65_536

    @property
    def requires_signatures(self) -> bool:
        """True if tool calls have IDs, and signatures that clients must send back."""
        return self.generation >= 3


GOOGLE_MODELS = {name: GoogleTraits(id=name, **row) for name, row in read_table("models")["google"]["models"].items()}


def build_model_info(name: str, window: int) -> dict[str, Any]:
    """Return the description of a model, with the given context window."""
    limits = {"inputTokenLimit": window, "outputTokenLimit": GOOGLE_MODELS[name].max_tokens}
    return {"name": f"models/{name}", "version": "001", "displayName": name.replace("-", " ").title(), **limits}


class _Message(Shape):
    """A message, whose fields may be in camel case or in snake case."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class _FunctionCall(_Message):
    id: str | None = None
    name: str = ""
    args: dict[str, Any] = Field(default_factory=dict)


class _FunctionResponse(_Message):
    id: str | None = None
    name: str = ""
    response: dict[str, Any]


class _Blob(_Message):
    mime_type: str
    data: str


class Part(_Message):
    """A part. Other fields are those of the scenario, which clients send back."""

    model_config = ConfigDict(extra="allow")
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None
    function_response: _FunctionResponse | None = None
    inline_data: _Blob | None = None


class _Content(_Message):
    role: str | None = None
    parts: list[Part] = Field(default_factory=list)


class _Declaration(_Message):
    """A function, with `parameters_json_schema` from thinklsp and `parameters` from LiteLLM."""

    name: str = ""
    description: str | None = None
    parameters_json_schema: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None


class _Tool(_Message):
    function_declarations: list[_Declaration]


class _ThinkingConfig(_Message):
    include_thoughts: bool | None = None
    thinking_budget: int | None = None
    thinking_level: str | None = None


class _GenerationConfig(_Message):
    """The fields that thinklsp sends, and those that LiteLLM adds."""

    max_output_tokens: int | None = None
    thinking_config: _ThinkingConfig | None = None
    temperature: float | None = None


class _Request(_Message):
    """The fields that thinklsp sends, and those that LiteLLM adds."""

    model: str | None = None
    contents: list[_Content]
    system_instruction: _Content | None = None
    tools: list[_Tool] = Field(default_factory=list)
    generation_config: _GenerationConfig | None = None
    continuation_token: str | None = None


def read_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """Parse a request. Field names in the result are in snake case. Raises RequestRejected for an invalid field."""
    try:
        return _Request.model_validate(body).model_dump(exclude_unset=True)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        *above, name = problem["loc"]
        where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in above).removeprefix(".")
        at = f" at '{where}'" if where else ""
        if problem["type"] == "extra_forbidden":
            reject(f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.')
        reject(f"Invalid value for '{name}'{at}: {problem['msg']}")


def decode_base64(text: str) -> bytes | None:
    """Decode base64 text with the standard or the URL-safe alphabet, with or without padding; None if it is invalid."""
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class GoogleThinkingMode:
    """The thinking settings in a request. If `includes_thoughts` is true, the answer contains thinking summaries."""

    is_on: bool
    includes_thoughts: bool


def check_options(body: Mapping[str, Any], traits: GoogleTraits) -> GoogleThinkingMode:
    """Check a request body, except for the system instruction and the contents. Raises RequestRejected."""
    config = body.get("generation_config") or {}
    limit = config.get("max_output_tokens")
    if limit is not None and not 1 <= limit <= traits.max_tokens:
        reject(
            f"Unable to submit request because it has a maxOutputTokens value of {limit} but the supported range is "
            f"from 1 (inclusive) to {traits.max_tokens + 1} (exclusive). Update the value and try again."
        )
    mode = _read_mode(config.get("thinking_config") or {}, traits)
    names = [declaration["name"] for declaration in list_declarations(body)]
    for declaration in list_declarations(body):
        name = declaration["name"]
        schema = declaration.get("parameters_json_schema") or declaration.get("parameters") or {}
        if not _FUNCTION_NAME.fullmatch(name):
            _reject_field("tools", "Invalid function name. Must start with a letter or an underscore.")
        if names.count(name) > 1:
            reject(f"Duplicate function declaration found: {name}")
        if schema.get("type") != "object":
            _reject_field("tools", "functionDeclaration parameters schema should be of type OBJECT.")
    if names and not traits.functions:
        reject(f"Function calling is not enabled for models/{traits.id}")
    return mode


def list_declarations(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [item for tool in body.get("tools") or () for item in tool["function_declarations"]]


def _reject_field(field: str, problem: str) -> None:
    reject(f"* GenerateContentRequest.{field}: {problem}\n")


def _read_mode(config: Mapping[str, Any], traits: GoogleTraits) -> GoogleThinkingMode:
    shown = bool(config.get("include_thoughts"))
    budget, level = config.get("thinking_budget"), config.get("thinking_level")
    if traits.thinks == "never":
        if shown or budget is not None or level is not None:
            reject("Thinking is not enabled for this model")
        return GoogleThinkingMode(is_on=False, includes_thoughts=False)
    if budget is not None and level is not None:
        reject("You can only set only one of thinking budget and thinking level.")
    if level is not None and level.upper() not in traits.levels:
        reject(f"Thinking level {level.upper()} is not supported for this model.")
    if budget is not None:
        _check_budget(budget, traits)
    thinks = traits.thinks == "unasked" if budget is None else budget != 0
    return GoogleThinkingMode(thinks, shown and thinks)


def _check_budget(budget: int, traits: GoogleTraits) -> None:
    if traits.budget is None:
        reject("Thinking budget is not supported for this model.")
    if budget == 0 and not traits.off:
        reject("Budget 0 is invalid. This model only works in thinking mode.")
    low, high = traits.budget
    if budget not in (0, -1) and not low <= budget <= high:
        reject(f"The thinking budget ({budget}) is invalid. Please choose a value between {low} and {high}.")


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


def read_conversation(body: Mapping[str, Any]) -> GoogleConversation:
    """Check the conversation in a parsed request body and return the conversation. Raises RequestRejected."""
    if not body["contents"]:
        _reject_field("contents", "contents is not specified")
    contents = tuple(_read_content(value, number) for number, value in enumerate(body["contents"]))
    if body.get("system_instruction"):
        _read_content({**body["system_instruction"], "role": "user"}, -1)
    _check_ends(contents)
    _check_turns(contents)
    turns = [content.number + 1 for content in contents if content.role == "user" and not content.responses]
    return GoogleConversation(contents, read_conversation_state(_iter_parts(contents)), max(turns, default=0))


def _read_content(value: Mapping[str, Any], number: int) -> GoogleContent:
    content = GoogleContent(number, value.get("role") or "user", tuple(value.get("parts") or ()))
    place = f"contents[{number}].parts"
    if content.role not in ("user", "model"):
        reject("Please use a valid role: user, model.")
    if not content.parts:
        _reject_field(place, "contents.parts must not be empty.")
    for index, part in enumerate(content.parts):
        _check_part(part, f"{place}[{index}]", content.role)
    return content


def _check_part(part: Mapping[str, Any], place: str, role: str) -> None:
    if unknown := part.keys() - Part.model_fields.keys():
        reject(f"Invalid JSON payload received. Unknown name \"{min(unknown)}\" at '{place}': Cannot find field.")
    fields = [name for name in part if name in _DATA_FIELDS]
    if len(fields) > 1:
        reject(f"Invalid value at '{place}' (oneof), oneof field 'data' is already set. Cannot set '{fields[1]}'")
    is_signed = role == "model" and "thought_signature" in part
    if (not fields and not is_signed) or (role == "user" and part.get("text") == ""):
        _reject_field(f"{place}.data", "required oneof field 'data' must have one initialized field")
    if "inline_data" in part:
        _check_image(part["inline_data"])
    for kind in ("function_call", "function_response"):
        if kind in part and not part[kind].get("name"):
            _reject_field(f"{place}.{kind}.name", "Name cannot be empty.")
    if "function_call" in part and role == "user":
        _reject_field(f"{place}.function_call", "function_call must have the role model.")


def _check_image(blob: Mapping[str, Any]) -> None:
    media_type = blob["mime_type"]
    if media_type not in _IMAGE_TYPES:
        reject(f"Unsupported MIME type: {media_type}")
    # The service accepts the URL-safe alphabet, too.
    content = base64.b64encode(decode_base64(blob["data"]) or b"").decode("ascii")
    fault = find_image_fault(content, media_type, _MAX_IMAGE_CHARS)
    if fault == "size":
        reject("Request payload size exceeds the limit: 20971520 bytes.")
    if fault is not None:
        reject("Provided image is not valid.")


def _check_ends(contents: Sequence[GoogleContent]) -> None:
    if contents[0].role == "model":
        # The service sends a different error message if the conversation begins with a function call.
        reject(
            _CALL_TURN_ERROR if contents[0].calls else "Please ensure that multiturn requests begin with a user role."
        )
    if contents[-1].role == "model":
        reject("Please ensure that multiturn requests ends with a user role or a function response.")


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
                _reject_field(f"{place}.id", f"The id {name} does not match a function call of the function call turn.")
            answered.add(name)
            call = by_id[name]
        if response["name"] != call["name"]:
            text = f"The name {response['name']} does not match the function call {call['name']}."
            _reject_field(f"{place}.name", text)


def _iter_parts(contents: Sequence[GoogleContent]) -> Iterator[DialoguePart]:
    for content in contents:
        for part in content.parts:
            result = _join_response_text(part["function_response"]) if "function_response" in part else None
            yield DialoguePart(
                content.number, content.role == "model", str(part["text"]) if "text" in part else None, result
            )


def list_cache_units(body: Mapping[str, Any], contents: tuple[GoogleContent, ...], key: str) -> list[CacheUnit]:
    """Divide a request into units for the prompt cache, in the order tools, system instruction, contents.

    `key` selects the cache by model and API key.
    """
    frames = [json.dumps(body[name]) for name in ("tools", "system_instruction") if body.get(name)]
    units = [CacheUnit(key, 0), *(CacheUnit(text, estimate_tokens(text)) for text in frames)]
    for content in contents:
        units += (CacheUnit(content.role + json.dumps(part), 1 + _count_part_tokens(part)) for part in content.parts)
    return units


def _count_part_tokens(part: Mapping[str, Any]) -> int:
    if "inline_data" in part:
        return _BLOB_TOKENS
    bare = {name: value for name, value in part.items() if name not in ("thought_signature", "thought")}
    return estimate_tokens(str(bare["text"]) if set(bare) == {"text"} else json.dumps(bare, ensure_ascii=False))


def _join_response_text(response: Mapping[str, Any]) -> str:
    """Return the text of a function response. If the response has no usual field for text, return all of it as JSON."""
    value = response.get("response") or {}
    result = next((value[name] for name in ("output", "error", "result") if name in value), value)
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
