"""The parts of a turn that the engine prepares, and the callbacks of the front end that runs the turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from thinklsp.agent.budget import AskBudget
from thinklsp.agent.loop_config import TurnConfig
from thinklsp.agent.model_call import ModelCaller
from thinklsp.agent.prompts import Excerpt
from thinklsp.core.choices import Review, ThinkingDisplay
from thinklsp.core.events import (
    Fallback,
    TurnEvent,
)
from thinklsp.core.messages import ImageBlock
from thinklsp.core.tool_type import Ask, AskText
from thinklsp.engine.instructions import ProjectInstructions, TurnInstructions
from thinklsp.engine.session_claims import QueuedPrompt
from thinklsp.engine.trust import ShowDocument
from thinklsp.engine.user_commands import UserCommands
from thinklsp.providers.model_info import ModelInfo
from thinklsp.tools.tool import AnyTool, Editor, NoEditor

ShowEvent = Callable[[TurnEvent], None]
PrepareTools = Callable[[TurnInstructions, Ask], Awaitable[tuple[tuple[AnyTool, ...], tuple[str, ...]]]]


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """The callbacks of the front end that runs a turn. The store saves an event's data before `show` receives the
    event. `unapplied_edits` is text that informs the model about edits of this session that were not applied.
    `show_document` is None if the front end cannot show documents, and `ask_text` if it cannot ask for a text."""

    show: ShowEvent
    ask: Ask
    ask_budget: AskBudget
    editor: Editor = field(default_factory=NoEditor)
    unapplied_edits: str = ""
    show_document: ShowDocument | None = None
    ask_text: AskText | None = None


@dataclass(frozen=True, slots=True)
class TurnSetup:
    """The parts of a turn that the engine prepares.

    `choose_model` queries the server for a missing model or context window, and returns notices for the user. Fallbacks
    are stored under `service_id` unless it is empty. `release` makes the session available to other turns.
    `take_queued` returns the queued prompts that join the turn with this model. `prepare_tools` returns the tools of
    MCP servers, and notices for the user. `admit_call` checks the lease and the budgets before each model call.
    """

    display: ThinkingDisplay
    review: Review
    notices: tuple[str, ...]
    excerpts: tuple[Excerpt, ...]
    connect: Callable[[Sequence[Fallback]], Awaitable[ModelCaller]]
    release: Callable[[], None]
    instructions: ProjectInstructions
    take_queued: Callable[[ModelInfo], tuple[QueuedPrompt, ...]]
    admit_call: Callable[[str, float], Awaitable[None]]
    service_id: str = ""
    choose_model: Callable[[], Awaitable[tuple[TurnConfig, tuple[str, ...]]]] | None = None
    commands: UserCommands | None = None
    prepare_tools: PrepareTools | None = None
    images: tuple[ImageBlock, ...] = ()
