"""Facts about models, both from the catalogue and from the provider.

Requests depend only on the catalogue. thinklsp asks the provider for facts only when the user investigates a problem,
so model calls never wait for the response.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, Strict

from thinklsp.core.choices import EFFORTS, Effort, SummaryLength
from thinklsp.core.images import IMAGE_TYPES
from thinklsp.core.messages import ImageType
from thinklsp.core.usage import Usage

ThinkingForm = Literal["unset", "off", "between_tools", "adaptive", "manual"]
THINKING_FORMS = ("adaptive", "enabled", "disabled", "between_tools")

# Types that validate catalogue rows.
_STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)
_Count = Annotated[int, Strict(), Field(gt=0)]
_Dollars = Annotated[float, Strict(), Field(ge=0)]
_Flag = Annotated[bool, Strict()]
_Efforts = Annotated[tuple[Effort, ...], AfterValidator(lambda efforts: tuple(e for e in EFFORTS if e in efforts))]


# The parts of model ids that the title does not simply capitalize: `claude-opus-4-5`, `gpt-5`, `deepseek-flash`, `o3`.
_VERSION_DASH = re.compile(r"(?<=[a-z]-\d)-(?=\d(?:-|$))")
_NUMBER_AFTER_GPT = re.compile(r"^GPT (?=\d)")
_TITLE_WORDS = {"gpt": "GPT", "deepseek": "DeepSeek"}
_LOWER_CASE = re.compile(r"o\d|\d+o")


@dataclass(frozen=True, slots=True)
class Price:
    """A model's price in US dollars per million tokens.

    If `cache_read` or `cache_write` is None, cached tokens cost as much as other input. If a prompt has more than
    `long_prompt` tokens, its price is multiplied by `long_factor` and the price of its answer by `long_output_factor`.
    If `long_output_factor` is None, `long_factor` applies to the answer too.
    """

    __pydantic_config__ = _STRICT

    input: _Dollars
    output: _Dollars
    cache_read: _Dollars | None = None
    cache_write: _Dollars | None = None
    long_prompt: _Count | None = None
    long_factor: _Dollars = 1.0
    long_output_factor: _Dollars | None = None

    def compute_cost(self, usage: Usage) -> float | None:
        """Return the cost of a model call in US dollars, or None if the provider did not report the token counts."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        read_tokens, write_tokens = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
        plain_tokens = max(0, usage.input_tokens - read_tokens - write_tokens)
        cache_read = self.input if self.cache_read is None else self.cache_read
        cache_write = self.input if self.cache_write is None else self.cache_write
        input_cost = plain_tokens * self.input + read_tokens * cache_read + write_tokens * cache_write
        output_cost = usage.output_tokens * self.output
        if self.long_prompt is not None and usage.input_tokens > self.long_prompt:
            input_cost *= self.long_factor
            output_cost *= self.long_factor if self.long_output_factor is None else self.long_output_factor
        return (input_cost + output_cost) / 1_000_000


