"""The usage and cost of a session, as data and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thinklsp.core.usage import Usage, serialize_usage
from thinklsp.sessions.spending import UsageReport, read_utc_date
from thinklsp.sessions.store import SessionStore


async def build_usage_report(store: SessionStore, session_id: str | None) -> dict[str, Any]:
    """Build the result of `thinklsp.usage`. Without a session, the result contains only today's figures.

    `unpriced` lists models with an unknown price. The costs do not include calls to these models.
    """
    usage_data = UsageReport(Usage(), {}, {}, {}) if session_id is None else await store.report_usage(session_id)
    return {
        "sessionId": session_id,
        "total": _build_figures(usage_data.total),
        "byTurn": [{"turnId": turn} | _build_figures(usage) for turn, usage in usage_data.by_turn.items()],
        "byDay": [{"day": day.isoformat()} | _build_figures(usage) for day, usage in usage_data.by_day.items()],
        "byModel": [{"model": model} | _build_figures(usage) for model, usage in usage_data.by_model.items()],
        "unpriced": [model for model, usage in usage_data.by_model.items() if usage.cost_usd is None],
        "today": _build_figures(await store.sum_day(read_utc_date())),
    }


def _build_figures(usage: Usage) -> dict[str, Any]:
    read, total = usage.cache_read_tokens, usage.input_tokens
    return serialize_usage(usage) | {"cacheShare": None if read is None or not total else round(read / total, 4)}


def format_usage(report: dict[str, Any]) -> str:
    """Format a usage report as Markdown."""
    if not report["byTurn"] and not report["byDay"]:
        return f"This session has not called a model yet. All sessions today: {_format_totals(report['today'])}."
    rows = [_format_usage_row("all", report["total"])]
    rows += [_format_usage_row(f"turn {number}", turn) for number, turn in enumerate(report["byTurn"], 1)]
    rows += [_format_usage_row(day["day"], day) for day in report["byDay"]]
    rows += [_format_usage_row(model["model"], model) for model in report["byModel"]]
    head = "| | input | cached | output | thinking | cost |\n|---|---|---|---|---|---|"
    parts = ["\n".join((head, *rows))]
    if report["unpriced"]:
        parts.append(f"Costs exclude calls to models with an unknown price: {', '.join(report['unpriced'])}.")
    parts.append(f"All sessions today: {_format_totals(report['today'])}.")
    return "\n\n".join(parts)


def _format_usage_row(name: str, usage: dict[str, Any]) -> str:
    share = "" if usage["cacheShare"] is None else f" ({usage['cacheShare']:.0%})"
    cells = [name.replace("|", "\\|"), _format_count(usage["inputTokens"])]
    cells += [
        _format_count(usage["cacheReadTokens"]) + share,
        _format_count(usage["outputTokens"]),
        _format_count(usage["thinkingTokens"]),
    ]
    return f"| {' | '.join((*cells, format_cost(usage['costUsd'])))} |"


def _format_totals(usage: dict[str, Any]) -> str:
    return ", ".join(_format_parts(usage)) or "none"


def _format_parts(usage: dict[str, Any]) -> Iterator[str]:
    if usage["inputTokens"] is not None:
        yield f"{usage['inputTokens']:,} tokens in"
    if usage["outputTokens"] is not None:
        yield f"{usage['outputTokens']:,} out"
        yield f"cost {format_cost(usage['costUsd'])}"


def _format_count(tokens: int | None) -> str:
    return "–" if tokens is None else f"{tokens:,}"


def format_cost(usd: float | None) -> str:
    return "unknown" if usd is None else f"${usd:.4f}"
