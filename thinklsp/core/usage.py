"""The token counts and cost of model calls, in the same form for all providers."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

# The maximum plausible token count. Sums of plausible counts fit into the 64-bit integers of the session store.
_MAX_FIGURE = 10**12


@dataclass(frozen=True, slots=True)
class Usage:
    """The token counts of one or more model calls. Fields that the provider did not report are None.

    `input_tokens` is the total input, including cached tokens. `output_tokens` includes thinking.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    thinking_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        pairs = zip(_read_figures(self), _read_figures(other), strict=True)
        return Usage(*(b if a is None else a if b is None else a + b for a, b in pairs))

    def subtract(self, part: Usage) -> Usage:
        """Return the usage without `part`, which must be included in this usage."""
        pairs = zip(_read_figures(self), _read_figures(part), strict=True)
        return Usage(*(None if total is None else total - (less or 0) for total, less in pairs))


_read_figures = attrgetter(*Usage.__slots__)


def discard_implausible(usage: Usage) -> Usage:
    """Return the usage of a model call without implausible figures.

    Figures that are negative, not finite or above 10^12 become None. If the provider reports neither input nor output
    tokens, all figures become None.
    """
    if not usage.input_tokens and not usage.output_tokens:
        return Usage()
    figures = _read_figures(usage)
    return Usage(*(figure if figure is not None and 0 <= figure <= _MAX_FIGURE else None for figure in figures))


def serialize_usage(usage: Usage) -> dict[str, Any]:
    """Return the usage as a JSON object for clients."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "thinkingTokens": usage.thinking_tokens,
        "cacheReadTokens": usage.cache_read_tokens,
        "cacheWriteTokens": usage.cache_write_tokens,
        "costUsd": usage.cost_usd,
    }
