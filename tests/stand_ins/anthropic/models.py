"""The models of the simulated Messages API, and their entries in the list of models."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

from tests.stand_ins.service_state import estimate_tokens
from tests.stand_ins.tables import read_table
from thinklsp.offline.scenario import TableRow

AnthropicEffort = Literal["low", "medium", "high", "xhigh", "max"]
_EFFORTS = get_args(AnthropicEffort)


class AnthropicTraits(TableRow):
    """The behavior of a model and the options that it accepts.

    If `thinks_unasked` is true, thinking is enabled by default. `off` specifies when a request can disable thinking:
    always, only with an effort of at most `high`, or never. If `bound` is true, a signature is valid only if all
    earlier messages are unchanged. If `keeps_thinking` is true, thinking from earlier turns stays in the context.
    `interleaves` specifies when thinking with a manual budget is possible between tool calls: always, only with a beta
    header, or never. `modern` models (4.7 and later) reject sampling keys, omit thinking by default and count more
    tokens.
    """

    id: str
    thinks_unasked: bool = True
    adaptive: bool = True
    manual: bool = False
    off: Literal["always", "up_to_high", "never"] = "never"
    between_tools: bool = False
    efforts: tuple[AnthropicEffort, ...] = _EFFORTS
    forced_tools: Literal["yes", "not_manual", "no"] = "yes"
    bound: bool = False
    prefill: bool = False
    keeps_thinking: bool = True
    interleaves: Literal["always", "with_header", "never"] = "always"
    system_role: bool = True
    modern: bool = True
    cache_minimum: int = 1024
    max_tokens: int = 128_000
    window: int = 1_000_000
    deprecated: bool = False

    def count_tokens(self, text: str) -> int:
        """Estimate the number of tokens in a text. Tokenizers of `modern` models count 30% more tokens."""
        tokens = estimate_tokens(text)
        return -(-tokens * 13 // 10) if self.modern else tokens


def _read_models() -> dict[str, AnthropicTraits]:
    table = read_table("models")["anthropic"]
    models: dict[str, AnthropicTraits] = {}
    for name, row in table["models"].items():
        own = {key: value for key, value in row.items() if key != "generation"}
        models[name] = AnthropicTraits(id=name, **{**table["generations"].get(row.get("generation"), {}), **own})
    return models | {f"{name}-{date}": models[name] for name, date in table["dated"].items()}


ANTHROPIC_MODELS = _read_models()


def build_model_info(name: str, *, window: int | None = None) -> dict[str, Any]:
    """Return a model's entry in the list of models. If given, `window` replaces the model's own context window."""
    traits = ANTHROPIC_MODELS[name]
    return {
        "type": "model",
        "id": name,
        "display_name": _format_display_name(traits.id),
        "created_at": "1970-01-01T00:00:00Z",
        "line": traits.id.split("-")[1],
        "lifecycle": "deprecated" if traits.deprecated else "active",
        "deprecated_at": None,
        "retires_at": None,
        "max_input_tokens": window or traits.window,
        "max_tokens": traits.max_tokens,
        "capabilities": _build_capabilities(traits),
    }


def _build_capabilities(traits: AnthropicTraits) -> dict[str, Any]:
    types = {
        "adaptive": traits.adaptive,
        "between_tools": traits.between_tools,
        "disabled": traits.off != "never",
        "enabled": traits.manual,
    }
    efforts = {level: {"supported": level in traits.efforts} for level in _EFFORTS}
    return {
        **read_table("models")["anthropic"]["capabilities"],
        "effort": {"supported": bool(traits.efforts), **efforts},
        "thinking": {"supported": True, "types": {name: {"supported": value} for name, value in types.items()}},
    }


def _format_display_name(name: str) -> str:
    """Format a model ID as a display name, for example `claude-opus-5-5` as `Claude Opus 5.5`."""
    return re.sub(r"(\d) (\d)", r"\1.\2", name.replace("-", " ").title())
