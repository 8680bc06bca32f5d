"""Repair of conversations that providers reject.

The repair is a pure function and lists its changes. It adds error results for missing tool results, and notes for other
gaps, but never text on behalf of the model. Prompts, answers and tool results are never lost. Thinking that cannot be
sent again is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

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
    """A repaired conversation. `findings` describes each change in one sentence and is empty for a valid
    conversation."""

    findings: tuple[str, ...]
    conversation: Conversation


@dataclass(slots=True)
class _RepairState:
    """The state of a repair.

    `pending_calls` contains the original and the new id of each tool call without a result. `used_ids` contains all ids
    used so far.
    """

    findings: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    pending_calls: list[tuple[str, str]] = field(default_factory=list)
    used_ids: set[str] = field(default_factory=set)
    answers_with_calls: set[AssistantMessage] = field(default_factory=set)
    used_results: set[ToolResultBlock] = field(default_factory=set)

    def report_finding(self, number: int, finding: str) -> None:
        self.findings.append(f"Message {number + 1}: {finding}.")


def repair_conversation(conversation: Conversation) -> Repair:
    """Repair a conversation. A valid conversation is returned unchanged."""
    state = _RepairState()
    if conversation and isinstance(conversation[0], AssistantMessage):
        state.report_finding(0, "the conversation began with an answer, so a note was added before it")
        state.messages.append(UserMessage.from_text(LOST_BEGINNING))
    for number, message in enumerate(conversation):
        if isinstance(message, AssistantMessage):
            following = conversation[number + 1] if number + 1 < len(conversation) else None
            if message in state.answers_with_calls and _is_repeated(state, following):
                state.report_finding(number, "a repeated answer with tool calls was removed")
            else:
                _add_answer(state, number, message)
        else:
            _add_user_message(state, number, message)
    _close_calls(state, len(conversation) - 1)
    if not state.findings:
        return Repair((), conversation)
    if state.messages and isinstance(state.messages[0], AssistantMessage):
        state.messages.insert(0, UserMessage.from_text(LOST_BEGINNING))
    return Repair(tuple(state.findings), tuple(state.messages))


def _is_repeated(state: _RepairState, message: Message | None) -> bool:
    """Return True if all tool results in the message have already appeared in the conversation."""
    blocks = () if message is None else message.blocks
    return all(block in state.used_results for block in blocks if isinstance(block, ToolResultBlock))


def _add_answer(state: _RepairState, number: int, message: AssistantMessage) -> None:
    blocks = tuple(_filter_blocks(state, number, message))
    if not blocks:
        if not message.blocks:
            state.report_finding(number, "an empty answer was removed")
        return
    _close_calls(state, number)
    if message.tool_uses and any(isinstance(block, _ISSUED_ONCE) for block in message.blocks):
        # Equal answers without unique blocks may be different steps, because some providers reuse ids.
        state.answers_with_calls.add(message)
    renamed_blocks: list[ContentBlock] = []
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            former = block.id
            block = _assign_id(state, number, block)
            state.pending_calls.append((former, block.id))
        renamed_blocks.append(block)
    state.messages.append(
        message if tuple(renamed_blocks) == message.blocks else replace(message, blocks=tuple(renamed_blocks))
    )


def _filter_blocks(state: _RepairState, number: int, message: AssistantMessage) -> Iterator[ContentBlock]:
    """Yield the blocks that a provider accepts, without unsigned thinking and repeated unique blocks.

    Equal tool calls are kept, because a model may request the same action twice.
    """
    unique_blocks: set[ContentBlock] = set()
    for block in message.blocks:
        if isinstance(block, ThinkingBlock) and block.raw is None:
            state.report_finding(number, "thinking without its signature was removed")
            continue
        if isinstance(block, _ISSUED_ONCE):
            if block in unique_blocks:
                state.report_finding(number, f"a repeated block ({block.kind}) was removed")
                continue
            unique_blocks.add(block)
        yield block


def _assign_id(state: _RepairState, number: int, block: ToolUseBlock) -> ToolUseBlock:
    renamed_block = assign_free_id(block, state.used_ids)
    if renamed_block.id != block.id:
        problem = "had the id of an earlier call" if block.id else "had no id"
        state.report_finding(number, f"a tool call {problem} and is now {renamed_block.id}")
    state.used_ids.add(renamed_block.id)
    return renamed_block


def _add_user_message(state: _RepairState, number: int, message: UserMessage) -> None:
    texts: list[TextBlock | ImageBlock] = []
    strays = []
    results: dict[str, ToolResultBlock] = {}
    open_calls = list(state.pending_calls)
    images = message.result_images
    for block in message.blocks[len(images) :]:
        if isinstance(block, TextBlock | ImageBlock):
            texts.append(block)
            continue
        call = next((call for call in open_calls if call[0] == block.tool_use_id), None)
        if call is not None:
            open_calls.remove(call)
            state.used_results.add(block)
            results[call[1]] = block if call[0] == call[1] else replace(block, tool_use_id=call[1])
        elif block in state.used_results:
            state.report_finding(number, "a repeated result was removed")
        else:
            state.report_finding(number, "a result without its tool call was changed to text")
            strays.append(TextBlock(f"{_STRAY_RESULT_NOTE}{block.text}"))
    nonblank = tuple(block for block in texts if isinstance(block, ImageBlock) or block.text.strip())
    if len(nonblank) < len(texts):
        state.report_finding(number, "blank text was removed")
    ordered = tuple(_order_results(state, number, results))
    # Without a result, the images no longer belong to one.
    before, after = (images, ()) if ordered else ((), images)
    blocks: tuple[UserBlock, ...] = (*before, *ordered, *strays, *after, *nonblank)
    _place_user_message(state, number, message, blocks)


def _order_results(state: _RepairState, number: int, results: dict[str, ToolResultBlock]) -> Iterator[ToolResultBlock]:
    """Yield a result for each pending tool call, in the order of the calls."""
    for _, call in state.pending_calls:
        if call not in results:
            state.report_finding(number, f"the tool call {call} had no result, so an error result was added")
        yield results.get(call) or ToolResultBlock(call, LOST_RESULT, is_error=True)
    state.pending_calls.clear()


def _place_user_message(state: _RepairState, number: int, message: UserMessage, blocks: tuple[UserBlock, ...]) -> None:
    if not blocks:
        if not message.blocks:
            state.report_finding(number, "an empty message was removed")
        return
    if blocks == message.blocks:
        state.messages.append(message)
        return
    if set(blocks) == set(message.blocks) and len(blocks) == len(message.blocks):
        state.report_finding(number, "results and text were in the wrong order")
    state.messages.append(UserMessage(blocks))


def _close_calls(state: _RepairState, number: int) -> None:
    """Add error results for tool calls that have no results in the next message."""
    if state.pending_calls:
        state.messages.append(UserMessage(tuple(_order_results(state, number, {}))))
