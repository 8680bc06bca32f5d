"""Reads the conversation of a session from its rows: as much of it as can be read."""

from __future__ import annotations

from dataclasses import dataclass
from sqlite3 import Connection

from thinklsp.core.messages import Conversation, Message, OpaqueState, Origin
from thinklsp.sessions.codec import decode, message_crc, number, origin_id
from thinklsp.sessions.sealing import SealedRow, Seals


@dataclass(frozen=True, slots=True)
class History:
    """`rows` counts those that were found. `sound` False: some could not be read, or not whole."""

    conversation: Conversation
    rows: int
    sound: bool


def read_history(connection: Connection, session_id: str, generation: int, seals: Seals) -> History:
    """The conversation of one generation, as far as it can be read."""
    opaque = _Sealed(connection, session_id, generation, seals)
    rows = connection.execute(
        "SELECT sequence, role, stop_reason, blocks, crc FROM message "
        "WHERE session = ? AND generation = ? ORDER BY sequence",
        (session_id, generation),
    )
    messages: list[Message] = []
    count, sound = 0, True
    for sequence, role, stop_reason, blocks, stored_crc in rows:
        sealed = opaque.of(sequence)
        blocks = blocks if isinstance(blocks, bytes) else b""
        decoded = decode(role, stop_reason, blocks, sealed)
        sound = sound and decoded.whole and sequence == count and message_crc(role, stop_reason, blocks) == stored_crc
        if decoded.message is not None:
            messages.append(decoded.message)
        count += 1
    return History(tuple(messages), count, sound)


class _Sealed:
    """The opaque state of a conversation, read in step with its messages."""

    def __init__(self, connection: Connection, session_id: str, generation: int, seals: Seals) -> None:
        self._seals = seals
        self._origins: dict[str, Origin] = {
            key: origin
            for key, *fields in connection.execute("SELECT id, provider, model, host, key FROM origin")
            # A damaged name would send the state to somebody else.
            if all(isinstance(field, str) for field in fields) and origin_id(origin := Origin(*fields)) == key
        }
        self._rows = connection.execute(
            "SELECT sequence, position, origin, sealed, content, crc FROM opaque "
            "WHERE session = ? AND generation = ? ORDER BY sequence, position",
            (session_id, generation),
        )
        self._next = self._rows.fetchone()

    def of(self, sequence: int) -> dict[int, OpaqueState]:
        found: dict[int, OpaqueState] = {}
        while self._next is not None and number(self._next[0]) <= number(sequence):
            at, position, origin, *rest = self._next
            if at == sequence and origin in self._origins:
                state = self._seals.open(SealedRow(origin, *rest), self._origins[origin])
                if state is not None:
                    found[position] = state
            self._next = self._rows.fetchone()
        return found
