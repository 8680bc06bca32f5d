"""Database rows for sessions. The functions run inside the caller's transaction.

A write stores only new messages. Existing messages are neither read nor rewritten.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from thinklsp.core.messages import Conversation
from thinklsp.sessions.codec import (
    USAGE_COLUMNS,
    build_usage,
    decode_prompts,
    encode_prompts,
    list_usage_values,
    parse_time,
    read_number,
    replace_surrogates,
)
from thinklsp.sessions.message_rows import append_messages, count_shared, cut_messages, read_history
from thinklsp.sessions.repair import repair_conversation
from thinklsp.sessions.row_connection import RowConnection
from thinklsp.sessions.session import Session, SessionSummary
from thinklsp.sessions.session_cipher import SessionCipher, StoreCipher, decrypt_title

_USAGE_NAMES = ", ".join(USAGE_COLUMNS)
_SESSION_COLUMNS = (
    "workspace, title, choices, steps, unanswered, interrupted, undone, prompts, messages, generation, revision, "
    f"{_USAGE_NAMES}"
)
_SUMMARY_COLUMNS = f"id, title, workspace, model, steps, messages, size, created, updated, {_USAGE_NAMES}"
_HAS_CONTENT = "(messages > 0 OR prompts != '[]')"


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as stored in a database. `is_sound` is false if damaged rows are missing from `session`.

    Damaged rows stay in the database, and the next write starts a new generation.
    """

    session: Session
    revision: int
    generation: int
    is_sound: bool = True


class SessionUse(NamedTuple):
    """The time of a session's last change, in nanoseconds."""

    updated: int
    session_id: str


def choose_timestamp(connection: RowConnection) -> int:
    """Return the current time in nanoseconds, or a later time if a stored session is newer."""
    [(latest,)] = connection.execute("SELECT max(updated) FROM session").fetchall()
    return max(time.time_ns(), read_number(latest) + 1)


def read_session(connection: RowConnection, session_id: str, cipher: StoreCipher) -> StoredSession | None:
    """Read a session, or return None if it is not in the database."""
    row = connection.execute(f"SELECT {_SESSION_COLUMNS} FROM session WHERE id = ?", (session_id,)).fetchone()  # noqa: S608 - a constant
    if row is None:
        return None
    workspace, title, choices, steps, *states, prompts, messages, generation, revision = row[: -len(USAGE_COLUMNS)]
    unanswered, interrupted, undone = map(bool, states)
    session_cipher = cipher.find(connection, session_id)
    history = read_history(connection, session_id, read_number(generation), session_cipher)
    session = Session(
        session_id,
        str(workspace),
        decrypt_title(session_cipher, title),
        history.conversation,
        build_usage(tuple(row[-len(USAGE_COLUMNS) :])),
        _parse_choices(choices),
        read_number(steps),
        unanswered,
        interrupted,
        undone,
        decode_prompts(session_cipher.decrypt_text("session.prompts", (), str(prompts))),
    )
    sound = history.is_sound and history.row_count == messages
    if not sound:
        session = replace(session, conversation=repair_conversation(session.conversation).conversation)
    if session.unanswered and not (session.conversation and session.conversation[-1].role == "user"):
        session = replace(session, unanswered=False)
    return StoredSession(session, read_number(revision), read_number(generation), sound)


def write_session(
    connection: RowConnection,
    before: StoredSession | None,
    session: Session,
    cipher: StoreCipher,
    model: str | None = None,
) -> StoredSession:
    """Store the changes to a session. `before` is the stored session."""
    if before is not None and not before.is_sound:
        note = "The version before damaged parts were removed."
        return replace_conversation(connection, before, session, cipher, secrets.token_hex(16), note)
    generation = 0 if before is None else before.generation
    old: Conversation = () if before is None else before.session.conversation
    start = count_shared(old, session.conversation)
    session_cipher = cipher.ensure(connection, session.id)
    if before is None:
        _insert_session(connection, session)
    size = cut_messages(connection, session.id, generation, start, session_cipher) if start < len(old) else 0
    size += append_messages(connection, session, generation, start, session_cipher)
    stored = StoredSession(session, 1 if before is None else before.revision + 1, generation)
    # A new title is not a use of the session, so the session keeps its place in the list.
    is_renamed = before is not None and replace(before.session, title=session.title) == session
    _update_session(connection, stored, size, session_cipher, model, is_use=not is_renamed)
    return stored


