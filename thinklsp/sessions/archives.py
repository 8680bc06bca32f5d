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
from thinklsp.sessions.codec import parse_time, read_number
from thinklsp.sessions.encryption import RowConnection
from thinklsp.sessions.repair import repair_conversation
from thinklsp.sessions.session import Session
from thinklsp.sessions.session_rows import (
    StoredSession,
    copy_fallbacks,
    count_shared,
    cut_messages,
    extend_generation,
    read_history,
    write_session,
)

UNKNOWN_ARCHIVE = "This session has no such archive. `thinklsp sessions show` lists its archives."
_DAMAGED = "Parts of this session or of the archive are damaged. The archive can be shown but not restored."


@dataclass(frozen=True, slots=True)
class Archive:
    """The description of a conversation that a compaction replaced.

    `messages` and `steps` are the numbers of messages and steps in the conversation. Its messages are stored under
    `generation`, and `kept` is the number of messages at the start of the next conversation that summarize it.
    """

    id: str
    session_id: str
    note: str
    messages: int
    steps: int
    created: datetime
    generation: int
    kept: int


@dataclass(frozen=True, slots=True)
class ArchivedConversation:
    """An archive with its conversation."""

    archive: Archive
    conversation: Conversation


def list_archives(connection: RowConnection, session_id: str) -> tuple[Archive, ...]:
    """Return the archives of a session, oldest first."""
    rows = connection.execute(
        "SELECT id, note, messages, steps, made, generation, kept FROM archive WHERE session = ? ORDER BY generation",
        (session_id,),
    ).fetchall()
    cipher = connection.cipher.find(connection, session_id)
    return tuple(
        Archive(
            str(key),
            session_id,
            cipher.decrypt_text("archive.note", (key,), str(note)) or "",
            read_number(messages),
            read_number(steps),
            parse_time(created),
            read_number(generation),
            read_number(kept),
        )
        for key, note, messages, steps, created, generation, kept in rows
    )


def read_archive(connection: RowConnection, session_id: str, archive_id: str) -> ArchivedConversation:
    """Return an archive of the session with its conversation. Raises SessionError if the archive does not exist."""
    archive = _list_from(connection, session_id, archive_id)[0]
    cipher = connection.cipher.find(connection, session_id)
    history = read_history(connection, session_id, archive.generation, cipher)
    conversation = history.conversation
    return ArchivedConversation(
        archive, conversation if history.is_sound else repair_conversation(conversation).conversation
    )


def _list_from(connection: RowConnection, session_id: str, archive_id: str) -> tuple[Archive, ...]:
    """Return this archive and all later archives, oldest first. Raises SessionError if the archive does not exist."""
    archives = list_archives(connection, session_id)
    start = next((at for at, archive in enumerate(archives) if archive.id == archive_id), None)
    if start is None:
        raise SessionError(UNKNOWN_ARCHIVE)
    return archives[start:]


def make_fork(connection: RowConnection, session_id: str, session: Session, step: int | None) -> Session:
    """Return a fork of the session that ends after `step`.

    If a compaction has replaced the step, the fork is made from an archive. Raises SessionError if the step does not
    exist.
    """
    fork_id = secrets.token_hex(16)
    with suppress(ValueError):
        return session.fork(fork_id, step)
    step = step or 0
    archive = next((archive for archive in list_archives(connection, session_id) if archive.steps >= step), None)
    if archive is not None:
        conversation = read_archive(connection, session_id, archive.id).conversation
        earlier = replace(session, conversation=conversation, steps=archive.steps, unanswered=False, interrupted=False)
        with suppress(ValueError):
            return earlier.fork(fork_id, step)
    raise SessionError(f"This session has no step {step} to fork at. Its steps are 0 to {session.steps}.")


def write_fork(connection: RowConnection, fork_id: str, session: Session, fork: Session) -> StoredSession:
    """Store a fork, and copy the fallbacks for its messages from the original session."""
    stored = write_session(connection, None, fork)
    copy_fallbacks(connection, session.id, fork_id, count_shared(session.conversation, fork.conversation))
    return stored


def read_transcript(connection: RowConnection, session_id: str, session: Session) -> Session:
    """Return the session with its full history, which includes the messages of all archives."""
    archives = list_archives(connection, session_id)
    earlier = [read_archive(connection, session_id, archive.id).conversation for archive in archives]
    summary_counts = [0, *(archive.kept for archive in archives)]
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
    *,
    left_by_other: bool,
) -> StoredSession:
    """Restore the conversation of an archive, and delete this archive and all later archives.

    Later messages are kept after `adapt` has been applied to each of them. `left_by_other` is true if another process
    may have exited during a turn of the session. Raises SessionError.
    """
    undone = _list_from(connection, before.session.id, archive_id)
    cipher = connection.cipher.find(connection, before.session.id)
    histories = [read_history(connection, before.session.id, archive.generation, cipher) for archive in undone]
    if not (before.is_sound and all(history.is_sound for history in histories)):
        raise SessionError(_DAMAGED)
    conversation = before.session.conversation
    for archive, history in zip(reversed(undone), reversed(histories), strict=True):
        conversation = (*history.conversation, *map(adapt, conversation[archive.kept :]))
    session = replace(before.session, conversation=conversation)
    if left_by_other:
        session = session.recover()
    oldest = histories[0].conversation
    if not repair_conversation(oldest).findings:
        # The restored messages may contain the same tool call ids as the current messages.
        session = replace(session, conversation=repair_conversation(session.conversation).conversation)
    generations = (before.generation, *(archive.generation for archive in undone[1:]))
    size = sum(cut_messages(connection, session.id, generation, 0, cipher) for generation in generations)
    for archive in undone:
        connection.execute("DELETE FROM archive WHERE id = ?", (archive.id,))
    stored = StoredSession(session, before.revision + 1, undone[0].generation)
    start = count_shared(oldest, session.conversation)
    size += cut_messages(connection, session.id, stored.generation, start, cipher)
    extend_generation(connection, stored, start, size, cipher)
    return stored
