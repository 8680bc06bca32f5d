"""Where the turns of a conversation begin. Pure.

A turn begins where the user says something: tool results, remarks of the program in tags, and its request for an answer
after mere thinking begin none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from thinklsp.agent.prompts import NUDGE, TESTS_FAILED
from thinklsp.core.messages import AssistantMessage, Conversation, Message, TextBlock, UserMessage

_SHORTENED = "<note>This conversation was shortened from "
_REMARK = re.compile(r"\s*<note>.*</note>\s*", re.DOTALL)
SUMMARY_TAG = "conversation_summary"


@dataclass(frozen=True, slots=True)
class Turns:
    """A conversation in parts. `prefix`: what stands before the first turn, such as an earlier summary."""

    prefix: Conversation
    turns: tuple[Conversation, ...]


def split_turns(conversation: Conversation) -> Turns:
    starts = [index for index, message in enumerate(conversation) if words_of(message)]
    if not starts:
        return Turns(conversation, ())
    ends = (*starts[1:], len(conversation))
    turns = tuple(conversation[start:end] for start, end in zip(starts, ends, strict=True))
    return Turns(conversation[: starts[0]], turns)


def words_of(message: Message) -> tuple[TextBlock, ...]:
    """What the user says in a message, without remarks of the program beside it; empty where it begins no turn. Results
    belong to the calls before them, so a message that brings some begins none, whatever else it says."""
    if isinstance(message, AssistantMessage):
        return ()
    texts = tuple(block for block in message.blocks if isinstance(block, TextBlock) and not _is_ours(block.text))
    if len(message.blocks) != sum(isinstance(block, TextBlock) for block in message.blocks):
        return ()
    # A user who writes nothing but a remark in tags has still said something.
    return tuple(block for block in texts if not _REMARK.fullmatch(block.text)) or texts


def shortened_note(before: int, after: int) -> str:
    return f"{_SHORTENED}{before:,} to {after:,} messages.</note>"


def is_summary(message: Message) -> bool:
    """Whether it is the message that stands in place of what was shortened away."""
    if not isinstance(message, UserMessage) or len(message.blocks) != 1:
        return False
    block = message.blocks[0]
    return isinstance(block, TextBlock) and _is_summary(block.text)


def _is_summary(text: str) -> bool:
    return text.startswith(f"<{SUMMARY_TAG}>\n") and text.endswith(f"\n</{SUMMARY_TAG}>")


def _is_ours(text: str) -> bool:
    return not text.strip() or text == NUDGE or text.startswith((TESTS_FAILED, _SHORTENED)) or _is_summary(text)
