"""The message accumulator: order, interleaved blocks and contradictory events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.messages import Origin, TextBlock, ThinkingBlock, ToolUseBlock
from thinklsp.core.stream_events import (
    BlockDelta,
    BlockStarted,
    BlockStopped,
    FieldsDelta,
    InputJsonDelta,
    ItemDelta,
    MessageAccumulator,
    MessageFinished,
    MessageStarted,
    SignatureDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    UnmatchedEvent,
)
from thinklsp.core.usage import Usage

ORIGIN = Origin("p", "m", "https://h", "k")
STARTED = MessageStarted("m", Usage(input_tokens=3))
FINISHED = MessageFinished("end_turn", Usage(input_tokens=3, output_tokens=4))


def accumulate(*events: StreamEvent) -> MessageAccumulator:
    accumulator = MessageAccumulator(ORIGIN)
    for event in events:
        accumulator.apply(event)
    return accumulator


def raws(accumulator: MessageAccumulator) -> list[Any]:
    return [json.loads(block.raw.reveal_for(ORIGIN)) for block in accumulator.build_message().blocks if block.raw]


def lane(index: int, kind: str, pieces: list[str]) -> list[StreamEvent]:
    """Return the ordered events of one block."""
    if kind == "text":
        opening = BlockStarted(index, "text", {"type": "text", "text": ""})
        deltas = [BlockDelta(index, TextDelta(piece)) for piece in pieces]
    elif kind == "thinking":
        opening = BlockStarted(index, "thinking", {"type": "thinking", "thinking": "", "signature": ""})
        deltas = [BlockDelta(index, ThinkingDelta(piece)) for piece in pieces]
        deltas.append(BlockDelta(index, SignatureDelta(f"signature {index}")))
    else:
        opening = BlockStarted(index, "tool_use", {"type": "tool_use", "id": f"t{index}", "name": "n", "input": {}})
        text = json.dumps({"pieces": pieces})
        deltas = [BlockDelta(index, InputJsonDelta(text[i : i + 7])) for i in range(0, len(text), 7)]
    return [opening, *deltas, BlockStopped(index)]


_LANES = st.lists(
    st.tuples(st.sampled_from(["text", "thinking", "tool_use"]), st.lists(st.text(max_size=8), max_size=4)), max_size=5
)


@settings(max_examples=examples(150), deadline=None)
@given(_LANES, st.permutations(range(5)), st.randoms(use_true_random=False))
def test_any_interleaving_gives_the_same_message(
    blocks: list[tuple[str, list[str]]], order: list[int], random: Any
) -> None:
    indexes = order[: len(blocks)]
    lanes = [lane(index, kind, pieces) for index, (kind, pieces) in zip(indexes, blocks, strict=True)]
    straight = accumulate(
        STARTED, *(event for one in sorted(lanes, key=lambda x: x[0].index) for event in one), FINISHED
    )  # type: ignore[union-attr]  # lanes hold block events only
    mixed = MessageAccumulator(ORIGIN)
    mixed.apply(STARTED)
    waiting = [list(one) for one in lanes]
    while waiting:
        chosen = random.choice(waiting)
        mixed.apply(chosen.pop(0))
        waiting = [one for one in waiting if one]
    mixed.apply(FINISHED)
    assert mixed.build_message() == straight.build_message()
    assert raws(mixed) == raws(straight)
    for index, (kind, pieces) in zip(indexes, blocks, strict=True):
        block = mixed.build_message().blocks[sorted(indexes).index(index)]
        match block:
            case TextBlock() | ThinkingBlock():
                assert (block.kind, block.text) == (kind, "".join(pieces))
            case ToolUseBlock():
                assert block.input == {"pieces": pieces}


def test_fields_and_items_complete_a_block() -> None:
    accumulator = accumulate(
        STARTED,
        BlockStarted(0, "opaque", {"type": "x", "a": 1, "list": None}),
        BlockDelta(0, FieldsDelta({"a": 2, "b": 3})),
        BlockDelta(0, ItemDelta("list", "one")),
        BlockDelta(0, ItemDelta("list", "two")),
        BlockStopped(0),
        FINISHED,
    )
    assert raws(accumulator) == [{"type": "x", "a": 2, "list": ["one", "two"], "b": 3}]


def test_a_finished_block_sent_whole_replaces_the_pieces() -> None:
    accumulator = accumulate(
        STARTED,
        BlockStarted(0, "text", {"type": "text", "text": "a"}),
        BlockStopped(0, {"type": "text", "text": "a", "id": "z"}),
        FINISHED,
    )
    assert raws(accumulator) == [{"type": "text", "text": "a", "id": "z"}]


def test_what_fits_no_open_block_is_counted_and_left_out() -> None:
    """Such events do not break the stream, because a retry would cost money."""
    accumulator = MessageAccumulator(ORIGIN)
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    taken = [
        accumulator.apply(event)
        for event in (
            STARTED,
            BlockStarted(0, "redacted_thinking", {"type": "redacted_thinking", "data": "d"}),
            BlockDelta(0, TextDelta("x")),
            BlockDelta(0, SignatureDelta("x")),
            BlockDelta(7, InputJsonDelta("x")),
            BlockDelta(7, InputJsonDelta("x")),
            BlockStopped(7),
            BlockStopped(0),
            BlockDelta(0, FieldsDelta({"data": "x"})),
            BlockStarted(1, "thinking", thinking),
            BlockDelta(1, ItemDelta("citations", "x")),
            BlockDelta(1, FieldsDelta({"signature": "x"})),
            BlockStopped(1),
            FINISHED,
        )
    ]
    assert [index for index, is_taken in enumerate(taken) if not is_taken] == [2, 3, 4, 5, 6, 8, 10, 11]
    assert {piece.description: count for piece, count in accumulator.unmatched.items()} == {
        "text for a block of kind redacted_thinking": 1,
        "a signature for a block of kind redacted_thinking": 1,
        "arguments for a block that is not open": 2,
        "the end of a block that was never opened": 1,
        "fields for a block that is not open": 1,
        "an item for a block of kind thinking": 1,
        "fields for a block of kind thinking": 1,
    }
    assert raws(accumulator) == [{"type": "redacted_thinking", "data": "d"}, thinking]


def test_a_service_cannot_fill_the_log_with_kinds_of_its_own() -> None:
    accumulator = accumulate(
        STARTED, *(UnmatchedEvent(f"kind {number}", is_unknown_kind=True) for number in range(100))
    )
    assert (len(accumulator.unmatched), accumulator.unmatched.total()) == (17, 100)


def test_without_the_terminal_event_there_is_no_message() -> None:
    accumulator = accumulate(STARTED, BlockStarted(0, "text", {"type": "text", "text": ""}), BlockStopped(0))
    assert not accumulator.is_finished
    with pytest.raises(StreamProtocolError):
        accumulator.build_message()


def test_between_blocks_no_block_is_open() -> None:
    accumulator = accumulate(STARTED)
    assert not accumulator.is_between_blocks
    for event in (*lane(0, "text", ["a"]), *lane(1, "tool_use", ["b", "c"])):
        accumulator.apply(event)
        assert accumulator.is_between_blocks == isinstance(event, BlockStopped)
