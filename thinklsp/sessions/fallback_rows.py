"""Stored fallbacks, with which other processes avoid requests that a provider has already rejected.

A fallback for one conversation is stored with its session. A fallback for a model expires after a month, because
providers change.
"""

from __future__ import annotations

import time
from typing import get_args

from thinklsp.core.events import Fallback, FallbackKind
from thinklsp.core.messages import Conversation
from thinklsp.sessions.codec import read_number, replace_surrogates
from thinklsp.sessions.row_connection import RowConnection

RETENTION_DAYS = 30
_COLUMNS = "service, model, session, kind, refused, instead, messages, made"
_KINDS: dict[str, FallbackKind] = {kind: kind for kind in get_args(FallbackKind)}


def write_fallback(
    connection: RowConnection, session_id: str, conversation: Conversation, service: str, fallback: Fallback
) -> None:
    """Store a fallback, unless it belongs to another conversation.

    For example, the request for a summary is a separate conversation.
    """
    count = len(fallback.conversation_prefix)
    if fallback.conversation_prefix != conversation[:count]:
        return
    model, refused, instead = (
        replace_surrogates(text) for text in (fallback.model, fallback.rejected_value, fallback.replacement)
    )
    key = (service, model, session_id if count else None, fallback.kind, refused)
    connection.execute(
        "DELETE FROM remedy WHERE service = ? AND model = ? AND coalesce(session, '') = ? AND kind = ? AND refused = ? "
        "AND messages = ?",
        (service, model, session_id if count else "", fallback.kind, refused, count),
    )
    connection.execute(
        f"INSERT INTO remedy ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
        (*key, instead, count, time.time_ns()),
    )


def read_fallbacks(
    connection: RowConnection, session_id: str, conversation: Conversation, service: str
) -> tuple[Fallback, ...]:
    """Return the fallbacks for the session's conversation and for all models, oldest first."""
    since = time.time_ns() - RETENTION_DAYS * 86_400 * 10**9
    rows = connection.execute(
        "SELECT model, kind, refused, instead, messages FROM remedy "
        "WHERE service = ? AND (session = ? OR session IS NULL AND made >= ?) ORDER BY made, kind",
        (service, session_id, since),
    )
    return tuple(
        Fallback(str(model), _KINDS[kind], str(refused), str(instead), conversation[: read_number(messages)])
        for model, kind, refused, instead, messages in rows
        if kind in _KINDS
    )


def copy_fallbacks(connection: RowConnection, session_id: str, fork_id: str, message_count: int) -> None:
    """Copy fallbacks for the first `message_count` messages of a session to its fork."""
    connection.execute(
        f"INSERT INTO remedy ({_COLUMNS}) SELECT service, model, ?, kind, refused, instead, messages, made "  # noqa: S608 - constants
        "FROM remedy WHERE session = ? AND messages <= ?",
        (fork_id, session_id, message_count),
    )


def delete_old_fallbacks(connection: RowConnection) -> None:
    """Delete the expired fallbacks for models."""
    since = time.time_ns() - RETENTION_DAYS * 86_400 * 10**9
    connection.execute("DELETE FROM remedy WHERE session IS NULL AND made < ?", (since,))
