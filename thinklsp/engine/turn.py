"""One turn as the faces see it: what is asked, what it may see, and its events while it runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from thinklsp.agent.model_call import ModelCaller
from thinklsp.agent.prompts import Excerpt, Problem, action_prompt, chat_prompt
from thinklsp.agent.turn import AskBudget, TurnConfig, run_turn
from thinklsp.core.errors import TurnRefused
from thinklsp.core.events import Notice, StepCommitted, TurnEvent
from thinklsp.core.lines import split_lines
from thinklsp.core.usage import Usage
from thinklsp.sessions.session import Session
from thinklsp.settings.model import Display, Review
from thinklsp.tools.base import Ask, ToolContext
from thinklsp.tools.registry import Mode
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import WorkspaceView

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
    prompt: str
    references: tuple[Reference, ...] = ()
    mode: Mode = "agent"


@dataclass(frozen=True, slots=True)
class ActionTask:
    name: str
    place: Reference
    problems: tuple[Problem, ...] = ()
    instruction: str = ""


@dataclass(frozen=True, slots=True)
class TurnSpec:
    """What is asked for. `workspace` is the key that sessions are found by; `session_id` None begins a new session.

    `title` names the turn's edit for people. `effort` and `model` are the command's own arguments and beat settings.
    """

    title: str
    task: ChatTask | ActionTask
    view: WorkspaceView
    workspace: str
    session_id: str | None = None
    effort: str | None = None
    model: str | None = None

    @property
    def mode(self) -> Mode:
        if isinstance(self.task, ChatTask):
            return self.task.mode
        return "ask" if self.task.name == "explain" else "agent"


@dataclass(slots=True)
class Turn:
    """Owns its session until it is left (`with turn:`). `events` runs once; `overlay` then holds the edits.

    `put` stores the session; a step is announced only after it has been stored.
    """

    id: str
    session: Session
    spec: TurnSpec
    overlay: EditOverlay
    config: TurnConfig
    display: Display
    review: Review
    notices: tuple[str, ...]
    connect: Callable[[], Awaitable[ModelCaller]]
    put: Callable[[Session], Session]
    release: Callable[[], None]
    said: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    async def events(self, ask: Ask, ask_budget: AskBudget) -> AsyncGenerator[TurnEvent, None]:
        """The turn's events, TurnFinished last. What the store has acknowledged survives an error or a cancel."""
        for text in self.notices:
            self.said.append(text)
            yield Notice("info", text)
        self.session = self.put(self.session.with_user(user_text(self.spec)))
        context = ToolContext(self.overlay, ask)
        caller = await self.connect()
        turn = run_turn(self.session.conversation, self.config, caller=caller, context=context, ask_budget=ask_budget)
        async with aclosing(turn) as events:
            async for event in events:
                if isinstance(event, StepCommitted):
                    event = self._stored(event)
                elif isinstance(event, Notice):
                    self.said.append(event.text)
                yield event

    def _stored(self, step: StepCommitted) -> StepCommitted:
        self.session = self.put(self.session.with_step(step.assistant, step.results, step.usage))
        self.usage += step.usage
        return step


def user_text(spec: TurnSpec) -> str:
    """The user's message: what they ask, with the places that it is about. Raises TurnRefused for an empty prompt."""
    task = spec.task
    if isinstance(task, ChatTask):
        if not task.prompt.strip():
            raise TurnRefused("There is nothing to send: the prompt is empty.")
        return chat_prompt(task.prompt, [excerpt(spec.view, place) for place in task.references], task.mode)
    place = excerpt(spec.view, task.place)
    return action_prompt(task.name, place, problems=task.problems, instruction=task.instruction)


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
    text = "\n".join(line.rstrip("\r\n") for line in lines[first - 1 : last])
    return Excerpt(place.shown, first, last, text, len(lines))
