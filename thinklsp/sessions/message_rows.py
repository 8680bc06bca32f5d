"""Database rows for messages and opaque state. The functions run inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

from thinklsp.core.messages import Conversation, ImageBlock, Message, OpaqueState, Origin
from thinklsp.sessions.codec import (
    FindImage,
    compute_message_crc,
    compute_origin_id,
    decode_message,
    encode_message,
    read_number,
)
from thinklsp.sessions.encryption import OpaqueRow
from thinklsp.sessions.row_connection import RowConnection, build_corruption_error
from thinklsp.sessions.session import Session
from thinklsp.sessions.session_cipher import SessionCipher


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
        if origin in origins:
            row = (generation, sequence, position)
            state = cipher.decrypt_opaque(row, OpaqueRow(origin, sealed, content, crc), origins[origin])
            if state is not None:
                states.setdefault(sequence, {})[position] = state
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
    checks: list[tuple[int, int]] = []
    sealed_checks: list[tuple[int, int, str, int]] = []
    known_origins: set[Origin] = set()
    for sequence, message in enumerate(session.conversation[start:], start):
        row = encode_message(message)
        place = (session.id, generation, sequence)
        blocks = cipher.encrypt("message.blocks", (generation, sequence), row.blocks)
        check = compute_message_crc(row.role, row.stop_reason, blocks)
        connection.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*place, row.role, row.stop_reason, blocks, check),
        )
        checks.append((sequence, check))
        size += len(row.blocks)
        for position, state in row.opaque_states:
            closed = cipher.encrypt_opaque((generation, sequence, position), state)
            if state.origin not in known_origins:
                _ensure_origin(connection, closed.origin, state.origin)
                known_origins.add(state.origin)
            connection.execute("INSERT INTO opaque VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*place, position, *closed))
            sealed_checks.append((sequence, position, closed.origin, closed.crc))
            size += len(closed.content) - cipher.overhead
        size += sum(_ensure_image(connection, session.id, image, cipher) for image in row.images)
    added = (session.id, generation, start)
    those = "WHERE session = ? AND generation = ? AND sequence >= ? ORDER BY sequence"
    _verify_rows(connection, f"SELECT sequence, crc FROM message {those}", added, checks)  # noqa: S608 - a constant
    query = f"SELECT sequence, position, origin, crc FROM opaque {those}, position"  # noqa: S608 - a constant
    _verify_rows(connection, query, added, sealed_checks)
    return size


def _verify_rows(
    connection: RowConnection, query: str, place: tuple[str | int, ...], rows: Sequence[tuple[str | int, ...]]
) -> None:
    """Read the written rows back, and raise an error if they differ.

    SQLite does not notice if a damaged index leads to an old row.
    """
    if connection.execute(query, place).fetchall() != rows:
        raise build_corruption_error("an index does not find the written rows")


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
        _verify_rows(connection, query, (key,), [fields])


def _ensure_image(connection: RowConnection, session_id: str, image: ImageBlock, cipher: SessionCipher) -> int:
    """Write an image unless the session already has it, and repair it if it is damaged. Return the bytes written.

    All messages of a session with the same image share the row, also those of archives.
    """
    query, place = "SELECT content FROM image WHERE session = ? AND digest = ?", (session_id, image.digest)
    row = (image.digest,)
    stored = [cipher.decrypt("image.content", row, content) for (content,) in connection.execute(query, place)]
    if stored == [image.data]:
        return 0
    connection.execute("DELETE FROM image WHERE session = ? AND digest = ?", place)
    content = cipher.encrypt("image.content", row, image.data)
    connection.execute("INSERT INTO image VALUES (?, ?, ?)", (*place, content))
    if connection.execute(query, place).fetchall() != [(content,)]:
        raise build_corruption_error("an index does not find the written image")
    return len(image.data)


def _delete_unused_images(connection: RowConnection, session_id: str, cipher: SessionCipher) -> int:
    """Delete the images that no message of the session contains, unless a message is damaged.

    Return the number of bytes deleted.
    """
    images = connection.execute("SELECT digest, length(content) FROM image WHERE session = ?", (session_id,)).fetchall()
    unused = {str(digest): read_number(length) - cipher.overhead for digest, length in images}
    if unused:
        # Encrypted messages cannot be searched in the database.
        rows = connection.execute("SELECT generation, sequence, blocks FROM message WHERE session = ?", (session_id,))
        for generation, sequence, blocks in rows:
            content = cipher.decrypt("message.blocks", (generation, sequence), blocks)
            if content is None:
                return 0
            for digest in [digest for digest in unused if digest.encode() in content]:
                del unused[digest]
            if not unused:
                return 0
    for digest in unused:
        connection.execute("DELETE FROM image WHERE session = ? AND digest = ?", (session_id, digest))
    return sum(unused.values())


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
    return size - _delete_unused_images(connection, session_id, cipher)


def count_shared(old: Conversation, new: Conversation) -> int:
    """Return the number of equal messages at the start of two conversations."""
    if new[: len(old)] == old:
        return len(old)
    return next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
