"""Conversations, and the messages that the Messages API is sent for them."""

from __future__ import annotations

from typing import Any

from tests.support.anthropic_samples import call, loop, raw, sealed, text, thinking
from tests.support.samples import asked, result, said
from thinklsp.core.messages import ContentBlock, Conversation, RedactedThinkingBlock, TextBlock, UserMessage

A, B, C, E = (UserMessage.from_text(letter) for letter in "abce")


def wire(role: str, *blocks: str | ContentBlock | dict[str, Any]) -> dict[str, Any]:
    """Write a message of texts, blocks as they came, and blocks of the wire."""
    return {"role": role, "content": [_write(block) for block in blocks]}


def _write(block: str | ContentBlock | dict[str, Any]) -> dict[str, Any]:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    return block if isinstance(block, dict) else raw(block)


def answered(call_id: str, content: str = "content", **more: bool) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


EMPTY = "(no text)"
HISTORIES: dict[str, tuple[Conversation, list[dict[str, Any]]]] = {
    "same roles are merged": (
        (A, B, said(text("c")), said(text("d")), E),
        [wire("user", "a", "b"), wire("assistant", "c", "d"), wire("user", "e")],
    ),
    "results first, texts after": (
        (A, said(call("t1"), call("t2")), asked(TextBlock("note"), result("t1")), asked(result("t2"))),
        [
            wire("user", "a"),
            wire("assistant", call("t1"), call("t2")),
            wire("user", answered("t1"), answered("t2"), "note"),
        ],
    ),
    "errors say so, empty results stay": (
        (A, said(call("t1")), asked(result("t1", "", is_error=True))),
        [wire("user", "a"), wire("assistant", call("t1")), wire("user", answered("t1", "", is_error=True))],
    ),
    "blank texts go": (
        (asked(TextBlock(""), TextBlock("a"), TextBlock(" \n")), said(text(""), text("b")), C),
        [wire("user", "a"), wire("assistant", "b"), wire("user", "c")],
    ),
    "an empty message gets a placeholder": (
        (A, said(thinking("S", model="other")), B, said(), UserMessage.from_text("")),
        [
            wire("user", "a"),
            wire("assistant", EMPTY),
            wire("user", "b"),
            wire("assistant", EMPTY),
            wire("user", EMPTY),
        ],
    ),
    "no message ends with thinking": (
        (A, said(thinking("S")), B),
        [wire("user", "a"), wire("assistant", thinking("S"), EMPTY), wire("user", "b")],
    ),
}

SONNET = {"model": "claude-sonnet-4-5"}
REDACTED = RedactedThinkingBlock(sealed({"type": "redacted_thinking", "data": "d"}, **SONNET))
# The form of thinking that remains of a budget.
LOOPS: dict[str, tuple[Conversation, str]] = {
    "own thinking opens the loop": (loop(**SONNET), "enabled"),
    "thinking only at the start of the loop": (
        (A, said(thinking("S", **SONNET), call("t1")), asked(result("t1")), said(call("t2")), asked(result("t2"))),
        "enabled",
    ),
    "foreign thinking was dropped": (loop(), "disabled"),
    "the loop began without thinking and the user spoke into it": (
        (A, said(call("t1")), asked(result("t1"), TextBlock("go on"))),
        "disabled",
    ),
    "the loop is over": ((*loop(), said(text("done")), B), "enabled"),
    "redacted thinking counts": ((A, said(REDACTED, call("t1")), asked(result("t1"))), "enabled"),
    "first question": ((A,), "enabled"),
    "the beginning is cut away": ((said(call("t1")), asked(result("t1"))), "disabled"),
}
