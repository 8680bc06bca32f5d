"""Every setting with its type, default, limits and meaning. The schema and the README's table are made from this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from thinklsp.core.choices import EffortSetting, Review, SummaryLength, ThinkingDisplay, ThinkingMode, Verify
from thinklsp.settings.early import SUFFIX

Provider = Literal["auto", "anthropic", "openai", "google", "openai-compatible", "simulator"]


def _named_model(value: object) -> object:
    """Return None for `auto`, the provider's default: no service has a model of this name."""
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
        description="`auto` thinks adaptively if the model can, else with the budget, else as the model does. "
        "`normal` is the same; `ultra` is the same with effort `max`.",
    )
    budget_tokens: int = Field(
        10_000,
        # What is below LEAST_BUDGET only Gemini models take; `resolve` knows which provider is meant.
        ge=-1,
        lt=128_000,
        description="Tokens of thinking in manual mode, at least 1,024 and below the output limit. Gemini 2.5 models "
        "take any budget of their range, 0 (off) and -1 (as they like), in mode `auto` too. "
        "An explicit budget beats effort.",
    )
    display: ThinkingDisplay = Field(
        "status",
        description="`status` shows phase, elapsed time and token count; `summary` also the provider's readable "
        "summary; `off` phase and elapsed time only.",
    )
    summary: SummaryLength = Field(
        "auto",
        description="Length of the readable summaries that display `summary` asks for, with services that offer a "
        "choice (OpenAI).",
    )


class BudgetGroup(_Group):
    usd_per_turn: float | None = Field(
        None, gt=0, description="Cost of one turn in US dollars at which it pauses and asks."
    )
    tokens_per_turn: int | None = Field(
        None, gt=0, description="Tokens, input and output, of one turn at which it pauses and asks."
    )
    usd_per_day: float | None = Field(
        None,
        gt=0,
        description="Cost of a UTC day in US dollars, of all editors and terminals, at which a turn pauses and asks.",
    )


class CompactionGroup(_Group):
    auto: bool = Field(True, description="Shorten a conversation that outgrows the model's context window.")
    threshold: float = Field(
        0.75, gt=0.1, le=0.95, description="Share of the context window at which a conversation is shortened."
    )
    by: Literal["thinklsp", "provider"] = Field(
        "thinklsp",
        description="Who shortens it: `provider` leaves it to the service where that offers to (OpenAI, from GPT-5.4 "
        "on), and the session stays whole.",
    )
    thinking_after: Literal["keep", "off"] = Field(
        "keep", description="`off` switches thinking off for the session after a compaction."
    )


class EditsGroup(_Group):
    review: Review = Field(
        "auto",
        description="When the editor is asked to confirm changes: `auto` for changes outside the requested file or "
        "range, deletions, renames, files in a folder whose instructions you have not agreed to, and files that would "
        "make the editor load a schema from the network.",
    )


class ActionsGroup(_Group):
    disabled: tuple[str, ...] = Field((), strict=False, description="Names of code actions not to offer.")


class ChatGroup(_Group):
    file_suffix: str = Field(
        ".chat.md",
        # An opened folder can set it: an ending like `.py` would take the actions away from the user's code.
        pattern=SUFFIX,
        description="File name ending of documents in which chat works; it ends in `.md` with something before it.",
    )


class Settings(_Group):
    """All settings of one turn, resolved."""

    provider: Provider = Field("auto", description="`auto` takes the first provider, in this order, that has a key.")
    model: Annotated[Annotated[str, Field(min_length=1, max_length=200)] | None, BeforeValidator(_named_model)] = Field(
        None, description="Model id; default, and with `auto`: the provider's default."
    )
    effort: EffortSetting = Field(
        "auto",
        description="Reasoning effort, clamped to what the model offers; `auto` sends none and leaves it to the "
        "service (GPT-5.1 to GPT-5.4 then do not think).",
    )
    effort_by_action: dict[str, EffortSetting] = Field(
        {}, description='Effort for single actions, e.g. `{"document": "low"}`.'
    )
    thinking: ThinkingGroup = ThinkingGroup()
    max_tokens: Annotated[int, Field(ge=1_024, le=1_000_000)] | Literal["auto"] = Field(
        "auto", description="Output tokens of one model call; `auto` fits model and effort."
    )
    max_steps: int = Field(32, ge=1, le=1_000, description="Model calls in one turn.")
    budget: BudgetGroup = BudgetGroup()
    compaction: CompactionGroup = CompactionGroup()
    edits: EditsGroup = EditsGroup()
    verify: Verify = Field(
        "auto",
        description="Whether a turn that edits runs the tests before it offers the edit, where commands are enabled.",
    )
    actions: ActionsGroup = ActionsGroup()
    chat: ChatGroup = ChatGroup()


