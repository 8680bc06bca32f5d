"""A session: a conversation with its name, place and choices. Every transition returns a new value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from thinklsp.core.messages import AssistantMessage, Conversation, TextBlock, UserMessage
from thinklsp.core.usage import Usage
from thinklsp.sessions.titles import LENGTH, shortened, title_of

_FORK = " (fork)"
_TOLD_LENGTH = 4_000
INTERRUPTED = "<note>The turn before this message was stopped before it had finished.</note>"
UNDONE = (
    "<note>Edits of an earlier turn are not in the files, or not any more: they were not applied, or the user has "
    "undone them. Look at the files before you rely on them.</note>"
)


PromptOutcome = Literal[
    "running", "interrupted", "cancelled", "error", "refusal", "max_tokens", "max_steps", "budget", "context_window"
]
_WHY: Mapping[PromptOutcome, str] = {
    "running": "the program ended first",
    "interrupted": "the program ended first",
    "cancelled": "the user stopped the turn",
    "error": "the turn failed",
    "refusal": "the model declined",
    "max_tokens": "the limit of output tokens was reached",
    "max_steps": "the limit of steps was reached",
    "budget": "the budget was reached",
    "context_window": "the conversation was too long",
}

# A declined prompt stays out of what the model reads, or it would decline the next one as well.
_TOLD_OUTCOMES = frozenset(_WHY) - {"running", "refusal"}


@dataclass(frozen=True, slots=True)
class UnansweredPrompt:
    """A prompt, in the user's own words, that no step has answered.

    `after_step`: how many steps the session had taken. `reason`: the sentence of a failure. `told`: the model has
    answered a later message that quotes it. With outcome `running` it is the prompt of the turn that runs now, or that
    ran when the program ended.
    """

    text: str
    after_step: int
    outcome: PromptOutcome = "running"
    reason: str = ""
    told: bool = False

    @property
    def why(self) -> str:
        """Return why there is no answer, as part of a sentence."""
        return _WHY[self.outcome]

    def note(self) -> str:
        """Return what the model is told of it. A long prompt is cut: it may be why the turn failed."""
        text = self.text if len(self.text) <= _TOLD_LENGTH else f"{self.text[:_TOLD_LENGTH]} … (cut)"
        return f"<note>An earlier prompt of the user has no answer, since {self.why}. It was:\n{text}</note>"


@dataclass(frozen=True, slots=True)
class Session:
    """`workspace` is the key of the workspace that it belongs to; `choices` are settings that the user made for it,
    as values that JSON can hold.

    `unanswered`: the last message is a prompt that no step has answered yet. `interrupted`: the last turn was stopped
    or failed after it had done something. `undone`: edits did not reach the files, or were taken back, since the last
    prompt. `steps` counts all
    steps ever taken, those too that a compaction took away. `prompts`: those without an answer, oldest first.
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
    prompts: tuple[UnansweredPrompt, ...] = ()

    @property
    def running_prompt(self) -> UnansweredPrompt | None:
        """Return the prompt of the turn that runs now, until its first step."""
        return self.prompts[-1] if self.prompts and self.prompts[-1].outcome == "running" else None

    def placed_prompts(self) -> Iterator[tuple[int, UnansweredPrompt]]:
        """Yield the prompts without an answer, each with the number of messages before it.

        The prompt of a running turn is left out if the conversation ends with its message.
        """
        for prompt in self.prompts:
            if prompt.after_step <= self.steps and not (self.unanswered and prompt is self.running_prompt):
                try:
                    yield self.end_of(prompt.after_step), prompt
                except ValueError:
                    yield 0, prompt

    def with_prompt(self, text: str) -> Session:
        """Keep the user's own words at the begin of a turn; the first ones name the session."""
        prompt = UnansweredPrompt(text, self.steps)
        return replace(self, prompts=(*self.prompts, prompt), title=self.title or title_of(text))

    def with_user(self, text: str, about: str = "", waiting: str = "") -> Session:
        """The user's text goes to the end of the conversation; the first one names the session, by what it is `about`
        where its own first words would say little. `waiting`: which edits are not in the files, if that is known."""
        unapplied = f"<note>Not applied: {waiting}.</note>" if waiting else ""
        told = ((INTERRUPTED, self.interrupted), (UNDONE, self.undone), (unapplied, self.undone and bool(unapplied)))
        notes = [prompt.note() for prompt in self._untold_prompts()]
        notes += [note for note, said in told if said]
        conversation = (*self.conversation, UserMessage((*map(TextBlock, notes), TextBlock(text))))
        title = self.title or title_of(about or text)
        return replace(self, conversation=conversation, title=title, unanswered=True, interrupted=False, undone=False)

    def _untold_prompts(self) -> Iterator[UnansweredPrompt]:
        """Yield the prompts that the model has to hear of, without those that the running one repeats."""
        now = self.running_prompt.text if self.running_prompt is not None else ""
        for prompt in self.prompts:
            if not prompt.told and prompt.outcome in _TOLD_OUTCOMES and prompt.text.strip() not in now:
                yield prompt

    def with_step(self, assistant: AssistantMessage, results: UserMessage | None, usage: Usage) -> Session:
        """A whole step: a call without its result can never be stored."""
        answered = {block.tool_use_id for block in results.blocks if block.kind == "tool_result"} if results else set()
        if {call.id for call in assistant.tool_uses} != answered:
            raise ValueError("a step must hold a result for every tool call and no other")
        added = (assistant,) if results is None else (assistant, results)
        conversation = (*self.conversation, *added)
        prompts = self.prompts
        if self.unanswered:
            heard = (prompt for prompt in prompts if prompt.outcome != "running")
            prompts = tuple(replace(prompt, told=True) for prompt in heard)
        return replace(
            self,
            conversation=conversation,
            usage=self.usage + usage,
            steps=self.steps + 1,
            unanswered=False,
            prompts=prompts,
        )

    def with_reminder(self, message: UserMessage) -> Session:
        """What the program says to the model behind a step."""
        return replace(self, conversation=(*self.conversation, message))

    def cut_short(self, outcome: PromptOutcome = "interrupted", reason: str = "") -> Session:
        """End a turn that was stopped or failed. `reason`: the sentence of a failure.

        A prompt that no step has answered leaves the conversation, or the model would go on with it at the next prompt;
        it stays in `prompts` with its outcome. A turn that had begun its work is marked as interrupted.
        """
        running = self.running_prompt
        if running is not None:
            ended = replace(running, outcome=outcome, reason=reason)
            session = replace(self, prompts=(*self.prompts[:-1], ended))
        else:
            session = self
        if session.unanswered:
            # The model has not heard its notes either.
            *kept, prompt = session.conversation
            said = {block.text for block in prompt.blocks[:-1] if isinstance(block, TextBlock)}
            interrupted, undone = session.interrupted or INTERRUPTED in said, session.undone or UNDONE in said
            return replace(session, conversation=tuple(kept), unanswered=False, interrupted=interrupted, undone=undone)
        return session if running is not None else replace(session, interrupted=True)

    def recovered(self) -> Session:
        """What is left of it when the program that worked on it is gone. The end of a turn stays as it is."""
        at_work = bool(self.conversation) and self._answers(len(self.conversation) - 1)
        return self.cut_short() if self.unanswered or at_work or self.running_prompt is not None else self

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
        cut = replace(
            fork,
            conversation=self.conversation[: self.end_of(step)],
            steps=step,
            unanswered=False,
            interrupted=False,
            prompts=tuple(prompt for prompt in self.prompts if prompt.after_step < step),
        )
        # At this place the turn had not ended when it was left with results that no answer follows.
        return cut.recovered()

    def end_of(self, step: int) -> int:
        """Return how many messages the conversation had after this step. Steps are counted from the end, since a
        compaction takes away the first ones. Raises ValueError for a step that is not in the conversation."""
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
