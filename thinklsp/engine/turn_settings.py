"""The settings of one turn above those of its sources: of its action, of choices, and of the command itself."""

from __future__ import annotations

from collections.abc import Mapping

from thinklsp.engine.turn import Choices
from thinklsp.engine.turn_spec import ActionTask, TurnSpec


def overrides_of(
    spec: TurnSpec, effort_by_action: Mapping[str, str], choices: Choices, session: Choices
) -> tuple[tuple[str, Choices], ...]:
    """Return the layers, weakest first, each with the name of its source. `choices`: those of the connection."""
    if spec.thinking is not None:
        choices, session = _without_budget(choices), _without_budget(session)
    by_action = _by_action(spec.task, effort_by_action) if isinstance(spec.task, ActionTask) else {}
    return ("action", by_action), ("choice", choices), ("session", session), ("command", spec.chosen)


def _by_action(task: ActionTask, effort_by_action: Mapping[str, str]) -> Choices:
    own = task.own
    wanted = {"effort": effort_by_action.get(task.name, None if own is None else own.effort)}
    if own is not None:
        wanted |= {"model": own.model, "thinking.mode": own.thinking}
    return {key: value for key, value in wanted.items() if value is not None}


def _without_budget(choices: Choices) -> Choices:
    """A budget belongs to the mode that it was chosen with."""
    return {key: value for key, value in choices.items() if key != "thinking.budgetTokens"}
