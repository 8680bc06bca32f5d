"""The models of the simulated Responses API, and the request options that each model accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from tests.stand_ins.dialect import parse_json
from tests.stand_ins.rejections import (
    RequestRejected,
    Shape,
    check_supported_value,
    read_shape,
    reject,
    reject_like_openai,
    reject_type,
    reject_unsupported_key,
    reject_unsupported_value,
)
from tests.stand_ins.tables import read_table
from thinklsp.offline.scenario import TableRow

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# A model family whose model names have not been published. Its models behave like the model `_NEWEST_LIKE`.
_NEWEST_FAMILY = re.compile(r"gpt-6\.2-[a-z]+(-law)?")
_NEWEST_LIKE = "gpt-6.1-sol"
_ENCRYPTED = "reasoning.encrypted_content"
_Summary = Literal["auto", "concise", "detailed"]
_Include = Literal[
    "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
    "message.input_image.image_url", "message.output_text.logprobs", "reasoning.encrypted_content",
    "web_search_call.action.sources", "web_search_call.results",
]  # fmt: skip
# Maps keys of the Chat Completions API to the keys of the Responses API that replace them.
_RENAMED_KEYS = {
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
}


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
    def can_reason(self) -> bool:
        return bool(self.efforts)

    @property
    def reasoning_values(self) -> Mapping[str, tuple[str, ...]]:
        """The valid values for each key in the `reasoning` setting."""
        summaries = ("auto", "concise", "detailed") if self.version > (5, 0) else ("auto", "detailed")
        return {
            "summary": summaries,
            "generate_summary": summaries,
            "context": ("auto", "current_turn", "all_turns")[: 2 + (self.version >= (5, 4))],
            "mode": ("standard", "pro")[: 1 + (self.version >= (5, 6))],
        }

    @property
    def keeps_earlier_reasoning(self) -> bool:
        """True if reasoning from earlier turns stays in the context by default."""
        return self.version >= (5, 6)

    @property
    def has_phases(self) -> bool:
        """True if each message is marked as commentary or as the final answer."""
        return self.version >= (5, 4)

    @property
    def binds_reasoning(self) -> bool:
        """True if reasoning is valid only after unchanged earlier items.

        If earlier items have changed, the reasoning is dropped, and the response lists the dropped items.
        """
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
    traits = _find_traits(name)
    if traits is None:
        raise RequestRejected(
            404,
            f"The model `{name}` does not exist or you do not have access to it.",
            param="model",
            code="model_not_found",
        )
    return traits


def build_model_info(name: str) -> dict[str, Any]:
    """Return a model's entry in the list of models. The service does not include any capabilities."""
    if _find_traits(name) is None:
        raise RequestRejected(404, f"The model '{name}' does not exist", param="model", code="model_not_found")
    return {"id": name, "object": "model", "created": 0, "owned_by": "openai"}


def _find_traits(name: str) -> OpenAiTraits | None:
    if _NEWEST_FAMILY.fullmatch(name):
        return OPENAI_MODELS[_NEWEST_LIKE].model_copy(update={"id": name, "version": (6, 2)})
    return OPENAI_MODELS.get(name)


class _Reasoning(Shape):
    effort: Any = None
    summary: _Summary | None = None
    generate_summary: _Summary | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Literal["standard", "pro"] | None = None


class _Compaction(Shape):
    type: Literal["compaction"]
    compact_threshold: Annotated[int, Field(ge=1)] | None = None


class _StreamOptions(Shape):
    include_obfuscation: bool | None = None


class _CacheOptions(Shape):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m", "12h"] | None = None
    comparison_response_id: Any = None
    prewarm: Any = None


class _Format(Shape, extra="ignore"):
    type: Literal["text", "json_object", "json_schema"]


