"""A second reading of an unchanged file points to the first one instead of repeating it.

Only within one turn: a turn is kept or summarised whole, so the place that is pointed to is never gone. Where the
service itself has shortened what it reads, only what came since counts. Nothing is remembered; what the conversation
holds decides, so the text pointed to is the text that would have been sent.
"""

from __future__ import annotations

from dataclasses import replace

from thinklsp.agent.user_turns import split_turns
from thinklsp.core.messages import AssistantMessage, Conversation, TextBlock, ToolResultBlock, UserMessage, shortened_by

_READ = "read_file"
_LINE = "\n"
# Shorter results are cheaper to repeat than to look for.
_WORTH = 2_000
_UNCHANGED = "Unchanged: the result of your earlier read_file of these lines, in this turn, still holds."


def by_reference(answer: AssistantMessage, results: UserMessage, conversation: Conversation) -> UserMessage:
    """The results of `answer`, which would be appended to `conversation`."""
    reads = {call.id for call in answer.tool_uses if call.name == _READ}
    if not reads or all(len(block.text) < _WORTH for block in results.blocks):
        return results
    turns = split_turns(conversation).turns
    seen = _read_in(_still_read((*turns[-1], answer) if turns else ()))
    blocks: list[ToolResultBlock | TextBlock] = []
    for block in results.blocks:
        if isinstance(block, ToolResultBlock) and block.tool_use_id in reads and len(block.text) >= _WORTH:
            if block.text in seen:
                block = replace(block, text=f"{block.text.partition(_LINE)[0]}{_LINE}{_UNCHANGED}")
            else:
                seen.add(block.text)
        blocks.append(block)
    return UserMessage(tuple(blocks))


def _still_read(turn: Conversation) -> Conversation:
    notes = [index for index, message in enumerate(turn) if shortened_by(message) is not None]
    return turn[notes[-1] :] if notes else turn


def _read_in(turn: Conversation) -> set[str]:
    """Texts of the readings so far."""
    calls = {
        call.id
        for message in turn
        if isinstance(message, AssistantMessage)
        for call in message.tool_uses
        if call.name == _READ
    }
    return {
        block.text
        for message in turn
        for block in message.blocks
        if isinstance(block, ToolResultBlock) and block.tool_use_id in calls and not block.is_error
    }
