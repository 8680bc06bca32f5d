"""A conversation as text for the model that summarises it: who said what, which calls came to what. Never thinking.

It is cut to a size: tool results give way first, the oldest of them before the others, then long texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from thinklsp.agent.context_meter import text_bytes
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

_RESULT_CHARS = 4_000
_TEXT_CHARS = 8_000
_LEAST_CHARS = 200


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Characters of one thing. `old` results are those of the older half of the conversation; 0 leaves one out."""

    old: int = _RESULT_CHARS
    recent: int = _RESULT_CHARS
    text: int = _TEXT_CHARS


def transcript(messages: Conversation, size: int, *, without_old_results: bool = False) -> str:
    """At most `size` bytes."""
    for bounds in _tighter(_Bounds(old=0) if without_old_results else _Bounds()):
        text = "\n\n".join(_lines(messages, bounds))
        if text_bytes(text) <= size:
            return text
    return _middle_cut(text, size)


def _tighter(bounds: _Bounds) -> Iterator[_Bounds]:
    """From these bounds down to none that could be tighter, halving one of them at a time."""
    while True:
        yield bounds
        if bounds.old:
            bounds = _Bounds(_halved(bounds.old), bounds.recent, bounds.text)
        elif bounds.recent:
            bounds = _Bounds(0, _halved(bounds.recent), bounds.text)
        elif bounds.text > _LEAST_CHARS:
            bounds = _Bounds(0, 0, max(_LEAST_CHARS, bounds.text // 2))
        else:
            return


def _halved(chars: int) -> int:
    return chars // 2 if chars >= 2 * _LEAST_CHARS else 0


def _lines(messages: Conversation, bounds: _Bounds) -> Iterator[str]:
    names: dict[str, str] = {}
    for index, message in enumerate(messages):
        is_old = index < len(messages) // 2
        yield from _spoken(message, names, bounds.old if is_old else bounds.recent, bounds.text)


def _spoken(message: Message, names: dict[str, str], result_chars: int, text_chars: int) -> Iterator[str]:
    speaker = "ASSISTANT" if isinstance(message, AssistantMessage) else "USER"
    for block in message.blocks:
        match block:
            case TextBlock() if block.text.strip():
                yield f"{speaker}: {cut(block.text, text_chars)}"
            case ToolUseBlock():
                names[block.id] = block.name
                yield f"CALL {block.name} {cut(json.dumps(block.input or {}, ensure_ascii=False), text_chars)}"
            case ToolResultBlock():
                kind = "ERROR of" if block.is_error else "RESULT of"
                yield f"{kind} {names.get(block.tool_use_id, 'a call')}: {cut(block.text, result_chars)}"
            case _:
                pass


def cut(text: str, chars: int) -> str:
    """The text, or its beginning with a mark that tells how long it was, together at most `chars` (0: only the mark).
    What was cut once is not cut again."""
    if len(text) <= chars:
        return text
    if not chars:
        return f"[{len(text):,} characters left out]"
    mark = f" […, {len(text):,} characters]"
    return text[: max(0, chars - len(mark))] + mark


def newest_within(items: Iterable[str], size: int) -> tuple[str, ...]:
    """As many of the last items as fit, in their order."""
    kept: list[str] = []
    for item in reversed(tuple(items)):
        size -= text_bytes(item) + 3
        if size < 0:
            break
        kept.append(item)
    return tuple(reversed(kept))


def _middle_cut(text: str, size: int) -> str:
    """Its beginning, where the task stands, and twice as much of its end."""
    mark = "\n\n[… cut …]\n\n"
    room = max(0, size - text_bytes(mark))
    data = text.encode("utf-8", "replace")
    head, tail = data[: room // 3], data[len(data) - (room - room // 3) :]
    return head.decode("utf-8", "ignore") + mark + tail.decode("utf-8", "ignore")
