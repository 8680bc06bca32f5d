"""Token counts and cost of model calls, in one vocabulary for all providers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

# No call reads or writes as much, and the store and other programs count with 64 bits.
_LARGEST_FIGURE = 10**12


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

    def without(self, part: Usage) -> Usage:
        """What is left when `part`, which is counted in it, is taken away."""
        return Usage(
            _left(self.input_tokens, part.input_tokens),
            _left(self.output_tokens, part.output_tokens),
            _left(self.thinking_tokens, part.thinking_tokens),
            _left(self.cache_read_tokens, part.cache_read_tokens),
            _left(self.cache_write_tokens, part.cache_write_tokens),
            None if self.cost_usd is None else self.cost_usd - (part.cost_usd or 0.0),
        )


def as_reported(usage: Usage) -> Usage:
    """Return what can be believed of the figures of one model call.

    A figure that is negative, not finite or above 10^12 is unknown. Where a service counts neither input nor output,
    it does not count at all, and every figure is unknown.
    """
    if not usage.input_tokens and not usage.output_tokens:
        return Usage()
    return Usage(
        _believed(usage.input_tokens),
        _believed(usage.output_tokens),
        _believed(usage.thinking_tokens),
        _believed(usage.cache_read_tokens),
        _believed(usage.cache_write_tokens),
        _believed(usage.cost_usd),
    )


_Figure = TypeVar("_Figure", int, float)


def _believed(figure: _Figure | None) -> _Figure | None:
    if figure is None or not math.isfinite(figure) or not 0 <= figure <= _LARGEST_FIGURE:
        return None
    return figure


def _sum(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _left(whole: int | None, part: int | None) -> int | None:
    return None if whole is None else whole - (part or 0)


def _add(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def usage_json(usage: Usage) -> dict[str, Any]:
    """As programs outside read it."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "thinkingTokens": usage.thinking_tokens,
        "cacheReadTokens": usage.cache_read_tokens,
        "cacheWriteTokens": usage.cache_write_tokens,
        "costUsd": usage.cost_usd,
    }
