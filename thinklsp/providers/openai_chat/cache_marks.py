"""Marks for Claude's prompt cache in chat completions.

OpenRouter and LiteLLM cache a prompt of Claude only up to a mark; for other models their services cache unasked.
Only a part of a content takes a mark. Every question is sent as a part, so that it stays the same when its mark moves
on: Claude's signed thinking is bound to all that precedes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

_MARK = {"cache_control": {"type": "ephemeral"}}
# One is read from the cache, one is written to it.
_MARKED_QUESTIONS = 2

_Wire = dict[str, Any]


def is_claude(model_id: str) -> bool:
    """Whether the id names a model of Anthropic, whose prompts are cached only up to marks."""
    return "claude" in model_id.lower()


def with_marks(messages: list[_Wire]) -> list[_Wire]:
    """Mark the system prompt and the ends of the last two questions; tool results are questions, too."""
    system = [index for index, message in enumerate(messages[:1]) if message["role"] == "system"]
    marks = {*system, *list(_ends_of_questions(messages))[-_MARKED_QUESTIONS:]}
    return [
        {**message, "content": [_part(message["content"], is_marked=index in marks)]} if _is_text(message) else message
        for index, message in enumerate(messages)
    ]


def _part(text: str, *, is_marked: bool) -> _Wire:
    part = {"type": "text", "text": text}
    return part | _MARK if is_marked else part


def _is_text(message: _Wire) -> bool:
    """Whether the message can be a part. A blank part would be refused, and so would a mark on it."""
    return message["role"] != "assistant" and bool(message["content"].strip())


def _ends_of_questions(messages: list[_Wire]) -> Iterator[int]:
    """Yield the index of the last message of each run between two answers."""
    numbered = enumerate(messages)
    for is_question, run in groupby(numbered, key=lambda item: item[1]["role"] in ("user", "tool")):
        texts = [index for index, message in run if is_question and _is_text(message)]
        yield from texts[-1:]
