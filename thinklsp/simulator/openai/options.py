"""Reasoning, sampling and the plain settings of an OpenAI request: what each model takes, and what it means.

The result of the checks is `Options`; everything refused raises `Refused` with the service's own words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from thinklsp.simulator.openai.errors import (
    array,
    choice,
    flag,
    invalid,
    number,
    only,
    required,
    short_text,
    table,
    text,
    unsupported,
    unsupported_value,
    whole_number,
    wrong_type,
)
from thinklsp.simulator.openai.models import EFFORTS, ModelTraits

_SUMMARIES = ("auto", "concise", "detailed")
_CONTEXTS = ("auto", "current_turn", "all_turns")
_MODES = ("standard", "pro")
_ENCRYPTED = "reasoning.encrypted_content"
_INCLUDES = (
    "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
    "message.input_image.image_url", "message.output_text.logprobs", _ENCRYPTED, "web_search_call.action.sources",
    "web_search_call.results",
)  # fmt: skip
_TIERS = ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")
_SAMPLING = {"temperature": 2.0, "top_p": 1.0}
_FORMATS = ("text", "json_object", "json_schema")
_MIN_OUTPUT = 16
_PLAIN: Mapping[str, Callable[[Any, str], Any]] = {
    "background": flag,
    "instructions": text,
    "max_output_tokens": lambda value, place: whole_number(value, place, _MIN_OUTPUT),
    "max_tool_calls": lambda value, place: whole_number(value, place, 1),
    "parallel_tool_calls": flag,
    "previous_response_id": text,
    "prompt_cache_key": lambda value, place: short_text(value, place, 1024),
    "safety_identifier": lambda value, place: short_text(value, place, 128),
    "service_tier": lambda value, place: choice(value, place, _TIERS),
    "store": flag,
    "stream": flag,
    "truncation": lambda value, place: choice(value, place, ("auto", "disabled")),
    "user": text,
}


@dataclass(frozen=True, slots=True)
class Options:
    """What a request asks for beside its input. `effort`: the one in effect, None for models that do not reason.

    `summary`: readable reasoning was asked for. `all_turns`: reasoning of earlier turns stays in context.
    `end_user`: who the client says is asking; None where it says nothing. `compact_at`: tokens from which on the
    conversation is compacted.
    """

    traits: ModelTraits
    effort: str | None
    summary: bool
    all_turns: bool
    pro: bool
    stream: bool
    store: bool
    obfuscates: bool
    truncates: bool
    caches: bool
    end_user: str | None
    compact_at: int | None

    @property
    def thinks(self) -> bool:
        return self.effort not in (None, "none")


def check_options(body: Mapping[str, Any], traits: ModelTraits) -> Options:
    """Everything in the body but input, tools and tool_choice."""
    for key, check in _PLAIN.items():
        if body.get(key) is not None:
            check(body[key], key)
    reasoning = _reasoning(body.get("reasoning"), traits)
    effort = reasoning.get("effort") or (traits.default if traits.reasons else None)
    context = reasoning.get("context") or "auto"
    options = Options(
        traits,
        effort,
        summary=bool(reasoning.get("summary") or reasoning.get("generate_summary")),
        all_turns=traits.keeps_reasoning if context == "auto" else context == "all_turns",
        pro=reasoning.get("mode") == "pro",
        stream=bool(body.get("stream")),
        store=body.get("store") is not False,
        obfuscates=_obfuscates(body.get("stream_options"), stream=bool(body.get("stream"))),
        truncates=body.get("truncation") == "auto",
        caches=_caches(body.get("prompt_cache_options")),
        end_user=body.get("safety_identifier") or body.get("user"),
        compact_at=_compact_at(body.get("context_management"), traits),
    )
    _check_sampling(body, options)
    _check_include(body.get("include"), traits)
    _check_text(body.get("text"))
    _check_metadata(body.get("metadata"))
    return options


def check_effort(effort: Any, traits: ModelTraits, place: str) -> str:
    if text(effort, place) and not traits.reasons:
        unsupported(place)
    choice(effort, place, EFFORTS)
    if effort not in traits.efforts:
        unsupported_value(place, effort, traits.id, traits.efforts)
    return str(effort)


def _reasoning(config: Any, traits: ModelTraits) -> Mapping[str, Any]:
    if config is None:
        return {}
    only(table(config, "reasoning"), ("context", "effort", "generate_summary", "mode", "summary"), "reasoning")
    given = {key: value for key, value in config.items() if value is not None}
    if "effort" in given:
        check_effort(given["effort"], traits, "reasoning.effort")
    for key, known, accepted in (
        ("summary", _SUMMARIES, traits.summaries),
        ("generate_summary", _SUMMARIES, traits.summaries),
        ("context", _CONTEXTS, traits.contexts),
        ("mode", _MODES, traits.modes),
    ):
        # Models that do not reason take these and do nothing with them.
        if key in given and choice(given[key], f"reasoning.{key}", known) not in accepted and traits.reasons:
            unsupported_value(f"reasoning.{key}", given[key], traits.id, accepted)
    return given


def _check_sampling(body: Mapping[str, Any], options: Options) -> None:
    given = [key for key in (*_SAMPLING, "top_logprobs") if body.get(key) is not None]
    for key in given:
        if options.thinks:
            unsupported(key)
        if key in _SAMPLING:
            number(body[key], key, 0, _SAMPLING[key])
        else:
            number(whole_number(body[key], key, 0), key, 0, 20)


def _check_include(include: Any, traits: ModelTraits) -> None:
    if include is None:
        return
    for index, name in enumerate(array(include, "include")):
        choice(name, f"include[{index}]", _INCLUDES)
    if _ENCRYPTED in include and not traits.reasons:
        invalid("Encrypted content is not supported with this model.", "include")


def _compact_at(config: Any, traits: ModelTraits) -> int | None:
    """The threshold of the one strategy that there is."""
    place = "context_management"
    found: int | None = None
    for index, entry in enumerate(array(config, place) if config is not None else ()):
        here = f"{place}[{index}]"
        only(table(entry, here), ("type", "compact_threshold"), here)
        choice(required(entry, "type", here), f"{here}.type", ("compaction",))
        if not traits.compacts:
            unsupported(place)
        if entry.get("compact_threshold") is not None:
            found = whole_number(entry["compact_threshold"], f"{here}.compact_threshold", 1)
    return found


def _check_text(config: Any) -> None:
    if config is None:
        return
    only(table(config, "text"), ("format", "verbosity"), "text")
    if config.get("verbosity") is not None:
        choice(config["verbosity"], "text.verbosity", ("low", "medium", "high"))
    if config.get("format") is not None:
        form = table(config["format"], "text.format")
        choice(required(form, "type", "text.format"), "text.format.type", _FORMATS)


def _check_metadata(metadata: Any) -> None:
    for key, value in (table(metadata, "metadata") if metadata is not None else {}).items():
        text(value, f"metadata.{key}")


def _obfuscates(config: Any, *, stream: bool) -> bool:
    if config is None:
        return True
    if not stream:
        invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    only(table(config, "stream_options"), ("include_obfuscation",), "stream_options")
    asked = config.get("include_obfuscation")
    return asked is None or flag(asked, "stream_options.include_obfuscation")


def _caches(config: Any) -> bool:
    """Whether the prompt is cached without breakpoints of the client's own."""
    if config is None:
        return True
    place = "prompt_cache_options"
    only(table(config, place), ("comparison_response_id", "mode", "prewarm", "ttl"), place)
    if config.get("ttl") is not None:
        choice(config["ttl"], f"{place}.ttl", ("30m", "12h"))
    mode = config.get("mode")
    if mode is not None and not isinstance(mode, str):
        wrong_type(f"{place}.mode", "a string", mode)
    return mode is None or choice(mode, f"{place}.mode", ("implicit", "explicit")) == "implicit"
