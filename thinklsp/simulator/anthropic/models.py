"""The models of the Anthropic service as the simulator imitates them: one row each, and the models endpoint.

It is kept apart from the program's own catalogue on purpose: a client is tested against an independent account.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from thinklsp.simulator.state import text_tokens

EFFORTS = ("low", "medium", "high", "xhigh", "max")
_UP_TO_MAX_46 = ("low", "medium", "high", "max")
_UP_TO_HIGH = ("low", "medium", "high")
_DATED = {"claude-haiku-4-5": "20251001", "claude-opus-4-5": "20251101", "claude-sonnet-4-5": "20250929"}


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What one model accepts and how it behaves.

    `thinks_unasked`: thinking is on when the request does not mention it. `off`: whether `disabled` is accepted,
    only up to effort high, or never. `bound`: signatures hold only behind the prefix that they were made for.
    `keeps_thinking`: thinking of earlier turns stays in context. `interleaves`: whether manual thinking may stand
    between tool calls. `modern`: from 4.7 on; no sampling keys, thinking omitted unless asked for, more tokens.
    """

    id: str
    thinks_unasked: bool = True
    adaptive: bool = True
    manual: bool = False
    off: Literal["always", "up_to_high", "never"] = "never"
    between_tools: bool = False
    efforts: tuple[str, ...] = EFFORTS
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

    @property
    def family(self) -> str:
        return self.id.split("-")[1]

    def count_tokens(self, text: str) -> int:
        """Return an estimate, with three tenths more for the tokenizer of the newer models."""
        tokens = text_tokens(text)
        return -(-tokens * 13 // 10) if self.modern else tokens


def _generation_45(name: str, **traits: Any) -> ModelTraits:
    row: dict[str, Any] = {
        "thinks_unasked": False, "adaptive": False, "manual": True, "off": "always", "efforts": (),
        "forced_tools": "not_manual", "prefill": True, "keeps_thinking": False, "interleaves": "with_header",
        "system_role": False, "modern": False, "cache_minimum": 4096, "max_tokens": 64_000, "window": 200_000,
    }  # fmt: skip
    return ModelTraits(name, **{**row, **traits})


def _generation_46(name: str, **traits: Any) -> ModelTraits:
    row: dict[str, Any] = {
        "thinks_unasked": False, "manual": True, "off": "always", "efforts": _UP_TO_MAX_46,
        "forced_tools": "not_manual", "system_role": False, "modern": False,
    }  # fmt: skip
    return ModelTraits(name, **{**row, **traits})


_ROWS = (
    ModelTraits("claude-fable-5-2", forced_tools="no", bound=True),
    ModelTraits("claude-mythos-5-2", forced_tools="no", bound=True),
    ModelTraits("claude-haiku-5-5", off="up_to_high", bound=True),
    ModelTraits("claude-sonnet-5-5", between_tools=True, forced_tools="no", bound=True),
    ModelTraits("claude-fable-5-1", forced_tools="no", bound=True),
    ModelTraits("claude-opus-5-5", forced_tools="no", bound=True),
    ModelTraits("claude-mythos-5-1", forced_tools="no"),
    ModelTraits("claude-sonnet-5", off="always"),
    ModelTraits("claude-fable-5", cache_minimum=512),
    ModelTraits("claude-mythos-5", cache_minimum=512),
    ModelTraits("claude-opus-5", off="up_to_high", cache_minimum=512),
    ModelTraits("claude-opus-4-8", thinks_unasked=False, off="always"),
    ModelTraits("claude-opus-4-7", thinks_unasked=False, off="always", system_role=False, cache_minimum=2048),
    ModelTraits("claude-mythos-preview", manual=True, efforts=(), cache_minimum=2048, deprecated=True),
    _generation_46("claude-opus-4-6", interleaves="never", cache_minimum=4096),
    _generation_46("claude-sonnet-4-6", interleaves="with_header"),
    _generation_45("claude-opus-4-5", efforts=_UP_TO_HIGH, keeps_thinking=True),
    _generation_45("claude-haiku-4-5", interleaves="never"),
    _generation_45("claude-sonnet-4-5", cache_minimum=1024, deprecated=True),
)
_BY_NAME = {row.id: row for row in _ROWS}
MODELS = _BY_NAME | {f"{name}-{date}": _BY_NAME[name] for name, date in _DATED.items()}


def model_info(name: str, *, window: int | None = None) -> dict[str, Any]:
    """The models endpoint's account of one id. `window` replaces the model's own context window."""
    traits = MODELS[name]
    return {
        "type": "model",
        "id": name,
        "display_name": _display_name(traits.id),
        "created_at": "1970-01-01T00:00:00Z",
        "line": traits.family,
        "lifecycle": "deprecated" if traits.deprecated else "active",
        "deprecated_at": None,
        "retires_at": None,
        "max_input_tokens": window or traits.window,
        "max_tokens": traits.max_tokens,
        "capabilities": _capabilities(traits),
    }


def _capabilities(traits: ModelTraits) -> dict[str, Any]:
    types = {
        "adaptive": traits.adaptive,
        "between_tools": traits.between_tools,
        "disabled": traits.off != "never",
        "enabled": traits.manual,
    }
    efforts = {level: _flag(level in traits.efforts) for level in EFFORTS}
    editing = ("clear_thinking_20251015", "clear_tool_uses_20250919", "compact_20260112")
    return {
        "batch": _flag(True),
        "citations": _flag(True),
        "code_execution": _flag(False),
        "context_management": {"supported": False, **{edit: _flag(False) for edit in editing}},
        "effort": {"supported": bool(traits.efforts), **efforts},
        "image_input": _flag(True),
        "pdf_input": _flag(True),
        "server_tools": {"supported": False, "code_execution": _flag(False), "web_search": _flag(False)},
        "structured_outputs": _flag(True),
        "thinking": {"supported": True, "types": {name: _flag(value) for name, value in types.items()}},
    }


def _flag(supported: bool) -> dict[str, bool]:
    return {"supported": supported}


def _display_name(name: str) -> str:
    """`claude-opus-5-5` reads as `Claude Opus 5.5`."""
    return re.sub(r"(\d) (\d)", r"\1.\2", name.replace("-", " ").title())
