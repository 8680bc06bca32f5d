"""Messages as rows and back: what is whole comes back the same, what is damaged as far as it can be read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.stored_sessions import EVERY_KIND, LONG, sealed
from thinklsp.core.messages import AssistantMessage, TextBlock, ThinkingBlock, ToolResultBlock, UserMessage
from thinklsp.sessions.codec import as_time, decode, decode_prompts, encode

TEXT, THINKING = {"kind": "text", "text": "said"}, {"kind": "thinking", "text": "thought", "raw": True}
RESULT = {"kind": "tool_result", "id": "c", "text": "done", "error": True}
USERS = UserMessage((ToolResultBlock("c", "done", True), TextBlock("said")))


@pytest.mark.parametrize(
    "message", [EVERY_KIND, LONG, USERS, UserMessage(())], ids=["answer", "long", "question", "empty"]
)
def test_what_is_whole_comes_back(message: Any) -> None:
    row = encode(message)
    decoded = decode(row.role, row.stop_reason, row.blocks, dict(row.sealed))
    assert (decoded.message, decoded.whole) == (message, True)


ASSISTANT = ("assistant", "end_turn")
# Role, stop reason, blocks -> the message that is left. None of them is whole.
DAMAGED: dict[str, tuple[str, str | None, Any, Any]] = {
    "a lost signature": (*ASSISTANT, [THINKING, TEXT], AssistantMessage((TextBlock("said"),), "end_turn")),
    "nothing but what was lost": (*ASSISTANT, [THINKING], None),
    "sealed blocks of all kinds": (
        *(*ASSISTANT, [{"kind": "redacted_thinking"}, {"kind": "server_tool", "name": "x"}, {"kind": "opaque"}, TEXT]),
        AssistantMessage((TextBlock("said"),), "end_turn"),
    ),
    "a lost seal of a text": (
        *(*ASSISTANT, [TEXT | {"raw": True}]), AssistantMessage((TextBlock("said"),), "end_turn"),
    ),
    "a result in an answer": (*ASSISTANT, [TEXT, RESULT], AssistantMessage((TextBlock("said"),), "end_turn")),
    "only a result in an answer": (*ASSISTANT, [RESULT], None),
    "a call in a question": (
        *("user", None, [TEXT, {"kind": "tool_use", "id": "c", "name": "n", "input": None}]),
        UserMessage((TextBlock("said"),)),
    ),
    "arguments that are no object": (*ASSISTANT, [{"kind": "tool_use", "id": "c", "name": "n", "input": 5}], None),
    "a text that is none": (*ASSISTANT, [{"kind": "text", "text": 5}], None),
    "a kind that nobody knows": (*ASSISTANT, [{"kind": "poem"}], None),
    "a block that is none": (*ASSISTANT, [5], None),
    "no list": (*ASSISTANT, 5, None),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_damaged_is_read_as_far_as_it_goes(case: str) -> None:
    role, stop_reason, blocks, left = DAMAGED[case]
    decoded = decode(role, stop_reason, json.dumps(blocks).encode(), {})
    assert (decoded.message, decoded.whole) == (left, False)


def test_long_texts_stand_behind_the_fields_as_they_are() -> None:
    fields, _, behind = encode(LONG).blocks.partition(b"\n")
    assert [entry["text"] for entry in json.loads(fields)] == [320, "Short.", len(behind) - 320]
    assert behind == "".join(text for text in texts_of(LONG) if text != "Short.").encode("utf-8", "surrogatepass")


def test_fields_that_hold_long_texts_are_read() -> None:
    """So rows were written at first."""
    blocks = [{"kind": block.kind, "text": text} for block, text in zip(LONG.blocks, texts_of(LONG), strict=True)]
    assert texts_of(decode(*ASSISTANT, json.dumps(blocks).encode(), {}).message) == texts_of(LONG)


def texts_of(message: Any) -> list[str]:
    return [block.text for block in message.blocks]


@pytest.mark.parametrize(("length", "left"), [(4, "TEXT"), (3, "TEX"), (5, "TEXT"), (-1, ""), (True, "T")])
def test_a_long_text_of_another_length_is_kept_as_far_as_it_goes(length: int, left: str) -> None:
    decoded = decode("user", None, json.dumps([TEXT | {"text": length}]).encode() + b"\nTEXT", {})
    assert (decoded.message, decoded.whole) == (UserMessage((TextBlock(left),)), length == 4)


@pytest.mark.parametrize(
    ("blocks", "kind"),
    [
        ([RESULT, TEXT], UserMessage),
        ([TEXT, {"kind": "tool_use", "id": "c", "name": "n", "input": {}}], AssistantMessage),
        ([TEXT], AssistantMessage),
    ],
)
def test_a_damaged_role_is_told_from_the_blocks(blocks: Any, kind: type) -> None:
    assert isinstance(decode("somebody", "bored", json.dumps(blocks).encode(), {}).message, kind)


def test_a_sealed_block_keeps_its_seal() -> None:
    blocks = json.dumps([THINKING]).encode()
    decoded = decode("assistant", "no reason", blocks, {0: sealed()})
    assert decoded.message == AssistantMessage((ThinkingBlock("thought", sealed()),), "other")


@pytest.mark.parametrize("damaged", [None, "", "[{", "{}", '[{"text": 1}]', 7])
def test_damaged_prompts_are_none(damaged: object) -> None:
    assert decode_prompts(damaged) == ()


@pytest.mark.parametrize("damaged", [10**30, -(10**30), "soon", None])
def test_a_damaged_time_is_the_beginning_of_all(damaged: object) -> None:
    assert as_time(damaged) == datetime(1970, 1, 1, tzinfo=UTC)
