"""The conversation in an OpenAI request: whose turn each item is, what the user said, and how far the answer has come.

The items have passed their checks. What they prove about earlier answers is looked at in `replay`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

Item = Mapping[str, Any]
Side = Literal["user", "model", "frame"]
OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_SIDES: Mapping[str, Side] = {"developer": "frame", "system": "frame", "user": "user"}
_FRAME = frozenset({"additional_tools", "compaction_trigger", "configuration_update"})
_ANSWERED = frozenset(
    {"apply_patch_call_output", "computer_call_output", "local_shell_call_output", "mcp_approval_response"}
    | {"program_output", "shell_call_output"}
)
_TAGGED = re.compile(r"\s*<([A-Za-z][\w-]*)[^>]*>.*</\1>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Conversation:
    """`prompts`: what the user said, oldest first. Items from `turn_start` on answer the last prompt.

    `answers`: runs of the model's items among them. `results`: texts of the tool outputs that end the conversation.
    `system`: what developers said. `effort`: what a configuration_update set it to, if one did.
    """

    items: tuple[Item, ...]
    prompts: tuple[str, ...]
    turn_start: int
    answers: int
    results: tuple[str, ...]
    system: tuple[str, ...]
    effort: str | None


COMPACTION = "compaction"


def still_read(items: Sequence[Item]) -> int:
    """The index of the last compaction, before which nothing is read any more but what developers said."""
    return max((index for index, item in enumerate(items) if kind(item) == COMPACTION), default=0)


def kind(item: Item) -> str:
    return str(item.get("type") or "message")


def side(item: Item) -> Side:
    """Whose turn an item is; what developers put between them parts nothing."""
    name = kind(item)
    if name == "message":
        return _SIDES.get(str(item.get("role")), "model")
    if name in _FRAME:
        return "frame"
    return "user" if name in OUTPUTS or name in _ANSWERED else "model"


def item_text(content: Any) -> str:
    """The text of a message's content or a tool's output; parts that are no text are left out."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def read_conversation(items: Sequence[Item]) -> Conversation:
    prompts: list[str] = []
    start = answers = 0
    last: Sequence[Item] = ()
    for who, run in _runs(items):
        last = [item for _, item in run]
        if who == "model":
            answers += 1
        elif (prompt := _prompt(last)) is not None:
            prompts.append(prompt)
            start, answers = run[-1][0] + 1, 0
    efforts = [effort for item in items if (effort := _effort(item)) is not None]
    return Conversation(
        tuple(items),
        tuple(prompts),
        start,
        answers,
        tuple(item_text(item.get("output")) for item in last if kind(item) in OUTPUTS),
        tuple(item_text(item.get("content")) for item in items if kind(item) == "message" and side(item) == "frame"),
        efforts[-1] if efforts else None,
    )


def _runs(items: Sequence[Item]) -> Iterator[tuple[Side, list[tuple[int, Item]]]]:
    spoken = ((index, item) for index, item in enumerate(items) if side(item) != "frame")
    for who, run in groupby(spoken, key=lambda entry: side(entry[1])):
        yield who, list(run)


def _prompt(run: Sequence[Item]) -> str | None:
    """What the user says in a run, or None where it only brings tool outputs (and remarks in tags beside them)."""
    texts = [item_text(item.get("content")) for item in run if kind(item) == "message"]
    if any(kind(item) != "message" for item in run):
        texts = [text for text in texts if not _TAGGED.fullmatch(text)]
        if not texts:
            return None
    return "\n\n".join(texts)


def _effort(item: Item) -> str | None:
    reasoning = item.get("reasoning") if kind(item) == "configuration_update" else None
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    return effort if isinstance(effort, str) else None
