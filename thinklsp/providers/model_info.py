"""The facts about one model that decide what is sent to it. Where they come from is the catalogue's business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from thinklsp.core.choices import Effort, SummaryLength
from thinklsp.core.usage import Usage


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens; input read from or written to a cache costs as other input where not said.

    A prompt longer than `long_prompt` tokens costs `long_factor` times as much, and the answer to it
    `long_output_factor` times as much (None: `long_factor`).
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    long_prompt: int | None = None
    long_factor: float = 1.0
    long_output_factor: float | None = None

    def cost(self, usage: Usage) -> float | None:
        """Dollars for one model call; None while the provider has not said how many tokens it was."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
        plain = max(0, usage.input_tokens - read - written)
        cache_read = self.input if self.cache_read is None else self.cache_read
        cache_write = self.input if self.cache_write is None else self.cache_write
        asked = plain * self.input + read * cache_read + written * cache_write
        answered = usage.output_tokens * self.output
        if self.long_prompt is not None and usage.input_tokens > self.long_prompt:
            asked *= self.long_factor
            answered *= self.long_factor if self.long_output_factor is None else self.long_output_factor
        return (asked + answered) / 1_000_000


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model. `known` is False where the facts are a safe guess; a figure that is not known is None.

    `adaptive`: it decides itself how much to think, `efforts` steering it; `manual`: it takes a budget of tokens
    between `budget_least` and `budget_most` (None: below its output cap). `budget_steers`: it has no levels but
    budgets, in adaptive mode too: 0 and -1 (as it likes) are budgets as well. `off`: how thinking is switched off, None
    where it cannot be. `on_when_unset`: it thinks when nothing is said. `efforts`: the levels it takes, lowest first,
    empty where it takes none; `default_effort`: its own when none is sent; `on_by_effort`: it thinks only if a level
    is sent. `effort_when_off`: it takes a level with thinking off too, `effort_cap_when_off`
    being the highest. `display`: whether readable summaries come never, on request or always; `summaries`: the
    lengths of them that can be asked for. `sampling`: when it takes
    temperature and its relatives. `forced_tool`: whether a tool can be forced (`not_manual`: not with a manual budget).
    `interleaved`: whether a manual budget thinks between tool calls, `header` where only on request. `prefix_bound`:
    thinking is bound to everything before it. `compacts`: its service shortens what it reads, where asked to.
    `cache_minimum`: shorter prompts are not cached.
    """

    provider: str
    id: str
    known: bool
    adaptive: bool
    manual: bool
    on_when_unset: bool
    efforts: tuple[Effort, ...]
    context_window: int | None = None
    output_cap: int | None = None
    default_effort: Effort | None = None
    on_by_effort: bool = False
    effort_when_off: bool = False
    effort_cap_when_off: Effort | None = None
    off: Literal["off", "between_tools"] | None = None
    budget_steers: bool = False
    budget_least: int = 1024
    budget_most: int | None = None
    display: Literal["never", "asked", "always"] = "asked"
    summaries: tuple[SummaryLength, ...] = ("auto",)
    sampling: Literal["never", "thinking_off", "always"] = "never"
    forced_tool: Literal["yes", "no", "not_manual"] = "yes"
    interleaved: Literal["always", "header", "never"] = "always"
    prefix_bound: bool = False
    compacts: bool = False
    images: bool = True
    cache_minimum: int | None = None
    price: Price | None = None
