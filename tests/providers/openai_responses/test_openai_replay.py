"""What goes back to the Responses API: whole answers of its own as they came, everything else rebuilt bare."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.openai_cases import ENDPOINT, cases, expected, raw, run, stream
from tests.support.openai_requests import (
    PLAIN,
    SEARCH,
    asked,
    call,
    loop,
    opaque,
    result,
    said,
    sealed,
    text,
    thinking,
)
from tests.support.openai_wire import (
    ADAPTER,
    Item,
    bare,
    bare_call,
    body_of,
    broken_rules,
    items_of,
    nameless,
    output,
    user,
)
from thinklsp.core.calls import with_unique_calls
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    Message,
    RedactedThinkingBlock,
    ServerToolBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    UserMessage,
)


def test_what_was_issued_here_goes_back_as_it_came() -> None:
    conversation = loop()
    first, second = conversation[1], conversation[3]
    assert isinstance(first, AssistantMessage)
    assert isinstance(second, AssistantMessage)
    assert items_of(conversation) == [
        user("Why?"),
        *(raw(block) for block in first.blocks),
        output("call_1"),
        *(raw(block) for block in second.blocks),
        output("call_2"),
        output("call_3", "Error: no such file"),
    ]


# Answers that end with thinking, were cut, or hold nothing that could go back.
BARE = {
    "call_cut_by_the_limit": [bare("Let me see."), bare_call("call_1", "{}")],
    "limit_used_up_by_thinking": [],
    "content_filter": [bare("Half of")],
    "whole_looking_calls_that_were_cut": [
        bare_call(f"call_{n}", "{}", name) for n, name in ((1, "read_file"), (2, "read_file"), (3, "list_files"))
    ],
    "refusal": [],
    "refusal_behind_text_in_pieces": [bare("First, ")],
    "other_names_at_the_end": [bare("Same."), bare_call("call_a", "{}")],
}


@pytest.mark.parametrize("case", cases(failing=False))
def test_recorded_answers_survive_the_round_trip(case: str) -> None:
    answer = run(stream(case)).message
    items = items_of((UserMessage.of("x"), answer, UserMessage.of("y")))
    assert (items[0], items[-1]) == (user("x"), user("y"))
    said_again = [item for item in items[1:-1] if item["type"] != "function_call_output"]
    assert said_again == BARE.get(case, expected(case)["blocks"])


FOREIGN = [{"model": "gpt-5.5"}, {"host": "https://other.example"}, {"key": "0" * 16}, {"provider": "anthropic"}]


@pytest.mark.parametrize("origin", FOREIGN, ids=lambda origin: next(iter(origin)))
def test_foreign_state_is_dropped_whole_and_text_is_kept(origin: dict[str, str]) -> None:
    request = replace(PLAIN, conversation=loop(**origin))
    sent = bytes(ADAPTER.encode(request, ENDPOINT).body).decode()
    for secret in ("gAAAsecret", "rs_1", "msg_1", "fc_call_1", "ws_1", "I look.", "phase"):
        assert secret not in sent
    assert body_of(request)["input"][1:] == [
        user("Why?"),
        bare("Looking."),
        bare_call("call_1"),
        output("call_1"),
        bare_call("call_2"),
        bare_call("call_3"),
        output("call_2"),
        output("call_3", "Error: no such file"),
    ]


LONG = "toolu_" + "x" * 70
UNSEALED = TextBlock("(thinking only)")
EMPTY_MESSAGE = TextBlock("", sealed({"id": "msg_e", "type": "message", "role": "assistant", "content": []}))
UNREADABLE = ThinkingBlock(
    "sum", sealed({"id": "rs_u", "type": "reasoning", "summary": [{"type": "summary_text", "text": "sum"}]})
)
ALOUD = ThinkingBlock(
    "hm",
    sealed({"id": "rs_a", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}),
)
SHAPES: dict[str, tuple[AssistantMessage, list[Item]]] = {
    "thinking and its text": (said(thinking("1"), text("a")), [raw(thinking("1")), raw(text("a"))]),
    "parallel calls": (
        said(thinking("1"), call("c1"), call("c2"), stop="tool_use"),
        [
            raw(thinking("1")),
            raw(call("c1")),
            raw(call("c2")),
            output("c1", NO := "Error: there is no result; the call was not carried out."),
            output("c2", NO),
        ],
    ),
    "a hosted call between": (
        said(thinking("1"), opaque(SEARCH), thinking("2"), text("a")),
        [raw(thinking("1")), SEARCH, raw(thinking("2")), raw(text("a"))],
    ),
    "thinking in plain words": (said(ALOUD, text("a")), [raw(ALOUD), raw(text("a"))]),
    "thinking alone and the agent's placeholder": (said(thinking("1"), UNSEALED), [bare("(thinking only)")]),
    "a blank answer and the agent's placeholder": (
        said(thinking("1"), EMPTY_MESSAGE, UNSEALED),
        [bare("(thinking only)")],
    ),
    "thinking at the end": (said(thinking("1"), text("a"), thinking("2")), [bare("a")]),
    "thinking twice in a row": (
        said(thinking("1"), thinking("2"), text("a")),
        [raw(thinking("1")), raw(thinking("2")), raw(text("a"))],
    ),
    "thinking twice at the end": (said(text("a"), thinking("1"), thinking("2")), [bare("a")]),
    "thinking that nobody can read": (said(UNREADABLE, text("a")), [bare("a")]),
    "an item without content": (said(text("a"), EMPTY_MESSAGE), [bare("a")]),
    "a part of another model": (said(thinking("1"), text("a"), text("b", model="gpt-5.5")), [bare("a"), bare("b")]),
    "everything sealed was left out": (
        said(TextBlock("a"), ToolUseBlock("c1", "read_file", {"path": "a"}), stop="tool_use"),
        [bare("a"), bare_call("c1"), output("c1", NO)],
    ),
    "cut by the limit": (said(thinking("1"), text("a"), stop="max_tokens"), [bare("a")]),
    "cut by the window": (said(thinking("1"), text("a"), stop="context_window"), [bare("a")]),
    "cut for another reason": (said(thinking("1"), text("a"), stop="other"), [bare("a")]),
    "a call of a tool that was never offered": (
        said(text("a"), opaque({"id": "ctc_1", "type": "custom_tool_call", "call_id": "x", "name": "n", "input": ""})),
        [bare("a")],
    ),
    "a call that the service itself did not finish": (
        said(ToolUseBlock("c1", "n", None, sealed({**raw(call("c1")), "status": "incomplete"})), stop="tool_use"),
        [bare_call("c1", "{}", "n"), output("c1", NO)],
    ),
    "blocks that only others have": (
        said(
            RedactedThinkingBlock(sealed({"type": "redacted_thinking", "data": "d"}, provider="anthropic")),
            ServerToolBlock("web_search", sealed({"type": "server_tool_use"}, provider="anthropic")),
            TextBlock("\n\nb"),
            TextBlock(" \n"),
        ),
        [bare("\n\nb")],
    ),
    "nothing": (said(), []),
}


@pytest.mark.parametrize("name", SHAPES)
def test_an_answer_goes_back_whole_or_bare(name: str) -> None:
    message, items = SHAPES[name]
    conversation = (UserMessage.of("x"), message, UserMessage.of("y"))
    assert items_of(conversation) == [user("x"), *items, user("y")]
    assert broken_rules(items_of(conversation), conversation) == []


WIRE: dict[str, tuple[Conversation, list[Item]]] = {
    "outputs first, texts after, one message each": (
        (
            UserMessage.of("a"),
            said(call("c1"), call("c2")),
            asked(TextBlock("note"), result("c2", "two")),
            asked(result("c1", "one"), TextBlock("b"), TextBlock(" "), TextBlock("c")),
        ),
        [
            user("a"),
            raw(call("c1")),
            raw(call("c2")),
            output("c1", "one"),
            output("c2", "two"),
            user("note"),
            user("b", "c"),
        ],
    ),
    "errors and empty results say so": (
        (UserMessage.of("a"), said(call("c1"), call("c2")), asked(result("c1", ""), result("c2", " ", is_error=True))),
        [user("a"), raw(call("c1")), raw(call("c2")), output("c1", "(no output)"), output("c2", "Error: (no output)")],
    ),
    "a user who says nothing": ((asked(TextBlock("")), said(text("b"))), [user("(no text)"), raw(text("b"))]),
    "results of no call": (
        (UserMessage.of("a"), said(text("b")), asked(result("c9"))),
        [user("a"), raw(text("b")), user("(no text)")],
    ),
    "answers in a row": (
        (UserMessage.of("a"), said(call("c1")), said(text("b"))),
        [user("a"), raw(call("c1")), output("c1", NO), raw(text("b"))],
    ),
    "our name for a call is not the service's": (
        (
            UserMessage.of("a"),
            said(call("c1")),
            asked(result("c1")),
            said(call("c1-2", wire_id="c9")),
            asked(result("c1-2")),
        ),
        [user("a"), raw(call("c1")), output("c1"), raw(call("c1-2", wire_id="c9")), output("c9")],
    ),
    "a server that numbers every answer anew": (
        (
            UserMessage.of("a"),
            said(call("c1")),
            asked(result("c1")),
            said(call("c1-2", wire_id="c1")),
            asked(result("c1-2")),
        ),
        [
            *(user("a"), raw(call("c1")), output("c1")),
            *({**raw(call("c1-2")), "call_id": "c1-2"}, output("c1-2")),
        ],
    ),
    "a server that gives no names": (
        (UserMessage.of("a"), said(call("call-1", wire_id="")), asked(result("call-1"))),
        [user("a"), raw(call("call-1")), output("call-1")],
    ),
    "names of others that are too long or hold signs": (
        (
            UserMessage.of("a"),
            said(ToolUseBlock(LONG, "read_file", {}), ToolUseBlock("call|a.b/é", "functions.read", None)),
            asked(result(LONG), result("call|a.b/é")),
        ),
        [
            user("a"),
            bare_call(SHORT := "toolu_" + "x" * 41 + "-c6477b721ee79d4a", "{}"),
            bare_call("call_a_b__", "{}", "functions_read"),
            output(SHORT),
            output("call_a_b__"),
        ],
    ),
}


@pytest.mark.parametrize("name", WIRE)
def test_input(name: str) -> None:
    conversation, items = WIRE[name]
    assert items_of(conversation) == items
    assert broken_rules(items_of(conversation), conversation) == []


def test_the_judge_of_the_rules_finds_what_is_wrong() -> None:
    conversation = loop()
    items = items_of(conversation)
    assert broken_rules(items, conversation) == []
    for index, item in enumerate(items):
        if item["type"] != "message" or item["role"] == "assistant":
            assert broken_rules(items[:index] + items[index + 1 :], conversation), item
    assert broken_rules([user("")])
    assert broken_rules([bare_call("x" * 65), output("x" * 65)])
    assert broken_rules([bare_call("a"), user("b"), output("a")])


_ORIGINS = st.sampled_from([{}, {}, {}, {"model": "gpt-5.5"}, {"provider": "anthropic"}])
_NAMES = st.integers(0, 10**9).map(str)
_TEXTS = st.text(max_size=6)
_BLOCKS: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        lambda value, name, origin: text(value or "x", name, **origin), _TEXTS.filter(str.strip), _NAMES, _ORIGINS
    ),
    st.builds(lambda name, origin: thinking(name, **origin), _NAMES, _ORIGINS),
    st.builds(lambda name, origin: thinking(name, **origin), _NAMES, _ORIGINS),
    st.builds(lambda name, origin: call(name, **origin), st.sampled_from(["a", "b", "c"]), _ORIGINS),
    st.just(call(LONG, provider="anthropic")),
    st.builds(TextBlock, _TEXTS),
    st.builds(lambda name: opaque({**SEARCH, "id": f"ws_{name}"}), _NAMES),
)
_STOPS: st.SearchStrategy[StopReason] = st.sampled_from(["end_turn", "tool_use", "tool_use", "max_tokens", "other"])
_ANSWERS = st.builds(lambda blocks, stop: said(*blocks, stop=stop), st.lists(_BLOCKS, max_size=5), _STOPS)
_USERS = st.builds(
    lambda blocks: asked(*blocks),
    st.lists(st.builds(TextBlock, _TEXTS) | st.builds(result, st.sampled_from(["a", "b", "c"]), _TEXTS), max_size=3),
)


@settings(max_examples=250, deadline=None)
@given(st.lists(_ANSWERS | _USERS, max_size=7))
def test_whatever_the_history_the_input_keeps_the_rules(messages: list[Message]) -> None:
    conversation: Conversation = ()
    for message in messages:
        if isinstance(message, AssistantMessage):
            message = with_unique_calls(message, conversation)
        conversation = (*conversation, message)
    items = items_of(conversation)
    assert broken_rules(items, conversation) == []
    origin = ENDPOINT.origin(PLAIN.model.id)
    own = [
        nameless(raw(block))
        for message in conversation
        if isinstance(message, AssistantMessage)
        for block in message.blocks
        if block.raw is not None and block.raw.belongs_to(origin)
    ]
    # Nothing sealed is made up, altered, or sent to somebody who did not issue it.
    assert [item for item in items if "id" in item and nameless(item) not in own] == []
