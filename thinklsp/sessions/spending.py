"""The usage of model calls, with one database row per call, and caps on the spending of users and teams.

The sums by session, turn, model and UTC day include the calls of all processes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal

from thinklsp.core.usage import Usage
from thinklsp.sessions.codec import USAGE_COLUMNS, build_usage, list_usage_values, replace_surrogates
from thinklsp.sessions.encryption import RowConnection

_SUMS = ", ".join(f"sum({column})" for column in USAGE_COLUMNS)


Purpose = Literal["step", "compaction", "title", "lost"]
CapScope = Literal["user", "team"]


@dataclass(frozen=True, slots=True)
class CallUsage:
    """The usage of one model call.

    The purpose `lost` marks an answer that was not stored, because the provider declined it or the turn stopped.
    """

    turn_id: str
    provider: str
    model: str
    usage: Usage
    purpose: Purpose = "step"


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The total usage of a session or of all sessions.

    Turns are in the order of their first calls, and days in ascending order. Calls of deleted sessions are counted only
    in their day's total.
    """

    total: Usage
    by_turn: Mapping[str, Usage]
    by_day: Mapping[date, Usage]
    by_model: Mapping[str, Usage]


def read_utc_date() -> date:
    """Return the current date in UTC."""
    return datetime.now(UTC).date()


def record_usage(connection: RowConnection, session_id: str, call_usage: CallUsage) -> None:
    """Store the usage of a model call."""
    marks = ", ".join("?" * (7 + len(USAGE_COLUMNS)))
    names = tuple(
        replace_surrogates(name)
        for name in (call_usage.turn_id, call_usage.purpose, call_usage.provider, call_usage.model)
    )
    connection.execute(
        f"INSERT INTO usage VALUES ({marks})",  # noqa: S608 - question marks
        (session_id, *names, *list_usage_values(call_usage.usage), time.time_ns(), read_utc_date().isoformat()),
    )


def sum_day(connection: RowConnection, day: date) -> Usage:
    """Return the usage on the given UTC day."""
    rows = connection.execute(f"SELECT {_SUMS} FROM usage WHERE day = ?", (day.isoformat(),))  # noqa: S608 - constants
    return build_usage(rows.fetchone())


def report_usage(connection: RowConnection, session_id: str | None) -> UsageReport:
    """Return the usage of one session, or of all sessions if `session_id` is None."""
    where, values = ("", ()) if session_id is None else ("WHERE session = ?", (session_id,))
    sums: dict[str, dict[str, Usage]] = {}
    for column in ("turn", "model", "day"):
        rows = connection.execute(
            f"SELECT {column}, {_SUMS} FROM usage {where} GROUP BY {column} ORDER BY min(made)",  # noqa: S608 - constants
            values,
        )
        sums[column] = {str(name): build_usage(tuple(figures)) for name, *figures in rows}
    total = sum(sums["turn"].values(), Usage())
    by_day = {_parse_day(name): usage for name, usage in sorted(sums["day"].items())}
    return UsageReport(total, {name: usage for name, usage in sums["turn"].items() if name}, by_day, sums["model"])


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return date.min


@dataclass(frozen=True, slots=True)
class BudgetCap:
    """A cap in US dollars. `period` is a UTC day such as 2026-11-26, or a month such as 2026-11."""

    scope: CapScope
    name: str
    period: str
    usd: float


@dataclass(frozen=True, slots=True)
class CapReached:
    """A cap that a model call would exceed, with what was spent and what running model calls have reserved."""

    cap: BudgetCap
    spent_usd: float
    reserved_usd: float
