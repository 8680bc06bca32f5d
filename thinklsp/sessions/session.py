"""A session: a conversation with its name, place and choices. Every transition returns a new value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from thinklsp.core.messages import AssistantMessage, Conversation, TextBlock, UserMessage
from thinklsp.core.usage import Usage

_TITLE_LENGTH = 60
INTERRUPTED = "<note>The turn before this message was stopped before it had finished.</note>"


@dataclass(frozen=True, slots=True)
class Session:
    """`workspace` is the key of the workspace that it belongs to; `choices` are settings that the user made for it.

    `unanswered`: the last message is a prompt that no step has answered yet. `interrupted`: the last turn was stopped
    or failed after it had done something.
    """

    id: str
    workspace: str
    title: str = ""
    conversation: Conversation = ()
    usage: Usage = field(default_factory=Usage)
    choices: Mapping[str, object] = field(default_factory=dict, hash=False)
    steps: int = 0
    unanswered: bool = False
    interrupted: bool = False

    def with_user(self, text: str) -> Session:
        """The user's text goes to the end of the conversation; the first one names the session."""
        blocks = (TextBlock(INTERRUPTED), TextBlock(text)) if self.interrupted else (TextBlock(text),)
        conversation = (*self.conversation, UserMessage(blocks))
        title = self.title or _title(text)
        return replace(self, conversation=conversation, title=title, unanswered=True, interrupted=False)

    def with_step(self, assistant: AssistantMessage, results: UserMessage | None, usage: Usage) -> Session:
        """A whole step: a call without its result can never be stored."""
        answered = {block.tool_use_id for block in results.blocks if block.kind == "tool_result"} if results else set()
        if {call.id for call in assistant.tool_uses} != answered:
            raise ValueError("a step must hold a result for every tool call and no other")
        added = (assistant,) if results is None else (assistant, results)
        conversation = (*self.conversation, *added)
        return replace(
            self, conversation=conversation, usage=self.usage + usage, steps=self.steps + 1, unanswered=False
        )

    def cut_short(self) -> Session:
        """The turn was stopped or failed. A prompt that nothing has answered is taken back, or the model would go on
        with it when it hears the next one; a turn that had begun its work is marked as interrupted."""
        if self.unanswered:
            return replace(self, conversation=self.conversation[:-1], unanswered=False)
        return replace(self, interrupted=True)

    def with_choices(self, choices: Mapping[str, object]) -> Session:
        return replace(self, choices={**self.choices, **choices})

    def with_usage(self, usage: Usage) -> Session:
        """What a call cost that is no step: a summary, a title, an answer that broke off."""
        return replace(self, usage=self.usage + usage)

    def compacted(self, conversation: Conversation) -> Session:
        """The same session with another conversation in place of its own; what it has cost and done stays."""
        if conversation and not isinstance(conversation[0], UserMessage):
            raise ValueError("a conversation must begin with the user")
        return replace(self, conversation=conversation)


def _title(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _TITLE_LENGTH else line[: _TITLE_LENGTH - 1] + "…"
