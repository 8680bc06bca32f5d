"""Token counts and cost of model calls, in one vocabulary for all providers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or several model calls. A figure that the provider did not give is None.

    `input_tokens` is the whole input, cached parts included; `output_tokens` includes thinking.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    thinking_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.thinking_tokens, other.thinking_tokens),
            _sum(self.cache_read_tokens, other.cache_read_tokens),
            _sum(self.cache_write_tokens, other.cache_write_tokens),
            _add(self.cost_usd, other.cost_usd),
        )


def _sum(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _add(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b
