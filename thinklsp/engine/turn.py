"""One turn as the faces see it: what is asked, what it may see, and its events while it runs."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from thinklsp.agent.bounded_call import compact_now
from thinklsp.agent.budget import DaySpending
from thinklsp.agent.budget_gate import AskBudget
from thinklsp.agent.context_meter import ContextMeter
from thinklsp.agent.model_call import ModelCaller
from thinklsp.agent.prompts import READING, TESTED, Excerpt, action_prompt, chat_prompt
from thinklsp.agent.turn import run_turn
from thinklsp.agent.turn_state import TurnConfig
from thinklsp.core.errors import TurnRefused
from thinklsp.core.events import ContextCompacted, Notice, Reminded, StepCommitted, TurnEvent, TurnFinished
from thinklsp.core.lines import split_lines
from thinklsp.core.problems import Diagnosed, Problem, Verified
from thinklsp.core.remedies import Remedy
from thinklsp.core.usage import Usage
from thinklsp.engine.commands import UserCommands
from thinklsp.sessions.contract import SessionStore
from thinklsp.sessions.session import Session
from thinklsp.sessions.values import Spent
from thinklsp.settings.model import Display, Review
from thinklsp.tools.base import Ask, ToolContext
from thinklsp.tools.editor import Editor, NoEditor
from thinklsp.tools.registry import Mode
from thinklsp.tools.shown import visible
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import WorkspaceView

_log = logging.getLogger(__name__)

_EXCERPT_LINES = 400

Choices = Mapping[str, object]
"""Settings that the user chose while working: dotted key to value."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Part of a document that belongs to the request. `lines` count from 1, both ends included; None: all of it."""

    uri: str
    lines: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ChatTask:
    """`diagnosed`: what the editor says about a file that the prompt is about."""

    prompt: str
    references: tuple[Reference, ...] = ()
    mode: Mode = "agent"
    diagnosed: Diagnosed | None = None


@dataclass(frozen=True, slots=True)
class ActionTask:
    name: str
    place: Reference
    problems: tuple[Problem, ...] = ()
    instruction: str = ""


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Shorten the session's conversation. `instructions`: what the user wants to be kept."""

    instructions: str = ""