def replace_conversation(
    connection: RowConnection, before: StoredSession, session: Session, cipher: StoreCipher, archive_id: str, note: str
) -> StoredSession:
    """Replace the conversation of a session and archive the previous conversation."""
    [(rows,)] = connection.execute(
        "SELECT count(*) FROM message WHERE session = ? AND generation = ?", (session.id, before.generation)
    )
    [(generation,)] = connection.execute("SELECT max(generation) + 1 FROM message WHERE session = ?", (session.id,))
    generation = max(read_number(generation), before.generation + 1)
    session_cipher = cipher.ensure(connection, session.id)
    connection.execute(
        "INSERT INTO archive VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            archive_id,
            session.id,
            before.generation,
            len(session.conversation),
            rows,
            before.session.steps,
            session_cipher.encrypt_text("archive.note", (archive_id,), replace_surrogates(note)),
            choose_timestamp(connection),
        ),
    )
    # Delete the session's fallbacks, because they belong to the previous conversation.
    connection.execute("DELETE FROM remedy WHERE session = ?", (session.id,))
    size = append_messages(connection, session, generation, 0, session_cipher)
    stored = StoredSession(session, before.revision + 1, generation)
    _update_session(connection, stored, size, session_cipher)
    return stored


def extend_generation(
    connection: RowConnection, stored: StoredSession, start: int, size: int, cipher: SessionCipher
) -> None:
    """Make an older generation the current generation of the session.

    The generation keeps its first `start` messages, and `stored` supplies the messages after them.
    """
    size += cut_messages(connection, stored.session.id, stored.generation, start, cipher)
    size += append_messages(connection, stored.session, stored.generation, start, cipher)
    _update_session(connection, stored, size, cipher)


def _insert_session(connection: RowConnection, session: Session) -> None:
    now = choose_timestamp(connection)
    connection.execute(
        "INSERT INTO session (id, workspace, title, model, choices, steps, unanswered, interrupted, undone, messages, "
        "size, generation, revision, created, updated) VALUES (?, ?, '', '', '{}', 0, 0, 0, 0, 0, 0, 0, 0, ?, ?)",
        (session.id, replace_surrogates(session.workspace), now, now),
    )


def _update_session(
    connection: RowConnection,
    stored: StoredSession,
    size: int,
    cipher: SessionCipher,
    model: str | None = None,
    *,
    is_use: bool = True,
) -> None:
    session = stored.session
    usage = ", ".join(f"{column} = ?" for column in USAGE_COLUMNS)
    connection.execute(
        "UPDATE session SET title = ?, model = coalesce(?, model), choices = ?, steps = ?, unanswered = ?, "  # noqa: S608 - constants
        "interrupted = ?, undone = ?, prompts = ?, messages = ?, size = size + ?, generation = ?, revision = ?, "
        f"updated = coalesce(?, updated), {usage} WHERE id = ?",
        (
            cipher.encrypt_text("session.title", (), replace_surrogates(session.title)),
            model,
            json.dumps(dict(session.choices)),
            session.steps,
            session.unanswered,
            session.interrupted,
            session.undone,
            cipher.encrypt_text("session.prompts", (), encode_prompts(session.prompts)),
            len(session.conversation),
            size,
            stored.generation,
            stored.revision,
            choose_timestamp(connection) if is_use else None,
            *list_usage_values(session.usage),
            session.id,
        ),
    )


def list_summaries(connection: RowConnection, workspace: str | None, cipher: StoreCipher) -> Iterator[SessionSummary]:
    """Yield a summary of each session that has content, newest first."""
    place, values = ("", ()) if workspace is None else ("workspace = ? AND ", (replace_surrogates(workspace),))
    rows = connection.execute(
        f"SELECT {_SUMMARY_COLUMNS} FROM session WHERE {place}{_HAS_CONTENT} ORDER BY updated DESC",  # noqa: S608 - constants
        values,
    ).fetchall()
    ciphers = cipher.find_all(connection, {row[0] for row in rows})
    for session_id, title, of_workspace, model, steps, messages, size, created, updated, *usage in rows:
        figures = (read_number(steps), read_number(messages), read_number(size))
        times = (parse_time(created), parse_time(updated))
        yield SessionSummary(
            session_id,
            decrypt_title(ciphers[session_id], title),
            str(of_workspace),
            str(model),
            *figures,
            *times,
            build_usage(tuple(usage)),
        )


def list_newest(connection: RowConnection, workspace: str) -> list[SessionUse]:
    """Return the times of the last changes to the workspace's sessions, newest first."""
    rows = connection.execute(
        "SELECT id, updated FROM session WHERE workspace = ? ORDER BY updated DESC LIMIT 100",
        (replace_surrogates(workspace),),
    )
    return [SessionUse(read_number(updated), str(session_id)) for session_id, updated in rows]


def read_revision(connection: RowConnection, session_id: str) -> int | None:
    """Return the revision of a session, or None if the session is not in the database."""
    row = connection.execute("SELECT revision FROM session WHERE id = ?", (session_id,)).fetchone()
    return None if row is None else read_number(row[0])


def read_workspace(connection: RowConnection, session_id: str) -> str | None:
    """Return the workspace of a session, or None if the session is not in the database."""
    row = connection.execute("SELECT workspace FROM session WHERE id = ?", (session_id,)).fetchone()
    return None if row is None else str(row[0])


def _parse_choices(text: object) -> dict[str, object]:
    try:
        choices = json.loads(str(text))
    except ValueError:
        return {}
    return choices if isinstance(choices, dict) else {}
