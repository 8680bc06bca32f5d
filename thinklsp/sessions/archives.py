"""The archives of a session.

Each compaction archives the previous conversation. The database keeps its messages under an older generation number.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from thinklsp.core.errors import SessionError
from thinklsp.core.messages import Conversation, Message
from thinklsp.sessions.codec import RowConnection, parse_time, read_number
from thinklsp.sessions.encryption import StoreCipher
from thinklsp.sessions.repair import repair_conversation
from thinklsp.sessions.session import Session
from thinklsp.sessions.session_rows import (
    StoredSession,
    count_shared,
    cut_messages,
    extend_generation,
    read_history,
    write_session,
)

UNKNOWN_ARCHIVE = "This session has no such archive. `thinklsp sessions show` lists its archives."
_DAMAGED = "Parts of this session or of the archive are damaged. The archive can be shown but not restored."
_COLUMNS = "id, session, note, messages, steps, made"


@dataclass(frozen=True, slots=True)
class Archive:
    """The description of a conversation that a compaction replaced.

    `messages` and `steps` are the numbers of messages and steps in the conversation.
    """

    id: str
    session_id: str
    note: str
    messages: int
    steps: int
    created: datetime


@dataclass(frozen=True, slots=True)
class ArchivedConversation:
    """An archive with its conversation."""

    archive: Archive
    conversation: Conversation


def list_archives(connection: RowConnection, session_id: str, cipher: StoreCipher) -> tuple[Archive, ...]:
    """Return the archives of a session, oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM archive WHERE session = ? ORDER BY generation",  # noqa: S608 - constants
        (session_id,),
    ).fetchall()
    session_cipher = cipher.find(connection, session_id)
    return tuple(
        Archive(
            str(key),
            str(session),
            session_cipher.decrypt_text("archive.note", (key,), str(note)) or "",
            read_number(messages),
            read_number(steps),
            parse_time(created),
        )
        for key, session, note, messages, steps, created in rows
    )


def read_archive(
    connection: RowConnection, session_id: str, archive_id: str, cipher: StoreCipher
) -> ArchivedConversation:
    """Return an archive of the session with its conversation. Raises SessionError if the archive does not exist."""
    archive = next(
        (archive for archive in list_archives(connection, session_id, cipher) if archive.id == archive_id), None
    )
    if archive is None:
        raise SessionError(UNKNOWN_ARCHIVE)
    row = connection.execute("SELECT generation FROM archive WHERE id = ?", (archive.id,)).fetchone()
    history = read_history(connection, session_id, read_number(row[0]), cipher.find(connection, session_id))
    conversation = history.conversation
    return ArchivedConversation(
        archive, conversation if history.is_sound else repair_conversation(conversation).conversation
    )


def make_fork(
    connection: RowConnection, session_id: str, session: Session, step: int | None, cipher: StoreCipher
) -> Session:
    """Return a fork of the session that ends after `step`.

    If a compaction has replaced the step, the fork is made from an archive. Raises SessionError if the step does not
    exist.
    """
    fork_id = secrets.token_hex(16)
    with suppress(ValueError):
        return session.fork(fork_id, step)
    step = step or 0
    archive = next(
        (archive for archive in list_archives(connection, session_id, cipher) if archive.steps >= step), None
    )
    if archive is not None:
        conversation = read_archive(connection, session_id, archive.id, cipher).conversation
        earlier = replace(session, conversation=conversation, steps=archive.steps, unanswered=False, interrupted=False)
        with suppress(ValueError):
            return earlier.fork(fork_id, step)
    raise SessionError(f"This session has no step {step} to fork at. Its steps are 0 to {session.steps}.")


def write_fork(
    connection: RowConnection,
    fork_id: str,  # noqa: ARG001 - every write gets the id of its session
    fork: Session,
    cipher: StoreCipher,
) -> StoredSession:
    """Store a fork."""
    return write_session(connection, None, fork, cipher)


def read_transcript(connection: RowConnection, session_id: str, session: Session, cipher: StoreCipher) -> Session:
    """Return the session with its full history, which includes the messages of all archives."""
    kept_counts = connection.execute(
        "SELECT kept FROM archive WHERE session = ? ORDER BY generation", (session_id,)
    ).fetchall()
    archives = list_archives(connection, session_id, cipher)
    earlier = [read_archive(connection, session_id, archive.id, cipher).conversation for archive in archives]
    # The number of messages at the start of each conversation that summarize the previous conversation.
    summary_counts = [0, *(read_number(count) for (count,) in kept_counts)]
    messages = (
        message
        for conversation, count in zip((*earlier, session.conversation), summary_counts, strict=True)
        for message in conversation[count:]
    )
    return replace(session, conversation=tuple(messages))


def restore_archive(
    connection: RowConnection,
    before: StoredSession,
    archive_id: str,
    adapt: Callable[[Message], Message],
    cipher: StoreCipher,
    *,
    left_by_other: bool,
) -> StoredSession:
    """Restore the conversation of an archive, and delete this archive and all later archives.

    Later messages are kept after `adapt` has been applied to each of them. `left_by_other` is true if another process
    may have exited during a turn of the session. Raises SessionError.
    """
    undone = _list_from_archive(connection, before.session.id, archive_id)
    session_cipher = cipher.find(connection, before.session.id)
    histories = [read_history(connection, before.session.id, generation, session_cipher) for _, generation, _ in undone]
    if not (before.is_sound and all(history.is_sound for history in histories)):
        raise SessionError(_DAMAGED)
    conversation = before.session.conversation
    for (_, _, kept_count), history in zip(undone, histories, strict=True):
        conversation = (*history.conversation, *map(adapt, conversation[kept_count:]))
    session = replace(before.session, conversation=conversation)
    if left_by_other:
        session = session.recover()
    oldest = histories[-1].conversation
    if not repair_conversation(oldest).findings:
        # The restored messages may contain the same tool call ids as the current messages.
        session = replace(session, conversation=repair_conversation(session.conversation).conversation)
    size = sum(
        cut_messages(connection, session.id, generation, 0, session_cipher)
        for generation in (before.generation, *(generation for _, generation, _ in undone[:-1]))
    )
    for key, _, _ in undone:
        connection.execute("DELETE FROM archive WHERE id = ?", (key,))
    stored = StoredSession(session, before.revision + 1, undone[-1][1])
    extend_generation(connection, stored, count_shared(oldest, session.conversation), size, session_cipher)
    return stored


def _list_from_archive(connection: RowConnection, session_id: str, archive_id: str) -> list[tuple[str, int, int]]:
    """Return the id, the generation and the number of kept messages of this archive and all later archives, newest
    first."""
    rows = connection.execute(
        "SELECT id, generation, kept FROM archive WHERE session = ? ORDER BY generation DESC", (session_id,)
    )
    archives: list[tuple[str, int, int]] = []
    for key, generation, kept_count in rows:
        archives.append((str(key), read_number(generation), read_number(kept_count)))
        if key == archive_id:
            return archives
    raise SessionError(UNKNOWN_ARCHIVE)
