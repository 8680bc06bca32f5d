"""What a Responses API request may contain: models, options, tools and input items."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from tests.stand_ins.rejections import (
    JsonPath,
    NonEmptyString,
    RequestRejected,
    Shape,
    check_image_url,
    check_supported_value,
    format_path,
    read_openai_shape,
    read_table,
    reject,
    reject_invalid,
    reject_missing,
)
from thinklsp.offline.scenario import TableRow
from thinklsp.offline.script import ConversationState, DialoguePart, read_conversation_state

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
CALL, OUTPUT, COMPACTION = "function_call", "function_call_output", "compaction"
InputItem = Mapping[str, Any]
ItemSide = Literal["user", "model", "frame"]
# A model family whose model names have not been published. Its models behave like the model `_NEWEST_LIKE`.
_NEWEST_FAMILY = re.compile(r"gpt-6\.2-[a-z]+(-law)?")
_NEWEST_LIKE = "gpt-6.1-sol"


class OpenAiTraits(TableRow):
    """The options that a model accepts.

    `efforts` is empty for models without reasoning. `default` is the effort that applies if a request does not set an
    effort. `version` is the model's generation, which determines the values of most properties.
    """

    id: str
    version: tuple[int, int]
    efforts: tuple[str, ...] = ()
    default: str = "medium"
    window: int = 400_000

    @property
    def keeps_earlier_reasoning(self) -> bool:
        """True if reasoning from earlier turns stays in the context."""
        return self.version >= (5, 6)

    @property
    def has_phases(self) -> bool:
        """True if each message is marked as commentary or as the final answer."""
        return self.version >= (5, 4)

    @property
    def binds_reasoning(self) -> bool:
        """True if reasoning after changed items is dropped, which the response tells."""
        return self.version >= (6, 2)

    @property
    def can_compact(self) -> bool:
        """True if the service can compact long conversations."""
        return self.version >= (5, 2)

    @property
    def reports_cache_writes(self) -> bool:
        return self.version >= (5, 6)


def _read_models() -> dict[str, OpenAiTraits]:
    table = read_table("models")["openai"]
    models: dict[str, OpenAiTraits] = {}
    for name, row in table["models"].items():
        efforts = table["efforts"][row["efforts"]] if "efforts" in row else ()
        models[name] = OpenAiTraits(id=name, **{**row, "efforts": efforts})
    return models | {f"{name}-{date}": models[name] for name, date in table["dated"].items()}


OPENAI_MODELS = _read_models()


def resolve_traits(name: str) -> OpenAiTraits:
    """Return a model's traits. Raises RequestRejected if the model does not exist."""
    if _NEWEST_FAMILY.fullmatch(name):
        return OPENAI_MODELS[_NEWEST_LIKE].model_copy(update={"id": name, "version": (6, 2)})
    if name not in OPENAI_MODELS:
        message = f"The model `{name}` does not exist or you do not have access to it."
        raise RequestRejected(404, message, param="model", code="model_not_found")
    return OPENAI_MODELS[name]


def build_model_info(name: str) -> dict[str, Any]:
    """Return a model's entry in the list of models. The service does not include any capabilities."""
    resolve_traits(name)
    return {"id": name, "object": "model", "created": 0, "owned_by": "openai"}


class _Reasoning(Shape):
    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class _Compaction(Shape):
    type: Literal["compaction"]
    compact_threshold: Annotated[int, Field(ge=1)]


class ResponseRequest(Shape):
    """The keys that thinklsp sends, and those that LiteLLM adds."""

    model: str
    input: list[Any]
    stream: Literal[True]
    store: Literal[False] | None = None
    instructions: str | None = None
    reasoning: _Reasoning | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=16)] | None = None
    include: list[Literal["reasoning.encrypted_content"]] | None = None
    context_management: list[_Compaction] | None = None
    prompt_cache_key: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """The options in a request.

    `effort` is the effective effort, or None for models without reasoning. `summary` is true if the client requests
    reasoning summaries. `compact_at` is the number of tokens at which the service compacts the conversation.
    """

    traits: OpenAiTraits
    effort: str | None
    summary: bool
    compact_at: int | None

    @property
    def thinks(self) -> bool:
        return self.effort not in (None, "none")


