"""Repair: valid conversations are unchanged, others can be sent afterwards, and no text is lost."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.images import image
from tests.support.scripted_model import check_sendable, is_sendable
from tests.support.services import SIDES, ask, place, request_of
from tests.support.sizes import examples
from tests.support.stored_sessions import answer, conversations, full_session, one_turn, sealed
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
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
    ensure_unique_call_ids,
)
from thinklsp.sessions.repair import LOST_BEGINNING, LOST_RESULT, Repair, repair_conversation
from thinklsp.sessions.session import Session

SOUND = one_turn(2, one_turn(1, Session("s", "w"))).conversation
USER, CALLING, RESULT, END = SOUND[:4]
TWO_CALLS = AssistantMessage((ToolUseBlock("a", "t", {}), ToolUseBlock("b", "t", {})), "tool_use")
A, B = ToolResultBlock("a", "first"), ToolResultBlock("b", "second")
THOUGHT = ThinkingBlock("Hm.", sealed("one"))
HIDDEN = RedactedThinkingBlock(sealed("two"))
BOTH = (USER, TWO_CALLS)
NOTE = "<note>Result of a missing tool call:</note>\nfirst"


def lose(call_id: str) -> ToolResultBlock:
    return ToolResultBlock(call_id, LOST_RESULT, is_error=True)


def call(*call_ids: str, name: str = "t") -> AssistantMessage:
    return AssistantMessage(tuple(ToolUseBlock(call_id, name, {}) for call_id in call_ids))


def say(*blocks: ContentBlock) -> AssistantMessage:
    return AssistantMessage(blocks)


def user(*blocks: ToolResultBlock | TextBlock | str) -> UserMessage:
    return UserMessage(tuple(TextBlock(block) if isinstance(block, str) else block for block in blocks))


WORDS = TextBlock("x")
CASES: dict[str, tuple[Conversation, Conversation, str]] = {
    "a call that nothing follows": (BOTH, (*BOTH, user(lose("a"), lose("b"))), "no result"),
    "a call before a prompt": (
        (*BOTH, user(B, "?")),
        (*BOTH, user(lose("a"), B, "?")),
        "the tool call a had no result",
    ),
    "a call before an answer": ((USER, CALLING, END), (USER, CALLING, user(lose("c1")), END), "no result"),
    "a result without a call": ((USER, END, user(A, "?")), (USER, END, user(NOTE, "?")), "without its tool call"),
    "results in another order than the calls": ((*BOTH, user(B, A)), (*BOTH, user(A, B)), "order"),
    "text before results": ((*BOTH, user("x", A, B)), (*BOTH, user(A, B, "x")), "wrong order"),
    "a result twice": ((*BOTH, user(A, A, B)), (*BOTH, user(A, B)), "repeated"),
    "a step twice": ((USER, CALLING, RESULT, CALLING, RESULT, END), SOUND[:4], "repeated answer"),
    "an id twice": (
        (*BOTH, user(A, B), call("a", name="u"), user(replace(A, text="third"))),
        (*BOTH, user(A, B), call("a-3", name="u"), user(ToolResultBlock("a-3", "third"))),
        "now a-3",
    ),
    "a block twice": (
        (USER, say(THOUGHT, HIDDEN, THOUGHT, HIDDEN, HIDDEN, WORDS)),
        (USER, say(THOUGHT, HIDDEN, WORDS)),
        "repeated",
    ),
    "a call twice": (
        (USER, call("a", "a", "b"), user(A, A, B)),
        (USER, call("a", "a-2", "b"), user(A, replace(A, tool_use_id="a-2"), B)),
        "now a-2",
    ),
    "a call without an id": (
        (USER, call(""), user(replace(A, tool_use_id=""))),
        (USER, call("call-1"), user(replace(A, tool_use_id="call-1"))),
        "had no id and is now call-1",
    ),
    "unsigned thinking": ((USER, say(ThinkingBlock("Hm."), WORDS)), (USER, say(WORDS)), "signature"),
    "nothing but unsigned thinking": ((USER, say(ThinkingBlock("Hm.")), user("?")), (USER, user("?")), "signature"),
    "empty messages": ((user(), USER, say(), END), (USER, END), "empty"),
    "texts without words": ((user(" ", "x"), END, user("\n")), (user("x"), END), "blank text"),
    "an answer at the beginning": ((END, USER), (user(LOST_BEGINNING), END, USER), "began with an answer"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_found_is_mended(name: str) -> None:
    broken, mended, finding = CASES[name]
    repair = repair_conversation(broken)
    assert repair.conversation == mended
    assert finding in " ".join(repair.findings)
    assert all(sentence.startswith("Message ") and sentence.endswith(".") for sentence in repair.findings)
    check_sendable((*repair.conversation, UserMessage.from_text("Next.")))
    assert repair_conversation(mended).findings == ()


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 8])
def test_what_is_sound_is_left_alone(length: int) -> None:
    conversation = SOUND[:length]
    assert repair_conversation(conversation).conversation is conversation
    assert repair_conversation(conversation).findings == ()


def test_every_kind_of_block_is_sound() -> None:
    conversation = full_session(Session("s", "w")).conversation
    assert repair_conversation(conversation).conversation is conversation


def words(conversation: Conversation) -> str:
    def of(message: Message) -> str:
        return "\n".join(block.text for block in message.blocks if isinstance(block, TextBlock | ToolResultBlock))

    return "\n".join(map(of, conversation))


@settings(deadline=None)
@given(conversations)
@example((AssistantMessage((ToolUseBlock("a", "a", {}),)), UserMessage((image(), ToolResultBlock("a", "")))))
def test_the_mended_one_can_be_sent_and_no_word_is_lost(conversation: Conversation) -> None:
    repair = repair_conversation(conversation)
    check_sendable((*repair.conversation, UserMessage.from_text("Next.")))
    again = repair_conversation(repair.conversation)
    assert (again.findings, again.conversation) == ((), repair.conversation)
    kept = words(repair.conversation)
    for message in conversation:
        for block in message.blocks:
            if isinstance(block, TextBlock | ToolResultBlock) and block.text.strip():
                assert block.text in kept
    assert bool(repair.findings) == (repair.conversation != conversation)
    twice = any(len(set(message.blocks)) < len(message.blocks) for message in conversation)
    unsigned = any(block == ThinkingBlock(getattr(block, "text", "")) for m in conversation for block in m.blocks)
    if is_sendable((*conversation, UserMessage.from_text("Next."))) and not twice and not unsigned:
        assert repair.findings == ()


# The ids of a service that gives equal ones, none, or the same in every answer.
_calls = st.builds(ToolUseBlock, st.sampled_from(("c", "c", "d", "")), st.just("list_files"), st.just({}))
_calls |= st.builds(ToolUseBlock, st.sampled_from("cd"), st.just("read_file"), st.just({"path": "a.py"}))
_steps = st.lists(st.tuples(st.lists(_calls, min_size=1, max_size=3), st.booleans()), max_size=4)


@pytest.mark.parametrize("side", SIDES)
def test_repair_changes_only_equal_ids(side: str) -> None:
    """Ids can be equal, empty or reused by a later message."""
    where = place(*SIDES[side])
    origin = where.endpoint.build_origin(where.model.id)

    def is_taken(conversation: Conversation) -> bool:
        dialect = where.dialect({"step": [{"block": [{"text": "Fine."}]}]})
        return bool(ask(where, dialect, request_of(where, conversation)))

    @settings(deadline=None, max_examples=examples(30))
    @given(_steps, st.booleans())
    @example([([ToolUseBlock("c", "list_files", {})] * 2, True)] * 2, True)
    @example([([ToolUseBlock("", "list_files", {})] * 2, True)] * 2, True)
    def check(steps: list[tuple[list[ToolUseBlock], bool]], has_raw: bool) -> None:
        stored = arrived = (UserMessage.from_text("Look."),)
        for number, (calls, are_equal) in enumerate(steps):
            blocks = (replace(call, raw=issued(where.provider, call, origin) if has_raw else None) for call in calls)
            answer = AssistantMessage(tuple(blocks), "tool_use")
            texts = ["Nothing." if are_equal else f"{number}, {at}" for at in range(len(calls))]
            stored = (*stored, *step(answer, texts))
            arrived = (*arrived, *step(ensure_unique_call_ids(answer, arrived), texts))
        repaired = repair_conversation(stored).conversation
        assert repair_conversation(repaired) == Repair((), repaired)
        assert without_ids(repaired) == without_ids(stored)
        assert repair_conversation(arrived).findings == ()
        assert is_taken(repaired)
        assert is_taken(arrived)

    check()


def step(answer: AssistantMessage, texts: list[str]) -> Conversation:
    results = (ToolResultBlock(call.id, text) for call, text in zip(answer.tool_uses, texts, strict=True))
    return answer, UserMessage(tuple(results))


def issued(provider: str, call: ToolUseBlock, origin: Origin) -> OpaqueState:
    """Return the call as a service of this dialect writes it."""
    function = {"name": call.name, "arguments": json.dumps(call.input)}
    raw: dict[str, object] = {
        "anthropic": {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input},
        "openai": {"type": "function_call", "call_id": call.id, **function},
        "google": {"functionCall": {"id": call.id, "name": call.name, "args": call.input}},
    }.get(provider, {"id": call.id, "type": "function", "function": function})
    return OpaqueState(json.dumps(raw), origin)


def without_ids(conversation: Conversation) -> list[list[object]]:
    """Return the blocks without call ids."""
    found: list[list[object]] = []
    for message in conversation:
        blocks = list[object](replace(block, id="") for block in message.blocks if isinstance(block, ToolUseBlock))
        blocks += [replace(block, tool_use_id="") for block in message.blocks if isinstance(block, ToolResultBlock)]
        found.append(blocks + [block for block in message.blocks if isinstance(block, TextBlock)])
    return found


def test_an_answer_alone_is_sound_behind_a_prompt() -> None:
    assert repair_conversation((UserMessage.from_text("x"), answer("y"))).findings == ()
