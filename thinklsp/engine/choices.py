"""Effort, thinking mode and model as the user chooses them while working, and what comes of the choice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from thinklsp.core.choices import EFFORT_SETTINGS, THINKING_MODES
from thinklsp.core.errors import SettingsError, ThinkLspError
from thinklsp.engine.adapters import PROVIDERS
from thinklsp.engine.engine import Engine
from thinklsp.engine.turn import Choices
from thinklsp.engine.turn_config import plan_for
from thinklsp.providers.base import Thinking
from thinklsp.providers.model_info import ModelInfo, Price
from thinklsp.sessions.session import Session
from thinklsp.settings import EditorSettings, Provider, Settings
from thinklsp.settings.sources import wrong_value

_BUDGET, _MODE = "thinking.budgetTokens", "thinking.mode"
_MANUAL = re.compile(r"manual\s+(?P<budget>-?\d{1,9})", re.ASCII)
_CHOICES: Mapping[str, tuple[str, ...]] = {"effort": EFFORT_SETTINGS, "thinking": THINKING_MODES}
_AUTO = "auto"


def choose(
    engine: Engine,
    editor: EditorSettings,
    key: str,
    value: str | None,
    *,
    connection: Choices,
    session: Session | None,
) -> tuple[dict[str, Any], Choices]:
    """Return the answer {value, effective, choices, notice}, for `model` also `models`, and the settings to keep: for
    the session, else the connection.

    Without a value it only tells. Raises SettingsError for a value that is none of the choices.
    """
    chosen = {} if session is None else session.choices
    former = engine.resolved(editor, ("choice", connection), ("session", chosen)).settings
    made: Choices = {} if value is None else _meant(engine, former, key, value)
    before, after = (connection, merged(chosen, made)) if session is not None else (merged(connection, made), {})
    settings = engine.resolved(editor, ("choice", before), ("session", after)).settings
    try:
        provider, model = engine.target(settings)
        plan = plan_for(settings, model)
        sent = engine.accepted(provider, model, plan.thinking)
        effective, notice = _effective(key, model, sent), " ".join(plan.notices) or None
    except ThinkLspError as error:
        effective, notice = None, str(error)
    answer: dict[str, Any] = {
        "value": _value(key, settings),
        "effective": effective,
        "choices": _choices(engine, key, settings),
        "notice": notice,
    }
    if key == "model":
        answer["models"] = list(_models(engine))
    return answer, made


def merged(choices: Choices, made: Choices) -> Choices:
    """Return the former choices with the new ones. A budget belongs to the mode that it was chosen with, `ultra` brings
    its own effort and ends with another one, and the model `auto` takes the choice of a model back."""
    kept = {**choices, **made}
    if _MODE in made and _BUDGET not in made:
        kept.pop(_BUDGET, None)
    if made.get(_MODE) == "ultra":
        kept.pop("effort", None)
    elif kept.get(_MODE) == "ultra" and "effort" in made:
        kept[_MODE] = _AUTO
    if kept.get("model") == _AUTO:
        del kept["model"]
    return kept


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
        provider, model = engine.target(settings)
        sent = engine.accepted(provider, model, plan_for(settings, model).thinking)
    except ThinkLspError:
        return None
    thinking = sent.form.replace("_", " ")
    if sent.form == "manual":
        thinking = f"{thinking} {sent.budget_tokens}"
    return Status(model.id or "the server's first model", sent.effort or _AUTO, thinking)


def _meant(engine: Engine, former: Settings, key: str, value: str) -> Choices:
    if key == "model":
        if value.strip().lower() == _AUTO:
            return {"model": _AUTO}
        if not 0 < len(value) <= 200:
            raise SettingsError("model", "The model must be the id of a model.")
        return {"model": value}
    if key == "thinking" and (manual := _MANUAL.fullmatch(value)):
        return {_MODE: "manual", _BUDGET: _budget(engine, former, int(manual["budget"]))}
    if value not in _CHOICES[key]:
        raise SettingsError(key, f"{key} must be one of {', '.join(_CHOICES[key])}.")
    return {_MODE if key == "thinking" else key: value}


def _budget(engine: Engine, former: Settings, budget: int) -> int:
    """Return the budget if the setting allows it. Raises SettingsError."""
    try:
        provider: Provider = engine.target(former)[0]
    except ThinkLspError:
        provider = "auto"
    if (refused := wrong_value(_BUDGET, budget, provider)) is not None:
        raise SettingsError(_BUDGET, refused)
    return budget


def _value(key: str, settings: Settings) -> str:
    """As it can be chosen again."""
    match key:
        case "effort":
            return settings.effort
        case "thinking":
            mode = settings.thinking.mode
            if mode == "manual" and "budget_tokens" in settings.thinking.model_fields_set:
                return f"manual {settings.thinking.budget_tokens}"
            return _AUTO if mode == "ultra" and settings.effort != "max" else mode
        case _:
            return settings.model or _AUTO


def _effective(key: str, model: ModelInfo, sent: Thinking) -> str | None:
    match key:
        case "effort":
            return sent.effort or model.default_effort
        case "thinking":
            return sent.form
        case _:
            return model.id or None


def _choices(engine: Engine, key: str, settings: Settings) -> list[str]:
    if key == "model":
        return [_AUTO, *engine.model_choices(settings.provider)]
    return list(_CHOICES[key])


def _models(engine: Engine) -> Iterator[dict[str, Any]]:
    """Describe every model that the catalogue lists or the user's server has named. Prices are US dollars for a million
    tokens; a figure that is not known is null."""
    keyed = engine.keyed()
    for provider in PROVIDERS:
        told = engine.models.told(engine.host(provider)) if provider in keyed else None
        named = () if told is None else told.models or ()
        for model_id in dict.fromkeys((*engine.catalogue.known_models(provider), *named)):
            model = engine.catalogue.lookup(provider, model_id, on=datetime.now(UTC).date())
            window = model.context_window or (None if told is None else told.window_of(model_id))
            yield {
                "id": model_id,
                "provider": provider,
                "title": model_id,
                "hasKey": provider in keyed,
                "window": window,
                "price": None if model.price is None else _price(model.price),
            }


def _price(price: Price) -> dict[str, float | None]:
    return {
        "input": price.input,
        "output": price.output,
        "cacheRead": price.cache_read,
        "cacheWrite": price.cache_write,
    }
