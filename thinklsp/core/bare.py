"""Messages without what only their issuer can read. For when what stands before them is no longer what it was."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    OpaqueBlock,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)


def bare_message(message: AssistantMessage) -> AssistantMessage:
    """The message without thinking and without anything sealed in its texts and calls. No block may be left."""
    return replace(message, blocks=tuple(bare for block in message.blocks if (bare := bare_block(block)) is not None))


def bare_block(block: ContentBlock) -> ContentBlock | None:
    """What is left of a block without anything sealed: some services sign the texts and calls themselves, or know them
    by names that belong to the thinking before them. What a service ran itself stays, since its halves belong together.
    """
    match block:
        case TextBlock() | ToolUseBlock():
            return replace(block, raw=None)
        case ServerToolBlock():
            return block
        case ThinkingBlock() | RedactedThinkingBlock() | OpaqueBlock():
            return None
        case _:
            assert_never(block)
