"""Ids of tool calls. Ours are unique in a conversation, whatever the services give."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from thinklsp.core.messages import AssistantMessage, ContentBlock, Conversation, ToolUseBlock


def with_unique_calls(message: AssistantMessage, conversation: Conversation) -> AssistantMessage:
    """Return the message with an id of its own for every call. Some services give no ids, or the same ones in every
    answer; others refuse a conversation in which an id stands twice. The id of the service stays in the raw block; what
    is sent back has ours, so that it is unique there too."""
    taken = {call.id for earlier in conversation if isinstance(earlier, AssistantMessage) for call in earlier.tool_uses}
    blocks: list[ContentBlock] = []
    for block in message.blocks:
        if isinstance(block, ToolUseBlock):
            block = with_free_id(block, taken)
            taken.add(block.id)
        blocks.append(block)
    return replace(message, blocks=tuple(blocks))


def with_free_id(call: ToolUseBlock, taken: Collection[str]) -> ToolUseBlock:
    """Return the call with an id that is neither empty nor in `taken`: its own, if possible."""
    if call.id and call.id not in taken:
        return call
    stem, number = call.id or "call", len(taken) + 1
    while f"{stem}-{number}" in taken:
        number += 1
    return replace(call, id=f"{stem}-{number}")
