"""Ids of tool calls. Ours are unique in a conversation, whatever the services give."""

from __future__ import annotations

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
            if not block.id or block.id in taken:
                block = replace(block, id=_free(block.id or "call", taken))
            taken.add(block.id)
        blocks.append(block)
    return replace(message, blocks=tuple(blocks))


def _free(stem: str, taken: set[str]) -> str:
    number = len(taken) + 1
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"
