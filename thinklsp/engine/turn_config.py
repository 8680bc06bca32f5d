"""What a turn is started with: from the settings of all sources and what the model can do, and what cannot be kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from thinklsp.agent.compacting import CompactionRules
from thinklsp.agent.prompts import SYSTEM
from thinklsp.agent.turn_state import Limits, TurnConfig
from thinklsp.engine.turn import Choices
from thinklsp.engine.turn_spec import ActionTask, TurnSpec
from thinklsp.providers.model_info import ModelInfo
from thinklsp.providers.thinking import ThinkingPlan, plan_thinking
from thinklsp.settings import Settings
from thinklsp.tools.registry import TOOLS, WITH_COMMANDS, Mode


def list_overrides(
    spec: TurnSpec, effort_by_action: Mapping[str, str], choices: Choices, session: Choices
) -> tuple[tuple[str, Choices], ...]:
    """Return the settings of a turn above those of its sources, weakest first, each layer with the name of its source.

    `choices`: those of the connection.
    """
    if spec.thinking is not None:
        choices, session = _drop_budget(choices), _drop_budget(session)
    by_action = _choose_by_action(spec.task, effort_by_action) if isinstance(spec.task, ActionTask) else {}
    return ("action", by_action), ("choice", choices), ("session", session), ("command", spec.chosen)


def _choose_by_action(task: ActionTask, effort_by_action: Mapping[str, str]) -> Choices:
    own = task.own
    wanted = {"effort": effort_by_action.get(task.name, None if own is None else own.effort)}
    if own is not None:
        wanted |= {"model": own.model, "thinking.mode": own.thinking}
    return {key: value for key, value in wanted.items() if value is not None}


def _drop_budget(choices: Choices) -> Choices:
    """Remove the thinking budget: it belongs to the mode that the user chose it with."""
    return {key: value for key, value in choices.items() if key != "thinking.budgetTokens"}


def plan_for(settings: Settings, model: ModelInfo) -> ThinkingPlan:
    """Without notices for a model that only the server can name: they are said when it has."""
    thinking = settings.thinking
    mode = thinking.mode
    plan = plan_thinking(
        model,
        # Of `ultra` the effort is left, which `resolve` has set.
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


def config_for(
    model: ModelInfo,
    settings: Settings,
    plan: ThinkingPlan,
    mode: Mode,
    *,
    commands: bool = False,
    tested: bool = False,
) -> TurnConfig:
    """`commands`: they can be run; `tested`: the task's edits are tested with `verify` at `auto`."""
    budget = settings.budget
    limits = Limits(settings.max_steps, budget.tokens_per_turn, budget.usd_per_turn, budget.usd_per_day)
    compaction = settings.compaction
    rules = CompactionRules(compaction.auto, compaction.threshold, compaction.thinking_after, compaction.by)
    tools = WITH_COMMANDS if commands else TOOLS
    is_verified = commands and (tested or (settings.verify == "always" and mode == "agent"))
    verify = settings.verify if is_verified else "off"
    return TurnConfig(model, SYSTEM, plan.thinking, plan.max_tokens, limits, mode, rules, tools, verify)


def not_kept(settings: Settings, model: ModelInfo) -> tuple[str, ...]:
    """What the user has set and this model does not allow."""
    return (*_unpriced(settings, model), *_uncompacted(settings, model))


def _uncompacted(settings: Settings, model: ModelInfo) -> tuple[str, ...]:
    rules = settings.compaction
    if rules.by == "thinklsp" or not rules.auto or not model.id or model.compacts:
        return ()
    return (f"The service of {model.id} does not shorten conversations by itself; thinklsp does it when it is due.",)


def _unpriced(settings: Settings, model: ModelInfo) -> tuple[str, ...]:
    """Said when a budget in dollars cannot be kept. What the simulator answers costs nothing."""
    budget = settings.budget
    is_told = model.price is not None or model.provider == "simulator" or not model.id
    if is_told or not (budget.usd_per_turn or budget.usd_per_day):
        return ()
    said = f"The price of {model.id} is not known, so the budget in US dollars cannot be kept."
    return (f"{said} budget.tokensPerTurn works for every model.",)
