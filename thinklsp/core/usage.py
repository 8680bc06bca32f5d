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
        return Usage(*map(_add_figures, _read_figures(self), _read_figures(other)))

    def subtract(self, part: Usage) -> Usage:
        """Return the usage without `part`, which must be included in this usage."""
        return Usage(*map(_subtract_figures, _read_figures(self), _read_figures(part)))


_read_figures = attrgetter(*Usage.__slots__)


def discard_implausible(usage: Usage) -> Usage:
    """Return the usage of a model call without implausible figures.

    Figures that are negative, not finite or above 10^12 become None. If the provider reports neither input nor output
    tokens, all figures become None.
    """
    if not usage.input_tokens and not usage.output_tokens:
        return Usage()
    return Usage(*map(_check_figure, _read_figures(usage)))


def _check_figure(figure: float | None) -> Any:
    return figure if figure is not None and 0 <= figure <= _MAX_FIGURE else None


def _add_figures(a: float | None, b: float | None) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _subtract_figures(total: float | None, part: float | None) -> Any:
    return None if total is None else total - (part or 0)


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
