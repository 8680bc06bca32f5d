"""The updates of a session that the agent sends, as JSON objects.

A text is sent in chunks of at most 32 kB, and a line has at most 1 MiB, because some clients break at longer lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from thinklsp.core.events import PlanEntry
from thinklsp.core.text_safety import mask_keys

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
    "outline_file": "search",
    "find_definition": "search",
    "find_references": "search",
    "read_diagnostics": "read",
    "edit_file": "edit",
    "write_file": "edit",
    "rename_file": "move",
    "delete_file": "delete",
    "run_command": "execute",
}


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


def build_diff(path: str, before: str | None, after: str) -> Mapping[str, Any]:
    return {"type": "diff", "path": path, "oldText": before, "newText": after}


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


def build_plan(entries: Sequence[PlanEntry]) -> Update:
    rows = [{"content": entry.text, "priority": "medium", "status": entry.status} for entry in entries]
    return {"sessionUpdate": "plan", "entries": rows}


def parse_shown_json(text: str | None) -> Any:
    """Return arguments of a tool call as a JSON value, or as text if they were cut."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
