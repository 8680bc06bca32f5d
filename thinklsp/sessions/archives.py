"""Conversations that a compaction has replaced: rows of an older generation that stay beside the present one."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from sqlite3 import Connection

from thinklsp.core.errors import SessionError
from thinklsp.core.messages import Message
from thinklsp.sessions import remedies
from thinklsp.sessions.codec import as_time, number
from thinklsp.sessions.history import read_history
from thinklsp.sessions.repair import mend
from thinklsp.sessions.rows import Stored, extend_generation, remove_generation, shared, write_session
from thinklsp.sessions.sealing import Seals
from thinklsp.sessions.session import Session
from thinklsp.sessions.values import Archive, Archived

UNKNOWN_ARCHIVE = "This session has no such archive. `thinklsp sessions show` lists its archives."
_DAMAGED = "Parts of this session or of the archive are damaged. The archive can be shown, not restored."
_COLUMNS = "id, session, note, messages, steps, made"


def list_archives(connection: Connection, session_id: str) -> tuple[Archive, ...]:
    """Oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM archive WHERE session = ? ORDER BY generation",  # noqa: S608 - constants
        (session_id,),
    )
    return tuple(
        Archive(str(key), str(session), str(note), number(messages), number(steps), as_time(made))
        for key, session, note, messages, steps, made in rows
    )


def read_archive(connection: Connection, session_id: str, archive_id: str, seals: Seals) -> Archived:
    """Read one archive of a session. Raise SessionError if it has no such archive."""
    archive = next((archive for archive in list_archives(connection, session_id) if archive.id == archive_id), None)
    if archive is None:
        raise SessionError(UNKNOWN_ARCHIVE)
    row = connection.execute("SELECT generation FROM archive WHERE id = ?", (archive.id,)).fetchone()
    history = read_history(connection, session_id, number(row[0]), seals)
    conversation = history.conversation
    return Archived(archive, conversation if history.sound else mend(conversation).conversation)


def make_fork(connection: Connection, session_id: str, now: Session, step: int | None, seals: Seals) -> Session:
    """Return a fork of the session, from the first archive that reaches `step` if a compaction has removed the step.

    Raise SessionError if there is no such step.
    """
    fork_id = secrets.token_hex(16)
    with suppress(ValueError):
        return now.forked(fork_id, step)
    step = step or 0
    found = next((archive for archive in list_archives(connection, session_id) if archive.steps >= step), None)
    if found is not None:
        conversation = read_archive(connection, session_id, found.id, seals).conversation
        then = replace(now, conversation=conversation, steps=found.steps, unanswered=False, interrupted=False)
        with suppress(ValueError):
            return then.forked(fork_id, step)
    raise SessionError(f"This session has no step {step} to fork at. Its steps are 0 to {now.steps}.")


def write_fork(connection: Connection, fork_id: str, session: Session, fork: Session, seals: Seals) -> Stored:
    """Write a fork with what services have refused of the messages that it shares with the session."""
    stored = write_session(connection, None, fork, seals)
    remedies.copy(connection, session.id, fork_id, shared(session.conversation, fork.conversation))
    return stored


def read_transcript(connection: Connection, session_id: str, now: Session, seals: Seals) -> Session:
    """Return the session with all that was ever said in it: each archive, and what was said after its compaction."""
    kept = connection.execute(
        "SELECT kept FROM archive WHERE session = ? ORDER BY generation", (session_id,)
    ).fetchall()
    found = list_archives(connection, session_id)
    before = [read_archive(connection, session_id, archive.id, seals).conversation for archive in found]
    # Of each conversation but the first, so many messages stand for the one before.
    known = [0, *(number(count) for (count,) in kept)]
    told = (
        message
        for conversation, count in zip((*before, now.conversation), known, strict=True)
        for message in conversation[count:]
    )
    return replace(now, conversation=tuple(told))


def restore(
    connection: Connection,
    before: Stored,
    archive_id: str,
    fit: Callable[[Message], Message],
    seals: Seals,
    *,
    left_by_other: bool,
) -> Stored:
    """Make an archive the conversation again, followed by what was said since, and delete it and later archives.

    `fit` is applied to each message that was said since. `left_by_other`: a process that is gone may have left the
    session in the middle of a turn. Raises SessionError.
    """
    undone = _undone(connection, before.session.id, archive_id)
    histories = [read_history(connection, before.session.id, generation, seals) for _, generation, _ in undone]
    if not (before.sound and all(history.sound for history in histories)):
        raise SessionError(_DAMAGED)
    conversation = before.session.conversation
    for (_, _, kept), history in zip(undone, histories, strict=True):
        conversation = (*history.conversation, *map(fit, conversation[kept:]))
    session = replace(before.session, conversation=conversation)
    if left_by_other:
        session = session.recovered()
    oldest = histories[-1].conversation
    if not mend(oldest).findings:
        # Ids of calls are unique among the messages that the compaction left, not among those that come back.
        session = replace(session, conversation=mend(session.conversation).conversation)
    size = sum(
        remove_generation(connection, session.id, generation)
        for generation in (before.generation, *(generation for _, generation, _ in undone[:-1]))
    )
    for key, _, _ in undone:
        connection.execute("DELETE FROM archive WHERE id = ?", (key,))
    stored = Stored(session, before.revision + 1, undone[-1][1])
    extend_generation(connection, stored, shared(oldest, session.conversation), size, seals)
    return stored


def _undone(connection: Connection, session_id: str, archive_id: str) -> list[tuple[str, int, int]]:
    """Return id, generation and kept messages of the archive and of all later ones, newest first."""
    rows = connection.execute(
        "SELECT id, generation, kept FROM archive WHERE session = ? ORDER BY generation DESC", (session_id,)
    )
    found: list[tuple[str, int, int]] = []
    for key, generation, kept in rows:
        found.append((str(key), number(generation), number(kept)))
        if key == archive_id:
            return found
    raise SessionError(UNKNOWN_ARCHIVE)
