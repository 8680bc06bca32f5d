"""Thinking, effort, sampling, tools and tool_choice of an Anthropic request: what each model takes, and what it means.

The result of the checks is a `Mode`; everything refused raises `Refused` with the service's own words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from thinklsp.simulator.anthropic.envelope import extra, invalid
from thinklsp.simulator.anthropic.models import EFFORTS, ModelTraits

Kind = Literal["adaptive", "between_tools", "disabled", "enabled"]
Display = Literal["summarized", "omitted", "updates"]
_INTERLEAVED = "interleaved-thinking-2025-05-14"
_BINDING = "thinking-binding-controls-2026-08-01"
_UPDATES = "thinking-display-updates-2026-08-18"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_USE_ADAPTIVE = 'Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
_FORMS: Mapping[Kind, frozenset[str]] = {
    "adaptive": frozenset({"type", "display", "block_binding"}),
    "between_tools": frozenset({"type"}),
    "disabled": frozenset({"type"}),
    "enabled": frozenset({"type", "budget_tokens", "display", "block_binding"}),
}


@dataclass(frozen=True, slots=True)
class Mode:
    """How the model thinks in this request.

    `interleaved`: it may think between tool calls too. `drop_unbound`: thinking that belongs to another prefix is
    dropped instead of refused. `reports`: dropped blocks are told in the answer.
    """

    kind: Kind
    display: Display
    budget: int | None = None
    effort: str | None = None
    interleaved: bool = True
    drop_unbound: bool = False
    reports: bool = False

    @property
    def on(self) -> bool:
        return self.kind in ("adaptive", "enabled")


def check_options(body: Mapping[str, Any], traits: ModelTraits, betas: frozenset[str], *, counting: bool) -> Mode:
    """Everything in the body but system and messages."""
    if not counting:
        _check_max_tokens(body, traits)
        _check_scalars(body)
    effort = check_effort(body.get("output_config"), traits)
    mode = _mode(body.get("thinking"), traits, betas, effort)
    _check_effort_when_off(mode, traits)
    if mode.budget is not None and not counting:
        _check_budget(mode, body["max_tokens"], betas)
    _check_sampling(body, traits, mode)
    names = _check_tools(body.get("tools"))
    _check_tool_choice(body.get("tool_choice"), traits, mode, names)
    return mode


def check_effort(config: Any, traits: ModelTraits) -> str | None:
    if config is None:
        return None
    if not isinstance(config, Mapping):
        invalid("output_config: Input should be a valid dictionary")
    for key in config:
        if key not in ("effort", "format", "task_budget"):
            extra(f"output_config.{key}")
    effort = config.get("effort")
    if effort is None:
        return None
    if effort not in EFFORTS:
        invalid("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    if effort not in traits.efforts:
        known = ", ".join(traits.efforts) or "none"
        invalid(f"output_config.effort: '{effort}' is not supported by this model. Supported levels: {known}.")
    return str(effort)


def _mode(config: Any, traits: ModelTraits, betas: frozenset[str], effort: str | None) -> Mode:
    default: Display = "omitted" if traits.modern else "summarized"
    if config is None:
        unasked: Kind = "adaptive" if traits.thinks_unasked else "disabled"
        return Mode(unasked, default, effort=effort, reports=_BINDING in betas)
    if not isinstance(config, Mapping):
        invalid("thinking: Input should be a valid dictionary")
    kind = _kind(config)
    for key in config:
        if key not in _FORMS[kind] or (key == "block_binding" and _BINDING not in betas):
            extra(f"thinking.{kind}.{key}")
    _check_form(kind, traits)
    return Mode(
        kind,
        _display(config, kind, default, betas),
        budget=_budget(config) if kind == "enabled" else None,
        effort=effort,
        interleaved=kind != "enabled" or _interleaves(traits, betas),
        drop_unbound=_drops(config.get("block_binding"), kind),
        reports=_BINDING in betas,
    )


def _kind(config: Mapping[str, Any]) -> Kind:
    asked = config.get("type")
    if asked is None:
        invalid("thinking: Unable to extract tag using discriminator 'type'")
    kind = next((kind for kind in _FORMS if asked == kind), None)
    if kind is None:
        tags = ", ".join(f"'{name}'" for name in _FORMS)
        invalid(f"thinking: Input tag '{asked}' found using 'type' does not match any of the expected tags: {tags}")
    return kind


def _check_form(kind: str, traits: ModelTraits) -> None:
    match kind:
        case "adaptive" if not traits.adaptive:
            invalid("adaptive thinking is not supported on this model")
        case "enabled" if not traits.manual:
            invalid(f'"thinking.type.enabled" is not supported for this model. {_USE_ADAPTIVE}')
        case "between_tools" if not traits.between_tools:
            invalid('"thinking.type.between_tools" is not supported for this model.')
        case "disabled" if traits.between_tools:
            invalid(
                'To turn thinking off on this model, send "thinking": {"type": "between_tools"} instead of '
                '{"type": "disabled"}.'
            )
        case "disabled" if traits.off == "never" and traits.manual:
            invalid(
                '"thinking.type.disabled" is not supported for this model. Thinking defaults to adaptive mode when '
                'not specified; use "thinking.type.enabled" with "budget_tokens" for extended thinking.'
            )
        case "disabled" if traits.off == "never":
            invalid(f'"thinking.type.disabled" is not supported for this model. {_USE_ADAPTIVE}')
        case _:
            pass


def _display(config: Mapping[str, Any], kind: str, default: Display, betas: frozenset[str]) -> Display:
    display = config.get("display")
    if display is None:
        return default
    if display not in ("summarized", "omitted") and not (display == "updates" and _UPDATES in betas):
        invalid(f"thinking.{kind}.display: Input should be 'summarized' or 'omitted'")
    result: Display = display
    return result


def _drops(binding: Any, kind: str) -> bool:
    if binding is None:
        return False
    place = f"thinking.{kind}.block_binding"
    if not isinstance(binding, Mapping):
        invalid(f"{place}: Input should be a valid dictionary")
    for key in binding:
        if key != "prefix_mismatch_behavior":
            extra(f"{place}.{key}")
    behavior = binding.get("prefix_mismatch_behavior")
    if behavior not in (None, "error", "drop_block"):
        invalid(f"{place}.prefix_mismatch_behavior: Input should be 'error' or 'drop_block'")
    return bool(behavior == "drop_block")


def _budget(config: Mapping[str, Any]) -> int:
    if "budget_tokens" not in config:
        invalid("thinking.enabled.budget_tokens: Field required")
    budget = config["budget_tokens"]
    if not _is_integer(budget):
        invalid("thinking.enabled.budget_tokens: Input should be a valid integer")
    if budget < 1024:
        invalid("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    return int(budget)


def _interleaves(traits: ModelTraits, betas: frozenset[str]) -> bool:
    return traits.interleaves == "always" or (traits.interleaves == "with_header" and _INTERLEAVED in betas)


def _check_effort_when_off(mode: Mode, traits: ModelTraits) -> None:
    limited = traits.off == "up_to_high" or traits.between_tools
    if not mode.on and limited and mode.effort in ("xhigh", "max"):
        invalid(
            f"output_config.effort '{mode.effort}' is not supported when thinking is disabled on this model. "
            "Use effort 'high' or below, or enable thinking."
        )


def _check_max_tokens(body: Mapping[str, Any], traits: ModelTraits) -> None:
    limit = body["max_tokens"]
    if not _is_integer(limit):
        invalid("max_tokens: Input should be a valid integer")
    if limit < 0:
        invalid("max_tokens: Input should be greater than or equal to 0")
    if limit > traits.max_tokens:
        invalid(
            f"max_tokens: {limit} > {traits.max_tokens}, which is the maximum allowed number of output tokens "
            f"for {body['model']}"
        )


def _check_scalars(body: Mapping[str, Any]) -> None:
    if not isinstance(body.get("stream", False), bool):
        invalid("stream: Input should be a valid boolean")
    stops = body.get("stop_sequences") or []
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        invalid("stop_sequences: Input should be a valid list of strings")
    if not isinstance(body.get("metadata") or {}, Mapping):
        invalid("metadata: Input should be a valid dictionary")


def _check_budget(mode: Mode, max_tokens: int, betas: frozenset[str]) -> None:
    spans_the_turn = mode.interleaved and _INTERLEAVED in betas and max_tokens > 0
    if mode.budget is not None and mode.budget >= max_tokens and not spans_the_turn:
        invalid("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_sampling(body: Mapping[str, Any], traits: ModelTraits, mode: Mode) -> None:
    defaults = {"temperature": 1, "top_p": 1, "top_k": None}
    changed = {key: body[key] for key in defaults if body.get(key) not in (None, defaults[key])}
    for key, value in changed.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            invalid(f"{key}: Input should be a valid number")
    if changed and traits.modern:
        invalid(f"`{next(iter(changed))}` is deprecated for this model.")
    if mode.on and "temperature" in changed:
        invalid("`temperature` may only be set to 1 when thinking is enabled.")
    if mode.on and "top_k" in changed:
        invalid("`top_k` must be unset when thinking is enabled.")
    if mode.on and not 0.95 <= changed.get("top_p", 1) <= 1:
        invalid("`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled.")


def _check_tools(tools: Any) -> frozenset[str]:
    if tools is None:
        return frozenset()
    if not isinstance(tools, list):
        invalid("tools: Input should be a valid list")
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            invalid(f"tools.{index}: Input should be a valid dictionary")
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            invalid(f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in names:
            invalid("tools: Tool names must be unique.")
        names.add(name)
        if tool.get("type") in (None, "custom"):
            _check_custom_tool(tool, f"tools.{index}.custom")
    return frozenset(names)


_TOOL_KEYS = frozenset(
    {"name", "type", "description", "input_schema", "cache_control", "strict", "defer_loading"}
    | {"eager_input_streaming", "input_examples", "allowed_callers"}
)


def _check_custom_tool(tool: Mapping[str, Any], place: str) -> None:
    for key in tool:
        if key not in _TOOL_KEYS:
            extra(f"{place}.{key}")
    schema = tool.get("input_schema")
    if not isinstance(schema, Mapping):
        invalid(f"{place}.input_schema: Field required")
    if schema.get("type") != "object":
        invalid(f"{place}.input_schema.type: Input should be 'object'")
    if not isinstance(tool.get("description", ""), str):
        invalid(f"{place}.description: Input should be a valid string")


def _check_tool_choice(choice: Any, traits: ModelTraits, mode: Mode, names: frozenset[str]) -> None:
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if kind not in ("auto", "any", "none", "tool"):
        invalid("tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', 'tool', 'none'")
    if not names:
        invalid("tool_choice: may only be specified while providing `tools`.")
    if kind in ("any", "tool"):
        if traits.forced_tools == "no":
            invalid('tool_choice: type "tool" and "any" are not supported for this model.')
        if mode.kind == "enabled":
            invalid("Thinking may not be enabled when tool_choice forces tool use.")
    if kind == "tool" and str(choice.get("name")) not in names:
        invalid(f"Tool '{choice.get('name')}' not found in provided tools")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