@dataclass(frozen=True, slots=True)
class LaterPrice(Price):
    """A price that applies from the date `since`."""

    _: KW_ONLY
    since: Annotated[date, Strict()]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts about a model. If `known` is false, the facts are a safe guess. Unknown numbers are None.

    Thinking: If `adaptive` is true, the model can decide how much to think, guided by the effort. If `manual` is true,
    the model accepts a token budget from `budget_least` to `budget_most`. If `budget_most` is None, the budget must be
    below `output_cap`. If `budget_steers` is true, budgets replace effort levels, and the budgets 0 (off) and -1
    (automatic) are allowed. `off` is the form that turns thinking off, or None if thinking cannot be turned off. If
    `on_when_unset` is true, thinking is enabled by default.

    Effort: `efforts` contains the accepted levels in ascending order. `default_effort` is the level that the provider
    uses by default. If `on_by_effort` is true, the model thinks only if the request contains an effort. If
    `effort_when_off` is true, levels up to `effort_cap_when_off` are also accepted while thinking is off.

    Output: `display` states when readable thinking summaries are available: never, on request or always. `summaries`
    contains the available summary lengths. `sampling` states when the model accepts `temperature` and similar fields.
    `forced_tool` states whether a request can force a tool call. The value `not_manual` means that it cannot if the
    request has a manual budget. `interleaved` states whether a model with a manual budget can think between tool calls.
    The value `header` means that it can if the request has a certain header.

    Input: `input_limit` is the longest prompt in tokens, if it is shorter than `context_window`. If `images` is true,
    prompts can contain images of the types in `image_types`.

    If `prefix_bound` is true, thinking is valid only after unchanged earlier messages. If `compacts` is true, the
    provider can compact the conversation. Prompts with fewer than `cache_minimum` tokens are not cached. `price_later`
    is a price that applies from a later date.
    """

    __pydantic_config__ = _STRICT

    provider: str
    id: str
    known: bool
    _: KW_ONLY
    aliases: tuple[str, ...] = ()
    context_window: _Count | None = None
    input_limit: _Count | None = None
    output_cap: _Count | None = None
    adaptive: _Flag
    manual: _Flag
    on_when_unset: _Flag
    efforts: _Efforts
    default_effort: Effort | None = None
    on_by_effort: _Flag = False
    effort_when_off: _Flag = False
    effort_cap_when_off: Effort | None = None
    off: Literal["off", "between_tools"] | None = None
    budget_steers: _Flag = False
    budget_least: _Count = 1024
    budget_most: _Count | None = None
    display: Literal["never", "asked", "always"] = "asked"
    summaries: tuple[SummaryLength, ...] = ("auto",)
    sampling: Literal["never", "thinking_off", "always"] = "never"
    forced_tool: Literal["yes", "no", "not_manual"] = "yes"
    interleaved: Literal["always", "header", "never"] = "always"
    prefix_bound: _Flag = False
    compacts: _Flag = False
    images: _Flag = True
    image_types: tuple[ImageType, ...] = IMAGE_TYPES
    cache_minimum: _Count | None = None
    price: Price | None = None
    price_later: LaterPrice | None = None

    @property
    def input_window(self) -> int | None:
        """The length of the longest prompt in tokens, or None if it is unknown."""
        return min((size for size in (self.context_window, self.input_limit) if size is not None), default=None)

    @property
    def accepted_images(self) -> tuple[ImageType, ...]:
        """The media types of the images that a prompt can contain."""
        return self.image_types if self.images else ()

    @property
    def title(self) -> str:
        """The model's name for people, such as `Claude Opus 5.5`. An unlisted model keeps its id."""
        if not self.known:
            return self.id
        words = _VERSION_DASH.sub(".", self.id).split("-")
        titled = (_TITLE_WORDS.get(word) or (word if _LOWER_CASE.fullmatch(word) else word.title()) for word in words)
        return _NUMBER_AFTER_GPT.sub("GPT-", " ".join(titled))


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The facts that a provider reports about a model. A field is None if the provider does not report it.

    `models` contains the IDs of all models that the server lists, and `windows` maps model IDs to context windows.
    """

    thinking: tuple[str, ...] | None = None
    efforts: tuple[str, ...] | None = None
    context_window: int | None = None
    max_tokens: int | None = None
    models: tuple[str, ...] | None = None
    windows: Mapping[str, int] = field(default_factory=dict)

    def find_window(self, model_id: str) -> int | None:
        """Return the context window in tokens that the provider reports for a model, or None."""
        return self.context_window or self.windows.get(model_id) or self.windows.get(f"{model_id}:latest")


def find_contradictions(model: ModelInfo, reported: Capabilities) -> list[str]:
    """Return a sentence for each difference between the provider's facts and the catalogue's facts."""
    flags = (model.adaptive, model.manual, model.off == "off", model.off == "between_tools")
    forms = tuple(form for form, is_accepted in zip(THINKING_FORMS, flags, strict=True) if is_accepted)
    sentences = []
    if reported.thinking is not None and reported.thinking != forms:
        sentences.append(_describe_difference(model.id, "forms of thinking", reported.thinking, forms, "thinking.mode"))
    if reported.efforts is not None and reported.efforts != model.efforts:
        sentences.append(_describe_difference(model.id, "efforts", reported.efforts, model.efforts, "effort"))
    window = reported.find_window(model.id)
    if window is not None and model.context_window not in (None, window) and model.known:
        sentences.append(
            f"The provider reports a context window of {window:,} tokens for {model.id}, but thinklsp uses "
            f"{model.context_window or 0:,}. Set `context_window` for it under `[models]` in your config.toml."
        )
    if reported.models is not None and model.id and not is_listed(model.id, reported.models):
        listed = ", ".join(reported.models[:8]) or "none"
        more = f" and {len(reported.models) - 8} more" if len(reported.models) > 8 else ""
        sentences.append(
            f"The server does not list the model {model.id}; it has {listed}{more}. Set `thinklsp.model` to one of "
            "these, or load the model on the server."
        )
    return sentences


def is_listed(model_id: str, models: tuple[str, ...]) -> bool:
    """Return whether the server lists the model. Servers may omit the tag `latest` from a model ID."""
    return model_id in models or f"{model_id}:latest" in models


def _describe_difference(
    model_id: str, subject: str, reported: tuple[str, ...], listed: tuple[str, ...], key: str
) -> str:
    return (
        f"The provider reports the {subject} {_join_names(reported)} for {model_id}, "
        f"but thinklsp uses {_join_names(listed)}. "
        f"If the provider rejects a request, set `{key}` to a value that it accepts, or update thinklsp."
    )


def _join_names(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def add_cost(usage: Usage, price: Price | None) -> Usage:
    """Add the cost to the usage. A cost that the provider reported has priority over the price table."""
    if price is None or usage.cost_usd is not None:
        return usage
    return replace(usage, cost_usd=price.compute_cost(usage))
