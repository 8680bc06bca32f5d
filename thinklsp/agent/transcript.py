"""The transcript of a conversation, for the model that summarizes it.

The transcript contains messages, tool calls and results, but no thinking. A description replaces each image. If it is
too long, old tool results are shortened first, then recent results, then messages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from thinklsp.agent.context_meter import measure_text
from thinklsp.core.images import format_placeholder
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

_MAX_RESULT_CHARACTERS = 4_000
_MAX_TEXT_CHARACTERS = 8_000
_MIN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class _CharacterLimits:
    """The maximum number of characters per item. An item with the limit 0 is omitted.

    Tool results in the first half of the conversation count as old.
    """

    old_result: int = _MAX_RESULT_CHARACTERS
    recent_result: int = _MAX_RESULT_CHARACTERS
    text: int = _MAX_TEXT_CHARACTERS


def format_transcript(messages: Conversation, max_bytes: int, *, without_old_results: bool = False) -> str:
    """Format the conversation as text of at most `max_bytes` bytes."""
    for bounds in _reduce_limits(_CharacterLimits(old_result=0) if without_old_results else _CharacterLimits()):
        text = "\n\n".join(_format_messages(messages, bounds))
        if measure_text(text) <= max_bytes:
            return text
    return _cut_middle(text, max_bytes)


def format_step(step: Conversation) -> str:
    """Format an answer and the whole results of its calls, without the prompts and images that follow them."""
    results = (
        message
        if isinstance(message, AssistantMessage)
        else UserMessage(tuple(block for block in message.blocks if isinstance(block, ToolResultBlock)))
        for message in step
    )
    return "\n\n".join(_format_messages(tuple(results), _CharacterLimits(sys.maxsize, sys.maxsize, sys.maxsize)))


def _reduce_limits(limits: _CharacterLimits) -> Iterator[_CharacterLimits]:
    """Yield the given limits, followed by lower and lower limits.

    Each step halves one limit, until all limits have reached their minimum.
    """
    while True:
        yield limits
        if limits.old_result:
            limits = _CharacterLimits(_reduce_limit(limits.old_result), limits.recent_result, limits.text)
        elif limits.recent_result:
            limits = _CharacterLimits(0, _reduce_limit(limits.recent_result), limits.text)
        elif limits.text > _MIN_CHARACTERS:
            limits = _CharacterLimits(0, 0, max(_MIN_CHARACTERS, limits.text // 2))
        else:
            return


def _reduce_limit(chars: int) -> int:
    return chars // 2 if chars >= 2 * _MIN_CHARACTERS else 0


def _format_messages(messages: Conversation, limits: _CharacterLimits) -> Iterator[str]:
    names: dict[str, str] = {}
    for index, message in enumerate(messages):
        is_old = index < len(messages) // 2
        yield from _format_message(message, names, limits.old_result if is_old else limits.recent_result, limits.text)


def _format_message(message: Message, names: dict[str, str], result_chars: int, text_chars: int) -> Iterator[str]:
    speaker = "ASSISTANT" if isinstance(message, AssistantMessage) else "USER"
    for block in message.blocks:
        match block:
            case TextBlock() if block.text.strip():
                yield f"{speaker}: {truncate_text(block.text, text_chars)}"
            case ImageBlock():
                yield f"{speaker}: {format_placeholder(block)}"
            case ToolUseBlock():
                names[block.id] = block.name
                arguments = json.dumps(block.input or {}, ensure_ascii=False)
                yield f"CALL {block.name} {truncate_text(arguments, text_chars)}"
            case ToolResultBlock():
                kind = "ERROR of" if block.is_error else "RESULT of"
                yield f"{kind} {names.get(block.tool_use_id, 'a call')}: {truncate_text(block.text, result_chars)}"
            case _:
                pass


def truncate_text(text: str, chars: int) -> str:
    """Truncate the text to `chars` characters, and add a mark with the original length.

    If `chars` is 0, the result is only the mark.
    """
    if len(text) <= chars:
        return text
    if not chars:
        return f"[{len(text):,} characters left out]"
    mark = f" […, {len(text):,} characters]"
    return text[: max(0, chars - len(mark))] + mark


def select_newest(items: Iterable[str], size: int) -> tuple[str, ...]:
    """Return the last items that fit into `size` bytes, in their original order."""
    selection: list[str] = []
    for item in reversed(tuple(items)):
        size -= measure_text(item) + 3
        if size < 0:
            break
        selection.append(item)
    return tuple(reversed(selection))


def _cut_middle(text: str, size: int) -> str:
    """Cut out the middle of the text, and keep `size` bytes. The beginning contains the task and takes up one third of
    the result."""
    mark = "\n\n[… cut …]\n\n"
    room = max(0, size - measure_text(mark))
    data = text.encode("utf-8", "replace")
    head, tail = data[: room // 3], data[len(data) - (room - room // 3) :]
    return head.decode("utf-8", "ignore") + mark + tail.decode("utf-8", "ignore")
