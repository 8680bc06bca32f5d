"""Repair of conversations that providers reject.

The repair is a pure function and lists its changes. It adds error results for missing tool results, and notes for other
gaps, but never text on behalf of the model. Prompts, answers and tool results are never lost. Thinking that cannot be
sent again is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    ImageBlock,
    Message,
    OpaqueBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserBlock,
    UserMessage,
    assign_free_id,
)

LOST_BEGINNING = "<note>The beginning of this conversation is missing.</note>"
LOST_RESULT = "The result of this tool call was lost. Call the tool again if you need the result."
_ISSUED_ONCE = (ThinkingBlock, RedactedThinkingBlock, OpaqueBlock)
_STRAY_RESULT_NOTE = "<note>Result of a missing tool call:</note>\n"


@dataclass(frozen=True, slots=True)
class Repair:
    """A repaired conversation.

    `findings` describes each change in one sentence and is empty for a valid conversation.
    """

    findings: tuple[str, ...]
    conversation: Conversation


def repair_conversation(conversation: Conversation) -> Repair:
    """Repair a conversation. A valid conversation is returned unchanged."""
    repairer = _Repairer()
    if conversation and isinstance(conversation[0], AssistantMessage):
        repairer.report("the conversation began with an answer, so a note was added before it")
        repairer.messages.append(UserMessage.from_text(LOST_BEGINNING))
    for number, message in enumerate(conversation, 1):
        repairer.number = number
        if isinstance(message, UserMessage):
            repairer.add_user_message(message)
        elif message in repairer.answers_with_calls and repairer.has_used_results(conversation[number : number + 1]):
            repairer.report("a repeated answer with tool calls was removed")
        else:
            repairer.add_answer(message)
    repairer.close_calls()
    if not repairer.findings:
        return Repair((), conversation)
    messages = repairer.messages
    if messages and isinstance(messages[0], AssistantMessage):
        messages.insert(0, UserMessage.from_text(LOST_BEGINNING))
    return Repair(tuple(repairer.findings), tuple(messages))


class _Repairer:
    """The state of a repair. `number` is the number of the current message, counted from 1."""

    def __init__(self) -> None:
        self.number = 1
        self.findings: list[str] = []
        self.messages: list[Message] = []
        self.answers_with_calls: set[AssistantMessage] = set()
        # The original and the new id of each tool call without a result, all ids so far, and all used results.
        self._pending_calls: list[tuple[str, str]] = []
        self._used_ids: set[str] = set()
        self._used_results: set[ToolResultBlock] = set()

    def report(self, finding: str) -> None:
        self.findings.append(f"Message {self.number}: {finding}.")

    def has_used_results(self, messages: Conversation) -> bool:
        """Return True if all tool results in the messages have already appeared in the conversation."""
        blocks = (block for message in messages for block in message.blocks)
        return all(block in self._used_results for block in blocks if isinstance(block, ToolResultBlock))

    def add_answer(self, message: AssistantMessage) -> None:
        blocks = tuple(self._filter_blocks(message))
        if not blocks:
            if not message.blocks:
                self.report("an empty answer was removed")
            return
        self.close_calls()
        if message.tool_uses and any(isinstance(block, _ISSUED_ONCE) for block in message.blocks):
            # Equal answers without unique blocks may be different steps, because some providers reuse ids.
            self.answers_with_calls.add(message)
        renamed = tuple(self._add_call(block) if isinstance(block, ToolUseBlock) else block for block in blocks)
        self.messages.append(message if renamed == message.blocks else replace(message, blocks=renamed))

    def _filter_blocks(self, message: AssistantMessage) -> Iterator[ContentBlock]:
        """Yield the blocks that a provider accepts, without unsigned thinking and repeated unique blocks.

        Equal tool calls are kept, because a model may request the same action twice.
        """
        unique_blocks: set[ContentBlock] = set()
        for block in message.blocks:
            if isinstance(block, ThinkingBlock) and block.raw is None:
                self.report("thinking without its signature was removed")
                continue
            if isinstance(block, _ISSUED_ONCE):
                if block in unique_blocks:
                    self.report(f"a repeated block ({block.kind}) was removed")
                    continue
                unique_blocks.add(block)
            yield block

    def _add_call(self, block: ToolUseBlock) -> ToolUseBlock:
        """Return the tool call with an id that no earlier call has."""
        renamed = assign_free_id(block, self._used_ids)
        if renamed.id != block.id:
            problem = "had the id of an earlier call" if block.id else "had no id"
            self.report(f"a tool call {problem} and is now {renamed.id}")
        self._used_ids.add(renamed.id)
        self._pending_calls.append((block.id, renamed.id))
        return renamed

    def add_user_message(self, message: UserMessage) -> None:
        texts: list[TextBlock | ImageBlock] = []
        strays = []
        results: dict[str, ToolResultBlock] = {}
        open_calls = list(self._pending_calls)
        images = message.result_images
        for block in message.blocks[len(images) :]:
            if isinstance(block, TextBlock | ImageBlock):
                texts.append(block)
                continue
            call = next((call for call in open_calls if call[0] == block.tool_use_id), None)
            if call is not None:
                open_calls.remove(call)
                self._used_results.add(block)
                results[call[1]] = block if call[0] == call[1] else replace(block, tool_use_id=call[1])
            elif block in self._used_results:
                self.report("a repeated result was removed")
            else:
                self.report("a result without its tool call was changed to text")
                strays.append(TextBlock(f"{_STRAY_RESULT_NOTE}{block.text}"))
        nonblank = tuple(block for block in texts if isinstance(block, ImageBlock) or block.text.strip())
        if len(nonblank) < len(texts):
            self.report("blank text was removed")
        ordered = tuple(self._order_results(results))
        # Without a result, the images no longer belong to one.
        before, after = (images, ()) if ordered else ((), images)
        self._place_user_message(message, (*before, *ordered, *strays, *after, *nonblank))

    def _order_results(self, results: dict[str, ToolResultBlock]) -> Iterator[ToolResultBlock]:
        """Yield a result for each pending tool call, in the order of the calls."""
        for _, call in self._pending_calls:
            if call not in results:
                self.report(f"the tool call {call} had no result, so an error result was added")
            yield results.get(call) or ToolResultBlock(call, LOST_RESULT, is_error=True)
        self._pending_calls.clear()

    def _place_user_message(self, message: UserMessage, blocks: tuple[UserBlock, ...]) -> None:
        if blocks == message.blocks and blocks:
            self.messages.append(message)
        elif not blocks:
            if not message.blocks:
                self.report("an empty message was removed")
        else:
            if set(blocks) == set(message.blocks) and len(blocks) == len(message.blocks):
                self.report("results and text were in the wrong order")
            self.messages.append(UserMessage(blocks))

    def close_calls(self) -> None:
        """Add error results for tool calls that have no results in the next message."""
        if self._pending_calls:
            self.messages.append(UserMessage(tuple(self._order_results({}))))