class _Text(Shape):
    format: _Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ResponseRequest(Shape):
    model: str
    input: Any = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    reasoning: _Reasoning | None = None
    text: _Text | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=16)] | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    include: list[_Include] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    store: bool | None = None
    background: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: list[_Compaction] | None = None
    prompt_cache_key: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    prompt_cache_options: _CacheOptions | None = None
    prompt_cache_retention: Any = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    user: str | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None = None
    access_programs: Any = None
    image: Any = None
    moderation: Any = None


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """The options in a request.

    `effort` is the effective effort, or None for models without reasoning. `summary` is true if the client requests
    reasoning summaries. If `all_turns` is true, reasoning from earlier turns stays in the context. `end_user`
    identifies the client's user, if given. `compact_at` is the number of tokens at which the service compacts the
    conversation.
    """

    traits: OpenAiTraits
    effort: str | None
    summary: bool
    all_turns: bool
    pro: bool
    stream: bool
    store: bool
    obfuscates_deltas: bool
    truncates_input: bool
    caches_implicitly: bool
    end_user: str | None
    compact_at: int | None

    @property
    def thinks(self) -> bool:
        return self.effort not in (None, "none")


def parse_body(raw: bytes) -> Mapping[str, Any]:
    try:
        body = parse_json(raw)
    except ValueError:
        reject(
            "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP "
            "library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)"
        )
    if not isinstance(body, dict):
        reject_type("body", "an object", body)
    return body


def read_request(body: Mapping[str, Any]) -> ResponseRequest:
    """Parse a request body and check all values that do not depend on the model."""
    for key in body:
        if key in _RENAMED_KEYS:
            reject(
                f"Unsupported parameter: '{key}'. In the Responses API, this parameter has moved to "
                f"'{_RENAMED_KEYS[key]}'. Try again with the new parameter. "
                "See the API documentation for more information: https://platform.openai.com/docs/api-reference/responses/create.",
                None,
                "unsupported_parameter",
            )
    return read_shape(ResponseRequest, body, (), reject_like_openai)


def check_options(request: ResponseRequest, traits: OpenAiTraits) -> ResponseOptions:
    reasoning = request.reasoning or _Reasoning()
    _check_reasoning(reasoning, traits)
    if request.stream_options is not None and not request.stream:
        reject("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if request.context_management and not traits.can_compact:
        reject_unsupported_key("context_management")
    if _ENCRYPTED in (request.include or ()) and not traits.can_reason:
        reject("Encrypted content is not supported with this model.", "include")
    context = reasoning.context or "auto"
    options = ResponseOptions(
        traits,
        reasoning.effort or (traits.default if traits.can_reason else None),
        summary=bool(reasoning.summary or reasoning.generate_summary),
        all_turns=traits.keeps_earlier_reasoning if context == "auto" else context == "all_turns",
        pro=reasoning.mode == "pro",
        stream=bool(request.stream),
        store=request.store is not False,
        obfuscates_deltas=request.stream_options is None or request.stream_options.include_obfuscation is not False,
        truncates_input=request.truncation == "auto",
        caches_implicitly=request.prompt_cache_options is None or request.prompt_cache_options.mode != "explicit",
        end_user=request.safety_identifier or request.user,
        compact_at=max((entry.compact_threshold or 0 for entry in request.context_management or ()), default=0) or None,
    )
    for key in ("temperature", "top_p", "top_logprobs"):
        if getattr(request, key) is not None and options.thinks:
            reject_unsupported_key(key)
    return options


def check_effort(effort: Any, traits: OpenAiTraits, place: str) -> None:
    if effort is None:
        return
    if not traits.can_reason:
        reject_unsupported_key(place)
    if check_supported_value(effort, place, EFFORTS) not in traits.efforts:
        reject_unsupported_value(place, effort, traits.id, traits.efforts)


def _check_reasoning(reasoning: _Reasoning, traits: OpenAiTraits) -> None:
    check_effort(reasoning.effort, traits, "reasoning.effort")
    for key, accepted in traits.reasoning_values.items():
        given = getattr(reasoning, key)
        # Models without reasoning accept and ignore these keys.
        if given is not None and given not in accepted and traits.can_reason:
            reject_unsupported_value(f"reasoning.{key}", given, traits.id, accepted)
