"""Signs that a server does not take its model's output apart, as far as the answer alone shows them."""

from __future__ import annotations

import re

from thinklsp.providers.openai_chat.servers import ChatServer

_CALL = re.compile(r"^\s*(?:<tool_call>|\[TOOL_CALLS\]|<function=|<\|tool_call|<｜tool▁call)", re.MULTILINE)
_TAGS = (
    "The answer begins with <think>, so the server leaves the thinking in the text: set think_tags = true under "
    "[providers.openai-compatible] in your config.toml, or configure the server's reasoning parser."
)
_ALL_THINKING = (
    "The server sent the whole answer as thinking, without text or tool calls. If that happens again, check "
)
_CALL_AS_TEXT = "The model's tool call came as plain text: check "


def parser_notices(server: ChatServer, text: str, *, thought: bool) -> tuple[str, ...]:
    """Sentences for the user about an answer that ended by itself and called no tool. `thought`: it has thinking."""
    if text.lstrip().startswith("<think>") and not server.think_tags:
        return (_TAGS,)
    if not server.parsers:
        return ()
    if thought and not text.strip():
        return (f"{_ALL_THINKING}{server.parsers}.",)
    return (f"{_CALL_AS_TEXT}{server.parsers}.",) if _CALL.search(text) else ()
