"""What services have refused, kept so that no other process has to find it out by another refusal.

What is known of a conversation is kept with its session; what is known of a model is forgotten after a month, since
services change.
"""

from __future__ import annotations

import time
from sqlite3 import Connection
from typing import get_args

from thinklsp.core.messages import Conversation
from thinklsp.core.remedies import Remedy, RemedyKind
from thinklsp.sessions.codec import number, storable

KEPT_DAYS = 30
_COLUMNS = "service, model, session, kind, refused, instead, messages, made"
_KINDS: dict[str, RemedyKind] = {kind: kind for kind in get_args(RemedyKind)}


def write(connection: Connection, session_id: str, conversation: Conversation, service: str, remedy: Remedy) -> None:
    """Keep a remedy, unless it is about another conversation than the session's: a summary is asked for once."""
    count = len(remedy.beginning)
    if remedy.beginning != conversation[:count]:
        return
    model, refused, instead = (storable(text) for text in (remedy.model, remedy.refused, remedy.instead))
    key = (service, model, session_id if count else None, remedy.kind, refused)
    connection.execute(
        "DELETE FROM remedy WHERE service = ? AND model = ? AND session IS ? AND kind = ? AND refused = ? "
        "AND messages = ?",
        (*key, count),
    )
    connection.execute(
        f"INSERT INTO remedy ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
        (*key, instead, count, time.time_ns()),
    )


def read(connection: Connection, session_id: str, conversation: Conversation, service: str) -> tuple[Remedy, ...]:
    """Return those for the session's conversation and for models, in the order in which they were found."""
    since = time.time_ns() - KEPT_DAYS * 86_400 * 10**9
    rows = connection.execute(
        "SELECT model, kind, refused, instead, messages FROM remedy "
        "WHERE service = ? AND (session = ? OR session IS NULL AND made >= ?) ORDER BY made, rowid",
        (service, session_id, since),
    )
    return tuple(
        Remedy(str(model), _KINDS[kind], str(refused), str(instead), conversation[: number(messages)])
        for model, kind, refused, instead, messages in rows
        if kind in _KINDS
    )


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
