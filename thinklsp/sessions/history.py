"""Reads the conversation of a session from its rows: as much of it as can be read."""

from __future__ import annotations

from dataclasses import dataclass
from sqlite3 import Connection

from thinklsp.core.messages import Conversation, Message, OpaqueState, Origin
from thinklsp.sessions.codec import decode, message_crc, origin_id
from thinklsp.sessions.sealing import SealedRow, Seals


@dataclass(frozen=True, slots=True)
class History:
    """`rows` counts those that were found. `sound` False: some could not be read, or not whole."""

    conversation: Conversation
    rows: int
    sound: bool


def read_history(connection: Connection, session_id: str, generation: int, seals: Seals) -> History:
    """The conversation of one generation, as far as it can be read."""
    sealed = _sealed(connection, session_id, generation, seals)
    rows = connection.execute(
        "SELECT sequence, role, stop_reason, blocks, crc FROM message "
        "WHERE session = ? AND generation = ? ORDER BY sequence",
        (session_id, generation),
    )
    messages: list[Message] = []
    count, sound = 0, True
    for sequence, role, stop_reason, blocks, stored_crc in rows:
        blocks = blocks if isinstance(blocks, bytes) else b""
        decoded = decode(role, stop_reason, blocks, sealed.get(sequence, {}))
        sound = sound and decoded.whole and sequence == count and message_crc(role, stop_reason, blocks) == stored_crc
        if decoded.message is not None:
            messages.append(decoded.message)
        count += 1
    return History(tuple(messages), count, sound)


def _sealed(
    connection: Connection, session_id: str, generation: int, seals: Seals
) -> dict[object, dict[int, OpaqueState]]:
    """What could be opened of the opaque state of a conversation, by the sequence of the message and the position in
    it."""
    origins = {
        key: origin
        for key, *fields in connection.execute("SELECT id, provider, model, host, key FROM origin")
        # A damaged name would send the state to somebody else.
        if all(isinstance(field, str) for field in fields) and origin_id(origin := Origin(*fields)) == key
    }
    found: dict[object, dict[int, OpaqueState]] = {}
    rows = connection.execute(
        "SELECT sequence, position, origin, sealed, content, crc FROM opaque "
        "WHERE session = ? AND generation = ? ORDER BY sequence, position",
        (session_id, generation),
    )
    for sequence, position, origin, sealed, content, crc in rows:
        if origin in origins:
            state = seals.open(SealedRow(origin, sealed, content, crc), origins[origin])
            if state is not None:
                found.setdefault(sequence, {})[position] = state
    return found
