"""Checks for the options in a Messages API request, such as headers, thinking, effort, sampling and tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from tests.stand_ins.anthropic.models import AnthropicEffort, AnthropicTraits
from tests.stand_ins.dialect import read_bearer_token
from tests.stand_ins.rejections import RequestRejected, Shape, read_shape, reject, reject_like_pydantic
from tests.stand_ins.tables import read_table

ThinkingKind = Literal["adaptive", "between_tools", "disabled", "enabled"]
AnthropicThinkingDisplay = Literal["summarized", "omitted", "updates"]
NEWEST_VERSION = "2026-10-21"
_VERSIONS = frozenset({"2023-06-01", NEWEST_VERSION})
_INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_UPDATES_BETA = "thinking-display-updates-2026-08-18"
_USE_ADAPTIVE = 'Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
_TABLE = read_table("models")["anthropic"]
_PROPERTY_KEY = re.compile("[a-zA-Z0-9_.-]{1,64}")


class _Binding(Shape):
    prefix_mismatch_behavior: Literal["error", "drop_block"] | None = None


class _Adaptive(Shape):
    type: Literal["adaptive"]
    display: AnthropicThinkingDisplay | None = None
    block_binding: _Binding | None = None


class _Manual(Shape):
    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1024)]
    display: AnthropicThinkingDisplay | None = None
    block_binding: _Binding | None = None


class _BetweenTools(Shape):
    type: Literal["between_tools"]


class _Disabled(Shape):
    type: Literal["disabled"]


class OutputConfig(Shape):
    effort: AnthropicEffort | None = None
    format: Any = None
    task_budget: Any = None


class CacheControl(Shape):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class _Choice(Shape):
    type: Literal["auto", "any", "none"]
    disable_parallel_tool_use: bool | None = None


class _NamedChoice(Shape):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool | None = None


class _Tool(Shape):
    """A tool that the service provides. The valid keys depend on the tool's type, so unknown keys are accepted."""

    model_config = ConfigDict(extra="allow")
    name: Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,128}$")]


class _Schema(Shape):
    model_config = ConfigDict(extra="allow")
    type: Literal["object"]


class _CustomTool(_Tool):
    model_config = ConfigDict(extra="forbid")
    input_schema: _Schema
    type: Literal["custom"] | None = None
    description: str | None = None
    cache_control: Any = None
    strict: Any = None
    defer_loading: Any = None
    eager_input_streaming: Any = None
    input_examples: Any = None
    allowed_callers: Any = None


class _AnswerKeys(Shape):
    """The keys that are valid in a message request but not in a token count request."""

    max_tokens: Annotated[int, Field(ge=0)]
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    container: Any = None
    diagnostics: Any = None
    inference_geo: Any = None
    service_tier: Any = None
    fallback_credit_token: Any = None
    fallbacks: Any = None
    mcp_servers: Any = None
    thread: Any = None


class CountTokensRequest(Shape):
    model: str
    messages: list[Any]
    system: str | list[Any] | None = None
    thinking: Annotated[_Adaptive | _Manual | _BetweenTools | _Disabled, Field(discriminator="type")] | None = None
    output_config: OutputConfig | None = None
    tools: list[Any] | None = None
    tool_choice: Annotated[_Choice | _NamedChoice, Field(discriminator="type")] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    cache_control: CacheControl | None = None
    speed: Any = None
    compaction: Any = None
    context_management: Any = None


class MessageRequest(CountTokensRequest, _AnswerKeys):
    """The body of a message request."""


@dataclass(frozen=True, slots=True)
class AnthropicThinkingMode:
    """The thinking settings in a request.

    If `is_interleaved` is true, thinking is also possible between tool calls. If `drop_unbound` is true, thinking after
    changed messages is dropped instead of rejected. If `reports_drops` is true, the answer lists the dropped blocks.
    """

    kind: ThinkingKind
    display: AnthropicThinkingDisplay
    budget: int | None = None
    effort: str | None = None
    is_interleaved: bool = True
    drop_unbound: bool = False
    reports_drops: bool = False

    @property
    def is_on(self) -> bool:
        return self.kind in ("adaptive", "enabled")


