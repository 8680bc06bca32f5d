"""A session, which is an immutable value. Each change returns a new session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    FileSight,
    ImageBlock,
    TextBlock,
    UserMessage,
    UserPrompt,
)
from thinklsp.core.usage import Usage
from thinklsp.sessions.titles import MAX_TITLE_LENGTH, derive_title, truncate_title

_MAX_QUOTED_CHARS = 4_000
MAX_PARTIAL_CHARS = 100_000

PromptOutcome = Literal[
    "queued",
    "running",
    "interrupted",
    "cancelled",
    "error",
    "refusal",
    "max_tokens",
    "max_steps",
    "budget",
    "context_window",
]
_OUTCOME_TEXTS: Mapping[PromptOutcome, str] = {
    "queued": "it waits for the running turn",
    "running": "thinklsp stopped during the turn",
    "interrupted": "thinklsp stopped during the turn",
    "cancelled": "the user stopped the turn",
    "error": "the turn failed",
    "refusal": "the model declined",
    "max_tokens": "the output token limit was reached",
    "max_steps": "the step limit was reached",
    "budget": "the budget was reached",
    "context_window": "the conversation was too long",
}

# The outcomes of prompts that are quoted to the model. A declined prompt could make the model decline again.
REPORTED_OUTCOMES = frozenset(_OUTCOME_TEXTS) - {"queued", "running", "refusal"}
_FORK_SUFFIX = " (fork)"
_MAX_FORK_TITLE = MAX_TITLE_LENGTH - len(_FORK_SUFFIX)
INTERRUPTED = "<note>The turn before this message was stopped before it finished.</note>"
UNDONE = (
    "<note>Edits from an earlier turn are not in the files: they were not applied, or the user undid them. "
    "Reread the files before you rely on their contents.</note>"
)


@dataclass(frozen=True, slots=True)
class UnansweredPrompt:
    """A user prompt that no step has answered.

    `after_step` is the number of steps before the prompt. `reason` is the error message if the turn failed. `told` is
    true if the model has answered a later message that quotes the prompt. The outcome `running` means that the turn has
    not ended, or that thinklsp stopped during the turn. The outcome `queued` means that the prompt waits for the
    session's running turn. `turn_id` is the id of the prompt's turn. `partial_text` is the part of the answer that had
    arrived; the model never reads it again. `text` is empty if steps had answered the prompt before the turn stopped.
    `references` contains the places whose text was sent with the prompt, such as `src/app.py:3-9`.
    """

    text: str
    after_step: int
    outcome: PromptOutcome = "running"
    reason: str = ""
    told: bool = False
    turn_id: str = ""
    partial_text: str = ""
    references: tuple[str, ...] = ()

    @property
    def explanation(self) -> str:
        """The reason why the prompt has no answer, as part of a sentence."""
        return _OUTCOME_TEXTS[self.outcome]

    def build_note(self) -> str:
        """Return a note that quotes the prompt to the model.

        A long prompt is truncated, because its length may have caused the failure.
        """
        text = self.text if len(self.text) <= _MAX_QUOTED_CHARS else f"{self.text[:_MAX_QUOTED_CHARS]} … (cut)"
        return f"<note>An earlier user prompt has no answer, because {self.explanation}. The prompt was:\n{text}</note>"


@dataclass(frozen=True, slots=True)
class Session:
    """A stored conversation of a workspace, with its settings and its usage.

    `choices` contains the user's settings for this session. `steps` also counts the steps that a compaction removed.
    `prompts` contains the unanswered prompts, oldest first. `unanswered` is true if the last message is a prompt.
    `interrupted` is true if the last turn stopped or failed after its first step. `undone` is true if edits were not
    applied or were undone since the last prompt.
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
        """The prompt of the running turn, or None after the turn's first step."""
        return next((prompt for prompt in self.prompts if prompt.outcome == "running"), None)

    def list_placed_prompts(self) -> Iterator[tuple[int, UnansweredPrompt]]:
        """Yield each unanswered prompt with the number of messages before it.

        The prompt of a running turn is omitted if the conversation already ends with its message.
        """
        for prompt in self.prompts:
            if prompt.after_step <= self.steps and not (self.unanswered and prompt is self.running_prompt):
                try:
                    yield self.find_step_end(prompt.after_step), prompt
                except ValueError:
                    yield 0, prompt

    def add_prompt(
        self, text: str, turn_id: str = "", *, is_queued: bool = False, references: tuple[str, ...] = ()
    ) -> Session:
        """Add the user's prompt at the start of a turn, or a prompt that waits for the running turn.

        The turn of a queued prompt replaces the queued prompt. The first prompt sets the title.
        """
        prompt = UnansweredPrompt(
            text, self.steps, "queued" if is_queued else "running", turn_id=turn_id, references=references
        )
        session = self.remove_queued({turn_id})
        return replace(session, prompts=(*session.prompts, prompt), title=self.title or derive_title(text))

    def remove_queued(self, turn_ids: AbstractSet[str]) -> Session:
        """Remove the queued prompts with these turn ids."""
        return replace(self, prompts=tuple(prompt for prompt in self.prompts if not _is_queued(prompt, turn_ids)))

    def end_queued(
        self, turn_ids: AbstractSet[str], outcome: PromptOutcome = "interrupted", reason: str = ""
    ) -> Session:
        """Record that no turn will answer the queued prompts with these turn ids."""
        ended = (
            replace(prompt, outcome=outcome, reason=reason) if _is_queued(prompt, turn_ids) else prompt
            for prompt in self.prompts
        )
        return replace(self, prompts=tuple(ended))

    def add_user_message(
        self,
        text: str,
        title_hint: str = "",
        unapplied_edits: str = "",
        *,
        prompt: UserPrompt | None = None,
        images: tuple[ImageBlock, ...] = (),
        sight: tuple[FileSight, ...] = (),
        changed_files: TextBlock | None = None,
    ) -> Session:
        """Add a user message with notes about earlier turns. The first message sets the title.

        If `title_hint` is not empty, the title comes from it instead of the text. `unapplied_edits` describes edits
        that are not in the files. `prompt` contains the user's own words, `images` the images of the prompt, and
        `sight` the model's knowledge of files from the text. `changed_files` is a note about files that have changed.
        """
        unapplied = f"<note>Not applied: {unapplied_edits}.</note>" if unapplied_edits else ""
        flags = ((INTERRUPTED, self.interrupted), (UNDONE, self.undone), (unapplied, self.undone and bool(unapplied)))
        notes = [untold.build_note() for untold in self._list_untold_prompts()]
        notes += [note for note, is_set in flags if is_set]
        changed = () if changed_files is None else (changed_files,)
        blocks = (*map(TextBlock, notes), *changed, *images, TextBlock(text, prompt=prompt, sight=sight))
        message = UserMessage(blocks)
        conversation = (*self.conversation, message)
        title = self.title or derive_title(title_hint or text)
        return replace(self, conversation=conversation, title=title, unanswered=True, interrupted=False, undone=False)

    def _list_untold_prompts(self) -> Iterator[UnansweredPrompt]:
        """Yield the unanswered prompts that the model has not read yet.

        A prompt repeated by the running prompt is skipped.
        """
        now = self.running_prompt.text if self.running_prompt is not None else ""
        for prompt in self.prompts:
            if not prompt.told and prompt.outcome in REPORTED_OUTCOMES and prompt.text.strip() not in now:
                yield prompt

    def add_step(self, assistant: AssistantMessage, results: UserMessage | None, usage: Usage) -> Session:
        """Add a step. Raises ValueError if a tool call has no result.

        A step is stored as a whole, so that tool calls always have results. `results` also contains the queued prompts
        that join the turn, which are no longer queued.
        """
        answered = {block.tool_use_id for block in results.blocks if block.kind == "tool_result"} if results else set()
        if {call.id for call in assistant.tool_uses} != answered:
            raise ValueError("a step must contain a result for every tool call and no other results")
        added = (assistant,) if results is None else (assistant, results)
        conversation = (*self.conversation, *added)
        prompts = self.prompts
        if self.unanswered:
            earlier = (prompt for prompt in prompts if prompt.outcome != "running")
            prompts = tuple(replace(prompt, told=prompt.outcome != "queued") for prompt in earlier)
        session = replace(
            self,
            conversation=conversation,
            usage=self.usage + usage,
            steps=self.steps + 1,
            unanswered=False,
            prompts=prompts,
        )
        return session if results is None else session.remove_queued({prompt.turn_id for prompt in results.prompts})

    def add_reminder(self, message: UserMessage) -> Session:
        """Add a message from thinklsp after a step. It also contains the prompts that were queued for the turn."""
        session = replace(self, conversation=(*self.conversation, message))
        return session.remove_queued({prompt.turn_id for prompt in message.prompts})

    def cut_short(
        self, outcome: PromptOutcome = "interrupted", reason: str = "", *, turn_id: str = "", partial_text: str = ""
    ) -> Session:
        """End a turn that was stopped or failed. `reason` is the error message.

        An unanswered prompt moves from the conversation to `prompts`, because the model must not answer it together
        with the next prompt. A turn with at least one step is marked as interrupted, and `prompts` records how it ended
        if `turn_id` is given.
        """
        running = self.running_prompt
        partial_text = partial_text[:MAX_PARTIAL_CHARS]
        if running is not None:
            ended = replace(running, outcome=outcome, reason=reason, partial_text=partial_text)
            session = replace(self, prompts=tuple(ended if it is running else it for it in self.prompts))
        elif turn_id and not self.unanswered:
            ended = UnansweredPrompt("", self.steps, outcome, reason, True, turn_id, partial_text)
            session = replace(self, prompts=(*self.prompts, ended))
        else:
            session = self
        if session.unanswered:
            # The model has not read the notes in this message, so the next prompt must repeat them.
            *earlier, prompt = session.conversation
            notes = {block.text for block in prompt.blocks[:-1] if isinstance(block, TextBlock)}
            interrupted, undone = session.interrupted or INTERRUPTED in notes, session.undone or UNDONE in notes
            return replace(
                session, conversation=tuple(earlier), unanswered=False, interrupted=interrupted, undone=undone
            )
        return session if running is not None else replace(session, interrupted=True)

    def recover(self) -> Session:
        """End a turn whose process has exited. A session without a running turn is returned unchanged."""
        session = self.end_queued({prompt.turn_id for prompt in self.prompts})
        at_work = bool(self.conversation) and self._has_results(len(self.conversation) - 1)
        return session.cut_short() if self.unanswered or at_work or self.running_prompt is not None else session

    def mark_undone(self) -> Session:
        """Mark edits as undone, so that the next prompt informs the model."""
        return replace(self, undone=True)

    def add_choices(self, choices: Mapping[str, object]) -> Session:
        """Add the user's settings for this session."""
        return replace(self, choices={**self.choices, **choices})

    def rename(self, title: str) -> Session:
        """Set the title to the first line of the given text."""
        return replace(self, title=truncate_title(next(iter(title.strip().splitlines()), "")))

    def add_usage(self, usage: Usage) -> Session:
        """Add the usage of a model call that is not a step, such as a summary or an incomplete answer."""
        return replace(self, usage=self.usage + usage)

    def replace_conversation(self, conversation: Conversation) -> Session:
        """Replace the conversation. The usage and the number of steps do not change."""
        if conversation and not isinstance(conversation[0], UserMessage):
            raise ValueError("a conversation must begin with a user message")
        return replace(self, conversation=conversation)

    def fork(self, new_id: str, step: int | None = None) -> Session:
        """Return a new session with the first `step` steps, or with the whole session if `step` is None.

        Prompts after the last step, also those that joined its turn, are not part of the first steps. The usage is not
        copied. Raises ValueError if the step is not in the conversation.
        """
        session = self.remove_queued({prompt.turn_id for prompt in self.prompts})
        fork = replace(
            session,
            id=new_id,
            usage=Usage(),
            # The first prompt of a fork without steps sets its title.
            title="" if step == 0 else truncate_title(self.title or "Session", _MAX_FORK_TITLE) + _FORK_SUFFIX,
        )
        if step is None:
            return fork.recover()
        earlier = replace(
            fork,
            conversation=_drop_joined_prompts(self.conversation[: self.find_step_end(step)]),
            steps=step,
            unanswered=False,
            interrupted=self.interrupted and step == self.steps,
            undone=self.undone and step == self.steps,
            prompts=tuple(prompt for prompt in fork.prompts if _is_before(prompt, step)),
        )
        # A fork that ends with tool results stops in the middle of a turn.
        return earlier.recover()

    def find_step_end(self, step: int) -> int:
        """Return the number of messages up to the end of a step.

        Steps are counted from the end, because a compaction removes the first steps. Raises ValueError if the step is
        not in the conversation.
        """
        later = self.steps - step
        places = [at for at, message in enumerate(self.conversation) if isinstance(message, AssistantMessage)]
        if step and later == 0 == len(places):
            # A compaction replaced all steps with a summary.
            return len(self.conversation) - self.unanswered
        if later < 0 or step < 0 or later > len(places) or (later == len(places) and step):
            raise ValueError(f"step {step} is not in the conversation")
        if later == len(places):
            return 0
        at = places[-1 - later] + 1
        return at + (at < len(self.conversation) and self._has_results(at))

    def _has_results(self, at: int) -> bool:
        """Return True if the message contains tool results and therefore belongs to a step."""
        return any(block.kind == "tool_result" for block in self.conversation[at].blocks)


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """The entry for a session in a list. Times are in UTC.

    `model` is the last model that answered, or empty. `size` is the storage size in bytes, including archives.
    """

    id: str
    title: str
    workspace: str
    model: str
    steps: int
    messages: int
    size: int
    created: datetime
    updated: datetime
    usage: Usage


SessionChange = Callable[[Session], Session]


def _is_before(prompt: UnansweredPrompt, step: int) -> bool:
    """Return True if the prompt came before the end of a step. A record without a text belongs to an earlier prompt."""
    return prompt.after_step < step + (not prompt.text)


def _drop_joined_prompts(conversation: Conversation) -> Conversation:
    last = conversation[-1] if conversation else None
    if not isinstance(last, UserMessage) or not last.prompts:
        return conversation
    results = tuple(block for block in last.blocks if block.kind == "tool_result")
    return (*conversation[:-1], UserMessage(results)) if results else conversation


def _is_queued(prompt: UnansweredPrompt, turn_ids: AbstractSet[str]) -> bool:
    return prompt.outcome == "queued" and prompt.turn_id in turn_ids
