"""Error messages for rejected and unknown settings. The messages never repeat a value, because it may be a secret."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

PREVIOUS_KEPT = "The previous value is kept."
# The number of unknown keys to report. A corrupt or malicious file can contain thousands of unknown keys.
_MAX_NAMED = 8
_MAX_LENGTH = 80
_CUTOFF = 0.7


def format_invalid_value(key: str, value: object, error: ValidationError, then: str = PREVIOUS_KEPT) -> str:
    """Return an error message for an invalid value."""
    hint = _PROVIDER_HINTS.get(value.strip().lower(), "") if key == "provider" and isinstance(value, str) else ""
    return format_rejection(key, describe_limit(error), " ".join(filter(None, (hint, then))))


def format_rejection(key: str, limit: str, then: str = PREVIOUS_KEPT) -> str:
    """Return an error message for a rejected value. `then` is a sentence about the consequence, or advice."""
    return f"The setting `{key}` was rejected: it must be {limit}. {then}"


def _suggest_compatible(name: str) -> str:
    return f"Use `openai-compatible` for {name} and set THINKLSP_COMPATIBLE_BASE_URL to its address."


# Hints for common mistakes in the provider setting. The mistakes are never corrected automatically.
_PROVIDER_HINTS = {
    **dict.fromkeys(("claude", "claude-code"), "Use `anthropic` for Claude."),
    **dict.fromkeys(("gemini", "google-gemini", "googleai", "google-ai"), "Use `google` for Gemini."),
    **dict.fromkeys(("gpt", "chatgpt", "open-ai", "openai-responses"), "Use `openai` for GPT models."),
    **dict.fromkeys(("compatible", "local", "openai_compatible"), "Use `openai-compatible` for your own server."),
    "ollama": _suggest_compatible("Ollama"),
    **dict.fromkeys(("llama.cpp", "llamacpp", "llama-cpp", "llama"), _suggest_compatible("a llama.cpp server")),
    **dict.fromkeys(("lmstudio", "lm-studio", "lm studio"), _suggest_compatible("LM Studio")),
    "vllm": _suggest_compatible("a vLLM server"),
    "openrouter": _suggest_compatible("OpenRouter"),
    "deepseek": _suggest_compatible("DeepSeek"),
    "groq": _suggest_compatible("Groq"),
    "mistral": _suggest_compatible("Mistral"),
    "mock": "Use `simulator` for the offline simulator.",
}


# The requirement that each pydantic error type reports. The placeholders are filled in from the error.
_LIMITS = {
    "literal_error": "one of {expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "string_unicode": "a text",
    "string_too_short": "at least {min_length} character long",
    "string_too_long": "at most {max_length} characters long",
    "string_pattern_mismatch": "text that matches {pattern}",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
}


def describe_limit(error: ValidationError) -> str:
    """Return the requirements for a value, in a form that fits after "must be"."""
    return " or ".join(
        dict.fromkeys(_describe_limit_item(item) for item in error.errors(include_url=False, include_input=False))
    )


def _describe_limit_item(item: Any) -> str:
    return _LIMITS.get(item["type"], "in the right format").format(**item.get("ctx", {}))


def describe_unknown_settings(names: Iterable[str], known_names: Collection[str], where: str = "") -> tuple[str, ...]:
    """Return an error message for each of the first eight names, and a single message for all other names.

    `where` is inserted after the name in each message.
    """
    ordered = sorted(names)
    sentences = [_describe_unknown_setting(name, known_names, where) for name in ordered[:_MAX_NAMED]]
    if len(ordered) > _MAX_NAMED:
        sentences.append(f"{len(ordered) - _MAX_NAMED} more settings{where} are unknown.")
    return tuple(sentences)


def find_nearest(name: str, known_names: Collection[str]) -> str | None:
    """Return the valid name that is most similar, or None if no valid name is similar.

    Groups, letter case and separators are ignored.
    """
    by_spelling = {_normalize_name(item.rpartition(".")[2]): item for item in known_names} | {
        _normalize_name(item): item for item in known_names
    }
    for part in (name, name.rpartition(".")[2]):
        if matches := get_close_matches(_normalize_name(part), by_spelling, n=1, cutoff=_CUTOFF):
            return by_spelling[matches[0]]
    return None


def format_key(key: str) -> str:
    """Format a key for a message. The beginning of a long key is cut off, because the end is more distinctive."""
    return "".join(c if c.isprintable() and c != "`" else "?" for c in key)[-_MAX_LENGTH:]


def _describe_unknown_setting(name: str, known_names: Collection[str], where: str) -> str:
    suggestion = find_nearest(name[-_MAX_LENGTH:], known_names)
    hint = "`thinklsp config table` lists all settings." if suggestion is None else f"Did you mean `{suggestion}`?"
    return f"Unknown setting `{format_key(name)}`{where}. {hint}"


def _normalize_name(name: str) -> str:
    return re.sub(r"^THINKLSP_|[-_.\s]", "", name).lower()
