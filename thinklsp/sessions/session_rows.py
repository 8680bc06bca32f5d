"""Database rows for sessions, their messages and their fallbacks. The functions run inside the caller's transaction.

A write stores only new messages. Existing messages are neither read nor rewritten. A fallback for one conversation is
stored with its session. A fallback for a model expires after a month, because providers change.
"""

from __future__ import annotations

import json
import secrets
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import get_args

from thinklsp.core.events import Fallback, FallbackKind
from thinklsp.core.messages import Conversation, ImageBlock, Message, OpaqueState, Origin
from thinklsp.sessions.codec import (
    USAGE_COLUMNS,
    FindImage,
    build_usage,
    compute_message_crc,
    compute_origin_id,
    decode_message,
    decode_prompts,
    encode_message,
    encode_prompts,
    list_usage_values,
    parse_time,
    read_number,
    replace_surrogates,
    reveal_content,
    to_text,
)
from thinklsp.sessions.encryption import RowConnection, SessionCipher, decrypt_title
from thinklsp.sessions.repair import repair_conversation
from thinklsp.sessions.session import Session, SessionSummary

_USAGE_NAMES = ", ".join(USAGE_COLUMNS)
_SESSION_COLUMNS = (
    "workspace, title, choices, steps, unanswered, interrupted, undone, prompts, messages, generation, revision, "
    f"{_USAGE_NAMES}"
)
_SUMMARY_COLUMNS = f"id, title, workspace, model, steps, messages, size, created, updated, {_USAGE_NAMES}"
_HAS_CONTENT = "(messages > 0 OR prompts != '[]')"
RETENTION_DAYS = 30
_COLUMNS = "service, model, session, kind, refused, instead, messages, made"
_KINDS: dict[str, FallbackKind] = {kind: kind for kind in get_args(FallbackKind)}


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as stored in a database. `is_sound` is false if damaged rows are missing from `session`.

    Damaged rows stay in the database, and the next write starts a new generation.
    """

    session: Session
    revision: int
    generation: int
    is_sound: bool = True


def choose_timestamp(connection: RowConnection) -> int:
    """Return the current time in nanoseconds, or a later time if a stored session is newer."""
    [(latest,)] = connection.execute("SELECT max(updated) FROM session").fetchall()
    return max(time.time_ns(), read_number(latest) + 1)


def read_session(connection: RowConnection, session_id: str) -> StoredSession | None:
    """Read a session, or return None if it is not in the database."""
    row = connection.execute(f"SELECT {_SESSION_COLUMNS} FROM session WHERE id = ?", (session_id,)).fetchone()  # noqa: S608 - a constant
    if row is None:
        return None
    workspace, title, choices, steps, *states, prompts, messages, generation, revision = row[: -len(USAGE_COLUMNS)]
    unanswered, interrupted, undone = map(bool, states)
    session_cipher = connection.cipher.find(connection, session_id)
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
    model: str | None = None,
    *,
    least_revision: int = 1,
) -> StoredSession:
    """Store the changes to a session. `before` is the stored session."""
    if before is not None and not before.is_sound:
        note = "The version before damaged parts were removed."
        return replace_conversation(connection, before, session, secrets.token_hex(16), note)
    generation = 0 if before is None else before.generation
    old: Conversation = () if before is None else before.session.conversation
    start = count_shared(old, session.conversation)
    cipher = connection.cipher.ensure(connection, session.id)
    if before is None:
        _insert_session(connection, session)
    size = cut_messages(connection, session.id, generation, start, cipher) if start < len(old) else 0
    revision = max(least_revision, 1 if before is None else before.revision + 1)
    stored = StoredSession(session, revision, generation)
    # A new title is not a use of the session, so the session keeps its place in the list.
    is_renamed = before is not None and replace(before.session, title=session.title) == session
    extend_generation(connection, stored, start, size, cipher, model, is_use=not is_renamed)
    return stored


def replace_conversation(
    connection: RowConnection, before: StoredSession, session: Session, archive_id: str, note: str
) -> StoredSession:
    """Replace the conversation of a session and archive the previous conversation."""
    [(rows,)] = connection.execute(
        "SELECT count(*) FROM message WHERE session = ? AND generation = ?", (session.id, before.generation)
    )
    [(generation,)] = connection.execute("SELECT max(generation) + 1 FROM message WHERE session = ?", (session.id,))
    generation = max(read_number(generation), before.generation + 1)
    cipher = connection.cipher.ensure(connection, session.id)
    connection.execute(
        "INSERT INTO archive VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            archive_id,
            session.id,
            before.generation,
            len(session.conversation),
            rows,
            before.session.steps,
            cipher.encrypt_text("archive.note", (archive_id,), replace_surrogates(note)),
            choose_timestamp(connection),
        ),
    )
    # Delete the session's fallbacks, because they belong to the previous conversation.
    connection.execute("DELETE FROM remedy WHERE session = ?", (session.id,))
    stored = StoredSession(session, before.revision + 1, generation)
    extend_generation(connection, stored, 0, 0, cipher)
    return stored


def _insert_session(connection: RowConnection, session: Session) -> None:
    now = choose_timestamp(connection)
    connection.execute(
        "INSERT INTO session (id, workspace, title, model, choices, steps, unanswered, interrupted, undone, messages, "
        "size, generation, revision, created, updated) VALUES (?, ?, '', '', '{}', 0, 0, 0, 0, 0, 0, 0, 0, ?, ?)",
        (session.id, replace_surrogates(session.workspace), now, now),
    )


def extend_generation(
    connection: RowConnection,
    stored: StoredSession,
    start: int,
    size: int,
    cipher: SessionCipher,
    model: str | None = None,
    *,
    is_use: bool = True,
) -> None:
    """Make a generation with `start` messages the current generation of the session, and add the messages after them.

    `size` is the change in bytes so far.
    """
    session = stored.session
    size += append_messages(connection, session, stored.generation, start, cipher)
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


def list_sessions(connection: RowConnection, workspace: str | None) -> tuple[SessionSummary, ...]:
    """Return a summary of each session that has content, newest first."""
    place, values = ("", ()) if workspace is None else ("workspace = ? AND ", (replace_surrogates(workspace),))
    rows = connection.execute(
        f"SELECT {_SUMMARY_COLUMNS} FROM session WHERE {place}{_HAS_CONTENT} ORDER BY updated DESC",  # noqa: S608 - constants
        values,
    ).fetchall()
    ciphers = connection.cipher.find_all(connection, {row[0] for row in rows})
    summaries = []
    for session_id, title, of_workspace, model, steps, messages, size, created, updated, *usage in rows:
        figures = (read_number(steps), read_number(messages), read_number(size))
        times = (parse_time(created), parse_time(updated))
        title = decrypt_title(ciphers[session_id], title)
        usages = build_usage(tuple(usage))
        summaries.append(SessionSummary(session_id, title, str(of_workspace), str(model), *figures, *times, usages))
    return tuple(summaries)


def find_newest(connection: RowConnection, workspace: str) -> list[tuple[int, str]]:
    """Return the time of the last change and the id of the workspace's newest session, if there is one.

    The time is in nanoseconds.
    """
    rows = connection.execute(
        "SELECT updated, id FROM session WHERE workspace = ? ORDER BY updated DESC LIMIT 1",
        (replace_surrogates(workspace),),
    )
    return [(read_number(updated), str(session_id)) for updated, session_id in rows]


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


@dataclass(frozen=True, slots=True)
class History:
    """The messages of one generation of a session. `is_sound` is false if some rows are damaged or incomplete."""

    conversation: Conversation
    row_count: int
    is_sound: bool


def read_history(connection: RowConnection, session_id: str, generation: int, cipher: SessionCipher) -> History:
    """Read the messages of one generation, without damaged rows."""
    sealed = _read_opaque_states(connection, session_id, generation, cipher)
    find_image = _create_image_reader(connection, session_id, cipher)
    rows = connection.execute(
        "SELECT sequence, role, stop_reason, blocks, crc FROM message "
        "WHERE session = ? AND generation = ? ORDER BY sequence",
        (session_id, generation),
    )
    messages: list[Message] = []
    count, sound = 0, True
    for sequence, role, stop_reason, blocks, stored_crc in rows:
        stored = blocks if isinstance(blocks, bytes) else b""
        content = cipher.decrypt("message.blocks", (generation, sequence), stored) or b""
        decoded = decode_message(role, stop_reason, content, sealed.get(sequence, {}), find_image)
        sound = (
            sound
            and decoded.is_complete
            and sequence == count
            and compute_message_crc(role, stop_reason, stored) == stored_crc
        )
        if decoded.message is not None:
            messages.append(decoded.message)
        count += 1
    return History(tuple(messages), count, sound)


def _read_opaque_states(
    connection: RowConnection, session_id: str, generation: int, cipher: SessionCipher
) -> dict[object, dict[int, OpaqueState]]:
    """Return the opaque state of a conversation, without damaged rows.

    The outer keys are message numbers, and the inner keys are block positions.
    """
    origins = {
        key: origin
        for key, *fields in connection.execute("SELECT id, provider, model, host, key FROM origin")
        # Skip damaged origins, because their opaque state could be sent to the wrong provider.
        if all(isinstance(field, str) for field in fields) and compute_origin_id(origin := Origin(*fields)) == key
    }
    states: dict[object, dict[int, OpaqueState]] = {}
    rows = connection.execute(
        "SELECT sequence, position, origin, sealed, content, crc FROM opaque "
        "WHERE session = ? AND generation = ? ORDER BY sequence, position",
        (session_id, generation),
    )
    for sequence, position, origin, sealed, content, crc in rows:
        is_sound = sealed == cipher.kind and isinstance(content, bytes) and zlib.crc32(content) == crc
        if origin in origins and is_sound:
            plain = cipher.decrypt("opaque.content", (generation, sequence, position), content)
            with suppress(UnicodeDecodeError):
                if plain is not None:
                    states.setdefault(sequence, {})[position] = OpaqueState(to_text(plain), origins[origin])
    return states


def _create_image_reader(connection: RowConnection, session_id: str, cipher: SessionCipher) -> FindImage:
    """Return a function that reads the images of a session. It reads the same image only once."""

    @cache
    def find_image(digest: str) -> bytes | None:
        query = "SELECT content FROM image WHERE session = ? AND digest = ?"
        row = connection.execute(query, (session_id, digest)).fetchone()
        content = None if row is None else cipher.decrypt("image.content", (digest,), row[0])
        return content if content is not None and sha256(content).hexdigest() == digest else None

    return find_image


def append_messages(
    connection: RowConnection, session: Session, generation: int, start: int, cipher: SessionCipher
) -> int:
    """Write the messages from index `start` on. Return the number of bytes written."""
    size = 0
    known_origins: set[Origin] = set()
    for sequence, message in enumerate(session.conversation[start:], start):
        row = encode_message(message)
        place = (session.id, generation, sequence)
        blocks = cipher.encrypt("message.blocks", (generation, sequence), row.blocks)
        check = compute_message_crc(row.role, row.stop_reason, blocks)
        connection.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?)", (*place, row.role, row.stop_reason, blocks, check)
        )
        size += len(row.blocks)
        for position, state in row.opaque_states:
            content = cipher.encrypt("opaque.content", (generation, sequence, position), reveal_content(state))
            origin = compute_origin_id(state.origin)
            if state.origin not in known_origins:
                _ensure_origin(connection, origin, state.origin)
                known_origins.add(state.origin)
            connection.execute(
                "INSERT INTO opaque VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*place, position, origin, cipher.kind, content, zlib.crc32(content)),
            )
            size += len(content) - cipher.overhead
        size += sum(_ensure_image(connection, session.id, image, cipher) for image in row.images)
    return size


def _ensure_origin(connection: RowConnection, key: str, origin: Origin) -> None:
    """Write the row of an origin, and repair it if it is damaged.

    All sessions share this row. Without it, opaque state cannot be read.
    """
    query = "SELECT provider, model, host, key FROM origin WHERE id = ?"
    fields = (origin.provider, origin.model, origin.host, origin.key)
    if connection.execute(query, (key,)).fetchall() != [fields]:
        connection.execute("DELETE FROM origin WHERE id = ?", (key,))
        # Another process may write the same row at the same time.
        connection.execute("INSERT INTO origin VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", (key, *fields))


def _ensure_image(connection: RowConnection, session_id: str, image: ImageBlock, cipher: SessionCipher) -> int:
    """Write an image unless the session already has it, and repair it if it is damaged. Return the bytes written.

    All messages of a session with the same image share the row, also those of archives. It stays until the session is
    deleted.
    """
    query, place = "SELECT content FROM image WHERE session = ? AND digest = ?", (session_id, image.digest)
    row = (image.digest,)
    stored = [cipher.decrypt("image.content", row, content) for (content,) in connection.execute(query, place)]
    if stored == [image.data]:
        return 0
    connection.execute("DELETE FROM image WHERE session = ? AND digest = ?", place)
    content = cipher.encrypt("image.content", row, image.data)
    connection.execute("INSERT INTO image VALUES (?, ?, ?)", (*place, content))
    return len(image.data)


def cut_messages(connection: RowConnection, session_id: str, generation: int, start: int, cipher: SessionCipher) -> int:
    """Delete the messages from index `start` on. Return the change in size, a negative number of bytes."""
    size = 0
    for table, column in (("message", "blocks"), ("opaque", "content")):
        place = f"FROM {table} WHERE session = ? AND generation = ? AND sequence >= ?"
        values = (session_id, generation, start)
        [(count, stored)] = connection.execute(f"SELECT count(*), coalesce(sum(length({column})), 0) {place}", values)
        size -= int(stored) - int(count) * cipher.overhead
        connection.execute(f"DELETE {place}", values)
    connection.execute("DELETE FROM remedy WHERE session = ? AND messages > ?", (session_id, start))
    return size


def count_shared(old: Conversation, new: Conversation) -> int:
    """Return the number of equal messages at the start of two conversations."""
    if new[: len(old)] == old:
        return len(old)
    return next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


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
