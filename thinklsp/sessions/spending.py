"""What model calls have cost, one row for each: sums by session, turn, model and UTC day, across all processes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from sqlite3 import Connection

from thinklsp.core.usage import Usage
from thinklsp.sessions.codec import USAGE_COLUMNS, storable, usage_of, usage_values
from thinklsp.sessions.values import Spent, UsageReport

_SUMS = ", ".join(f"sum({column})" for column in USAGE_COLUMNS)


def utc_today() -> date:
    return datetime.now(UTC).date()


def record(connection: Connection, session_id: str, spent: Spent, day: date) -> None:
    marks = ", ".join("?" * (7 + len(USAGE_COLUMNS)))
    names = tuple(storable(name) for name in (spent.turn_id, spent.purpose, spent.provider, spent.model))
    connection.execute(
        f"INSERT INTO usage VALUES ({marks})",  # noqa: S608 - question marks
        (session_id, *names, *usage_values(spent.usage), time.time_ns(), day.isoformat()),
    )


def spent_on(connection: Connection, day: date) -> Usage:
    rows = connection.execute(f"SELECT {_SUMS} FROM usage WHERE day = ?", (day.isoformat(),))  # noqa: S608 - constants
    return usage_of(rows.fetchone())


def report(connections: Iterable[Connection], session_id: str | None) -> UsageReport:
    by_turn: dict[str, Usage] = {}
    by_day: dict[date, Usage] = {}
    by_model: dict[str, Usage] = {}
    total = Usage()
    for connection in connections:
        for turn, usage in _sums(connection, "turn", session_id):
            total += usage
            if turn:
                by_turn[turn] = by_turn.get(turn, Usage()) + usage
        for model, usage in _sums(connection, "model", session_id):
            by_model[model] = by_model.get(model, Usage()) + usage
        for text, usage in _sums(connection, "day", session_id):
            day = _day(text)
            by_day[day] = by_day.get(day, Usage()) + usage
    return UsageReport(total, by_turn, dict(sorted(by_day.items())), by_model)


def move(source: Connection, target: Connection) -> None:
    """Every row of the source, to be taken from there when the target has them for sure."""
    marks = ", ".join("?" * (7 + len(USAGE_COLUMNS)))
    target.executemany(f"INSERT INTO usage VALUES ({marks})", source.execute("SELECT * FROM usage"))  # noqa: S608 - question marks


def _sums(connection: Connection, column: str, session_id: str | None) -> Iterator[tuple[str, Usage]]:
    where, values = ("", ()) if session_id is None else ("WHERE session = ?", (session_id,))
    rows = connection.execute(
        f"SELECT {column}, {_SUMS} FROM usage {where} GROUP BY {column} ORDER BY min(made)",  # noqa: S608 - constants
        values,
    )
    for name, *sums in rows:
        yield str(name), usage_of(tuple(sums))


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return date.min
