"""Token counts of chat completions in our vocabulary. Totals hold cached input and thinking on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinklsp.core.usage import Usage


def neutral_usage(usage: Mapping[str, Any]) -> Usage:
    """`usage` as the server sent it; figures that are missing or make no sense are None."""
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    cached = _count(prompt, "cached_tokens")
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        output_tokens=_count(usage, "completion_tokens"),
        thinking_tokens=_count(completion, "reasoning_tokens"),
        cache_read_tokens=_count(usage, "prompt_cache_hit_tokens") if cached is None else cached,
        cache_write_tokens=_count(prompt, "cache_write_tokens"),
        cost_usd=_dollars(usage.get("cost")),
    )


def _count(content: object, key: str) -> int | None:
    value = content.get(key) if isinstance(content, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _dollars(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < float("inf") else None
