"""Marks for Claude's prompt cache in chat completions.

OpenRouter and LiteLLM cache a prompt of Claude only up to a mark; for other models their services cache unasked.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

_MARK = {"cache_control": {"type": "ephemeral"}}
# One is read from the cache, one is written to it.
_MARKED_QUESTIONS = 2

_Wire = dict[str, Any]


def needs_marks(model_id: str) -> bool:
    return "claude" in model_id.lower()


def with_marks(messages: list[_Wire]) -> list[_Wire]:
    """Mark the system prompt and the ends of the last two questions; tool results are questions, too."""
    system = [index for index, message in enumerate(messages[:1]) if message["role"] == "system"]
    marked = list(messages)
    for index in (*system, *list(_ends_of_questions(messages))[-_MARKED_QUESTIONS:]):
        part = {"type": "text", "text": marked[index]["content"], **_MARK}
        marked[index] = {**marked[index], "content": [part]}
    return marked


def _ends_of_questions(messages: list[_Wire]) -> Iterator[int]:
    """Yield the index of the last message of each run between two answers. A mark on blank text would be refused."""
    numbered = enumerate(messages)
    for is_question, run in groupby(numbered, key=lambda item: item[1]["role"] in ("user", "tool")):
        texts = [index for index, message in run if is_question and message["content"].strip()]
        yield from texts[-1:]