@dataclass(frozen=True, slots=True)
class TurnSpec:
    """What is asked for. `workspace` is the key that sessions are found by; `session_id` None begins a new session.

    `title` names the turn's edit for people. `effort` and `model` are the command's own arguments and beat settings.
    """

    title: str
    task: ChatTask | ActionTask | CompactTask
    view: WorkspaceView
    workspace: str
    session_id: str | None = None
    effort: str | None = None
    model: str | None = None

    @property
    def mode(self) -> Mode:
        if isinstance(self.task, ChatTask):
            return self.task.mode
        if isinstance(self.task, CompactTask):
            return "ask"
        return "ask" if self.task.name in READING else "agent"

    @property
    def tested(self) -> bool:
        """Whether it is work whose edits are tested before they are offered, where commands can be run."""
        if isinstance(self.task, ActionTask):
            return self.task.name in TESTED
        return self.mode == "agent"


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
    is forgotten. `text` and `thinking` are those of the steps so far.
    """

    id: str
    session: Session
    spec: TurnSpec
    overlay: EditOverlay
    config: TurnConfig
    display: Display
    review: Review
    notices: tuple[str, ...]
    connect: Callable[[Sequence[Remedy]], Awaitable[ModelCaller]]
    store: SessionStore
    release: Callable[[], None]
    service: str = ""
    choose_model: Callable[[], Awaitable[tuple[TurnConfig, tuple[str, ...]]]] | None = None
    spending: DaySpending = field(default_factory=DaySpending)
    meter: ContextMeter = field(default_factory=ContextMeter)
    said: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    text: str = ""
    thinking: str = ""
    commands: UserCommands | None = None
    verified: Verified | None = None
    shortened: Shortened | None = None

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
        self.spending.is_at((await self.store.spent_on(self.spending.day)).cost_usd)
        if not isinstance(self.spec.task, CompactTask):
            prompt = user_text(self.spec)
            about = _about(self.spec)
            await self._update(lambda session: session.with_user(prompt, about))
        finished = False
        try:
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
                        await self._keep_lost(event.usage)
                        await self._leave(complete=True)
                    yield event
        finally:
            if not finished:
                await self._leave(complete=False)
            try:
                await self.store.release(self.session.id)
            finally:
                if self.commands is not None:
                    await self.commands.aclose()

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
                    await self._replace(event)
                    self.said.append(event.text)
                elif isinstance(event, Notice):
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
            spending=self.spending,
            meter=self.meter,
        )
        async with aclosing(work) as events:
            async for event in events:
                if isinstance(event, ContextCompacted):
                    await self._replace(event)
                    self.text = event.text
                elif isinstance(event, Notice):
                    self.said.append(event.text)
                    await self._keep_remedy(event)
                yield event
        yield TurnFinished("end_turn", self.text, "", self.usage)

    def _told(self, sentences: Sequence[str]) -> list[Notice]:
        self.said.extend(sentences)
        return [Notice("info", text) for text in sentences]

    async def _commit(self, step: StepCommitted) -> None:
        spent = Spent(self.id, self.config.model.provider, self.config.model.id, step.usage)
        await self._update(lambda session: session.with_step(step.assistant, step.results, step.usage), spent)
        self.usage += step.usage
        _log.info("turn %s: step ended with %s, %s", self.id, step.assistant.stop_reason, step.usage)
        self.text = step.assistant.text or self.text
        self.thinking = "\n\n".join(filter(None, (self.thinking, step.assistant.thinking)))

    async def _remind(self, said: Reminded) -> None:
        await self._update(lambda session: session.with_reminder(said.message))

    async def _replace(self, shorter: ContextCompacted) -> None:
        """The shorter conversation takes the place of the former, which the store keeps as an archive."""
        choices = {"thinking.mode": "off"} if shorter.thinking_off else {}
        spent = Spent(self.id, self.config.model.provider, self.config.model.id, shorter.usage, "compaction")

        def change(session: Session) -> Session:
            return session.compacted(shorter.after).with_usage(shorter.usage).with_choices(choices)

        self.session, archive = await self.store.compact(self.session.id, change, shorter.text, spent)
        self.shortened = Shortened(shorter, archive)
        self.usage += shorter.usage
        _log.info("turn %s: %d messages became %d", self.id, len(shorter.before), len(shorter.after))

    async def _keep_remedy(self, notice: Notice) -> None:
        if notice.remedy is not None and self.service:
            await self.store.keep_remedy(self.session.id, self.service, notice.remedy)

    async def _keep_lost(self, whole: Usage) -> None:
        """Books what the turn has used beyond its steps: an answer that was declined or cut is no step, yet costs."""
        lost = whole.without(self.usage)
        if lost.input_tokens or lost.output_tokens:
            spent = Spent(self.id, self.config.model.provider, self.config.model.id, lost, "lost")
            await self._update(lambda session: session.with_usage(lost), spent)

    async def _leave(self, *, complete: bool) -> None:
        if self.session.unanswered or not (complete or isinstance(self.spec.task, CompactTask)):
            await self._update(lambda session: session.cut_short())

    async def _update(self, change: Callable[[Session], Session], spent: Spent | None = None) -> None:
        self.session = await self.store.update(self.session.id, change, spent)


def _about(spec: TurnSpec) -> str:
    """An action's own words are the same every time; where it was asked for is not."""
    if not isinstance(spec.task, ActionTask):
        return ""
    return f"{spec.title}: {spec.task.instruction}" if spec.task.instruction else spec.title


def user_text(spec: TurnSpec) -> str:
    """The user's message: what they ask, with the places that it is about; empty where nothing is asked.

    Raises TurnRefused for an empty prompt."""
    task = spec.task
    if isinstance(task, CompactTask):
        return ""
    if isinstance(task, ChatTask):
        if not task.prompt.strip():
            raise TurnRefused("There is nothing to send: the prompt is empty.")
        excerpts = [excerpt(spec.view, place) for place in task.references]
        text = chat_prompt(task.prompt, excerpts, task.mode, task.diagnosed)
    else:
        place = excerpt(spec.view, task.place)
        text = action_prompt(task.name, place, problems=task.problems, instruction=task.instruction)
    # Editors can send half of a character pair; a service refuses it, now and in every later request of the session.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def excerpt(view: WorkspaceView, reference: Reference) -> Excerpt:
    """The lines that a reference points to, at most 400 of them: the model reads further by itself."""
    place = view.resolve(reference.uri)
    found = view.read(place)
    if found is None:
        raise TurnRefused(f"There is no file {place.shown} to refer to.")
    lines = split_lines(found.text) or [""]
    first, last = reference.lines or (1, len(lines))
    first = max(1, min(first, len(lines)))
    last = max(first, min(last, len(lines), first + _EXCERPT_LINES - 1))
    text = visible("\n".join(line.rstrip("\r\n") for line in lines[first - 1 : last]))
    return Excerpt(place.shown, first, last, text, len(lines))
