"""Database rows: valid rows are read unchanged, damaged rows as far as possible, and writes store only news."""

from __future__ import annotations

import json
import zlib
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.images import image
from tests.support.sizes import examples
from tests.support.stored_sessions import (
    EVERY_KIND,
    LONG,
    RESULTS,
    SECRET,
    conversations,
    full_session,
    messages,
    one_turn,
    sealed,
)
from thinklsp.core.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    UserMessage,
)
from thinklsp.core.usage import Usage
from thinklsp.sessions.codec import decode_message, decode_prompts, encode_message, parse_time
from thinklsp.sessions.session import Session
from thinklsp.sessions.session_rows import read_session, write_session
from thinklsp.sessions.tables import open_memory_database

TEXT, THINKING = {"kind": "text", "text": "said"}, {"kind": "thinking", "text": "thought", "raw": True}
RESULT = {"kind": "tool_result", "id": "c", "text": "done", "error": True}
figures = st.none() | st.integers(0, 10**12)
usages = st.builds(Usage, figures, figures, figures, figures, figures, st.none() | st.floats(0, 1e6))
titles = st.text(st.characters(exclude_categories=["Cs"]))
choices = st.dictionaries(st.text(), st.text() | st.integers() | st.booleans() | st.none(), max_size=3)
flags = (st.integers(0, 10**6), st.booleans(), st.booleans())
sessions = st.builds(Session, st.just("s"), st.just("w"), titles, conversations, usages, choices, *flags)


def told_apart(session: Session) -> Session:
    """Only a prompt can be unanswered, so the store resets the flag of other sessions."""
    prompt = bool(session.conversation) and session.conversation[-1].role == "user"
    return replace(session, unanswered=session.unanswered and prompt)


@settings(deadline=None)
@given(messages)
@example(EVERY_KIND)
@example(LONG)
@example(UserMessage((ToolResultBlock("c", "done", True), TextBlock("said"))))
@example(UserMessage(()))
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    row = encode_message(message)
    contents = {image.digest: image.data for image in row.images}
    decoded = decode_message(row.role, row.stop_reason, row.blocks, dict(row.opaque_states), contents.get)
    assert (decoded.message, decoded.is_complete) == (message, True)


def test_neutral_rows_hold_nothing_that_is_sealed() -> None:
    assert SECRET.encode() not in encode_message(EVERY_KIND).blocks
    sealed_blocks = [block for block in EVERY_KIND.blocks if getattr(block, "raw", None) is not None]
    assert len(encode_message(EVERY_KIND).opaque_states) == len(sealed_blocks)


def test_every_damage_of_opaque_state_is_noticed() -> None:
    """The last row was encrypted by an earlier version."""
    thinking = AssistantMessage((ThinkingBlock("", sealed()),))
    session = Session("s", "w", conversation=(UserMessage.from_text("x"), thinking))
    with closing(open_memory_database()) as connection:
        write_session(connection, None, session)
        [(content,)] = connection.execute("SELECT content FROM opaque")
        flipped = [content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :] for at in range(len(content))]
        damages: list[tuple[str, tuple[object, ...]]] = [
            ("content = ?", (wrong,)) for wrong in (*flipped, 5, "text", b"")
        ]
        damages += [("content = ?, crc = ?", (b"\xff", zlib.crc32(b"\xff"))), ("sealed = 1", ())]
        for change, values in damages:
            connection.execute("SAVEPOINT sound")
            connection.execute(f"UPDATE opaque SET {change}", values)  # noqa: S608 - constants
            stored = read_session(connection, "s")
            connection.execute("ROLLBACK TO sound")
            assert stored is not None
            assert (stored.is_sound, len(stored.session.conversation)) == (False, 1)
        assert read_session(connection, "s").session == session  # type: ignore[union-attr]  # it is stored


def test_what_cannot_be_opened_takes_only_its_own_block_along() -> None:
    row = encode_message(EVERY_KIND)
    decoded = decode_message(row.role, row.stop_reason, row.blocks, {})
    assert not decoded.is_complete
    assert decoded.message is not None
    kept = [block for block in EVERY_KIND.blocks if block.kind in ("text", "tool_use")]
    assert list(decoded.message.blocks) == [replace(block, raw=None) for block in kept]  # type: ignore[arg-type]  # texts and calls alone


