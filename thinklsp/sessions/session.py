"""A session: a conversation with its name, place and choices. Every transition returns a new value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from thinklsp.core.messages import AssistantMessage, Conversation, TextBlock, UserMessage
from thinklsp.core.usage import Usage
from thinklsp.sessions.titles import LENGTH, shortened, title_of

_FORK = " (fork)"
INTERRUPTED = "<note>The turn before this message was stopped before it had finished.</note>"
UNDONE = (
    "<note>Edits of an earlier turn are not in the files, or not any more: they were not applied, or the user has "
    "undone them. Look at the files before you rely on them.</note>"
)


@dataclass(frozen=True, slots=True)
class Session:
    """`workspace` is the key of the workspace that it belongs to; `choices` are settings that the user made for it,
    as values that JSON can hold.

    `unanswered`: the last message is a prompt that no step has answered yet. `interrupted`: the last turn was stopped
    or failed after it had done something. `undone`: edits did not reach the files, or were taken back, since the last
    prompt. `steps` counts all
    steps ever taken, those too that a compaction took away.
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
    undone: bool = False

    def with_user(self, text: str, about: str = "", waiting: str = "") -> Session:
        """The user's text goes to the end of the conversation; the first one names the session, by what it is `about`
        where its own first words would say little. `waiting`: which edits are not in the files, if that is known."""
        unapplied = f"<note>Not applied: {waiting}.</note>" if waiting else ""
        told = ((INTERRUPTED, self.interrupted), (UNDONE, self.undone), (unapplied, self.undone and bool(unapplied)))
        notes = [note for note, said in told if said]
        conversation = (*self.conversation, UserMessage((*map(TextBlock, notes), TextBlock(text))))
        title = self.title or title_of(about or text)
        return replace(self, conversation=conversation, title=title, unanswered=True, interrupted=False, undone=False)

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

    def with_reminder(self, message: UserMessage) -> Session:
        """What the program says to the model behind a step."""
        return replace(self, conversation=(*self.conversation, message))

    def cut_short(self) -> Session:
        """The turn was stopped or failed. A prompt that nothing has answered is taken back, or the model would go on
        with it when it hears the next one; a turn that had begun its work is marked as interrupted."""
        if self.unanswered:
            # Its notes were not heard either.
            *kept, prompt = self.conversation
            said = {block.text for block in prompt.blocks[:-1] if isinstance(block, TextBlock)}
            interrupted, undone = self.interrupted or INTERRUPTED in said, self.undone or UNDONE in said
            return replace(self, conversation=tuple(kept), unanswered=False, interrupted=interrupted, undone=undone)
        return replace(self, interrupted=True)

    def recovered(self) -> Session:
        """What is left of it when the program that worked on it is gone. The end of a turn stays as it is."""
        at_work = bool(self.conversation) and self._answers(len(self.conversation) - 1)
        return self.cut_short() if self.unanswered or at_work else self

    def with_undo(self) -> Session:
        """The model would else believe that its edits are in the files: the next prompt tells."""
        return replace(self, undone=True)

    def with_choices(self, choices: Mapping[str, object]) -> Session:
        return replace(self, choices={**self.choices, **choices})

    def renamed(self, title: str) -> Session:
        return replace(self, title=shortened(next(iter(title.strip().splitlines()), "")))

    def with_usage(self, usage: Usage) -> Session:
        """What a call cost that is no step: a summary, a title, an answer that broke off."""
        return replace(self, usage=self.usage + usage)

    def compacted(self, conversation: Conversation) -> Session:
        """The same session with another conversation in place of its own; what it has cost and done stays."""
        if conversation and not isinstance(conversation[0], UserMessage):
            raise ValueError("a conversation must begin with the user")
        return replace(self, conversation=conversation)

    def forked(self, new_id: str, step: int | None = None) -> Session:
        """A session of its own that knows what this one knew after `step` steps; None: all. It has cost nothing yet.

        Raises ValueError for a step that is not in the conversation.
        """
        fork = replace(
            self, id=new_id, usage=Usage(), title=shortened(self.title or "Session", LENGTH - len(_FORK)) + _FORK
        )
        if step is None or step == self.steps:
            return fork.recovered()
        end = self._end_of(step)
        cut = replace(fork, conversation=self.conversation[:end], steps=step, unanswered=False, interrupted=False)
        # At this place the turn had not ended when it was left with results that no answer follows.
        return cut.recovered()

    def _end_of(self, step: int) -> int:
        """How many messages the conversation had after this step. Steps are counted from the end, since a compaction
        takes away the first ones."""
        later = self.steps - step
        places = [at for at, message in enumerate(self.conversation) if isinstance(message, AssistantMessage)]
        if later < 0 or step < 0 or later > len(places) or (later == len(places) and step):
            raise ValueError(f"step {step} is not in the conversation")
        if later == len(places):
            return 0
        at = places[-1 - later] + 1
        return at + (at < len(self.conversation) and self._answers(at))

    def _answers(self, at: int) -> bool:
        """Whether the message there is the second half of a step: results, and not a prompt."""
        return any(block.kind == "tool_result" for block in self.conversation[at].blocks)


Change = Callable[[Session], Session]