def check_options(request: ResponseRequest, traits: OpenAiTraits) -> ResponseOptions:
    reasoning = request.reasoning or _Reasoning()
    if reasoning.effort is not None:
        if not traits.efforts:
            _reject_key("reasoning.effort")
        if check_supported_value(reasoning.effort, "reasoning.effort", EFFORTS) not in traits.efforts:
            _reject_value("reasoning.effort", reasoning.effort, traits)
    if reasoning.summary == "concise" and traits.efforts and traits.version <= (5, 0):
        _reject_value("reasoning.summary", reasoning.summary, traits)
    if request.context_management and not traits.can_compact:
        _reject_key("context_management")
    if request.include and not traits.efforts:
        reject("Encrypted content is not supported with this model.", "include")
    effort = reasoning.effort or (traits.default if traits.efforts else None)
    compact_at = max((entry.compact_threshold for entry in request.context_management or ()), default=None)
    options = ResponseOptions(traits, effort, bool(reasoning.summary), compact_at)
    if request.temperature is not None and options.thinks:
        _reject_key("temperature")
    return options


def _reject_value(place: str, value: str, traits: OpenAiTraits) -> None:
    supported = ", ".join(f"'{effort}'" for effort in traits.efforts)
    message = f"Unsupported value: '{value}' is not supported with the '{traits.id}' model. Supported values are: "
    reject(f"{message}{supported}.", place, "unsupported_value")


def _reject_key(place: str) -> None:
    reject(f"Unsupported parameter: '{place}' is not supported with this model.", place, "unsupported_parameter")


_ROOT_COMPOSITION = frozenset({"allOf", "anyOf", "enum", "not", "oneOf"})
# A function name in a tool definition or in a tool call.
_FunctionName = Annotated[str, Field(min_length=1, max_length=128, pattern="^[a-zA-Z0-9_-]+$")]


class _Function(Shape):
    type: Literal["function"]
    name: _FunctionName
    description: str | None = None
    parameters: dict[str, Any]
    strict: Literal[False] | None = None


def check_tools(tools: Sequence[Any]) -> frozenset[str]:
    """Check tool definitions and return the names of the functions."""
    names: set[str] = set()
    for index, tool in enumerate(tools):
        place = f"tools[{index}]"
        read = read_openai_shape(_Function, tool, ("tools", index))
        if read.name in names:
            reject(f"Invalid '{place}.name': '{read.name}'. Tool names must be unique.", f"{place}.name")
        problem = _find_root_problem(read.parameters) or _find_items_problem(read.parameters)
        if problem is not None:
            message = f"Invalid schema for function '{read.name}': {problem}"
            reject(message, f"{place}.parameters", "invalid_function_parameters")
        names.add(read.name)
    return frozenset(names)


