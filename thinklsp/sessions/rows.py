"""Sessions in a database: SQL over one connection, inside a transaction of the caller's. It knows no disks.

A write costs what is new: messages that stand there already are neither read nor written.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from sqlite3 import Connection
from typing import NamedTuple

from thinklsp.core.messages import Conversation, Origin
from thinklsp.sessions.codec import (
    USAGE_COLUMNS,
    as_time,
    decode_prompts,
    encode,
    encode_prompts,
    message_crc,
    number,
    storable,
    usage_of,
    usage_values,
)
from thinklsp.sessions.history import read_history
from thinklsp.sessions.repair import mend
from thinklsp.sessions.sealing import Seals
from thinklsp.sessions.session import Session
from thinklsp.sessions.transaction import expect_rows
from thinklsp.sessions.values import Summary

_USAGE = ", ".join(USAGE_COLUMNS)
_SESSION = (
    "workspace, title, choices, steps, unanswered, interrupted, undone, prompts, messages, generation, revision, "
    f"{_USAGE}"
)
_SUMMARY = f"id, title, workspace, model, steps, messages, size, created, updated, {_USAGE}"
_SAID = "(messages > 0 OR prompts != '[]')"
# In an order in which rows may be added although they refer to each other.
SESSION_TABLES = ("session", "message", "opaque", "archive", "ledger", "remedy")


def key_of(table: str) -> str:
    """The column of one of them that holds the session's id."""
    return "id" if table == "session" else "session"


@dataclass(frozen=True, slots=True)
class Stored:
    """A session as it stands in a database. `sound` False: part of it could not be read and is not in `session`;
    the rows are kept, and the next write goes to a new generation beside them."""

    session: Session
    revision: int
    generation: int
    sound: bool = True


class Use(NamedTuple):
    """When a session was changed or created last, in nanoseconds."""

    updated: int
    session_id: str


def find_moment(connection: Connection) -> int:
    """Now, in nanoseconds, and later than whatever is stored: the order of sessions survives a clock that is set."""
    [(latest,)] = connection.execute("SELECT max(updated) FROM session").fetchall()
    return max(time.time_ns(), number(latest) + 1)


def read_revision(connection: Connection, session_id: str) -> int | None:
    row = connection.execute("SELECT revision FROM session WHERE id = ?", (session_id,)).fetchone()
    return None if row is None else number(row[0])


def read_session(connection: Connection, session_id: str, seals: Seals) -> Stored | None:
    row = connection.execute(f"SELECT {_SESSION} FROM session WHERE id = ?", (session_id,)).fetchone()  # noqa: S608 - a constant
    if row is None:
        return None
    workspace, title, choices, steps, *states, prompts, messages, generation, revision = row[: -len(USAGE_COLUMNS)]
    unanswered, interrupted, undone = map(bool, states)
    history = read_history(connection, session_id, number(generation), seals)
    session = Session(
        session_id,
        str(workspace),
        str(title),
        history.conversation,
        usage_of(tuple(row[-len(USAGE_COLUMNS) :])),
        _choices(choices),
        number(steps),
        unanswered,
        interrupted,
        undone,
        decode_prompts(prompts),
    )
    sound = history.sound and history.rows == messages
    if not sound:
        mended = mend(session.conversation).conversation
        session = replace(session, conversation=mended)
    if session.unanswered and not (session.conversation and session.conversation[-1].role == "user"):
        session = replace(session, unanswered=False)
    return Stored(session, number(revision), number(generation), sound)


def write_session(
    connection: Connection, before: Stored | None, session: Session, seals: Seals, model: str | None = None
) -> Stored:
    """Writes what `session` has that `before` had not. `before` must be what is stored."""
    if before is not None and not before.sound:
        note = "Before damaged parts were left out."
        return replace_conversation(connection, before, session, seals, secrets.token_hex(16), note)
    generation = 0 if before is None else before.generation
    old: Conversation = () if before is None else before.session.conversation
    kept = shared(old, session.conversation)
    if before is None:
        _insert_session(connection, session)
    size = _cut(connection, session.id, generation, kept) if kept < len(old) else 0
    size += _append(connection, session, generation, kept, seals)
    stored = Stored(session, 1 if before is None else before.revision + 1, generation)
    _update_session(connection, stored, size, model)
    return stored


