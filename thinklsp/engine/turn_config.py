"""The turn configuration, which combines the settings with the model's capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from thinklsp.agent.budget import BudgetLimits, CompactionRules, TurnConfig
from thinklsp.agent.prompts import SYSTEM_PROMPT
from thinklsp.engine.turn_request import ActionRequest, TurnRequest
from thinklsp.providers.catalogue import ModelInfo
from thinklsp.providers.thinking import ThinkingPlan, plan_thinking
from thinklsp.settings.model import Settings
from thinklsp.settings.sources import EditorSettings
from thinklsp.tools.registry import TOOLS, TOOLS_WITH_COMMANDS

Choices = Mapping[str, object]
"""Settings that the user chose while working, by dotted key."""


@dataclass(slots=True)
class Preferences:
    """The editor settings for one connection, and the choices that the user made outside any session."""

    editor: EditorSettings = field(default_factory=EditorSettings)
    choices: Choices = field(default_factory=dict)


def list_overrides(
    request: TurnRequest, effort_by_action: Mapping[str, str], choices: Choices, session: Choices
) -> tuple[tuple[str, Choices], ...]:
    """Return the layers of settings that override the configured settings, lowest priority first.

    Each layer is paired with the name of its source. `choices` contains the user's choices for the connection.
    """
    if request.thinking is not None:
        choices, session = _drop_budget(choices), _drop_budget(session)
    by_action = _choose_by_action(request, effort_by_action) if isinstance(request, ActionRequest) else {}
    return ("action", by_action), ("choice", choices), ("session", session), ("command", request.chosen)


def _choose_by_action(request: ActionRequest, effort_by_action: Mapping[str, str]) -> Choices:
    own_action = request.own_action
    values = {"effort": effort_by_action.get(request.name, None if own_action is None else own_action.effort)}
    if own_action is not None:
        values |= {"model": own_action.model, "thinking.mode": own_action.thinking}
    return {key: value for key, value in values.items() if value is not None}


def _drop_budget(choices: Choices) -> Choices:
    """Remove the thinking budget, which belongs to one thinking mode and does not apply to another."""
    return {key: value for key, value in choices.items() if key != "thinking.budgetTokens"}


def build_thinking_plan(settings: Settings, model: ModelInfo) -> ThinkingPlan:
    """Return the thinking plan for a model. The plan has no notices if the model is not known yet."""
    thinking = settings.thinking
    mode = thinking.mode
    plan = plan_thinking(
        model,
        # `ultra` combines `auto` with a high effort, which the resolved settings already contain.
        mode="auto" if mode == "normal" or mode == "ultra" else mode,
        budget_tokens=thinking.budget_tokens,
        budget_explicit="budget_tokens" in thinking.model_fields_set,
        effort=None if settings.effort == "auto" else settings.effort,
        display=thinking.display,
        summary=thinking.summary,
        max_tokens=None if settings.max_tokens == "auto" else settings.max_tokens,
        interleaved=True,
    )
    return plan if model.id else replace(plan, notices=())


def build_turn_config(
    model: ModelInfo, settings: Settings, request: TurnRequest, *, has_commands: bool
) -> tuple[TurnConfig, tuple[str, ...]]:
    """Build the configuration for a turn. Return it with a notice for each setting that the model does not support.

    `has_commands` is true if the model can run commands.
    """
    plan = build_thinking_plan(settings, model)
    budget = settings.budget
    limits = BudgetLimits(settings.max_steps, budget.tokens_per_turn, budget.usd_per_turn, budget.usd_per_day)
    compaction = settings.compaction
    rules = CompactionRules(compaction.auto, compaction.threshold, compaction.thinking_after, compaction.by)
    tools = TOOLS_WITH_COMMANDS if has_commands else TOOLS
    is_always_verified = settings.verify == "always" and request.mode == "agent"
    verify = settings.verify if has_commands and (request.should_verify or is_always_verified) else "off"
    config = TurnConfig(
        model, SYSTEM_PROMPT, plan.thinking, plan.max_tokens, limits, request.mode, rules, tools, verify
    )
    return config, (*plan.notices, *_list_unsupported_settings(settings, model))


def _list_unsupported_settings(settings: Settings, model: ModelInfo) -> tuple[str, ...]:
    """Return a notice for each of the user's settings that the model does not support."""
    notices: list[str] = []
    budget, rules = settings.budget, settings.compaction
    if model.id and model.price is None and (budget.usd_per_turn or budget.usd_per_day):
        problem = f"The price of {model.id} is unknown, so your budget in US dollars has no effect."
        notices.append(f"{problem} Set `budget.tokensPerTurn`, which works for every model.")
    if model.id and rules.by == "provider" and rules.auto and not model.compacts:
        notices.append(f"The provider of {model.id} cannot compact conversations, so thinklsp compacts them itself.")
    return tuple(notices)
