"""What sessions have used: tokens by kind, cache share and cost, by turn, day and model; as JSON and in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thinklsp.core.usage import Usage, usage_json
from thinklsp.sessions.spending import utc_today
from thinklsp.sessions.store import SessionStore
from thinklsp.sessions.values import UsageReport


async def usage_report(store: SessionStore, session_id: str | None) -> dict[str, Any]:
    """The answer of `thinklsp.usage`. Without a session everything but `today` is empty.

    `unpriced` names the models whose price is not known: where it has any, a cost leaves their part out.
    """
    found = UsageReport(Usage(), {}, {}, {}) if session_id is None else await store.usage(session_id)
    return {
        "sessionId": session_id,
        "total": _figures(found.total),
        "byTurn": [{"turnId": turn} | _figures(usage) for turn, usage in found.by_turn.items()],
        "byDay": [{"day": day.isoformat()} | _figures(usage) for day, usage in found.by_day.items()],
        "byModel": [{"model": model} | _figures(usage) for model, usage in found.by_model.items()],
        "unpriced": [model for model, usage in found.by_model.items() if usage.cost_usd is None],
        "today": _figures(await store.spent_on(utc_today())),
    }


def _figures(usage: Usage) -> dict[str, Any]:
    read, whole = usage.cache_read_tokens, usage.input_tokens
    return usage_json(usage) | {"cacheShare": None if read is None or not whole else round(read / whole, 4)}


def usage_told(report: dict[str, Any]) -> str:
    """The same as Markdown for people."""
    if not report["byTurn"] and not report["byDay"]:
        return f"This session has used nothing yet. Today's model calls: {_words(report['today'])}."
    rows = [_row("all", report["total"])]
    rows += [_row(f"turn {number}", turn) for number, turn in enumerate(report["byTurn"], 1)]
    rows += [_row(day["day"], day) for day in report["byDay"]]
    rows += [_row(model["model"], model) for model in report["byModel"]]
    head = "| | in | from the cache | out | thinking | cost |\n|---|---|---|---|---|---|"
    parts = ["\n".join((head, *rows))]
    if report["unpriced"]:
        parts.append(f"The price of {', '.join(report['unpriced'])} is not known; its calls are in no cost.")
    parts.append(f"All sessions today: {_words(report['today'])}.")
    return "\n\n".join(parts)


def _row(name: str, usage: dict[str, Any]) -> str:
    share = "" if usage["cacheShare"] is None else f" ({usage['cacheShare']:.0%})"
    cells = [name.replace("|", "\\|"), _count(usage["inputTokens"])]
    cells += [_count(usage["cacheReadTokens"]) + share, _count(usage["outputTokens"]), _count(usage["thinkingTokens"])]
    return f"| {' | '.join((*cells, cost_told(usage['costUsd'])))} |"


def _words(usage: dict[str, Any]) -> str:
    return ", ".join(_parts(usage)) or "none"


def _parts(usage: dict[str, Any]) -> Iterator[str]:
    if usage["inputTokens"] is not None:
        yield f"{usage['inputTokens']:,} tokens in"
    if usage["outputTokens"] is not None:
        yield f"{usage['outputTokens']:,} out"
        yield f"cost {cost_told(usage['costUsd'])}"


def _count(tokens: int | None) -> str:
    return "–" if tokens is None else f"{tokens:,}"


def cost_told(usd: float | None) -> str:
    return "unknown" if usd is None else f"${usd:.4f}"
