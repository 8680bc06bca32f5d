"""All settings with their types, defaults, limits, descriptions and environment variables.

The JSON schema and the settings table in the documentation are generated from this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from thinklsp.core.choices import (
    CompactionService,
    EffortSetting,
    Review,
    SummaryLength,
    ThinkingAfterCompaction,
    ThinkingDisplay,
    ThinkingMode,
    Verify,
)
from thinklsp.settings.startup_settings import SUFFIX_PATTERN

_PREFIX = "THINKLSP_"
# The other environment variables with this prefix, which are not settings in this module.
_OTHER_VARIABLES = {
    *("THINKLSP_CONFIG", "THINKLSP_ADMIN_CONFIG", "THINKLSP_STATE_DIR", "THINKLSP_STORE_URL", "THINKLSP_LOG_LEVEL"),
    *("THINKLSP_COMPATIBLE_API_KEY", "THINKLSP_COMPATIBLE_BASE_URL", "THINKLSP_SCENARIO", "THINKLSP_SCENARIO_PAUSES"),
    *("THINKLSP_TENANT", "THINKLSP_USER"),
}


KeyedProvider = Literal["anthropic", "openai", "google", "openai-compatible"]
KEYED_PROVIDERS: tuple[KeyedProvider, ...] = get_args(KeyedProvider)
Provider = Literal["auto", KeyedProvider, "simulator"]


def _parse_model(value: object) -> object:
    """Convert `auto` to None, which selects the provider's default model."""
    return None if isinstance(value, str) and value.strip().lower() == "auto" else value


class _Group(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        strict=True,
    )


class ThinkingGroup(_Group):
    mode: ThinkingMode = Field(
        "auto",
        description="`auto` uses adaptive thinking if the model supports it, or else the budget, or else the model's "
        "default. `normal` is the same as `auto`; `ultra` is `auto` with effort `max`.",
    )
    budget_tokens: int = Field(
        10_000,
        # Budgets below `_MIN_BUDGET` are only for Gemini models. `resolve_settings` checks this, because it knows the
        # provider.
        ge=-1,
        lt=128_000,
        description="Thinking budget in tokens for the mode `manual`. It must be at least 1,024 and below the output "
        "limit. Gemini 2.5 models accept any budget in their range, as well as 0 (off) and -1 (the model decides), "
        "even in the mode `auto`. An explicit budget overrides the effort.",
    )
    display: ThinkingDisplay = Field(
        "status",
        description="`status` shows the phase, the elapsed time and the token count. `summary` also shows the "
        "provider's readable summary. `off` shows only the phase and the elapsed time.",
    )
    summary: SummaryLength = Field(
        "auto",
        description="Length of the readable summaries if the display is `summary`, for providers that offer a "
        "choice (OpenAI).",
    )


class BudgetGroup(_Group):
    usd_per_turn: float | None = Field(
        None, gt=0, description="Cost of one turn in US dollars at which the turn pauses and asks you."
    )
    tokens_per_turn: int | None = Field(
        None,
        gt=0,
        description="Number of input and output tokens in one turn at which the turn pauses and asks you.",
    )
    usd_per_day: float | None = Field(
        None,
        gt=0,
        description="Cost of one UTC day in US dollars, in all editors and terminals, at which turns pause and ask.",
    )


class CompactionGroup(_Group):
    auto: bool = Field(True, description="Compact a session before it exceeds the model's context window.")
    threshold: float = Field(
        0.75, gt=0.1, le=0.95, description="Share of the context window at which a session is compacted."
    )
    by: CompactionService = Field(
        "thinklsp",
        description="The service that compacts a session. `provider` uses the provider if it offers compaction "
        "(OpenAI, from GPT-5.4 on), or else thinklsp. If the provider compacts a session, the stored session keeps all "
        "messages.",
    )
    thinking_after: ThinkingAfterCompaction = Field(
        "keep", description="`off` disables thinking for the session after a compaction."
    )


