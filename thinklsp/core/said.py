"""What the model has said in a turn, as it is told to people. What is sent and kept stays in the pieces that came."""

from __future__ import annotations

from dataclasses import dataclass, replace

from thinklsp.core.messages import AssistantMessage, ContentBlock, TextBlock, ThinkingBlock

THINKING_ONLY = "(thinking only)"
"""Stands in place of a text where an answer has none, since no service takes it back without. Nobody has said it."""


@dataclass(frozen=True, slots=True)
class Said:
    """The messages of a turn so far. The pieces of an answer that the service has paused are one message with nothing
    between them, as a piece may end within a word. `goes_on`: the next message is a piece of the last one."""

    messages: tuple[AssistantMessage, ...] = ()
    goes_on: bool = False

    def then(self, message: AssistantMessage) -> Said:
        piece = replace(message, blocks=tuple(block for block in message.blocks if not _is_placeholder(block)))
        if not self.goes_on:
            return Said((*self.messages, piece), piece.is_paused)
        *before, last = self.messages
        return Said((*before, replace(piece, blocks=_joined(last.blocks, piece.blocks))), piece.is_paused)

    @property
    def text(self) -> str:
        """The text of the last message that has one."""
        return next((message.text for message in reversed(self.messages) if message.text), "")

    @property
    def thinking(self) -> str:
        return "\n\n".join(filter(None, (message.thinking for message in self.messages)))


def _joined(first: tuple[ContentBlock, ...], second: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
    """Thinking that was paused goes on in the same block."""
    match first, second:
        case (*before, ThinkingBlock() as begun), (ThinkingBlock() as rest, *after):
            return (*before, ThinkingBlock(begun.text + rest.text), *after)
        case _:
            return (*first, *second)


def _is_placeholder(block: ContentBlock) -> bool:
    return isinstance(block, TextBlock) and block.raw is None and block.text == THINKING_ONLY
