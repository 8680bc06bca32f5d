"""One turn as the faces see it: what is asked, what it may see, and its events while it runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from thinklsp.agent.bounded_call import compact_now
from thinklsp.agent.budget import DaySpending
from thinklsp.agent.budget_gate import AskBudget
from thinklsp.agent.context_meter import ContextMeter
from thinklsp.agent.instructions import telling, told_in
from thinklsp.agent.model_call import ModelCaller
from thinklsp.agent.turn import run_turn
from thinklsp.agent.turn_state import TurnConfig
from thinklsp.agent.usage_tally import UsageTally
from thinklsp.core.choices import Review, ThinkingDisplay
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import SessionError, ThinkLspError
from thinklsp.core.events import (
    ContextCompacted,
    Notice,
    Reminded,
    StepCommitted,
    TurnEvent,
    TurnFinished,
    TurnStopReason,
)
from thinklsp.core.problems import Verified
from thinklsp.core.remedies import Remedy
from thinklsp.core.said import Said
from thinklsp.core.usage import Usage
from thinklsp.engine.commands import UserCommands
from thinklsp.engine.instructions import Followed, ProjectInstructions
from thinklsp.engine.turn_spec import ChatTask, CompactTask, TurnSpec, about_of, changes_for, prompt_of, user_text
from thinklsp.sessions.session import PromptOutcome, Session
from thinklsp.sessions.store import SessionStore
from thinklsp.sessions.values import Purpose, Spent
from thinklsp.tools.base import Ask, ToolContext
from thinklsp.tools.editor import Editor, NoEditor
from thinklsp.workspace.overlay import EditOverlay

_log = logging.getLogger(__name__)
_KEPT = "The former one is archive `{}`: `/restore` in a chat or `thinklsp sessions restore` brings it back."

Choices = Mapping[str, object]
"""Settings that the user chose while working: dotted key to value."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """The latest compaction of a turn, and the archive that holds what the conversation was before."""

    how: ContextCompacted
    archive: str


@dataclass(slots=True)
class Turn:
    """Owns its session until it is left (`with turn:`). `events` runs once; `overlay` then holds the edits.

    `choose_model`: asks for the configuration where the user named no model and the server has to; its sentences are
    for the user. `connect` is given what the service is known to refuse. `store` keeps the session; a step is announced
    only after it has been stored. `service` is the name under which it keeps what the service refuses; without one that
    is forgotten. `text` and `thinking` are those of the steps so far; `usage` is what has been booked,
    `tally` what the model calls have used. `waiting` tells the model which edits of its session are not applied.
    """

    id: str
    session: Session
    spec: TurnSpec
    overlay: EditOverlay
    config: TurnConfig
    display: ThinkingDisplay
    review: Review
    notices: tuple[str, ...]
    connect: Callable[[Sequence[Remedy]], Awaitable[ModelCaller]]
    store: SessionStore
    release: Callable[[], None]
    service: str = ""
    instructions: ProjectInstructions | None = None
    choose_model: Callable[[], Awaitable[tuple[TurnConfig, tuple[str, ...]]]] | None = None
    spending: DaySpending = field(default_factory=DaySpending)
    meter: ContextMeter = field(default_factory=ContextMeter)
    said: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    tally: UsageTally = field(default_factory=UsageTally)
    answers: Said = field(default_factory=Said)
    text: str = ""
    thinking: str = ""
    waiting: str = ""
    commands: UserCommands | None = None
    verified: Verified | None = None
    shortened: Shortened | None = None
    followed: Followed = field(default_factory=Followed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    async def events(
        self, ask: Ask, ask_budget: AskBudget, editor: Editor | None = None
    ) -> AsyncGenerator[TurnEvent, None]:
        """The turn's events, TurnFinished last. What the store has acknowledged survives an error or a cancel."""
        for notice in self._told(self.notices):
            yield notice
        begun = finished = False
        try:
            self.spending.is_at((await self.store.spent_on(self.spending.day)).cost_usd)
            asked = user_text(self.spec, await changes_for(self.spec))
            begun = True
            if asked:
                await self._update(lambda session: session.with_prompt(prompt_of(self.spec)))
            instructions, said = await self._instructed(ask)
            for notice in self._told(said):
                yield notice
            if asked:
                prompt = f"{asked}\n\n{instructions}" if instructions else asked
                about = about_of(self.spec) or asked
                await self._update(lambda session: session.with_user(prompt, about, self.waiting))
            if self.choose_model is not None:
                self.config, said = await self.choose_model()
                for notice in self._told(said):
                    yield notice
            known = await self.store.remedies(self.session.id, self.service) if self.service else ()
            self.config = self.config.knowing(known)
            caller = await self.connect(known)
            if isinstance(self.spec.task, CompactTask):
                work = self._compact(caller, self.spec.task, ask_budget)
            else:
                commands = None if self.commands is None else self.commands.asking(ask)
                context = ToolContext(self.overlay, ask, editor or NoEditor(), commands)
                work = self._run(caller, context, ask_budget)
            async with aclosing(work) as events:
                async for event in events:
                    if isinstance(event, TurnFinished):
                        finished = True
                        self.verified = event.verified
                        await self._leave(event.stop_reason, "")
                    yield event
        finally:
            if begun and not finished:
                await self._leave(*_outcome(sys.exception()))
            try:
                await self.store.release(self.session.id)
            finally:
                if self.commands is not None:
                    await self.commands.aclose()

    def is_untrusted(self, file: FileEdit) -> bool:
        """Tell whether a file is in a folder whose instructions the user has not agreed to, or gets a name there."""
        uris = (file.uri,) if file.new_uri is None else (file.uri, file.new_uri)
        return any(self.followed.is_untrusted(self.spec.view.resolve(uri)) for uri in uris)

    async def tell_of_unapplied(self) -> None:
        """After its end: not all of its edits are in the files, and the model believes that they are. Where the session
        is not kept, or another process has it by now, nobody can be told."""
        with suppress(SessionError):
            await self._update(lambda session: session.with_undo())
            await self.store.release(self.session.id)

    async def _instructed(self, ask: Ask) -> tuple[str, tuple[str, ...]]:
        """What this prompt has to tell of the workspace's instructions, and sentences for the user."""
        if self.instructions is None or isinstance(self.spec.task, CompactTask):
            return "", ()
        everywhere = isinstance(self.spec.task, ChatTask)
        self.followed = await self.instructions.followed(self.spec.view, self.spec.about, ask, everywhere=everywhere)
        told, cut = telling(self.followed.files, told_in(self.session.conversation))
        return told, (*self.followed.said, *cut)

    async def _run(
        self, caller: ModelCaller, context: ToolContext, ask_budget: AskBudget
    ) -> AsyncGenerator[TurnEvent, None]:
        conversation = self.session.conversation
        turn = run_turn(
            conversation,
            self.config,
            caller=caller,
            context=context,
            ask_budget=ask_budget,
            tally=self.tally,
            spending=self.spending,
            meter=self.meter,
        )
        async with aclosing(turn) as events:
            async for event in events:
                if isinstance(event, StepCommitted):
                    await self._commit(event)
                elif isinstance(event, Reminded):
                    await self._remind(event)
                elif isinstance(event, ContextCompacted):
                    event = await self._replace(event)
                    self.said.append(event.text)
                elif isinstance(event, Notice):
                    if event.text in self.said:
                        continue  # Each model call of the turn says it.
                    self.said.append(event.text)
                    await self._keep_remedy(event)
                yield event

    async def _compact(
        self, caller: ModelCaller, task: CompactTask, ask_budget: AskBudget
    ) -> AsyncGenerator[TurnEvent, None]:
        work = compact_now(
            self.session.conversation,
            self.config,
            caller=caller,
            ask_budget=ask_budget,
            instructions=task.instructions,
            tally=self.tally,
            spending=self.spending,
            meter=self.meter,
        )
        async with aclosing(work) as events:
            async for event in events:
                if isinstance(event, ContextCompacted):
                    event = await self._replace(event)
                    self.text = event.text
                elif isinstance(event, Notice):
                    self.said.append(event.text)
                    await self._keep_remedy(event)
                yield event
        yield TurnFinished("end_turn", self.text, "", self.tally.used)

    def _told(self, sentences: Sequence[str]) -> list[Notice]:
        self.said.extend(sentences)
        return [Notice("info", text) for text in sentences]

    async def _commit(self, step: StepCommitted) -> None:
        spent = self._booked(step.usage, "step")
        await self._update(lambda session: session.with_step(step.assistant, step.results, step.usage), spent)
        _log.info("turn %s: step ended with %s, %s", self.id, step.assistant.stop_reason, step.usage)
        self.answers = self.answers.then(step.assistant)
        self.text, self.thinking = self.answers.text, self.answers.thinking

    async def _remind(self, said: Reminded) -> None:
        await self._update(lambda session: session.with_reminder(said.message))

    async def _replace(self, shorter: ContextCompacted) -> ContextCompacted:
        """Store the shorter conversation, which makes the former one an archive, and return the event that names it."""
        choices = {"thinking.mode": "off"} if shorter.thinking_off else {}
        spent = self._booked(shorter.usage, "compaction")

        def change(session: Session) -> Session:
            return session.compacted(shorter.after).with_usage(shorter.usage).with_choices(choices)

        self.session, archive = await self.store.compact(self.session.id, change, shorter.text, spent)
        self.shortened = Shortened(shorter, archive)
        _log.info("turn %s: %d messages became %d", self.id, len(shorter.before), len(shorter.after))
        return replace(shorter, text=f"{shorter.text} {_KEPT.format(archive)}")

    async def _keep_remedy(self, notice: Notice) -> None:
        if notice.remedy is not None and self.service:
            await self.store.keep_remedy(self.session.id, self.service, notice.remedy)

    async def _leave(self, ended: TurnStopReason, reason: str) -> None:
        """Store how the turn ended, and book what its model calls have used beyond its steps.

        An attempt that broke off, and an answer that was declined or cut, or whose tools were still running when the
        turn was stopped, is not a step, yet costs. `reason`: the sentence of a failure.
        """
        lost = self.tally.used.without(self.usage)
        costs = bool(lost.input_tokens or lost.output_tokens)
        is_cut = ended in ("cancelled", "error") and not isinstance(self.spec.task, CompactTask)
        outcome: PromptOutcome = "error" if ended == "end_turn" else ended
        cut = is_cut or self.session.unanswered or self.session.running_prompt is not None

        def change(session: Session) -> Session:
            session = session.with_usage(lost) if costs else session
            return session.cut_short(outcome, reason) if cut else session

        if costs or cut:
            # In one go: it may be cancelled once more.
            await self._update(change, self._booked(lost, "lost") if costs else None)

    def _booked(self, usage: Usage, purpose: Purpose) -> Spent:
        """To be handed to the store at once. It counts before the store has answered: what the store has begun it does,
        even if the turn is cancelled meanwhile, and it must not be booked again."""
        self.usage += usage
        return Spent(self.id, self.config.model.provider, self.config.model.id, usage, purpose)

    async def _update(self, change: Callable[[Session], Session], spent: Spent | None = None) -> None:
        self.session = await self.store.update(self.session.id, change, spent)


def _outcome(error: BaseException | None) -> tuple[TurnStopReason, str]:
    """Return how a turn ended that did not finish, with the sentence of a failure."""
    if not isinstance(error, Exception):
        return "cancelled", ""
    return "error", str(error) if isinstance(error, ThinkLspError) else ""
