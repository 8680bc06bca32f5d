"""Mending: what is sound stays, what is not becomes sendable, and no word is lost."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.dialects import ask, place
from tests.support.scripted_model import check_sendable, is_sendable
from tests.support.simulated_streams import SIDES, request_of
from tests.support.stored_sessions import answer, conversations, full_session, one_turn, sealed
from thinklsp.core.calls import with_unique_calls
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    Message,
    OpaqueState,
    Origin,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.sessions.repair import LOST_BEGINNING, LOST_RESULT, Repair, mend
from thinklsp.sessions.session import Session

SOUND = one_turn(2, one_turn(1, Session("s", "w"))).conversation
USER, CALLING, RESULT, END = SOUND[:4]
TWO_CALLS = AssistantMessage((ToolUseBlock("a", "t", {}), ToolUseBlock("b", "t", {})), "tool_use")
A, B = ToolResultBlock("a", "first"), ToolResultBlock("b", "second")
THOUGHT = ThinkingBlock("Hm.", sealed("one"))
HIDDEN = RedactedThinkingBlock(sealed("two"))
NO_RESULT = ToolResultBlock("a", LOST_RESULT, is_error=True)


def user(*blocks: ToolResultBlock | TextBlock | str) -> UserMessage:
    return UserMessage(tuple(TextBlock(block) if isinstance(block, str) else block for block in blocks))


CASES: dict[str, tuple[Conversation, Conversation, str]] = {
    "a call that nothing follows": (
        (USER, TWO_CALLS),
        (USER, TWO_CALLS, user(NO_RESULT, replace(NO_RESULT, tool_use_id="b"))),
        "no result",
    ),
    "a call that a prompt follows": (
        (USER, TWO_CALLS, user(B, "More?")),
        (USER, TWO_CALLS, user(NO_RESULT, B, "More?")),
        "the call a had no result",
    ),
    "a call that an answer follows": (
        (USER, CALLING, END),
        (USER, CALLING, user(ToolResultBlock("c1", LOST_RESULT, is_error=True)), END),
        "no result",
    ),
    "a result without a call": (
        (USER, END, user(A, "More?")),
        (USER, END, user("<note>The result of a tool call that was lost:</note>\nfirst", "More?")),
        "without its call",
    ),
    "results in another order than the calls": ((USER, TWO_CALLS, user(B, A)), (USER, TWO_CALLS, user(A, B)), "order"),
    "text before results": ((USER, TWO_CALLS, user("x", A, B)), (USER, TWO_CALLS, user(A, B, "x")), "wrong order"),
    "a result twice": ((USER, TWO_CALLS, user(A, A, B)), (USER, TWO_CALLS, user(A, B)), "twice"),
    "a step twice": ((USER, CALLING, RESULT, CALLING, RESULT, END), SOUND[:4], "second time"),
    "an id twice": (
        (USER, TWO_CALLS, user(A, B), AssistantMessage((ToolUseBlock("a", "u", {}),)), user(replace(A, text="third"))),
        (
            *(USER, TWO_CALLS, user(A, B)),
            *(AssistantMessage((ToolUseBlock("a-3", "u", {}),)), user(ToolResultBlock("a-3", "third"))),
        ),
        "a-3 now",
    ),
    "a block twice": (
        (USER, AssistantMessage((THOUGHT, HIDDEN, THOUGHT, HIDDEN, HIDDEN, TextBlock("x")))),
        (USER, AssistantMessage((THOUGHT, HIDDEN, TextBlock("x")))),
        "twice",
    ),
    "a call twice": (
        (USER, AssistantMessage((TWO_CALLS.blocks[0], *TWO_CALLS.blocks)), user(A, A, B)),
        (
            USER,
            AssistantMessage((TWO_CALLS.blocks[0], replace(TWO_CALLS.blocks[0], id="a-2"), TWO_CALLS.blocks[1])),
            user(A, replace(A, tool_use_id="a-2"), B),
        ),
        "a-2 now",
    ),
    "a call without an id": (
        (USER, AssistantMessage((ToolUseBlock("", "t", {}),)), user(replace(A, tool_use_id=""))),
        (USER, AssistantMessage((ToolUseBlock("call-1", "t", {}),)), user(replace(A, tool_use_id="call-1"))),
        "had no id and is call-1 now",
    ),
    "thinking without a signature": (
        (USER, AssistantMessage((ThinkingBlock("Hm."), TextBlock("x")))),
        (USER, AssistantMessage((TextBlock("x"),))),
        "signature",
    ),
    "nothing but thinking without a signature": (
        (USER, AssistantMessage((ThinkingBlock("Hm."),)), user("More?")),
        (USER, user("More?")),
        "signature",
    ),
    "empty messages": ((user(), USER, AssistantMessage(()), END), (USER, END), "empty"),
    "texts without words": ((user(" ", "x"), END, user("\n")), (user("x"), END), "without words"),
    "an answer at the beginning": ((END, USER), (user(LOST_BEGINNING), END, USER), "began with an answer"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_found_is_mended(name: str) -> None:
    broken, mended, finding = CASES[name]
    repair = mend(broken)
    assert repair.conversation == mended
    assert finding in " ".join(repair.findings)
    assert all(sentence.startswith("Message ") and sentence.endswith(".") for sentence in repair.findings)
    check_sendable((*repair.conversation, UserMessage.of("Next.")))
    assert mend(mended).findings == ()


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 8])
def test_what_is_sound_is_left_alone(length: int) -> None:
    conversation = SOUND[:length]
    assert mend(conversation).conversation is conversation
    assert mend(conversation).findings == ()


def test_every_kind_of_block_is_sound() -> None:
    conversation = full_session(Session("s", "w")).conversation
    assert mend(conversation).conversation is conversation


def words(conversation: Conversation) -> str:
    def of(message: Message) -> str:
        return "\n".join(block.text for block in message.blocks if isinstance(block, TextBlock | ToolResultBlock))

    return "\n".join(map(of, conversation))


@settings(deadline=None)
@given(conversations)
def test_the_mended_one_can_be_sent_and_no_word_is_lost(conversation: Conversation) -> None:
    repair = mend(conversation)
    check_sendable((*repair.conversation, UserMessage.of("Next.")))
    again = mend(repair.conversation)
    assert (again.findings, again.conversation) == ((), repair.conversation)
    kept = words(repair.conversation)
    for message in conversation:
        for block in message.blocks:
            if isinstance(block, TextBlock | ToolResultBlock) and block.text.strip():
                assert block.text in kept
    assert bool(repair.findings) == (repair.conversation != conversation)
    twice = any(len(set(message.blocks)) < len(message.blocks) for message in conversation)
    unsigned = any(block == ThinkingBlock(getattr(block, "text", "")) for m in conversation for block in m.blocks)
    if is_sendable((*conversation, UserMessage.of("Next."))) and not twice and not unsigned:
        assert repair.findings == ()


# The ids of a service that gives equal ones, none, or the same in every answer.
_calls = st.builds(ToolUseBlock, st.sampled_from(("c", "c", "d", "")), st.just("list_files"), st.just({}))
_calls |= st.builds(ToolUseBlock, st.sampled_from("cd"), st.just("read_file"), st.just({"path": "a.py"}))
_steps = st.lists(st.tuples(st.lists(_calls, min_size=1, max_size=3), st.booleans()), max_size=4)


@pytest.mark.parametrize("side", SIDES)
def test_equal_ids_are_the_only_thing_that_repair_changes_and_every_service_takes_the_result(side: str) -> None:
    """H-F10: ids that are equal, empty or used again by a later message, of calls that are identical or not."""
    where = place(*SIDES[side])
    origin = where.endpoint.origin(where.model.id)

    def is_taken(conversation: Conversation) -> bool:
        return bool(
            ask(where, where.dialect({"step": [{"block": [{"text": "Fine."}]}]}), request_of(where, conversation))
        )

    @settings(deadline=None, max_examples=30)
    @given(_steps, st.booleans())
    @example([([ToolUseBlock("c", "list_files", {})] * 2, True)] * 2, True)
    @example([([ToolUseBlock("", "list_files", {})] * 2, True)] * 2, True)
    def check(steps: list[tuple[list[ToolUseBlock], bool]], has_raw: bool) -> None:
        stored = arrived = (UserMessage.of("Look."),)
        for number, (calls, are_equal) in enumerate(steps):
            blocks = (replace(call, raw=issued(where.provider, call, origin) if has_raw else None) for call in calls)
            answer = AssistantMessage(tuple(blocks), "tool_use")
            texts = ["Nothing." if are_equal else f"{number}, {at}" for at in range(len(calls))]
            stored = (*stored, *step(answer, texts))
            arrived = (*arrived, *step(with_unique_calls(answer, arrived), texts))
        repaired = mend(stored).conversation
        assert mend(repaired) == Repair((), repaired)
        assert without_ids(repaired) == without_ids(stored)
        assert mend(arrived).findings == ()
        assert is_taken(repaired)
        assert is_taken(arrived)

    check()


def step(answer: AssistantMessage, texts: list[str]) -> Conversation:
    results = (ToolResultBlock(call.id, text) for call, text in zip(answer.tool_uses, texts, strict=True))
    return answer, UserMessage(tuple(results))


def issued(provider: str, call: ToolUseBlock, origin: Origin) -> OpaqueState:
    """The call as the service of this dialect wrote it."""
    function = {"name": call.name, "arguments": json.dumps(call.input)}
    raw: dict[str, object] = {
        "anthropic": {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input},
        "openai": {"type": "function_call", "call_id": call.id, **function},
        "google": {"functionCall": {"id": call.id, "name": call.name, "args": call.input}},
    }.get(provider, {"id": call.id, "type": "function", "function": function})
    return OpaqueState(json.dumps(raw), origin)


def without_ids(conversation: Conversation) -> list[list[object]]:
    """The blocks without the ids of calls."""
    found: list[list[object]] = []
    for message in conversation:
        blocks = list[object](replace(block, id="") for block in message.blocks if isinstance(block, ToolUseBlock))
        blocks += [replace(block, tool_use_id="") for block in message.blocks if isinstance(block, ToolResultBlock)]
        found.append(blocks + [block for block in message.blocks if isinstance(block, TextBlock)])
    return found


def test_an_answer_alone_is_sound_behind_a_prompt() -> None:
    assert mend((UserMessage.of("x"), answer("y"))).findings == ()