def _keys(group: type[BaseModel], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, info in group.model_fields.items():
        key = f"{prefix}{info.alias or name}"
        if isinstance(info.annotation, type) and issubclass(info.annotation, _Group):
            found += _keys(info.annotation, f"{key}.")
        else:
            found.append(key)
    return found


KEYS: tuple[str, ...] = tuple(_keys(Settings))
"""Every setting in dotted form, in the spelling of the wire."""


def nested(flat: Mapping[str, Any]) -> Settings:
    """Settings from dotted keys. Raises pydantic's ValidationError."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *groups, leaf = key.split(".")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
        place[leaf] = value
    return Settings.model_validate(tree)


def value_of(settings: Settings, key: str) -> Any:
    value: Any = settings.model_dump(by_alias=True)
    for part in key.split("."):
        value = value[part]
    return value


MAPPINGS: tuple[str, ...] = tuple(key for key in KEYS if isinstance(value_of(Settings(), key), dict))
"""Settings that are objects with entries of the user's choice."""


def schema() -> dict[str, Any]:
    """JSON Schema of every setting, in the nesting and spelling that editors use."""
    made = Settings.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": "thinklsp settings"}


STAYS = "The former value stays."


def sentence(key: str, value: object, error: ValidationError, then: str = STAYS) -> str:
    """Return the sentence for a refused value: key and limit, never the value, which may be a misplaced secret."""
    meant = _MEANT.get(value.strip().lower(), "") if key == "provider" and isinstance(value, str) else ""
    return refusal(key, limit_of(error), " ".join(filter(None, (meant, then))))


def refusal(key: str, limit: str, then: str = STAYS) -> str:
    """Return the sentence for a refused value. `then` is what follows from it or what to do."""
    return f"The setting {key} was refused: it must be {limit}. {then}"


def _served(name: str) -> str:
    return f"For {name} it is openai-compatible, with its address in THINKLSP_COMPATIBLE_BASE_URL."


# What people write for a provider -> which value they mean. Nothing is guessed: they are told.
_MEANT = {
    **dict.fromkeys(("claude", "claude-code"), "For Claude it is anthropic."),
    **dict.fromkeys(("gemini", "google-gemini", "googleai", "google-ai"), "For Gemini it is google."),
    **dict.fromkeys(("gpt", "chatgpt", "open-ai", "openai-responses"), "For GPT models it is openai."),
    **dict.fromkeys(("compatible", "local", "openai_compatible"), "For a server of your own it is openai-compatible."),
    "ollama": _served("Ollama"),
    **dict.fromkeys(("llama.cpp", "llamacpp", "llama-cpp", "llama"), _served("a llama.cpp server")),
    **dict.fromkeys(("lmstudio", "lm-studio", "lm studio"), _served("LM Studio")),
    "vllm": _served("a vLLM server"),
    "openrouter": _served("OpenRouter"),
    "deepseek": _served("DeepSeek"),
    "groq": _served("Groq"),
    "mistral": _served("Mistral"),
    "mock": "For the offline stand-in it is simulator.",
}


# pydantic's error type -> what the value must be; `{}` takes the limit.
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
    "string_pattern_mismatch": "a text that matches {pattern}",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
}


def limit_of(error: ValidationError) -> str:
    """What the value must be, in words that come after that."""
    return " or ".join(dict.fromkeys(_limit(item) for item in error.errors(include_url=False, include_input=False)))


def _limit(item: Any) -> str:
    return _LIMITS.get(item["type"], "of the right form").format(**item.get("ctx", {}))
