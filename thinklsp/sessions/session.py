"""A session: a conversation with its name, place and choices. Every transition returns a new value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from thinklsp.core.messages import AssistantMessage, Conversation, UserMessage
from thinklsp.core.usage import Usage

_TITLE_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Session:
    """`workspace` is the key of the workspace that it belongs to; `choices` are settings that the user made for it.

    `revision` grows by one with every stored change and guards against lost updates.
    """

    id: str
    workspace: str
    title: str = ""
    conversation: Conversation = ()
    usage: Usage = field(default_factory=Usage)
    choices: Mapping[str, object] = field(default_factory=dict, hash=False)
    steps: int = 0
    revision: int = 0

    def with_user(self, text: str) -> Session:
        """The user's text goes to the end of the conversation; the first one names the session."""
        title = self.title or _title(text)
        return replace(self, conversation=(*self.conversation, UserMessage.of(text)), title=title)

    def with_step(self, assistant: AssistantMessage, results: UserMessage | None, usage: Usage) -> Session:
        """A whole step: a call without its result can never be stored."""
        answered = {block.tool_use_id for block in results.blocks if block.kind == "tool_result"} if results else set()
        if {call.id for call in assistant.tool_uses} != answered:
            raise ValueError("a step must hold a result for every tool call and no other")
        added = (assistant,) if results is None else (assistant, results)
        return replace(self, conversation=(*self.conversation, *added), usage=self.usage + usage, steps=self.steps + 1)

    def with_choice(self, key: str, value: object) -> Session:
        return replace(self, choices={**self.choices, key: value})


def _title(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _TITLE_LENGTH else line[: _TITLE_LENGTH - 1] + "…"
