"""What goes back to a compatible server: own answers by its rule, foreign ones rebuilt, results right behind calls."""

from __future__ import annotations

import json
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.chat_cases import ENDPOINT, MODEL, cases, expected, run, server, server_of, stream
from tests.support.chat_requests import (
    asked,
    call,
    details,
    foreign_call,
    foreign_thinking,
    loop,
    messages_of,
    result,
    said,
    sealed,
    text,
    thinking,
)
from thinklsp.core.calls import with_unique_calls
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.openai_chat.servers import kinds

REASONING = ("reasoning", "reasoning_content", "reasoning_details")
FUNCTION = {"name": "read_file", "arguments": '{"path": "a"}'}


def wire(call_id: str, **function: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": FUNCTION | function}


def answer(content: str | None = None, *calls: dict[str, Any], **reasoning: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **reasoning, **({"tool_calls": list(calls)} if calls else {})}


def tool(call_id: str, content: str = "content") -> dict[str, str]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


A, B = UserMessage.of("a"), UserMessage.of("b")
NO_RESULT = "Error: there is no result; the call was not carried out."
SHAPES: dict[str, tuple[Conversation, list[dict[str, Any]]]] = {
    "a tool loop": (
        loop(),
        [
            user("Why?"),
            answer("Looking.", wire("call_1"), reasoning="Hm"),
            tool("call_1"),
            answer(None, wire("call_2"), wire("call_3"), reasoning="So"),
            tool("call_2"),
            tool("call_3", "Error: no such file"),
            user("Go on"),
        ],
    ),
    "neighbours are merged and calls keep their order": (
        (
            A,
            B,
            said(text("c"), call("t1")),
            said(thinking("r"), text("d"), call("t2")),
            asked(result("t2"), result("t1")),
        ),
        [user("a\n\nb"), answer("c\n\nd", wire("t1"), wire("t2"), reasoning="r"), tool("t1"), tool("t2")],
    ),
    "thinking of neighbours is joined": (
        (A, said(thinking("r"), text("c")), said(thinking("s"), text("d")), B),
        [user("a"), answer("c\n\nd", reasoning="r\n\ns"), user("b")],
    ),
    "results in several messages, and in front of texts": (
        (A, said(call("t1"), call("t2")), asked(TextBlock("note"), result("t2")), asked(result("t1", ""))),
        [user("a"), answer(None, wire("t1"), wire("t2")), tool("t1", ""), tool("t2"), user("note")],
    ),
    "a call without result gets one, a result without call goes": (
        (A, said(call("t1")), asked(result("t9"), TextBlock("stop"))),
        [user("a"), answer(None, wire("t1")), tool("t1", NO_RESULT), user("stop")],
    ),
    "a call at the very end": ((A, said(call("t1"))), [user("a"), answer(None, wire("t1")), tool("t1", NO_RESULT)]),
    "no message is empty": (
        (A, said(), UserMessage.of(" \n"), said(thinking("r")), B, said(*foreign_thinking()), A),
        [
            user("a"),
            answer("(no text)"),
            user("(no text)"),
            answer("(no text)", reasoning="r"),
            user("b"),
            answer("(no text)"),
            user("a"),
        ],
    ),
    "blank text in front of a call stays if it is the server's own": (
        (
            A,
            said(text("\n\n"), call("t1")),
            asked(result("t1")),
            said(TextBlock("\n"), call("t2")),
            asked(result("t2")),
        ),
        [user("a"), answer("\n\n", wire("t1")), tool("t1"), answer(None, wire("t2")), tool("t2")],
    ),
    "foreign everything": (
        (A, said(*foreign_thinking(), TextBlock("x"), foreign_call("toolu_1", "é")), asked(result("toolu_1"))),
        [user("a"), answer("x", wire("toolu_1", arguments='{"path": "é"}')), tool("toolu_1")],
    ),
    "arguments that nobody could read": (
        (
            A,
            said(call("t1", '{"path": "a'), call("t2", ""), call("t3", "[1]"), ToolUseBlock("t4", "read_file", None)),
            asked(*(result(f"t{n}") for n in range(1, 5))),
        ),
        [
            user("a"),
            answer(None, *(wire(f"t{n}", arguments="{}") for n in range(1, 5))),
            *(tool(f"t{n}") for n in range(1, 5)),
        ],
    ),
    "what the server gave besides stays on the call": (
        (A, said(call("t1", '{"path":"a" }', extras={"extra_content": {"s": 1}})), asked(result("t1"))),
        [user("a"), answer(None, wire("t1", arguments='{"path":"a" }') | {"extra_content": {"s": 1}}), tool("t1")],
    ),
    "a call by its own name on the wire": (
        (A, said(call("x-2", wire_id="x")), asked(result("x-2"))),
        [user("a"), answer(None, wire("x")), tool("x")],
    ),
    "calls without ids get ours": (
        (A, said(call("call-1", wire_id=""), call("call-2", wire_id="")), asked(result("call-1"), result("call-2"))),
        [user("a"), answer(None, wire("call-1"), wire("call-2")), tool("call-1"), tool("call-2")],
    ),
    "ids that come again are told apart": (
        (
            A,
            said(call("0", wire_id="0")),
            asked(result("0")),
            said(call("0-2", wire_id="0"), call("again", wire_id="0")),
            asked(result("0-2", "two"), result("again", "three")),
        ),
        [
            user("a"),
            answer(None, wire("0")),
            tool("0"),
            answer(None, wire("0-2"), wire("again")),
            tool("0-2", "two"),
            tool("again", "three"),
        ],
    ),
    "foreign ids are made fit": (
        (
            A,
            said(foreign_call("call|a.b/é"), foreign_call("call_a_b__")),
            asked(result("call_a_b__", "2"), result("call|a.b/é", "1")),
        ),
        [
            user("a"),
            answer(None, wire("call_a_b__"), wire("call_a_b__-2")),
            tool("call_a_b__", "1"),
            tool("call_a_b__-2", "2"),
        ],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_messages(name: str) -> None:
    conversation, wanted = SHAPES[name]
    assert messages_of(conversation) == wanted


def test_long_foreign_ids_are_cut_and_stay_apart() -> None:
    ids = ["x" * 80 + end for end in "ab"]
    messages = messages_of((A, said(*map(foreign_call, ids)), asked(*map(result, ids))))
    sent = [one["id"] for one in messages[1]["tool_calls"]]
    assert len(set(sent)) == 2
    assert all(len(one) == 40 for one in sent)
    assert [one["tool_call_id"] for one in messages[2:]] == sent


ENTRIES = json.loads(details().raw.open_for(ENDPOINT.origin(MODEL)))["reasoning_details"]  # type: ignore[union-attr] # sealed above
BLOCKS = {
    "reasoning": thinking("Hm"),
    "reasoning_content": thinking("Hm", "reasoning_content"),
    "reasoning_details": details(),
    "tags": thinking("Hm", "think_tags"),
    "parts": thinking("Hm", "content"),
    "foreign": thinking("Hm", model_id="other"),
    "none": None,
}
# What goes out for a block that came so, by rule: auto, reasoning, reasoning_content, reasoning_details, none.
STRING, CONTENT, WHOLE = {"reasoning": "Hm"}, {"reasoning_content": "Hm"}, {"reasoning_details": ENTRIES}
ECHOED: dict[str, tuple[dict[str, Any], ...]] = {
    "reasoning": (STRING, STRING, CONTENT, {}, {}),
    "reasoning_content": (CONTENT, STRING, CONTENT, {}, {}),
    "reasoning_details": (WHOLE, STRING, CONTENT, WHOLE, {}),
    "tags": ({}, STRING, CONTENT, {}, {}),
    "parts": ({}, STRING, CONTENT, {}, {}),
    "foreign": ({}, {}, {}, {}, {}),
    "none": ({}, {}, {}, {}, {}),
}


@pytest.mark.parametrize("came", BLOCKS)
def test_the_replay_rule(came: str) -> None:
    block = BLOCKS[came]
    turn = said(*([block] if block else []), text("x"), call("t"))
    for rule, fields in zip(("auto", *REASONING, "none"), ECHOED[came], strict=True):
        sent = messages_of((A, turn, asked(result("t"))), server(echo=rule))[1]
        assert {key: sent[key] for key in REASONING if key in sent} == fields
        assert sent["content"] == "x"


@pytest.mark.parametrize("came", BLOCKS)
def test_deepseek_wants_the_field_on_every_answer_with_calls(came: str) -> None:
    block = BLOCKS[came]
    blocks = [block] if block else []
    conversation = (A, said(*blocks, call("t")), asked(result("t")), said(*blocks, text("x")), B)
    own = {} if came in ("foreign", "none") else CONTENT
    _, called, _, spoken, _ = messages_of(conversation, server("deepseek"))
    assert {key: called[key] for key in REASONING if key in called} == (own or {"reasoning_content": ""})
    assert {key: spoken[key] for key in REASONING if key in spoken} == own
    gateway = messages_of((A, said(foreign_call("t")), asked(result("t"))), server(), "deepseek-v4")
    assert gateway[1]["reasoning_content"] == ""


def test_openai_is_sent_no_reasoning() -> None:
    for block in BLOCKS.values():
        turn = said(*([block] if block else []), text("x"))
        assert messages_of((A, turn, B), server("openai"))[1] == {"role": "assistant", "content": "x"}


ORIGINS = [{"model_id": "other"}, {"host": "https://other.example"}, {"key": "0" * 16}, {"provider": "openai"}]


@pytest.mark.parametrize("origin", ORIGINS, ids=lambda origin: next(iter(origin)))
@pytest.mark.parametrize("kind", kinds())
def test_thinking_goes_to_nobody_but_who_gave_it(kind: str, origin: dict[str, str]) -> None:
    conversation = (*loop(**origin), said(details("Deep", **origin), text("x")), B)
    messages = messages_of(conversation, server(kind))
    assert not any(message.get(name) for message in messages for name in REASONING)
    assert not {"Hm", "So", "Deep", "Sig1", "Enc1"} & set(json.dumps(messages).split('"'))
    assert [message["role"] for message in messages].count("tool") == 3


@pytest.mark.parametrize("case", [case for case in cases(failing=False) if expected(case)["blocks"]])
def test_recorded_answers_survive_the_round_trip(case: str) -> None:
    wanted = expected(case)
    received = with_unique_calls(run(stream(case)).message, ())
    if wanted.get("think_tags"):
        received = with_unique_calls(run(stream(case), server_of(case)).message, ())
    results = asked(*(result(one.id) for one in received.tool_uses), TextBlock("y"))
    sent = messages_of((A, received, results))[1]
    came = {key: value for block in wanted["blocks"] for key, value in block.items() if key in REASONING}
    assert {key: sent[key] for key in REASONING if key in sent} == came
    calls = [block for block in wanted["blocks"] if "function" in block]
    assert sent["content"] == (wanted.get("text") or (None if calls else "(no text)"))
    for one, block, value in zip(sent.get("tool_calls", ()), calls, wanted.get("inputs", ()), strict=True):
        assert one["id"] == block["id"] or not block["id"]
        assert one["function"]["name"] == block["function"]["name"]
        assert json.loads(one["function"]["arguments"]) == (value or {})
        assert {**one, "id": 0, "function": 0} == {**block, "id": 0, "function": 0}


def test_what_has_been_stripped_is_rebuilt() -> None:
    """The agent takes all seals away where a server refused them; the conversation still can be sent."""
    bare = tuple(
        AssistantMessage(
            tuple(
                ToolUseBlock(block.id, block.name, block.input) if isinstance(block, ToolUseBlock) else TextBlock("x")
                for block in message.blocks
                if not isinstance(block, ThinkingBlock)
            )
        )
        if isinstance(message, AssistantMessage)
        else message
        for message in loop()
    )
    messages = messages_of(bare)
    assert not any(name in message for message in messages for name in REASONING)
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "tool",
        "user",
    ]


_TEXTS = st.text(max_size=4)
_ORIGINS = st.sampled_from([{}, {"model_id": "other"}, {"host": "https://other.example"}])
_IDS = st.sampled_from(["", "0", "call_1", "é|x", "y" * 50])
_FIELDS = st.sampled_from([*REASONING[:2], "think_tags"])
_BLOCK = (
    st.builds(lambda value, origin: text(value, **origin), _TEXTS, _ORIGINS)
    | st.builds(lambda field, origin: thinking("Hm" if not origin else "Foreign", field, **origin), _FIELDS, _ORIGINS)
    | st.builds(lambda origin: details("Hm" if not origin else "Foreign", **origin), _ORIGINS)
    | st.builds(
        lambda call_id, arguments, origin: call(call_id, arguments, **origin),
        _IDS,
        st.sampled_from(['{"path": "a"}', "", "{"]),
        _ORIGINS,
    )
)


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """Answers as the agent stores them, with results for some calls, for others, and for none."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            message = AssistantMessage(tuple(draw(st.lists(_BLOCK, max_size=4))))
            messages.append(with_unique_calls(message, tuple(messages)))
            continue
        ids = [one.id for message in messages if isinstance(message, AssistantMessage) for one in message.tool_uses]
        chosen = draw(st.lists(st.sampled_from([*ids, "stray"]), max_size=4, unique=True))
        texts = [TextBlock(value) for value in draw(st.lists(_TEXTS, max_size=2))]
        messages.append(asked(*(result(one, f"of {one}") for one in chosen), *texts))
    return tuple(messages)


@settings(max_examples=250, deadline=None)
@given(conversations(), st.sampled_from(kinds()))
def test_whatever_the_history_every_call_is_answered_at_once(conversation: Conversation, kind: str) -> None:
    messages = messages_of(conversation, server(kind))
    seen: set[str] = set()
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        assert message["role"] in ("user", "assistant")
        calls = message.get("tool_calls", [])
        assert calls or message["content"].strip() or message["content"]
        assert message["role"] == "assistant" or message["content"].strip()
        assert "tool_calls" not in message or calls
        ids = [one["id"] for one in calls]
        assert len(set(ids)) == len(ids)
        assert not seen & set(ids)
        seen |= set(ids)
        for one in calls:
            assert isinstance(json.loads(one["function"]["arguments"]), dict)
        behind = messages[index : index + len(ids)]
        assert [(one["role"], one.get("tool_call_id")) for one in behind] == [("tool", call_id) for call_id in ids]
        index += len(ids)
    for one, other in pairwise(messages):
        assert one["role"] != other["role"] or one["role"] == "tool"
    assert "Foreign" not in json.dumps(messages)


@settings(max_examples=100, deadline=None)
@given(conversations())
def test_results_reach_their_calls(conversation: Conversation) -> None:
    """By the neutral ids of the conversation: every result stands behind its own call, and no other does."""
    wanted = []
    for index, message in enumerate(conversation):
        if not isinstance(message, AssistantMessage):
            continue
        answered: list[str] = []
        for role, group in groupby(conversation[index + 1 :], key=lambda later: later.role):
            if role == "user":
                blocks = [block for later in group for block in later.blocks]
                answered = [block.tool_use_id for block in blocks if isinstance(block, ToolResultBlock)]
                break
        wanted += [f"of {one.id}" if one.id in answered else NO_RESULT for one in message.tool_uses]
    assert [message["content"] for message in messages_of(conversation) if message["role"] == "tool"] == wanted


@pytest.mark.parametrize("kind", kinds())
def test_tags_that_were_split_off_never_come_back(kind: str) -> None:
    tagged = run(stream("think_tags_split"), server_of("think_tags_split")).message
    sent = messages_of((A, tagged, asked(result("t"))), server(kind))[1]
    assert sent["content"] == "The tag is <think>. "
    # Who demands the field gets the thinking bare.
    assert [sent[name] for name in REASONING if name in sent] == (["hm"] if kind == "deepseek" else [])


def test_a_seal_of_another_kind_of_block_is_no_thinking() -> None:
    block = ThinkingBlock("x", sealed({"type": "thinking", "signature": "Sig"}))
    assert messages_of((A, said(block, text("y")), B))[1] == {"role": "assistant", "content": "y"}
