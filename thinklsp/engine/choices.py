"""Effort, thinking mode and model as the user chooses them while working, and what comes of the choice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from thinklsp.core.errors import SettingsError, ThinkLspError
from thinklsp.engine.engine import Engine
from thinklsp.engine.turn import Choices
from thinklsp.engine.turn_config import plan_for
from thinklsp.providers.model_info import ModelInfo
from thinklsp.providers.thinking import ThinkingPlan
from thinklsp.sessions.session import Session
from thinklsp.settings import EditorSettings, Settings
from thinklsp.settings.model import nested, sentence

_BUDGET = "thinking.budgetTokens"
_MANUAL = re.compile(r"manual\s+(?P<budget>-?\d{1,9})", re.ASCII)
_CHOICES = {
    "effort": ("auto", "low", "medium", "high", "xhigh", "max"),
    "thinking": ("auto", "off", "adaptive", "manual", "normal", "ultra"),
}

# Words of `thinking` that stand for several settings.
_PRESETS: Mapping[str, Choices] = {
    "normal": {"thinking.mode": "auto", "effort": "auto"},
    "ultra": {"thinking.mode": "auto", "effort": "max"},
}


def choose(
    engine: Engine,
    editor: EditorSettings,
    key: str,
    value: str | None,
    *,
    connection: Choices,
    session: Session | None,
) -> tuple[dict[str, Any], Choices]:
    """The answer {value, effective, choices, notice}, and the settings to keep: for the session, else the connection.

    Without a value it only tells. Raises SettingsError for a value that is none of the choices.
    """
    made: Choices = {} if value is None else _meant(key, value)
    chosen = {} if session is None else session.choices
    before, after = (connection, merged(chosen, made)) if session is not None else (merged(connection, made), {})
    settings = engine.resolved(editor, ("choice", before), ("session", after)).settings
    try:
        _, model = engine.target(settings)
        plan = plan_for(settings, model)
    except ThinkLspError as error:
        answer = {
            "value": _value(key, settings),
            "effective": None,
            "choices": _choices(engine, key, settings),
            "notice": str(error),
        }
        return answer, made
    notice = " ".join(plan.notices) or None
    answer = {
        "value": _value(key, settings),
        "effective": _effective(key, model, plan),
        "choices": _choices(engine, key, settings),
        "notice": notice,
    }
    return answer, made


def merged(choices: Choices, made: Choices) -> Choices:
    """What was chosen before, with what is chosen now. A budget belongs to the mode that it was chosen with."""
    kept = {key: value for key, value in choices.items() if key != _BUDGET or "thinking.mode" not in made}
    return {**kept, **made}


@dataclass(frozen=True, slots=True)
class Status:
    """What the next turn would use, in words for a line of an editor."""

    model: str
    effort: str
    thinking: str


def status(engine: Engine, editor: EditorSettings, connection: Choices, session: Choices) -> Status | None:
    """None where no turn could begin. From memory alone."""
    try:
        settings = engine.resolved(editor, ("choice", connection), ("session", session)).settings
        _, model = engine.target(settings)
        plan = plan_for(settings, model)
    except ThinkLspError:
        return None
    thinking = plan.thinking.form.replace("_", " ")
    if plan.thinking.form == "manual":
        thinking = f"{thinking} {plan.thinking.budget_tokens}"
    return Status(model.id or "the server's first model", plan.thinking.effort or settings.effort, thinking)


def _meant(key: str, value: str) -> Choices:
    if key == "model":
        if not 0 < len(value) <= 200:
            raise SettingsError("model", "The model must be the id of a model.")
        return {"model": value}
    if key == "thinking" and (manual := _MANUAL.fullmatch(value)):
        return {"thinking.mode": "manual", _BUDGET: _budget(manual["budget"])}
    if value not in _CHOICES[key]:
        raise SettingsError(key, f"{key} must be one of {', '.join(_CHOICES[key])}.")
    if key == "thinking":
        return _PRESETS.get(value, {"thinking.mode": value})
    return {key: value}


def _budget(written: str) -> int:
    budget = int(written)
    try:
        nested({_BUDGET: budget})
    except ValidationError as error:
        raise SettingsError(_BUDGET, sentence(_BUDGET, budget, error)) from None
    return budget


def _value(key: str, settings: Settings) -> str | None:
    """As it can be chosen again."""
    match key:
        case "effort":
            return settings.effort
        case "thinking":
            own_budget = settings.thinking.mode == "manual" and "budget_tokens" in settings.thinking.model_fields_set
            return f"manual {settings.thinking.budget_tokens}" if own_budget else settings.thinking.mode
        case _:
            return settings.model


def _effective(key: str, model: ModelInfo, plan: ThinkingPlan) -> str | None:
    match key:
        case "effort":
            return plan.thinking.effort or model.default_effort
        case "thinking":
            return plan.thinking.form
        case _:
            return model.id or None


def _choices(engine: Engine, key: str, settings: Settings) -> list[str]:
    if key == "model":
        return list(engine.model_choices(settings.provider))
    return list(_CHOICES[key])
