"""The servers that one port plays, told apart by model id: one row each, with what it takes and how it answers.

It is kept apart from the program's own table of servers on purpose: a client is tested against an independent account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from thinklsp.simulator.chat.errors import Envelope

Knob = Literal["reasoning_effort", "reasoning", "thinking", "chat_template_kwargs", "enable_thinking", "think"]
_OPENAI_ROLES = ("system", "assistant", "user", "tool", "developer")
_SCALE = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class Flavour:
    """How one kind of server behaves.

    `reasoning`: the field in which thinking is delivered, None where the model does not think. `details`: it comes
    sealed in `reasoning_details` too. `knobs`: request keys about thinking that are read; others are ignored.
    `efforts`: levels that are taken, None for any. `calls`: how tool calls stream: opened once and then in pieces;
    whole in one chunk; with id and name in every delta and index 0 always; or without any index.
    `named_chunks`: every chunk carries role and content. `closed`: unknown keys are refused. `fits`: a cap on the
    answer must fit into the window beside the prompt. `hosted`: a key is needed.
    """

    name: str
    reasoning: Literal["reasoning", "reasoning_content"] | None = "reasoning_content"
    details: bool = False
    knobs: frozenset[Knob] = frozenset({"reasoning_effort"})
    efforts: tuple[str, ...] | None = None
    roles: tuple[str, ...] = _OPENAI_ROLES
    calls: Literal["opened", "whole", "repeated", "unnumbered"] = "opened"
    call_ids: Literal["call", "numbered", "plain", "figures"] = "call"
    named_chunks: bool = False
    first_content: str | None = ""
    lies_about_calls: bool = False
    counts_thinking: bool = False
    counts_cached: bool = True
    usage_on: Literal["own_chunk", "finish", "every"] = "own_chunk"
    envelope: Envelope = "openai"
    broken: Literal["data", "event", "text", "line", "choices", "silence"] = "data"
    comment: bytes = b": keep-alive\n\n"
    fingerprint: str | None = None
    closed: bool = False
    fits: bool = False
    hosted: bool = False
    window: int = 131_072


_LLAMA_CPP = Flavour(
    "llama.cpp",
    knobs=frozenset({"reasoning_effort", "chat_template_kwargs"}),
    call_ids="plain",
    first_content=None,
    envelope="llama.cpp",
    comment=b":\n\n",
    fingerprint="b9931-simulated",
    window=32_768,
)
GENERIC = Flavour(
    "generic",
    knobs=frozenset({"reasoning_effort", "reasoning", "thinking", "chat_template_kwargs", "enable_thinking"}),
    counts_thinking=True,
)
OPENROUTER = Flavour(
    "openrouter",
    reasoning="reasoning",
    details=True,
    knobs=frozenset({"reasoning_effort", "reasoning"}),
    efforts=_SCALE,
    named_chunks=True,
    counts_thinking=True,
    envelope="openrouter",
    broken="choices",
    comment=b": OPENROUTER PROCESSING\n\n",
    hosted=True,
    window=200_000,
)
_DEEPSEEK = Flavour(
    "deepseek",
    knobs=frozenset({"reasoning_effort", "thinking"}),
    efforts=("minimal", "low", "medium", "high", "xhigh", "max", "ultra"),
    roles=("system", "user", "assistant", "tool"),
    call_ids="numbered",
    counts_thinking=True,
    fingerprint="fp_simulated_deepseek",
    hosted=True,
)
_OLLAMA = Flavour(
    "ollama",
    reasoning="reasoning",
    knobs=frozenset({"reasoning_effort", "reasoning"}),
    efforts=("minimal", "low", "medium", "high", "xhigh", "max", "ultra", "none"),
    calls="whole",
    named_chunks=True,
    counts_cached=False,
    envelope="ollama",
    broken="silence",
    fingerprint="fp_ollama",
)
_VLLM = Flavour(
    "vllm",
    reasoning="reasoning",
    knobs=frozenset({"reasoning_effort", "chat_template_kwargs"}),
    efforts=("none", "low", "medium", "high"),
    envelope="vllm",
    fits=True,
    window=65_536,
)
_LM_STUDIO = Flavour(
    "lmstudio",
    reasoning="reasoning",
    calls="repeated",
    call_ids="figures",
    lies_about_calls=True,
    broken="event",
    counts_cached=False,
)
_STRICT = Flavour("strict", efforts=_SCALE, usage_on="finish", envelope="vllm", closed=True, fits=True)
_PLAIN = Flavour(
    "plain",
    reasoning=None,
    knobs=frozenset({"reasoning_effort", "reasoning", "thinking", "chat_template_kwargs", "enable_thinking", "think"}),
    calls="unnumbered",
    usage_on="every",
    envelope="ollama",
    broken="text",
)
# Beginnings of model ids; the first that fits counts. An older llama.cpp wrote errors on lines of another name.
_BY_PREFIX = (
    ("deepseek", _DEEPSEEK),
    ("llama-old", replace(_LLAMA_CPP, broken="line")),
    ("llama-", _LLAMA_CPP),
    ("qwen", _LLAMA_CPP),
    ("gpt-oss", _OLLAMA),
    ("ollama", _OLLAMA),
    ("vllm-", _VLLM),
    ("lmstudio-", _LM_STUDIO),
    ("strict-", _STRICT),
    ("plain-", _PLAIN),
)
MODELS = (
    "compatible-1",
    "qwen3-8b",
    "llama-3.3-70b",
    "gpt-oss:20b",
    "deepseek-reasoner",
    "anthropic/claude-opus-5.5",
    "google/gemini-4-argon",
    "openai/gpt-6-sol",
    "vllm-qwen3-32b",
    "lmstudio-qwen3-4b",
    "strict-1",
    "plain-1",
)


def flavour_of(model: str) -> Flavour:
    """The server that has this model. A name with a slash is a router's, whatever it begins with."""
    if "/" in model:
        return OPENROUTER
    return next((flavour for prefix, flavour in _BY_PREFIX if model.startswith(prefix)), GENERIC)


def is_missing(model: str) -> bool:
    """Any name is a model here, so that scenarios can be played for all; these alone are none."""
    return model.startswith("missing")


def model_info(name: str) -> Mapping[str, Any]:
    """The models endpoint's account of one id, with its window where the server tells it."""
    flavour = flavour_of(name)
    told: Mapping[str, Mapping[str, Any]] = {
        "vllm": {"max_model_len": flavour.window},
        "llama.cpp": {"meta": {"n_ctx": flavour.window, "n_ctx_train": 4 * flavour.window}},
        "openrouter": {"context_length": flavour.window},
    }
    return {"id": name, "object": "model", "created": 0, "owned_by": flavour.name, **told.get(flavour.name, {})}
