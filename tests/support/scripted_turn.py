"""A turn of the loop against a scripted model, stored step by step as the engine stores it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.scripted_model import SCRIPTED, Answer, ScriptedModel, check_sendable, metered
from thinklsp.agent.budget import BudgetLimits, CompactionRules, ContextMeter, TurnConfig, UsageLedger
from thinklsp.agent.turn_loop import TurnLoop
from thinklsp.core.choices import Verify
from thinklsp.core.events import ContextCompacted, Notice, ReminderAdded, StepCommitted, TurnEvent, TurnFinished
from thinklsp.core.messages import FileSight
from thinklsp.core.tool_type import TextKeeper
from thinklsp.providers.base import Thinking
from thinklsp.providers.catalogue import ModelInfo
from thinklsp.sessions.session import Session
from thinklsp.tools.registry import TOOLS, Mode
from thinklsp.tools.tool import AnyTool, Commands, ToolContext
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView


@dataclass
class ScriptedTurn:
    """A turn on open documents, or on a workspace. `choices` answers the questions about budgets; then it says stop.

    Other questions get their first option, or no answer with `hold_asking`.
    """

    script: Sequence[Answer | Exception] = ()
    documents: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    view: WorkspaceView | None = field(default=None, kw_only=True)
    prompt: str = field(default="Do it.", kw_only=True)
    sight: tuple[FileSight, ...] = field(default=(), kw_only=True)
    session: Session = field(default_factory=lambda: Session("s", "w"), kw_only=True)
    model: ModelInfo = field(default=SCRIPTED, kw_only=True)
    thinking: Thinking = field(default_factory=lambda: Thinking("adaptive"), kw_only=True)
    mode: Mode = field(default="agent", kw_only=True)
    max_tokens: int | None = field(default=1000, kw_only=True)
    limits: BudgetLimits = field(default_factory=lambda: BudgetLimits(10), kw_only=True)
    rules: CompactionRules = field(default_factory=CompactionRules, kw_only=True)
    tools: tuple[AnyTool, ...] = field(default=TOOLS, kw_only=True)
    verify: Verify = field(default="off", kw_only=True)
    commands: Commands | None = field(default=None, kw_only=True)
    texts: TextKeeper | None = field(default=None, kw_only=True)
    meter: ContextMeter = field(default_factory=ContextMeter, kw_only=True)
    choices: list[Any] = field(default_factory=list, kw_only=True)
    hold_asking: bool = field(default=False, kw_only=True)
    caller: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.caller = self.caller or ScriptedModel(self.script)
        snapshots = [DocumentSnapshot(uri, 1, words) for uri, words in self.documents.items()]
        self.overlay = EditOverlay(self.view or WorkspaceView((), snapshots))
        self.session = self.session.add_user_message(self.prompt, sight=self.sight)
        self.usage = UsageLedger()
        self.events: list[TurnEvent] = []
        self.questions: list[str] = []
        self.budget_questions: list[str] = []

    async def play(self) -> TurnFinished:
        config = TurnConfig(
            self.model,
            "system",
            self.thinking,
            self.max_tokens,
            self.limits,
            self.mode,
            self.rules,
            self.tools,
            self.verify,
        )
        loop = TurnLoop(
            self.session.conversation,
            config,
            caller=metered(self.caller, config, self._ask_budget, usage=self.usage, meter=self.meter),
            context=ToolContext(self.overlay, self._ask, commands=self.commands, texts=self.texts),
            emit=self._take,
        )
        self.events.append(await loop.run())
        return self.finished

    async def _take(self, event: TurnEvent) -> None:
        if isinstance(event, StepCommitted):
            self.session = self.session.add_step(event.assistant, event.results, event.usage)
        elif isinstance(event, ContextCompacted):
            assert event.before == self.session.conversation, "what goes to the archive is what was stored"
            check_sendable(event.after)
            self.session = self.session.replace_conversation(event.after).add_usage(event.usage)
        elif isinstance(event, ReminderAdded):
            self.session = self.session.add_reminder(event.message)
        self.events.append(event)

    async def _ask(self, question: str, options: tuple[str, ...]) -> str | None:
        self.questions.append(question)
        await (asyncio.get_running_loop().create_future() if self.hold_asking else asyncio.sleep(0))
        return options[0]

    async def _ask_budget(self, said: str) -> Any:
        self.budget_questions.append(said)
        await asyncio.sleep(0)
        return self.choices.pop(0) if self.choices else "stop"

    @property
    def finished(self) -> TurnFinished:
        last = self.events[-1]
        assert isinstance(last, TurnFinished)
        return last

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    @property
    def results(self) -> list[tuple[str, bool]]:
        """Text and error mark of every tool result that the model has been given."""
        blocks = (block for message in self.session.conversation for block in message.blocks)
        return [(block.text, block.is_error) for block in blocks if block.kind == "tool_result"]

    def check_next(self) -> None:
        """The stored conversation can be continued by the user at any time."""
        check_sendable(self.session.add_user_message("And now?").conversation)