def replace_conversation(
    connection: Connection, before: Stored, session: Session, seals: Seals, archive_id: str, note: str
) -> Stored:
    """Replace the conversation by another one. The former conversation becomes an archive."""
    [(rows,)] = connection.execute(
        "SELECT count(*) FROM message WHERE session = ? AND generation = ?", (session.id, before.generation)
    )
    [(generation,)] = connection.execute("SELECT max(generation) + 1 FROM message WHERE session = ?", (session.id,))
    generation = max(number(generation), before.generation + 1)
    connection.execute(
        "INSERT INTO archive VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            archive_id,
            session.id,
            before.generation,
            len(session.conversation),
            rows,
            before.session.steps,
            storable(note),
            find_moment(connection),
        ),
    )
    # They were about the conversation as it was.
    connection.execute("DELETE FROM remedy WHERE session = ?", (session.id,))
    size = _append(connection, session, generation, 0, seals)
    stored = Stored(session, before.revision + 1, generation)
    _update_session(connection, stored, size, None)
    return stored


def remove_generation(connection: Connection, session_id: str, generation: int) -> int:
    """The bytes that it took away, as a negative number."""
    return _cut(connection, session_id, generation, 0)


def extend_generation(connection: Connection, stored: Stored, kept: int, size: int, seals: Seals) -> None:
    """Makes an older generation the session's own: of its messages `kept` stay, the others are those of `stored`."""
    size += _cut(connection, stored.session.id, stored.generation, kept)
    size += _append(connection, stored.session, stored.generation, kept, seals)
    _update_session(connection, stored, size, None)


def shared(old: Conversation, new: Conversation) -> int:
    """How many messages at the beginning are the same. Cheap where they are the same objects."""
    if new[: len(old)] == old:
        return len(old)
    return next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _insert_session(connection: Connection, session: Session) -> None:
    now = find_moment(connection)
    connection.execute(
        "INSERT INTO session (id, workspace, title, model, choices, steps, unanswered, interrupted, undone, messages, "
        "size, generation, revision, created, updated) VALUES (?, ?, '', '', '{}', 0, 0, 0, 0, 0, 0, 0, 0, ?, ?)",
        (session.id, storable(session.workspace), now, now),
    )


def _update_session(connection: Connection, stored: Stored, size: int, model: str | None) -> None:
    session = stored.session
    usage = ", ".join(f"{column} = ?" for column in USAGE_COLUMNS)
    connection.execute(
        "UPDATE session SET title = ?, model = coalesce(?, model), choices = ?, steps = ?, unanswered = ?, "  # noqa: S608 - constants
        "interrupted = ?, undone = ?, prompts = ?, messages = ?, size = size + ?, generation = ?, revision = ?, "
        f"updated = ?, {usage} WHERE id = ?",
        (
            storable(session.title),
            model,
            json.dumps(dict(session.choices)),
            session.steps,
            session.unanswered,
            session.interrupted,
            session.undone,
            encode_prompts(session.prompts),
            len(session.conversation),
            size,
            stored.generation,
            stored.revision,
            find_moment(connection),
            *usage_values(session.usage),
            session.id,
        ),
    )


