"""The updates of a session that the agent sends, as JSON objects, and those that show a stored session again.

A text is sent in chunks of at most 32 kB, and a line has at most 1 MiB, because some clients break at longer lines.
A stored session is shown without its thinking. A long one begins with a note: a client gets at most 10,000 updates.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from thinklsp.agent.summary import is_summary_message
from thinklsp.core.events import format_call_id
from thinklsp.core.images import format_placeholder
from thinklsp.core.messages import AssistantMessage, ImageBlock, Message, TextBlock, ToolResultBlock
from thinklsp.core.text_safety import mask_keys
from thinklsp.engine.session_commands import show_user_words
from thinklsp.sessions.session import Session, UnansweredPrompt
from thinklsp.tools.registry import TOOLS_WITH_COMMANDS
from thinklsp.tools.tool import describe

Update = Mapping[str, Any]
ToolKind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"]
ToolStatus = Literal["pending", "in_progress", "completed", "failed"]
ChunkKind = Literal["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"]

MAX_CHUNK_BYTES = 32_000
# The two texts of a diff with their escapes, which must fit into a line.
MAX_DIFF_BYTES = 900_000
_TOOL_KINDS: Mapping[str, ToolKind] = {
    "read_file": "read",
    "read_skill": "read",
    "list_files": "search",
    "search_text": "search",
    "outline": "search",
    "definition": "search",
    "references": "search",
    "diagnostics": "read",
    "edit_file": "edit",
    "write_file": "edit",
    "rename_file": "move",
    "delete_file": "delete",
    "run_command": "execute",
}
MAX_UPDATES = 10_000
_PLAN_TOOL = "plan"


def find_tool_kind(name: str) -> ToolKind:
    return _TOOL_KINDS.get(name, "other")


def split_chunks(text: str, max_bytes: int = MAX_CHUNK_BYTES) -> Iterator[str]:
    """Yield the text in pieces of at most `max_bytes` bytes of UTF-8, cut between code points."""
    start = 0
    while start < len(text):
        piece = text[start : start + max_bytes]
        encoded = piece.encode("utf-8", "surrogatepass")
        if (end := max_bytes) < len(encoded):
            while encoded[end] & 0b1100_0000 == 0b1000_0000:  # The byte continues a code point.
                end -= 1
            piece = encoded[:end].decode("utf-8", "surrogatepass")
        yield piece
        start += len(piece)


def build_chunks(kind: ChunkKind, text: str, message_id: str) -> Iterator[Update]:
    for piece in split_chunks(text):
        yield {"sessionUpdate": kind, "messageId": message_id, "content": build_text(piece)}


def build_text(text: str) -> Mapping[str, Any]:
    return {"type": "text", "text": text}


def build_text_content(text: str) -> Mapping[str, Any]:
    """Return a text as the content of a tool call."""
    return {"type": "content", "content": build_text(text)}


def build_tool_call(call_id: str, title: str, kind: ToolKind, status: ToolStatus, **fields: Any) -> Update:
    """Return the first update of a tool call. `fields` are its other fields, as named in the protocol.

    The title may contain arguments, so its keys are masked, as in the arguments themselves.
    """
    shown = mask_keys(title)
    call = {"sessionUpdate": "tool_call", "toolCallId": call_id, "title": shown, "kind": kind, "status": status}
    return call | fields


def build_tool_update(call_id: str, status: ToolStatus, **fields: Any) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status} | fields


def build_locations(path: str | None, line: int | None = None) -> list[Mapping[str, Any]]:
    if path is None:
        return []
    return [{"path": path}] if line is None else [{"path": path, "line": line}]


def parse_shown_json(text: str | None) -> Any:
    """Return arguments of a tool call as a JSON value, or as text if they were cut."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def build_replay(session: Session) -> list[Update]:
    """Return the updates of a session in the order of the conversation."""
    updates = list(_list_updates(show_user_words(session)))
    folded = len(updates) - MAX_UPDATES + 1
    if folded <= 1:
        return updates
    note = f"*The first {folded:,} entries of this session are not shown.*"
    return [*build_chunks("agent_message_chunk", note, "folded"), *updates[folded:]]


def _list_updates(session: Session) -> Iterator[Update]:
    unanswered: defaultdict[int, list[UnansweredPrompt]] = defaultdict(list)
    for at, prompt in session.list_placed_prompts():
        unanswered[at].append(prompt)
    blocks = [block for message in session.conversation for block in message.blocks]
    failed = {block.tool_use_id: block.is_error for block in blocks if isinstance(block, ToolResultBlock)}
    for at in range(len(session.conversation) + 1):
        for number, prompt in enumerate(unanswered[at]):
            yield from build_chunks("user_message_chunk", prompt.text, f"unanswered-{at}-{number}")
            text = "\n\n".join(filter(None, (prompt.partial_text, f"*{prompt.reason or prompt.explanation}*")))
            yield from build_chunks("agent_message_chunk", text, f"unfinished-{at}-{number}")
        if at < len(session.conversation):
            yield from _replay_message(session.conversation[at], at, failed)


def _replay_message(message: Message, at: int, failed: Mapping[str, bool]) -> Iterator[Update]:
    if isinstance(message, AssistantMessage):
        yield from build_chunks("agent_message_chunk", message.text, f"answer-{at}")
        for call in message.tool_uses:
            if call.name != _PLAN_TOOL:
                status: ToolStatus = "failed" if failed.get(call.id) else "completed"
                title = describe(call, TOOLS_WITH_COMMANDS)
                yield build_tool_call(format_call_id(call.id), title, find_tool_kind(call.name), status)
        return
    kind: Any = "agent_message_chunk" if is_summary_message(message) else "user_message_chunk"
    shown = message.blocks[len(message.result_images) :]
    for number, block in enumerate(shown):
        if isinstance(block, TextBlock):
            yield from build_chunks(kind, block.text, f"prompt-{at}-{number}")
        elif isinstance(block, ImageBlock):
            yield from build_chunks(kind, f"{format_placeholder(block)}\n\n", f"prompt-{at}-{number}")