def _find_root_problem(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("type")
    if kind != "object":
        return f"""schema must be a JSON Schema of 'type: "object"', got 'type: "{kind}"'."""
    if _ROOT_COMPOSITION & schema.keys():
        keys = "'oneOf'/'anyOf'/'allOf'/'enum'/'not'"
        return f"schema must have type 'object' and not have {keys} at the top level."
    return None


def _find_items_problem(schema: Mapping[str, Any]) -> str | None:
    for path, part in _iter_schemas(schema, ()):
        if part.get("type") == "array" and "items" not in part:
            return f"In context={path}, array schema missing items."
    return None


def _iter_schemas(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield a schema and all nested schemas, each with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for holder in ("properties", "$defs"):
        inner = schema.get(holder)
        for name, part in inner.items() if isinstance(inner, dict) else ():
            yield from _iter_schemas(part, (*path, holder, name))
    yield from _iter_schemas(schema.get("items"), (*path, "items"))
    choices = schema.get("anyOf")
    for index, part in enumerate(choices if isinstance(choices, list) else ()):
        yield from _iter_schemas(part, (*path, "anyOf", str(index)))


def _check_id(value: str, prefix: str) -> str:
    if not re.fullmatch(rf"{prefix}[A-Za-z0-9_-]{{1,64}}", value) or len(value) > 64:
        message = "Expected an ID of at most 64 letters, numbers, underscores, or dashes that begins with '{prefix}'"
        raise PydanticCustomError("identifier", message, {"prefix": prefix})
    return value


_CallId = Annotated[str, AfterValidator(partial(_check_id, prefix=""))]
_CallItemId = Annotated[str, AfterValidator(partial(_check_id, prefix="fc_"))]
_CompactionId = Annotated[str, AfterValidator(partial(_check_id, prefix="cmp_"))]
_MessageId = Annotated[str, AfterValidator(partial(_check_id, prefix="msg_"))]
_ReasoningId = Annotated[str, AfterValidator(partial(_check_id, prefix="rs_"))]


class _InputText(Shape):
    type: Literal["input_text"]
    text: NonEmptyString


class _InputImage(Shape):
    type: Literal["input_image"]
    image_url: str
    detail: Any = None


class _OutputText(Shape):
    type: Literal["output_text"]
    text: NonEmptyString
    annotations: Any = None
    logprobs: Any = None


class _Refusal(Shape):
    type: Literal["refusal"]
    refusal: NonEmptyString


class _Text(Shape):
    type: Literal["summary_text", "reasoning_text"]
    text: str


class _Item(Shape):
    type: str
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class _Message(_Item):
    role: Literal["system", "developer", "user"]
    content: str | list[Annotated[_InputText | _InputImage, Field(discriminator="type")]]


class _AssistantMessage(_Item):
    role: Literal["assistant"]
    content: str | list[Annotated[_OutputText | _Refusal, Field(discriminator="type")]]
    id: _MessageId | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class _ReasoningItem(_Item):
    id: _ReasoningId | None = None
    summary: list[_Text]
    content: list[_Text] | None = None
    encrypted_content: str


class _FunctionCall(_Item):
    call_id: _CallId
    name: _FunctionName
    arguments: str
    id: _CallItemId | None = None


class _FunctionCallOutput(_Item):
    call_id: _CallId
    output: str | list[Annotated[_InputText | _InputImage, Field(discriminator="type")]]


class _CompactionItem(_Item):
    id: _CompactionId | None = None
    encrypted_content: str


_ITEMS: Mapping[str, type[_Item]] = {
    COMPACTION: _CompactionItem,
    CALL: _FunctionCall,
    OUTPUT: _FunctionCallOutput,
    "message": _Message,
    "reasoning": _ReasoningItem,
}


def check_item(item: Any, place: JsonPath) -> None:
    """Check an input item. Raises RequestRejected for an invalid item. `place` is the item's path in error messages."""
    where = format_path(place)
    if not isinstance(item, dict):
        reject_invalid(where, "expected an object")
    if "type" not in item:
        reject_missing(f"{where}.type")
    name = check_supported_value(item["type"], f"{where}.type", sorted(_ITEMS))
    is_answer = name == "message" and item.get("role") == "assistant"
    read = read_openai_shape(_AssistantMessage if is_answer else _ITEMS[name], item, place)
    field = "output" if isinstance(read, _FunctionCallOutput) else "content"
    parts = getattr(read, field, None)
    if parts in ("", []) and name == "message":
        reject_invalid(f"{where}.{field}", "empty content")
    for index, part in enumerate(parts if isinstance(parts, list) else ()):
        if isinstance(part, _InputImage):
            check_image_url(part.image_url, f"{where}.{field}[{index}].image_url")


def find_item_side(item: InputItem) -> ItemSide:
    """Return `user` for user messages and tool outputs, `model` for the model's items, or `frame` for other items."""
    if item["type"] == "message":
        role = item["role"]
        return "user" if role == "user" else "model" if role == "assistant" else "frame"
    return "user" if item["type"] == OUTPUT else "model"


def join_item_text(content: Any) -> str:
    """Return the text of a message or a tool output. Images and other parts are ignored."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = [part.get("text") for part in content]
    return "\n".join(text for text in texts if isinstance(text, str))


def find_last_compaction(items: Sequence[InputItem]) -> int:
    """Return the index of the last compaction item. The model ignores all earlier items except developer messages."""
    return max((index for index, item in enumerate(items) if item["type"] == COMPACTION), default=0)


@dataclass(frozen=True, slots=True)
class OpenAiConversation:
    """The conversation in a request. `system` is the text of developer and system messages."""

    items: tuple[InputItem, ...]
    state: ConversationState
    system: str


def read_conversation(items: Sequence[InputItem]) -> OpenAiConversation:
    system = [join_item_text(item["content"]) for item in items if find_item_side(item) == "frame"]
    return OpenAiConversation(tuple(items), read_conversation_state(_iter_parts(items)), "\n".join(system))


def _iter_parts(items: Sequence[InputItem]) -> Iterator[DialoguePart]:
    run: int | None = None
    for index, item in enumerate(items):
        match find_item_side(item):
            case "user":
                is_prompt = item["type"] == "message"
                text = join_item_text(item["content"]) if is_prompt else None
                yield DialoguePart(index, False, text, None if is_prompt else join_item_text(item["output"]))
                run = None
            case "model":
                # Consecutive items from the model belong to the same answer.
                run = index if run is None else run
                yield DialoguePart(run, True)
            case "frame":
                pass
