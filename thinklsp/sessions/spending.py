"""What model calls have cost, one row for each: sums by session, turn, model and UTC day, across all processes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, date, datetime
from itertools import chain
from sqlite3 import Connection

from thinklsp.core.usage import Usage
from thinklsp.sessions.codec import USAGE_COLUMNS, as_time, number, storable, usage_of, usage_values
from thinklsp.sessions.values import LastStep, Spent, UsageReport

_COLUMNS = ("session", "turn", "purpose", "provider", "model", *USAGE_COLUMNS, "made", "day")
_SUMS = ", ".join(f"sum({column})" for column in USAGE_COLUMNS)


def utc_today() -> date:
    return datetime.now(UTC).date()


def record(connection: Connection, session_id: str, spent: Spent) -> None:
    marks = ", ".join("?" * (7 + len(USAGE_COLUMNS)))
    names = tuple(storable(name) for name in (spent.turn_id, spent.purpose, spent.provider, spent.model))
    connection.execute(
        f"INSERT INTO usage VALUES ({marks})",  # noqa: S608 - question marks
        (session_id, *names, *usage_values(spent.usage), time.time_ns(), utc_today().isoformat()),
    )


def sum_day(connection: Connection, day: date) -> Usage:
    rows = connection.execute(f"SELECT {_SUMS} FROM usage WHERE day = ?", (day.isoformat(),))  # noqa: S608 - constants
    return usage_of(rows.fetchone())


def find_last_step(connection: Connection, session_id: str) -> LastStep | None:
    row = connection.execute(
        f"SELECT turn, provider, model, made, {', '.join(USAGE_COLUMNS)} FROM usage "  # noqa: S608 - constants
        "WHERE session = ? AND purpose = 'step' ORDER BY made DESC LIMIT 1",
        (session_id,),
    ).fetchone()
    if row is None:
        return None
    turn, provider, model, made, *figures = row
    return LastStep(Spent(str(turn), str(provider), str(model), usage_of(tuple(figures))), as_time(number(made)))


def sum_usage(connection: Connection, session_id: str | None) -> list[tuple[str, str, Usage]]:
    """By turn, model and day: the column, its value, and the sum."""
    where, values = ("", ()) if session_id is None else ("WHERE session = ?", (session_id,))
    found = []
    for column in ("turn", "model", "day"):
        rows = connection.execute(
            f"SELECT {column}, {_SUMS} FROM usage {where} GROUP BY {column} ORDER BY min(made)",  # noqa: S608 - constants
            values,
        )
        found += [(column, str(name), usage_of(tuple(figures))) for name, *figures in rows]
    return found


def make_report(found: Iterable[Iterable[tuple[str, str, Usage]]]) -> UsageReport:
    """Add up the results of `sum_usage` from several databases."""
    by: dict[str, dict[str, Usage]] = {"turn": {}, "model": {}, "day": {}}
    for column, name, usage in chain.from_iterable(found):
        by[column][name] = by[column].get(name, Usage()) + usage
    total = sum(by["turn"].values(), Usage())
    by_day = {_day(name): usage for name, usage in sorted(by["day"].items())}
    return UsageReport(total, {name: usage for name, usage in by["turn"].items() if name}, by_day, by["model"])


def move(source: Connection, target: Connection) -> None:
    """Every row of the source that the target has not, to be taken from there when the target has them for sure."""
    _add(target, source.execute(f"SELECT {', '.join(_COLUMNS)} FROM usage"))  # noqa: S608 - constants


def copy(source: Connection, target: Connection, session_id: str) -> None:
    """The same for one session."""
    query = f"SELECT {', '.join(_COLUMNS)} FROM usage WHERE session = ?"  # noqa: S608 - constants
    _add(target, source.execute(query, (session_id,)))


def _add(target: Connection, rows: Iterable[tuple[object, ...]]) -> None:
    marks = ", ".join(f":{name}" for name in _COLUMNS)
    target.executemany(
        f"INSERT INTO usage SELECT {marks} WHERE NOT EXISTS "  # noqa: S608 - constants
        "(SELECT 1 FROM usage WHERE day = :day AND made = :made AND turn = :turn AND purpose = :purpose)",
        (dict(zip(_COLUMNS, row, strict=True)) for row in rows),
    )


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return date.min