def reject_extra_key(place: str) -> None:
    """Reject a key that the service does not support."""
    reject(f"{place}: Extra inputs are not permitted")


def check_headers(headers: Mapping[str, str]) -> frozenset[str]:
    """Check the API key and the version header, and return the beta names. Any API key is accepted."""
    if not headers.get("x-api-key", "").strip() and not read_bearer_token(headers):
        raise RequestRejected(401, "x-api-key header is required")
    version = headers.get("anthropic-version")
    if version is None:
        reject("anthropic-version: header is required")
    if version not in _VERSIONS:
        reject(f'anthropic-version: "{version}" is not a valid version')
    betas = [beta.strip() for beta in headers.get("anthropic-beta", "").split(",") if beta.strip()]
    for beta in betas:
        if beta not in _TABLE["betas"]:
            reject(
                f"Unexpected value(s) `{beta}` for the `anthropic-beta` header. Please consult our documentation "
                "at platform.claude.com/docs or try again without the header."
            )
    return frozenset(betas)


def read_request(
    body: Mapping[str, Any], version: str, betas: frozenset[str], *, counting: bool
) -> CountTokensRequest | MessageRequest:
    """Parse a request body and check all values that do not depend on the model."""
    request = read_shape(CountTokensRequest if counting else MessageRequest, body, (), reject_like_pydantic)
    for key in body:
        prefixes = _TABLE["beta_keys"].get(key)
        if prefixes is not None and not any(beta.startswith(tuple(prefixes)) for beta in betas):
            reject_extra_key(key)
        if key in ("temperature", "top_p", "top_k") and version == NEWEST_VERSION:
            reject_extra_key(key)
    return request


def check_options(
    request: CountTokensRequest | MessageRequest, traits: AnthropicTraits, betas: frozenset[str]
) -> AnthropicThinkingMode:
    """Check a request body, except for the system prompt and the messages."""
    effort = check_effort(request.output_config, traits)
    mode = _read_mode(request, traits, betas, effort)
    limited = traits.off == "up_to_high" or traits.between_tools
    if not mode.is_on and limited and effort in ("xhigh", "max"):
        reject(
            f"output_config.effort '{effort}' is not supported when thinking is disabled on this model. "
            "Use effort 'high' or below, or enable thinking."
        )
    if isinstance(request, MessageRequest):
        _check_max_tokens(request, traits, mode, betas)
    _check_sampling(request, traits, mode)
    _check_tool_choice(request, traits, mode, _read_tools(request.tools or ()))
    return mode


def check_effort(config: OutputConfig | None, traits: AnthropicTraits) -> str | None:
    effort = config.effort if config is not None else None
    if effort is not None and effort not in traits.efforts:
        levels = ", ".join(traits.efforts) or "none"
        reject(f"output_config.effort: '{effort}' is not supported by this model. Supported levels: {levels}.")
    return effort


def _read_mode(
    request: CountTokensRequest, traits: AnthropicTraits, betas: frozenset[str], effort: str | None
) -> AnthropicThinkingMode:
    config = request.thinking
    default: AnthropicThinkingDisplay = "omitted" if traits.modern else "summarized"
    if config is None:
        return AnthropicThinkingMode(
            "adaptive" if traits.thinks_unasked else "disabled",
            default,
            effort=effort,
            reports_drops=_BINDING_BETA in betas,
        )
    _check_thinking_kind(config.type, traits)
    if not isinstance(config, _Adaptive | _Manual):
        return AnthropicThinkingMode(config.type, default, effort=effort, reports_drops=_BINDING_BETA in betas)
    if "block_binding" in config.model_fields_set and _BINDING_BETA not in betas:
        reject_extra_key(f"thinking.{config.type}.block_binding")
    if config.display == "updates" and _UPDATES_BETA not in betas:
        reject(f"thinking.{config.type}.display: Input should be 'summarized' or 'omitted'")
    interleaves = traits.interleaves == "always" or (traits.interleaves == "with_header" and _INTERLEAVED_BETA in betas)
    return AnthropicThinkingMode(
        config.type,
        config.display or default,
        budget=config.budget_tokens if isinstance(config, _Manual) else None,
        effort=effort,
        is_interleaved=config.type != "enabled" or interleaves,
        drop_unbound=config.block_binding is not None and config.block_binding.prefix_mismatch_behavior == "drop_block",
        reports_drops=_BINDING_BETA in betas,
    )