class EditsGroup(_Group):
    review: Review = Field(
        "auto",
        description="When you review an edit before it is applied. With `auto`, you review changes outside the "
        "requested file or range, deletions, renames, files in untrusted folders, and edits that would make the editor "
        "load a schema from the network.",
    )


class ActionsGroup(_Group):
    disabled: tuple[str, ...] = Field(
        (), strict=False, fail_fast=True, description="Names of code actions not to offer."
    )


class ChatGroup(_Group):
    file_suffix: str = Field(
        ".chat.md",
        # The settings of an untrusted folder can contain a suffix. With a suffix such as `.py`, source files would lose
        # their code actions.
        pattern=SUFFIX_PATTERN,
        description="File name suffix of chat documents. It starts with `.` and ends with `.md`, such as `.chat.md`.",
    )


class Settings(_Group):
    """The resolved settings for a turn."""

    provider: Provider = Field("auto", description="`auto` selects the first provider, in this order, that has a key.")
    model: Annotated[Annotated[str, Field(min_length=1, max_length=200)] | None, BeforeValidator(_parse_model)] = Field(
        None, description="Model ID. `auto` or no value selects the provider's default."
    )
    effort: EffortSetting = Field(
        "auto",
        description="Reasoning effort, limited to the levels that the model supports. `auto` sends no effort, so the "
        "provider decides (GPT-5.1 to GPT-5.4 then do not think).",
    )
    effort_by_action: dict[str, EffortSetting] = Field(
        {}, description='Effort for individual actions, e.g. `{"document": "low"}`.'
    )
    thinking: ThinkingGroup = ThinkingGroup()
    max_tokens: Annotated[int, Field(ge=1_024, le=1_000_000)] | Literal["auto"] = Field(
        "auto",
        description="Maximum number of output tokens per model call. `auto` depends on the model and the effort.",
    )
    max_steps: int = Field(32, ge=1, le=1_000, description="Maximum number of model calls per turn.")
    budget: BudgetGroup = BudgetGroup()
    compaction: CompactionGroup = CompactionGroup()
    edits: EditsGroup = EditsGroup()
    verify: Verify = Field(
        "auto",
        description="Whether a turn that edits files runs the tests before it offers the edit, if commands are "
        "enabled.",
    )
    actions: ActionsGroup = ActionsGroup()
    chat: ChatGroup = ChatGroup()


