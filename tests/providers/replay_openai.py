"""Conversations, and the items that the Responses API is sent for them."""

from __future__ import annotations

from tests.support.openai_samples import (
    SEARCH,
    Item,
    bare,
    bare_call,
    call,
    opaque,
    output,
    raw,
    sealed,
    text,
    thinking,
    user,
)
from tests.support.samples import asked, result, said
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    UserMessage,
)

A, B = UserMessage.from_text("a"), UserMessage.from_text("b")
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
# Own answers go back whole or bare.
ANSWERS: dict[str, tuple[AssistantMessage, list[Item]]] = {
    "thinking and its text": (said(thinking("1"), text("a")), [raw(thinking("1")), raw(text("a"))]),
    "parallel calls": (
        said(thinking("1"), call("c1"), call("c2"), stop="tool_use"),
        [
            raw(thinking("1")),
            raw(call("c1")),
            raw(call("c2")),
            output("c1", NO := "Error: no result; the call was not run."),
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
HISTORIES: dict[str, tuple[Conversation, list[Item]]] = {
    "outputs first, texts after, one message each": (
        (
            A,
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
        (
            A,
            said(call("c1"), call("c2")),
            asked(result("c1", ""), result("c2", " ", is_error=True)),
        ),
        [user("a"), raw(call("c1")), raw(call("c2")), output("c1", "(no output)"), output("c2", "Error: (no output)")],
    ),
    "a user who says nothing": ((asked(TextBlock("")), said(text("b"))), [user("(no text)"), raw(text("b"))]),
    "results of no call": (
        (A, said(text("b")), asked(result("c9"))),
        [user("a"), raw(text("b")), user("(no text)")],
    ),
    "answers in a row": (
        (A, said(call("c1")), said(text("b"))),
        [user("a"), raw(call("c1")), output("c1", NO), raw(text("b"))],
    ),
    "our name for a call is not the service's": (
        (
            A,
            said(call("c1")),
            asked(result("c1")),
            said(call("c1-2", wire_id="c9")),
            asked(result("c1-2")),
        ),
        [user("a"), raw(call("c1")), output("c1"), raw(call("c1-2", wire_id="c9")), output("c9")],
    ),
    "a server that numbers every answer anew": (
        (
            A,
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
        (A, said(call("call-1", wire_id="")), asked(result("call-1"))),
        [user("a"), raw(call("call-1")), output("call-1")],
    ),
    "names of others that are too long or hold signs": (
        (
            A,
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
    **{name: ((A, message, B), [user("a"), *items, user("b")]) for name, (message, items) in ANSWERS.items()},
}