def _check_thinking_kind(kind: ThinkingKind, traits: AnthropicTraits) -> None:
    is_rejected = {
        "adaptive": not traits.adaptive,
        "enabled": not traits.manual,
        "between_tools": not traits.between_tools,
        "disabled": traits.off == "never",
    }
    if not is_rejected[kind]:
        return
    if kind == "adaptive":
        reject("adaptive thinking is not supported on this model")
    if kind == "disabled" and traits.between_tools:
        reject(
            'To turn thinking off on this model, send "thinking": {"type": "between_tools"} instead of '
            '{"type": "disabled"}.'
        )
    hint = "" if kind == "between_tools" else f" {_USE_ADAPTIVE}"
    if kind == "disabled" and traits.manual:
        hint = (
            " Thinking defaults to adaptive mode when not specified; "
            'use "thinking.type.enabled" with "budget_tokens" for extended thinking.'
        )
    reject(f'"thinking.type.{kind}" is not supported for this model.{hint}')


def _check_max_tokens(
    request: MessageRequest, traits: AnthropicTraits, mode: AnthropicThinkingMode, betas: frozenset[str]
) -> None:
    limit = request.max_tokens
    if limit > traits.max_tokens:
        reject(
            f"max_tokens: {limit} > {traits.max_tokens}, which is the maximum allowed number of output tokens "
            f"for {request.model}"
        )
    spans_the_turn = mode.is_interleaved and _INTERLEAVED_BETA in betas and limit > 0
    if mode.budget is not None and mode.budget >= limit and not spans_the_turn:
        reject("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_sampling(request: CountTokensRequest, traits: AnthropicTraits, mode: AnthropicThinkingMode) -> None:
    given = {"temperature": request.temperature, "top_p": request.top_p, "top_k": request.top_k}
    changed = {key: value for key, value in given.items() if value not in (None, 1 if key != "top_k" else None)}
    if changed and traits.modern:
        reject(f"`{next(iter(changed))}` is deprecated for this model.")
    if mode.is_on and "temperature" in changed:
        reject("`temperature` may only be set to 1 when thinking is enabled.")
    if mode.is_on and "top_k" in changed:
        reject("`top_k` must be unset when thinking is enabled.")
    if mode.is_on and request.top_p is not None and not 0.95 <= request.top_p <= 1:
        reject("`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled.")


def _read_tools(tools: list[Any] | tuple[()]) -> frozenset[str]:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        is_own = isinstance(tool, dict) and tool.get("type") not in (None, "custom")
        read = read_shape(_Tool if is_own else _CustomTool, tool, ("tools", index, "custom"), reject_like_pydantic)
        if read.name in names:
            reject("tools: Tool names must be unique.")
        if not is_own:
            _check_input_schema(tool["input_schema"], f"tools.{index}.custom.input_schema")
        names.add(read.name)
    return frozenset(names)


def _check_input_schema(schema: Mapping[str, Any], place: str) -> None:
    if {"oneOf", "allOf", "anyOf"} & schema.keys():
        reject(f"{place}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    properties = schema.get("properties")
    if isinstance(properties, dict) and not all(_PROPERTY_KEY.fullmatch(key) for key in properties):
        reject(f"{place}.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'")


def _check_tool_choice(
    request: CountTokensRequest, traits: AnthropicTraits, mode: AnthropicThinkingMode, names: frozenset[str]
) -> None:
    choice = request.tool_choice
    if choice is None:
        return
    if not names:
        reject("tool_choice: may only be specified while providing `tools`.")
    if choice.type in ("any", "tool"):
        if traits.forced_tools == "no":
            reject('tool_choice: type "tool" and "any" are not supported for this model.')
        if mode.kind == "enabled":
            reject("Thinking may not be enabled when tool_choice forces tool use.")
    if isinstance(choice, _NamedChoice) and choice.name not in names:
        reject(f"Tool '{choice.name}' not found in provided tools")
