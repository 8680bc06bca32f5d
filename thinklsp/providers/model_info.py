"""The facts about one model that decide what is sent to it. Where they come from is the catalogue's business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from thinklsp.core.usage import Usage

Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens. Prompts longer than `long_prompt` tokens cost `long_factor` times as much."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    long_prompt: int | None = None
    long_factor: float = 1.0

    def cost(self, usage: Usage) -> float | None:
        """Dollars for one model call; None while the provider has not said how many tokens it was."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
        plain = max(0, usage.input_tokens - read - written)
        dollars = (
            plain * self.input + read * self.cache_read + written * self.cache_write + usage.output_tokens * self.output
        ) / 1_000_000
        is_long = self.long_prompt is not None and usage.input_tokens > self.long_prompt
        return dollars * self.long_factor if is_long else dollars


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model. `known` is False where the facts are a safe guess; a figure that is not known is None.

    `adaptive`: it decides itself how much to think, `efforts` steering it; `manual`: it takes a budget of tokens
    between `budget_least` and `budget_most` (None: below its output cap). `off`: how thinking is switched off, None
    where it cannot be. `on_when_unset`: it thinks when nothing is said. `efforts`: the levels it takes, lowest first,
    empty where it takes none; `effort_cap_when_off`: the highest with thinking off. `display`: whether readable
    summaries come never, on request or always. `sampling`: when it takes temperature and its relatives.
    `forced_tool`: whether a tool can be forced (`not_manual`: not with a manual budget). `interleaved`: whether a
    manual budget thinks between tool calls, `header` where only on request. `prefix_bound`: thinking is bound to
    everything before it. `cache_minimum`: shorter prompts are not cached.
    """

    provider: str
    id: str
    known: bool
    context_window: int | None
    output_cap: int | None
    adaptive: bool
    manual: bool
    on_when_unset: bool
    efforts: tuple[Effort, ...]
    default_effort: Effort | None
    forced_tool: Literal["yes", "no", "not_manual"]
    interleaved: Literal["always", "header", "never"]
    prefix_bound: bool
    budget_least: int = 1024
    budget_most: int | None = None
    display: Literal["never", "asked", "always"] = "asked"
    sampling: Literal["never", "thinking_off", "always"] = "never"
    images: bool = True
    off: Literal["off", "between_tools"] | None = None
    effort_cap_when_off: Effort | None = None
    cache_minimum: int | None = None
    price: Price | None = None
