"""Rows and back: whatever a conversation holds comes back as it was, and a write costs what is new."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.stored_sessions import (
    EVERY_KIND,
    LONG,
    RESULTS,
    SECRET,
    conversations,
    full_session,
    messages,
    one_turn,
)
from thinklsp.core.messages import Conversation, Message
from thinklsp.core.usage import Usage
from thinklsp.sessions.codec import decode, encode
from thinklsp.sessions.database import in_memory, is_damage
from thinklsp.sessions.rows import read_session, write_session
from thinklsp.sessions.sealing import Seals
from thinklsp.sessions.session import Session

SEALS = Seals()
figures = st.none() | st.integers(0, 10**12)
usages = st.builds(Usage, figures, figures, figures, figures, figures, st.none() | st.floats(0, 1e6))
sessions = st.builds(
    Session,
    st.just("s"),
    st.just("w"),
    st.text(st.characters(exclude_categories=["Cs"])),
    conversations,
    usages,
    st.dictionaries(st.text(), st.text() | st.integers() | st.booleans() | st.none(), max_size=3),
    st.integers(0, 10**6),
    st.booleans(),
    st.booleans(),
)


def told_apart(session: Session) -> Session:
    """Only a prompt can be unanswered: a store that reads anything else knows that it is damaged."""
    prompt = bool(session.conversation) and session.conversation[-1].role == "user"
    return replace(session, unanswered=session.unanswered and prompt)


@settings(deadline=None)
@given(messages)
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    row = encode(message)
    decoded = decode(row.role, row.stop_reason, row.blocks, dict(row.sealed))
    assert (decoded.message, decoded.whole) == (message, True)


def test_neutral_rows_hold_nothing_that_is_sealed() -> None:
    assert SECRET.encode() not in encode(EVERY_KIND).blocks
    assert len(encode(EVERY_KIND).sealed) == sum(getattr(block, "raw", None) is not None for block in EVERY_KIND.blocks)


def test_what_cannot_be_opened_takes_only_its_own_block_along() -> None:
    row = encode(EVERY_KIND)
    decoded = decode(row.role, row.stop_reason, row.blocks, {})
    assert not decoded.whole
    assert decoded.message is not None
    kept = [block for block in EVERY_KIND.blocks if block.kind in ("text", "tool_use")]
    assert list(decoded.message.blocks) == [replace(block, raw=None) for block in kept]  # type: ignore[arg-type]  # texts and calls alone


@given(
    st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_damaged_rows_are_never_an_error(blocks: bytes) -> None:
    decode("assistant", "end_turn", blocks, {})


@settings(deadline=None)
@given(st.data())
def test_one_flipped_byte_is_never_an_error(data: st.DataObject) -> None:
    row = bytearray(encode(data.draw(st.sampled_from((EVERY_KIND, LONG, RESULTS)))).blocks)
    row[data.draw(st.integers(0, len(row) - 1))] ^= data.draw(st.integers(1, 255))
    decode("assistant", "end_turn", bytes(row), {})


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(sessions, sessions, sessions)
def test_any_session_may_follow_any_other(first: Session, second: Session, third: Session) -> None:
    """Grown, shortened or changed in the middle: what is read is what was written."""
    second = replace(second, conversation=first.conversation[:3] + second.conversation)
    with closing(in_memory()) as connection:
        stored = None
        for session in map(told_apart, (first, second, third, first)):
            stored = write_session(connection, stored, session, SEALS)
            assert read_session(connection, "s", SEALS) == stored
            assert stored.session == session


def test_a_write_costs_what_is_new() -> None:
    """Counted in rows that change, not in time."""
    with closing(in_memory()) as connection:
        stored = write_session(connection, None, Session("s", "w"), SEALS)
        costs = []
        for number in range(60):
            before = connection.total_changes
            stored = write_session(connection, stored, one_turn(number, stored.session), SEALS)
            costs.append(connection.total_changes - before)
        assert max(costs[1:]) == min(costs[1:]) <= 10


def test_the_size_follows_what_is_there() -> None:
    def size() -> tuple[int, int]:
        kept, *counted = connection.execute(
            "SELECT size, (SELECT total(length(blocks)) FROM message), (SELECT total(length(content)) FROM opaque) "
            "FROM session"
        ).fetchone()
        return kept, int(sum(counted))

    with closing(in_memory()) as connection:
        stored = write_session(connection, None, full_session(Session("s", "w")), SEALS)
        grown = write_session(connection, stored, one_turn(1, stored.session), SEALS)
        assert size()[0] == size()[1] > 1000
        write_session(connection, grown, replace(grown.session, conversation=grown.session.conversation[:2]), SEALS)
        assert size()[0] == size()[1]


def test_the_same_conversation_is_not_written_twice() -> None:
    conversation: Conversation = full_session(Session("s", "w")).conversation
    with closing(in_memory()) as connection:
        stored = write_session(connection, None, Session("s", "w", conversation=conversation), SEALS)
        rows = connection.execute("SELECT rowid, * FROM message").fetchall()
        for _ in range(3):
            stored = write_session(connection, stored, stored.session, SEALS)
        assert connection.execute("SELECT rowid, * FROM message").fetchall() == rows


@pytest.mark.parametrize(
    "other",
    [
        "INSERT ON message BEGIN UPDATE message SET crc = crc + 1 WHERE rowid = new.rowid; END",
        "INSERT ON message BEGIN UPDATE message SET sequence = sequence + 9 WHERE rowid = new.rowid; END",
        "INSERT ON opaque BEGIN UPDATE opaque SET crc = crc + 1 WHERE rowid = new.rowid; END",
        "INSERT ON opaque BEGIN UPDATE opaque SET origin = 'another' WHERE rowid = new.rowid; END",
        "INSERT ON opaque BEGIN DELETE FROM opaque WHERE rowid = new.rowid; END",
        "INSERT ON origin BEGIN UPDATE origin SET host = 'another' WHERE rowid = new.rowid; END",
    ],
)
def test_a_row_that_is_not_found_as_it_was_written_is_damage(other: str) -> None:
    """A trigger stands for an index that finds another row."""
    with closing(in_memory()) as connection:
        connection.execute(f"CREATE TRIGGER other AFTER {other}")
        with pytest.raises(sqlite3.DatabaseError) as raised:
            write_session(connection, None, full_session(Session("s", "w")), SEALS)
        assert is_damage(raised.value)