def _append(connection: Connection, session: Session, generation: int, kept: int, seals: Seals) -> int:
    """The bytes that were added."""
    size = 0
    checks: list[tuple[int, int]] = []
    sealed_checks: list[tuple[int, int, str, int]] = []
    known: set[Origin] = set()
    for sequence, message in enumerate(session.conversation[kept:], kept):
        row = encode(message)
        place = (session.id, generation, sequence)
        check = message_crc(row.role, row.stop_reason, row.blocks)
        connection.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*place, row.role, row.stop_reason, row.blocks, check),
        )
        checks.append((sequence, check))
        size += len(row.blocks)
        for position, state in row.sealed:
            closed = seals.close(state)
            if state.origin not in known:
                _ensure_origin(connection, closed.origin, state.origin)
                known.add(state.origin)
            connection.execute("INSERT INTO opaque VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*place, position, *closed))
            sealed_checks.append((sequence, position, closed.origin, closed.crc))
            size += len(closed.content)
    added = (session.id, generation, kept)
    those = "WHERE session = ? AND generation = ? AND sequence >= ? ORDER BY sequence"
    expect_rows(connection, f"SELECT sequence, crc FROM message {those}", added, checks)  # noqa: S608 - a constant
    query = f"SELECT sequence, position, origin, crc FROM opaque {those}, position"  # noqa: S608 - a constant
    expect_rows(connection, query, added, sealed_checks)
    return size


def _ensure_origin(connection: Connection, key: str, origin: Origin) -> None:
    """The row is shared by all sessions: one that was damaged is made whole, or new state would be unreadable too."""
    query = "SELECT provider, model, host, key FROM origin WHERE id = ?"
    fields = (origin.provider, origin.model, origin.host, origin.key)
    if connection.execute(query, (key,)).fetchall() != [fields]:
        connection.execute("INSERT OR REPLACE INTO origin VALUES (?, ?, ?, ?, ?)", (key, *fields))
        expect_rows(connection, query, (key,), [fields])


def _cut(connection: Connection, session_id: str, generation: int, kept: int) -> int:
    """Removes the messages from `kept` on; the bytes that it took away, as a negative number."""
    size = 0
    for table, column in (("message", "blocks"), ("opaque", "content")):
        place = f"FROM {table} WHERE session = ? AND generation = ? AND sequence >= ?"
        values = (session_id, generation, kept)
        [(bytes_there,)] = connection.execute(f"SELECT total(length({column})) {place}", values)
        size -= int(bytes_there)
        connection.execute(f"DELETE {place}", values)
    connection.execute("DELETE FROM remedy WHERE session = ? AND messages > ?", (session_id, kept))
    return size


def list_summaries(connection: Connection, workspace: str | None) -> Iterator[Summary]:
    """Yield the sessions in which something was said, newest first."""
    place, values = ("", ()) if workspace is None else ("workspace = ? AND ", (storable(workspace),))
    rows = connection.execute(
        f"SELECT {_SUMMARY} FROM session WHERE {place}{_SAID} ORDER BY updated DESC",  # noqa: S608 - constants
        values,
    )
    for session_id, title, of_workspace, model, steps, messages, size, created, updated, *usage in rows:
        figures = (number(steps), number(messages), number(size))
        times = (as_time(created), as_time(updated))
        yield Summary(session_id, str(title), str(of_workspace), str(model), *figures, *times, usage_of(tuple(usage)))


def list_newest(connection: Connection, workspace: str) -> list[Use]:
    """Return when the sessions of a workspace were used, newest first."""
    rows = connection.execute(
        "SELECT id, updated FROM session WHERE workspace = ? ORDER BY updated DESC LIMIT 100", (storable(workspace),)
    )
    return [Use(number(updated), str(session_id)) for session_id, updated in rows]


def read_workspace(connection: Connection, session_id: str) -> str | None:
    row = connection.execute("SELECT workspace FROM session WHERE id = ?", (session_id,)).fetchone()
    return None if row is None else str(row[0])


def delete_session(connection: Connection, session_id: str) -> bool:
    """Whether it was there. What it has cost stays, without its name: deleting must not fill up a budget."""
    connection.execute("UPDATE usage SET session = NULL, turn = '' WHERE session = ?", (session_id,))
    found = False
    for table in reversed(SESSION_TABLES):
        key = key_of(table)
        found = connection.execute(f"DELETE FROM {table} WHERE {key} = ?", (session_id,)).rowcount > 0  # noqa: S608 - constants
    connection.execute("DELETE FROM origin WHERE id NOT IN (SELECT origin FROM opaque)")
    return found


def _choices(text: object) -> dict[str, object]:
    try:
        found = json.loads(str(text))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
