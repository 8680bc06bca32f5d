"""Effort, thinking mode and model as the user chooses them while working, and what comes of the choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import SettingsError, ThinkLspError
from thinklsp.engine.engine import Engine, plan_for
from thinklsp.engine.turn import Choices
from thinklsp.providers.model_info import ModelInfo
from thinklsp.providers.thinking import ThinkingPlan
from thinklsp.sessions.session import Session
from thinklsp.settings import EditorSettings, Settings

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
    overrides = (("choice", connection), ("session", {} if session is None else session.choices), ("command", made))
    settings = engine.resolved(editor, *overrides).settings
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


def _meant(key: str, value: str) -> Choices:
    if key == "model":
        if not 0 < len(value) <= 200:
            raise SettingsError("model", "The model must be the id of a model.")
        return {"model": value}
    if value not in _CHOICES[key]:
        raise SettingsError(key, f"{key} must be one of {', '.join(_CHOICES[key])}.")
    if key == "thinking":
        return _PRESETS.get(value, {"thinking.mode": value})
    return {key: value}


def _value(key: str, settings: Settings) -> str | None:
    match key:
        case "effort":
            return settings.effort
        case "thinking":
            return settings.thinking.mode
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
