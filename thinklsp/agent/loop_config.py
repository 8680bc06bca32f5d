"""The configuration of the turn loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from thinklsp.agent.budget import BudgetLimits
from thinklsp.core.choices import CompactionService, ThinkingAfterCompaction, Verify
from thinklsp.core.events import Fallback
from thinklsp.core.messages import Conversation
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.model_info import ModelInfo
from thinklsp.tools.registry import READ_SKILL, TOOLS, Mode, build_tool_specs
from thinklsp.tools.tool import AnyTool


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """The rules for automatic compaction. `threshold` is the share of the context window at which a compaction starts.
    `compactor` determines whether thinklsp or the provider compacts the conversation."""

    auto: bool = True
    threshold: float = 0.75
    thinking_after: ThinkingAfterCompaction = "keep"
    compactor: CompactionService = "thinklsp"

    def resolve_provider_limit(self, model: ModelInfo) -> int | None:
        """Return the token count at which the provider compacts the conversation, or None if thinklsp compacts it."""
        if self.compactor != "provider" or not self.auto or not model.compacts or model.input_window is None:
            return None
        return round(self.threshold * model.input_window)


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """The model and the rules for a turn. Thinking and tools stay the same for the whole turn.

    `verify` determines whether the turn runs the tests before it offers its edits.
    """

    model: ModelInfo
    system: str
    thinking: Thinking
    max_tokens: int | None
    limits: BudgetLimits
    mode: Mode = "agent"
    compaction: CompactionRules = field(default_factory=CompactionRules)
    tools: tuple[AnyTool, ...] = TOOLS
    verify: Verify = "off"

    def apply_fallbacks(self, fallbacks: Iterable[Fallback]) -> TurnConfig:
        """Return the configuration adjusted for the provider's fallbacks.

        If the provider refuses to compact conversations, thinklsp compacts them instead.
        """
        if not any((fallback.kind, fallback.model) == ("compaction", self.model.id) for fallback in fallbacks):
            return self
        return replace(self, model=replace(self.model, compacts=False))

    def offer_skills(self) -> TurnConfig:
        """Return the configuration with the tool that reads skills."""
        return self if READ_SKILL in self.tools else replace(self, tools=(*self.tools, READ_SKILL))

    def build_request(self, conversation: Conversation) -> ModelRequest:
        # Every mode offers the same tools, because a change of tools would invalidate signatures and the prompt cache.
        return ModelRequest(
            self.model,
            self.system,
            build_tool_specs(self.tools),
            conversation,
            self.thinking,
            self.max_tokens,
            self.compaction.resolve_provider_limit(self.model),
        )
