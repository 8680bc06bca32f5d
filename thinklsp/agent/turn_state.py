"""What a turn is started with, and what it has come to so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from thinklsp.agent.compacting import CompactionRules
from thinklsp.agent.context_meter import ContextMeter
from thinklsp.agent.usage_tally import UsageTally
from thinklsp.core.choices import Verify
from thinklsp.core.events import TurnFinished, TurnStopReason
from thinklsp.core.messages import Conversation
from thinklsp.core.problems import Verified
from thinklsp.core.remedies import Remedy
from thinklsp.core.said import Said
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.model_info import ModelInfo
from thinklsp.tools.base import AnyTool
from thinklsp.tools.registry import TOOLS, Mode, tool_specs


@dataclass(frozen=True, slots=True)
class Limits:
    """What a turn may spend before it asks the user. None: no limit."""

    max_steps: int
    tokens: int | None = None
    usd: float | None = None
    usd_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """A tool loop keeps the thinking and the tools that it started with. `verify`: when the tests are run on its edits
    before they are offered."""

    model: ModelInfo
    system: str
    thinking: Thinking
    max_tokens: int | None
    limits: Limits
    mode: Mode = "agent"
    compaction: CompactionRules = field(default_factory=CompactionRules)
    tools: tuple[AnyTool, ...] = TOOLS
    verify: Verify = "off"

    def knowing(self, remedies: Iterable[Remedy]) -> TurnConfig:
        """Where the service has refused to shorten what the model reads, that is our business."""
        if not any((remedy.kind, remedy.model) == ("compaction", self.model.id) for remedy in remedies):
            return self
        return replace(self, model=replace(self.model, compacts=False))


@dataclass(slots=True)
class Progress:
    """What the turn has come to so far. `config` changes only where a compaction switches thinking off, and where
    the service refuses to shorten what the model reads. `steps_left`: model calls that
    may follow the present one."""

    conversation: Conversation
    config: TurnConfig
    tally: UsageTally
    meter: ContextMeter
    said: Said = field(default_factory=Said)
    text: str = ""
    thinking: str = ""
    nudged: bool = False
    steps_left: int = 0

    def finished(self, reason: TurnStopReason, verified: Verified | None = None) -> TurnFinished:
        return TurnFinished(reason, self.text, self.thinking, self.tally.used, verified)


def request_of(conversation: Conversation, config: TurnConfig) -> ModelRequest:
    # Every mode offers the same tools: a change of tools would break signatures and cache of the session.
    return ModelRequest(
        config.model,
        config.system,
        tool_specs(config.tools),
        conversation,
        config.thinking,
        config.max_tokens,
        config.compaction.service_limit(config.model),
    )
