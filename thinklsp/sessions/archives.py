"""Conversations that a compaction has replaced: rows of an older generation that stay beside the present one."""

from __future__ import annotations

from dataclasses import replace
from sqlite3 import Connection

from thinklsp.core.errors import SessionError
from thinklsp.sessions.codec import as_time, number
from thinklsp.sessions.history import read_history
from thinklsp.sessions.repair import mend
from thinklsp.sessions.rows import Stored, extend_generation, remove_generation, shared
from thinklsp.sessions.sealing import Seals
from thinklsp.sessions.session import Session
from thinklsp.sessions.values import Archive, Archived

_COLUMNS = "id, session, note, messages, steps, made"


def archives(connection: Connection, session_id: str) -> tuple[Archive, ...]:
    """Oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM archive WHERE session = ? ORDER BY generation",  # noqa: S608 - constants
        (session_id,),
    )
    return tuple(
        Archive(str(key), str(session), str(note), number(messages), number(steps), as_time(made))
        for key, session, note, messages, steps, made in rows
    )


def read_archive(connection: Connection, archive: Archive, seals: Seals) -> Archived:
    row = connection.execute("SELECT generation FROM archive WHERE id = ?", (archive.id,)).fetchone()
    history = read_history(connection, archive.session_id, number(row[0]), seals)
    conversation = history.conversation
    return Archived(archive, conversation if history.sound else mend(conversation).conversation)


def before_compaction(connection: Connection, now: Session, step: int, seals: Seals) -> Session | None:
    """The session as the first archive that reaches `step` holds it."""
    for archive in archives(connection, now.id):
        if archive.steps >= step:
            conversation = read_archive(connection, archive, seals).conversation
            return replace(now, conversation=conversation, steps=archive.steps, unanswered=False, interrupted=False)
    return None


def transcript(connection: Connection, now: Session, seals: Seals) -> Session:
    """With all that was ever said in it: what each archive holds, and what was said behind its compaction."""
    kept = connection.execute("SELECT kept FROM archive WHERE session = ? ORDER BY generation", (now.id,)).fetchall()
    before = [read_archive(connection, archive, seals).conversation for archive in archives(connection, now.id)]
    # Of each conversation but the first, so many messages stand for the one before.
    known = [0, *(number(count) for (count,) in kept)]
    told = (
        message
        for conversation, count in zip((*before, now.conversation), known, strict=True)
        for message in conversation[count:]
    )
    return replace(now, conversation=tuple(told))


def undo_compaction(connection: Connection, before: Stored, seals: Seals) -> Stored:
    """The newest archive becomes the conversation again, followed by what has been said since. Raises SessionError."""
    row = connection.execute(
        "SELECT id, generation, kept FROM archive WHERE session = ? ORDER BY generation DESC LIMIT 1",
        (before.session.id,),
    ).fetchone()
    if row is None:
        raise SessionError("This session has no compaction that could be undone.")
    key, generation, kept = str(row[0]), number(row[1]), number(row[2])
    history = read_history(connection, before.session.id, generation, seals)
    if not history.sound:
        raise SessionError("The conversation from before this compaction is damaged. It can be shown, not restored.")
    # Names of calls were made unique among the messages that were left, not among those that come back now.
    conversation = mend((*history.conversation, *before.session.conversation[kept:])).conversation
    session = replace(before.session, conversation=conversation)
    size = remove_generation(connection, session.id, before.generation)
    connection.execute("DELETE FROM archive WHERE id = ?", (key,))
    stored = Stored(session, before.revision + 1, generation)
    extend_generation(connection, stored, shared(history.conversation, conversation), size, seals)
    return stored
