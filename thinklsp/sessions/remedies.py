"""What services have refused, kept so that no other process has to find it out by another refusal.

What is known of a conversation is kept with its session; what is known of a model is forgotten after a month, since
services change.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from sqlite3 import Connection
from typing import get_args

from thinklsp.core.remedies import Remedy, RemedyKind
from thinklsp.sessions.codec import number, storable
from thinklsp.sessions.session import Session

KEPT_DAYS = 30
_COLUMNS = "service, model, session, kind, refused, instead, messages, made"
_KINDS: dict[str, RemedyKind] = {kind: kind for kind in get_args(RemedyKind)}


def write(connection: Connection, session: Session, service: str, remedy: Remedy) -> None:
    """One that is about another conversation than the session's is not kept: that of a summary is asked for once."""
    count = len(remedy.beginning)
    if remedy.beginning != session.conversation[:count]:
        return
    model, refused, instead = (storable(text) for text in (remedy.model, remedy.refused, remedy.instead))
    key = (service, model, session.id if count else None, remedy.kind, refused)
    connection.execute(
        "DELETE FROM remedy WHERE service = ? AND model = ? AND session IS ? AND kind = ? AND refused = ? "
        "AND messages = ?",
        (*key, count),
    )
    connection.execute(
        f"INSERT INTO remedy ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
        (*key, instead, count, time.time_ns()),
    )


def read(connection: Connection, session: Session, service: str) -> Iterator[Remedy]:
    """Those for the session's conversation and for models, in the order in which they were found."""
    since = time.time_ns() - KEPT_DAYS * 86_400 * 10**9
    rows = connection.execute(
        "SELECT model, kind, refused, instead, messages FROM remedy "
        "WHERE service = ? AND (session = ? OR session IS NULL AND made >= ?) ORDER BY made, rowid",
        (service, session.id, since),
    )
    for model, kind, refused, instead, messages in rows.fetchall():
        if (known := _KINDS.get(kind)) is not None:
            beginning = session.conversation[: number(messages)]
            yield Remedy(str(model), known, str(refused), str(instead), beginning)


def copy(connection: Connection, session_id: str, fork_id: str, shared: int) -> None:
    """For a fork that has the first `shared` messages of the session."""
    connection.execute(
        f"INSERT INTO remedy ({_COLUMNS}) SELECT service, model, ?, kind, refused, instead, messages, made "  # noqa: S608 - constants
        "FROM remedy WHERE session = ? AND messages <= ?",
        (fork_id, session_id, shared),
    )


def forget_old(connection: Connection) -> None:
    since = time.time_ns() - KEPT_DAYS * 86_400 * 10**9
    connection.execute("DELETE FROM remedy WHERE session IS NULL AND made < ?", (since,))
