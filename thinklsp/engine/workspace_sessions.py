"""The sessions of a connection's workspace, and the choice of effort, thinking mode and model for them.

The choices for recent sessions are cached, so that document features never wait for the store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from thinklsp.core.bounded_dict import BoundedDict
from thinklsp.core.choices import EFFORT_SETTINGS, THINKING_MODES
from thinklsp.core.errors import SessionError, SettingsError, ThinkLspError
from thinklsp.core.usage import Usage
from thinklsp.engine.engine import Engine
from thinklsp.engine.results import Result
from thinklsp.engine.turn_config import Choices, Preferences, build_thinking_plan
from thinklsp.providers.base import Thinking
from thinklsp.providers.catalogue import ModelInfo, add_cost
from thinklsp.providers.thinking import ThinkingPlan
from thinklsp.sessions.session import Session
from thinklsp.settings.access import list_keyed_providers
from thinklsp.settings.model import KEYED_PROVIDERS, Provider, Settings
from thinklsp.settings.sources import explain_wrong_value

_BUDGET_KEY, _MODE_KEY = "thinking.budgetTokens", "thinking.mode"
_MANUAL = re.compile(r"manual\s+(?P<budget>-?\d{1,9})", re.ASCII)
_VALUES: Mapping[str, tuple[str, ...]] = {"effort": EFFORT_SETTINGS, "thinking": THINKING_MODES}
_AUTO = "auto"


def merge_choices(choices: Choices, new_choices: Choices) -> Choices:
    """Return the previous choices updated with the new choices.

    A new thinking mode removes the previous thinking budget. `ultra` replaces the chosen effort, and a new effort ends
    `ultra`. The model `auto` removes the chosen model.
    """
    result = {**choices, **new_choices}
    if _MODE_KEY in new_choices and _BUDGET_KEY not in new_choices:
        result.pop(_BUDGET_KEY, None)
    if new_choices.get(_MODE_KEY) == "ultra":
        result.pop("effort", None)
    elif result.get(_MODE_KEY) == "ultra" and "effort" in new_choices:
        result[_MODE_KEY] = _AUTO
    if result.get("model") == _AUTO:
        del result["model"]
    return result


@dataclass(frozen=True, slots=True)
class StatusLine:
    """The next turn's model, effort and thinking, formatted for the editor's status line."""

    model: str
    effort: str
    thinking: str


def _parse_choice(engine: Engine, settings: Settings, key: str, value: str) -> Choices:
    if key == "model":
        if value.strip().lower() == _AUTO:
            return {"model": _AUTO}
        if not 0 < len(value) <= 200:
            raise SettingsError("model", "`model` must be a model id of at most 200 characters.")
        return {"model": value}
    if key == "thinking" and (manual := _MANUAL.fullmatch(value)):
        return {_MODE_KEY: "manual", _BUDGET_KEY: _check_budget(engine, settings, int(manual["budget"]))}
    if value not in _VALUES[key]:
        raise SettingsError(key, f"`{key}` must be one of {', '.join(_VALUES[key])}.")
    return {_MODE_KEY if key == "thinking" else key: value}


def _check_budget(engine: Engine, settings: Settings, budget: int) -> int:
    """Return the thinking budget if the provider supports it. Raises SettingsError otherwise."""
    try:
        provider: Provider = engine.resolve_target(settings)[0]
    except ThinkLspError:
        provider = "auto"
    if (problem := explain_wrong_value(_BUDGET_KEY, budget, provider)) is not None:
        raise SettingsError(_BUDGET_KEY, problem)
    return budget


def _format_value(key: str, settings: Settings) -> str:
    """Format the current value of a setting so that the command accepts it."""
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


def _describe_models(engine: Engine) -> Iterator[dict[str, Any]]:
    """Describe every model in the catalogue and on the user's server.

    Prices are in US dollars per million tokens. Unknown values are null.
    """
    keyed = list_keyed_providers(engine.user)
    for provider in KEYED_PROVIDERS:
        capabilities = (
            engine.connections.find_capabilities(engine.connections.resolve_host(provider))
            if provider in keyed
            else None
        )
        server_models = () if capabilities is None else capabilities.models or ()
        for model_id in dict.fromkeys((*engine.catalogue.list_models(provider), *server_models)):
            model = engine.catalogue.find_model(provider, model_id, day=datetime.now(UTC).date())
            window = model.context_window or (None if capabilities is None else capabilities.find_window(model_id))
            price = model.price
            yield {
                "id": model_id,
                "provider": provider,
                "title": model.title,
                "hasKey": provider in keyed,
                "window": window,
                "price": None
                if price is None
                else {
                    "input": price.input,
                    "output": price.output,
                    "cacheRead": price.cache_read,
                    "cacheWrite": price.cache_write,
                },
            }


_MAX_REMEMBERED = 1_000


class WorkspaceSessions:
    """The sessions of a workspace.

    `get_workspace` returns the key of the workspace. `preferences` contains the editor settings and the choices made
    outside a session.
    """

    def __init__(self, engine: Engine, get_workspace: Callable[[], str], preferences: Preferences) -> None:
        self.engine = engine
        self._preferences = preferences
        self.get_workspace = get_workspace
        self._choices_by_session: dict[str, Choices | None] = BoundedDict(_MAX_REMEMBERED)

    async def create(self) -> Session:
        return self._remember_session(await self.engine.open_session(None, self.get_workspace()))

    async def get(self, session_id: str) -> Session:
        """Return a session. Raises SessionError if the session does not exist or belongs to another workspace."""
        return self._remember_session(await self.engine.open_session(session_id, self.get_workspace()))

    async def find(self, session_id: str) -> Session | None:
        """Return the session that a document names, or None if it does not exist.

        The name `last` is rejected. Otherwise, a document in a repository could access the user's newest session.
        """
        try:
            if session_id != "last":
                return await self.get(session_id)
        except SessionError:
            self._choices_by_session[session_id] = None
        return None

    async def choose(self, key: str, value: str | None, session_id: str | None) -> Result:
        """Set the effort, thinking or model for a session, or for all later turns outside a session.

        The result has the keys `value`, `effective`, `choices` and `notice`. For the setting `model`, it also has the
        keys `provider` and `models`. If no value is given, only return the current value. Raises SettingsError for an
        invalid value, and SessionError if the session does not exist.
        """
        session = None if session_id is None else await self.get(session_id)
        connection, in_session = self._preferences.choices, ({} if session is None else session.choices)
        settings = self._resolve_settings(connection, in_session)
        affected = session
        with suppress(ThinkLspError):
            # Fallbacks that earlier processes stored affect the effective settings.
            affected = session or await self.engine.open_session("last", self.get_workspace())
            await self.engine.load_fallbacks(affected.id, settings)
        new_choices: Choices = {} if value is None else _parse_choice(self.engine, settings, key, value)
        if session is None:
            connection = merge_choices(connection, new_choices)
        else:
            in_session = merge_choices(in_session, new_choices)
        chosen = self._resolve_settings(connection, in_session)
        answer = self._describe_choice(key, chosen)
        if affected is not None and (cache_notice := self._describe_cache_loss(affected.id, settings, chosen)):
            answer["notice"] = " ".join(filter(None, (answer["notice"], cache_notice)))
        if new_choices and session is None:
            self._preferences.choices = connection
        elif new_choices and session is not None:
            await self._store_choices(session.id, new_choices)
        return answer

    def _describe_choice(self, key: str, settings: Settings) -> Result:
        try:
            model, plan, sent_thinking = self._plan_turn(settings)
            sent = {"effort": sent_thinking.effort or model.default_effort, "thinking": sent_thinking.form}
            provider, effective = model.provider, sent.get(key, model.id or None)
            notice = " ".join(plan.notices) or None
        except ThinkLspError as error:
            provider, effective, notice = None, None, str(error)
        models = self.engine.list_model_choices(settings.provider)
        answer: Result = {
            "value": _format_value(key, settings),
            "effective": effective,
            "choices": list(_VALUES[key]) if key in _VALUES else [_AUTO, *models],
            "notice": notice,
        }
        if key == "model":
            answer |= {"provider": provider, "models": list(_describe_models(self.engine))}
        return answer

    def _describe_cache_loss(self, session_id: str, before: Settings, after: Settings) -> str | None:
        """Return a notice about what the provider reads again because of a choice, or None if its cache stays valid.

        Models never share a cache. Anthropic's cache also depends on thinking and effort.
        """
        try:
            (model, _, thinking), (new_model, _, new_thinking) = self._plan_turn(before), self._plan_turn(after)
        except ThinkLspError:
            return None
        if model == new_model and (thinking == new_thinking or model.provider not in ("anthropic", "simulator")):
            return None
        if not (tokens := self.engine.get_meter(session_id).count_cached_tokens(model.id)):
            return None
        cost = add_cost(Usage(tokens, 0, cache_write_tokens=tokens), new_model.price).cost_usd
        cost_text = " (cost unknown)" if cost is None else f" (about ${cost:.4f})" if cost else ""
        return f"This invalidates the prompt cache: the next request resends {tokens:,} cached tokens{cost_text}."

    def _plan_turn(self, settings: Settings) -> tuple[ModelInfo, ThinkingPlan, Thinking]:
        """Return the next turn's model, its plan, and the thinking that remains after the fallbacks."""
        provider, model = self.engine.resolve_target(settings)
        plan = build_thinking_plan(settings, model)
        return model, plan, self.engine.adjust_thinking(provider, model, plan.thinking)

    async def _store_choices(self, session_id: str, choices: Choices) -> None:
        session = await self.engine.store.update(
            session_id, lambda now: replace(now, choices=merge_choices(now.choices, choices))
        )
        self._remember_session(session)
        await self.engine.claims.release_lease(session_id)

    def _resolve_settings(self, connection: Choices, session: Choices) -> Settings:
        return self.engine.resolve_settings(
            self._preferences.editor, ("choice", connection), ("session", session)
        ).settings

    def is_remembered(self, session_id: str) -> bool:
        """Return True if the session has been looked up, so that its choices are cached."""
        return session_id in self._choices_by_session

    def is_known(self, session_id: str) -> bool:
        """Return True if the last lookup found the session."""
        return self._choices_by_session.get(session_id) is not None

    def describe_status(self, session_id: str | None) -> StatusLine | None:
        """Return the settings of the next turn, or None if a turn cannot start. This method does not read the store."""
        choices = None if session_id is None else self._choices_by_session.get(session_id)
        try:
            model, _, thinking = self._plan_turn(self._resolve_settings(self._preferences.choices, choices or {}))
        except ThinkLspError:
            return None
        budget = f" {thinking.budget_tokens}" if thinking.form == "manual" else ""
        name = "offline simulator" if model.provider == "simulator" else model.id or "the server's first model"
        return StatusLine(name, thinking.effort or _AUTO, thinking.form.replace("_", " ") + budget)

    def list_models(self) -> tuple[str, ...]:
        """Return the model ids that `/model` accepts. This method does not read the store."""
        return self.engine.list_model_choices(self._resolve_settings(self._preferences.choices, {}).provider)

    def _remember_session(self, session: Session) -> Session:
        self._choices_by_session[session.id] = session.choices
        return session