@given(
    st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_damaged_rows_are_never_an_error(blocks: bytes) -> None:
    decode_message("assistant", "end_turn", blocks, {})


@settings(deadline=None)
@given(st.data())
def test_one_flipped_byte_is_never_an_error(data: st.DataObject) -> None:
    row = bytearray(encode_message(data.draw(st.sampled_from((EVERY_KIND, LONG, RESULTS)))).blocks)
    row[data.draw(st.integers(0, len(row) - 1))] ^= data.draw(st.integers(1, 255))
    decode_message("assistant", "end_turn", bytes(row), {})


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(sessions, sessions, sessions)
def test_any_session_may_follow_any_other(first: Session, second: Session, third: Session) -> None:
    """A session can grow, shrink or change in the middle."""
    second = replace(second, conversation=first.conversation[:3] + second.conversation)
    with closing(open_memory_database()) as connection:
        stored = None
        for session in map(told_apart, (first, second, third, first)):
            stored = write_session(connection, stored, session)
            assert read_session(connection, "s") == stored
            assert stored.session == session


def test_a_write_costs_what_is_new() -> None:
    """The cost is the number of changed rows."""
    with closing(open_memory_database()) as connection:
        stored = write_session(connection, None, Session("s", "w"))
        costs = []
        for number in range(60):
            before = connection.total_changes
            stored = write_session(connection, stored, one_turn(number, stored.session))
            costs.append(connection.total_changes - before)
        assert max(costs[1:]) == min(costs[1:]) <= 10


def test_the_size_follows_what_is_there() -> None:
    def size() -> tuple[int, int]:
        kept, *counted = connection.execute(
            "SELECT size, (SELECT total(length(blocks)) FROM message), (SELECT total(length(content)) FROM opaque), "
            "(SELECT total(length(content)) FROM image) FROM session"
        ).fetchone()
        return kept, int(sum(counted))

    with closing(open_memory_database()) as connection:
        stored = write_session(connection, None, full_session(Session("s", "w")))
        shown = stored.session.add_user_message("Look.", images=(image(), image(name="same.png"), image("image/gif")))
        grown = write_session(connection, stored, one_turn(1, shown))
        assert size()[0] == size()[1] > 1000
        write_session(connection, grown, replace(grown.session, conversation=grown.session.conversation[:2]))
        assert size()[0] == size()[1]


def test_the_same_conversation_is_not_written_twice() -> None:
    conversation = full_session(Session("s", "w")).conversation
    with closing(open_memory_database()) as connection:
        stored = write_session(connection, None, Session("s", "w", conversation=conversation))
        rows = connection.execute("SELECT rowid, * FROM message").fetchall()
        for _ in range(3):
            stored = write_session(connection, stored, stored.session)
        assert connection.execute("SELECT rowid, * FROM message").fetchall() == rows


ASSISTANT = ("assistant", "end_turn")
SAID = AssistantMessage((TextBlock("said"),), "end_turn")
CALL = {"kind": "tool_use", "id": "c", "name": "n"}
SEALED = [{"kind": "redacted_thinking"}, {"kind": "server_tool", "name": "x"}, {"kind": "opaque"}]
# Role, stop reason, blocks -> the message that is left. None of them is whole.
DAMAGED: dict[str, tuple[str, str | None, Any, Any]] = {
    "a lost signature": (*ASSISTANT, [THINKING, TEXT], SAID),
    "nothing but what was lost": (*ASSISTANT, [THINKING], None),
    "sealed blocks of all kinds": (*ASSISTANT, [*SEALED, TEXT], SAID),
    "a lost seal of a text": (*ASSISTANT, [TEXT | {"raw": True}], SAID),
    "a result in an answer": (*ASSISTANT, [TEXT, RESULT], SAID),
    "only a result in an answer": (*ASSISTANT, [RESULT], None),
    "a call in a question": ("user", None, [TEXT, CALL | {"input": None}], UserMessage((TextBlock("said"),))),
    "arguments that are no object": (*ASSISTANT, [CALL | {"input": 5}], None),
    "a text that is none": (*ASSISTANT, [{"kind": "text", "text": 5}], None),
    "an unknown kind": (*ASSISTANT, [{"kind": "poem"}], None),
    "a block that is none": (*ASSISTANT, [5], None),
    "no list": (*ASSISTANT, 5, None),
    "a damaged role": ("somebody", "bored", [TEXT], None),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_damaged_is_read_as_far_as_it_goes(case: str) -> None:
    role, stop_reason, blocks, left = DAMAGED[case]
    decoded = decode_message(role, stop_reason, json.dumps(blocks).encode(), {})
    assert (decoded.message, decoded.is_complete) == (left, False)


def test_fields_that_hold_long_texts_are_read() -> None:
    blocks = [{"kind": block.kind, "text": text} for block, text in zip(LONG.blocks, texts_of(LONG), strict=True)]
    assert texts_of(decode_message(*ASSISTANT, json.dumps(blocks).encode(), {}).message) == texts_of(LONG)


def texts_of(message: Any) -> list[str]:
    return [block.text for block in message.blocks]


@pytest.mark.parametrize(("length", "left"), [(4, "TEXT"), (3, "TEX"), (5, "TEXT"), (-1, ""), (True, "T")])
def test_a_long_text_of_another_length_is_kept_as_far_as_it_goes(length: int, left: str) -> None:
    decoded = decode_message("user", None, json.dumps([TEXT | {"text": length}]).encode() + b"\nTEXT", {})
    assert (decoded.message, decoded.is_complete) == (UserMessage((TextBlock(left),)), length == 4)


@pytest.mark.parametrize("damaged", [None, "", "[{", "{}", '[{"text": 1}]', 7])
def test_damaged_prompts_are_none(damaged: object) -> None:
    assert decode_prompts(damaged) == ()


@pytest.mark.parametrize("damaged", [10**30, -(10**30), "soon", None])
def test_a_damaged_time_is_the_beginning_of_all(damaged: object) -> None:
    assert parse_time(damaged) == datetime(1970, 1, 1, tzinfo=UTC)