def _list_keys(group: type[BaseModel], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name, info in group.model_fields.items():
        key = f"{prefix}{info.alias or name}"
        if isinstance(info.annotation, type) and issubclass(info.annotation, _Group):
            keys += _list_keys(info.annotation, f"{key}.")
        else:
            keys.append(key)
    return keys


KEYS: tuple[str, ...] = tuple(_list_keys(Settings))
"""The dotted key of each setting, in the spelling of the protocol."""


def build_settings(flat: Mapping[str, Any]) -> Settings:
    """Build the settings from dotted keys. Raises pydantic's ValidationError if a value is invalid."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *groups, leaf = key.split(".")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
        place[leaf] = value
    return Settings.model_validate(tree)


def read_value(settings: Settings, key: str) -> Any:
    value: Any = settings.model_dump(by_alias=True)
    for part in key.split("."):
        value = value[part]
    return value


MAPPINGS: tuple[str, ...] = tuple(key for key in KEYS if isinstance(read_value(Settings(), key), dict))
"""The settings that are objects with user-defined keys."""


def build_settings_schema() -> dict[str, Any]:
    """Return the JSON Schema for all settings, in the form that editors use."""
    generated = Settings.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **generated, "title": "thinklsp settings"}


def to_snake_case(key: str) -> str:
    """Convert a key to snake case, as used in config.toml."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()


def build_variable_name(key: str) -> str:
    """Return the name of the environment variable for a setting."""
    return _PREFIX + to_snake_case(key).replace(".", "_").upper()


def read_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of each setting that is set in the environment."""
    for key in KEYS:
        name = build_variable_name(key)
        text = environment.get(name)
        if text:
            yield key, _parse_text(key, text)
        if key in MAPPINGS:
            for longer in sorted(environment):
                if longer.startswith(f"{name}_") and environment[longer]:
                    yield f"{key}.{longer.removeprefix(f'{name}_').lower()}", environment[longer]


def find_unknown_variables(environment: Mapping[str, str], file_variables: Iterable[str]) -> tuple[str, ...]:
    """Return error messages for unknown `THINKLSP_` variables.

    Variables in `file_variables`, to which the user's file refers, are skipped.
    """
    known_names = {build_variable_name(key) for key in KEYS} | _OTHER_VARIABLES
    groups = tuple(f"{build_variable_name(key)}_" for key in MAPPINGS)
    prefixed = {name for name in environment if name.startswith(_PREFIX) and not name.startswith(groups)}
    return describe_unknown_settings(prefixed - known_names - set(file_variables), known_names, " in the environment")


def _parse_text(key: str, text: str) -> Any:
    """Parse the text of an environment variable. The text is used as JSON if the result is valid for the key.

    A list may also be written as comma-separated values.
    """
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    for candidate in (value, [part.strip() for part in text.split(",")] if key == "actions.disabled" else text):
        with suppress(ValidationError):
            build_settings({key: candidate})
            return candidate
    # No candidate is valid. A parsed number leads to an error message about the limit instead of the type.
    return value


PREVIOUS_KEPT = "The previous value is kept."
# The number of unknown keys to report. A corrupt or malicious file can contain thousands of unknown keys.
_MAX_NAMED = 8
_MAX_LENGTH = 80
_CUTOFF = 0.7


def format_invalid_value(key: str, value: object, error: ValidationError, then: str = PREVIOUS_KEPT) -> str:
    """Return an error message for an invalid value."""
    name = value.strip().lower().replace("-", " ").replace("_", " ") if isinstance(value, str) else ""
    hint = _PROVIDER_HINTS.get(name, "") if key == "provider" else ""
    return format_rejection(key, describe_limit(error), " ".join(filter(None, (hint, then))))


def format_rejection(key: str, limit: str, then: str = PREVIOUS_KEPT) -> str:
    """Return an error message for a rejected value. `then` is a sentence about the consequence, or advice."""
    return f"The setting `{key}` was rejected: it must be {limit}. {then}"


# Hints for common mistakes in the provider setting. The mistakes are never corrected automatically.
_PROVIDER_HINTS = {
    **dict.fromkeys(("claude", "claude code"), "Use `anthropic` for Claude."),
    **dict.fromkeys(("gemini", "google gemini", "google ai"), "Use `google` for Gemini."),
    **dict.fromkeys(("gpt", "chatgpt", "open ai", "openai responses"), "Use `openai` for GPT models."),
    **{
        name.lower(): f"Use `openai-compatible` for {name} and set THINKLSP_COMPATIBLE_BASE_URL to its address."
        for name in ("Ollama", "llama.cpp", "LM Studio", "vLLM", "OpenRouter", "DeepSeek", "Groq", "Mistral")
    },
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
    items = error.errors(include_url=False, include_input=False)
    limits = (_LIMITS.get(item["type"], "in the right format").format(**item.get("ctx", {})) for item in items)
    return " or ".join(dict.fromkeys(limits))


def describe_unknown_settings(names: Iterable[str], known_names: Collection[str], where: str = "") -> tuple[str, ...]:
    """Return an error message for each of the first eight names, and a single message for all other names.

    `where` is inserted after the name in each message.
    """
    ordered, sentences = sorted(names), []
    for name in ordered[:_MAX_NAMED]:
        suggestion = find_nearest(name[-_MAX_LENGTH:], known_names)
        hint = "`thinklsp config table` lists all settings." if suggestion is None else f"Did you mean `{suggestion}`?"
        sentences.append(f"Unknown setting `{format_key(name)}`{where}. {hint}")
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


def _normalize_name(name: str) -> str:
    return re.sub(r"^THINKLSP_|[-_.\s]", "", name).lower()
