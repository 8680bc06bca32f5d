"""Conversations, and the messages that a compatible server is sent for them."""

from __future__ import annotations

from typing import Any

from tests.support.chat_samples import call, details, foreign_call, foreign_thinking, loop, raw, sealed, text, thinking
from tests.support.samples import asked, result, said
from thinklsp.core.messages import Conversation, TextBlock, ThinkingBlock, ToolUseBlock, UserMessage

A, B = UserMessage.from_text("a"), UserMessage.from_text("b")
FUNCTION = {"name": "read_file", "arguments": '{"path": "a"}'}


def wire(call_id: str, **function: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": FUNCTION | function}


def answer(content: str | None = None, *calls: dict[str, Any], **reasoning: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **reasoning, **({"tool_calls": list(calls)} if calls else {})}


def tool(call_id: str, content: str = "content") -> dict[str, str]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def entries(content: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = raw(details(content))["reasoning_details"]
    return listed


def signed(signature: str) -> ThinkingBlock:
    return ThinkingBlock("", sealed({"extra_content": {"signature": signature}}))


NO_RESULT = "Error: no result; the call was not run."
HISTORIES: dict[str, tuple[Conversation, list[dict[str, Any]]]] = {
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
    "lists of thinking of neighbours are joined": (
        (A, said(details("r"), text("c")), said(details("s"), text("d")), B),
        [user("a"), answer("c\n\nd", reasoning_details=[*entries("r"), *entries("s")]), user("b")],
    ),
    "the later of the signatures of neighbours counts": (
        (A, said(signed("1"), text("c")), said(signed("2"), text("d")), B),
        [user("a"), answer("c\n\nd", extra_content={"signature": "2"}), user("b")],
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
        (A, said(), UserMessage.from_text(" \n"), said(thinking("r")), B, said(*foreign_thinking()), A),
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
