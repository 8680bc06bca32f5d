"""Composes settings, session, model and workspace into turns. One engine serves one process."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from random import Random

from thinklsp.agent.budget import DaySpending
from thinklsp.agent.model_call import HttpModelCaller, ModelCaller
from thinklsp.agent.prompts import SYSTEM
from thinklsp.agent.turn import Limits, TurnConfig
from thinklsp.core.errors import SessionError, SettingsError, TurnRefused
from thinklsp.engine.turn import ActionTask, Choices, Turn, TurnSpec, user_text
from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.base import Adapter, Endpoint
from thinklsp.providers.catalog import default_model, lookup
from thinklsp.providers.model_info import ModelInfo
from thinklsp.providers.thinking import ThinkingPlan, plan_thinking
from thinklsp.sessions.session import Session
from thinklsp.sessions.store import MemoryStore, SessionStore
from thinklsp.settings import (
    Access,
    EditorSettings,
    Provider,
    Resolved,
    Settings,
    key_command,
    keyed_providers,
    load_user_settings,
    provider_access,
    resolve,
    run_key_command,
)
from thinklsp.simulator.scenario import load
from thinklsp.simulator.server import Simulator
from thinklsp.wire.retry import RetryPolicy
from thinklsp.wire.transport import Transport
from thinklsp.workspace.overlay import EditOverlay

# Providers that this version speaks to, in the order in which `auto` looks. The simulator speaks Anthropic's dialect.
ADAPTERS: Mapping[Provider, Adapter] = {"anthropic": AnthropicAdapter(), "simulator": AnthropicAdapter()}


class Engine:
    """Mutable state: the store, the transport, the in-process simulator once it is asked for, who is busy, what key
    commands have printed, and what the day has cost."""

    def __init__(self, environment: Mapping[str, str], store: SessionStore | None = None) -> None:
        self.user = load_user_settings(environment)
        logging.getLogger("thinklsp").setLevel(self.user.file.log.level.upper())
        self.store: SessionStore = MemoryStore() if store is None else store
        network = self.user.file.network
        self.transport = Transport(proxy=network.proxy, ca_bundle=network.ca_bundle)
        self._random = Random()  # noqa: S311 - it only spreads retries in time
        self._spending = DaySpending()
        self._printed: dict[tuple[str, ...], str] = {}
        self._one_command = asyncio.Lock()
        self._busy: dict[str, str] = {}
        self._simulator: Simulator | None = None
        self._callers: dict[Endpoint, ModelCaller] = {}
        self._resources = AsyncExitStack()

    async def aclose(self) -> None:
        await self._resources.aclose()
        await self.transport.aclose()

    def keyed(self) -> frozenset[str]:
        return frozenset(keyed_providers(self.user))

    def resolved(self, editor: EditorSettings, *overrides: tuple[str, Choices]) -> Resolved:
        return resolve(self.user, editor, keyed=self.keyed(), overrides=overrides)

    def session(self, session_id: str | None, workspace: str) -> Session:
        """Raises SessionError for an id that is unknown or belongs elsewhere; `last` is the workspace's newest."""
        if session_id is None:
            return self.store.create(workspace)
        if session_id == "last":
            return self.store.latest(workspace)
        return self.store.get(session_id, workspace)

    def begin(self, spec: TurnSpec, editor: EditorSettings, choices: Choices) -> Turn:
        """Checks everything that can be checked without a model and takes the session.

        Raises TurnRefused, SettingsError, SessionError or PathRefused with a sentence; nothing has changed then.
        """
        user_text(spec)
        known = None if spec.session_id is None else self.session(spec.session_id, spec.workspace)
        if known is not None and known.id in self._busy:
            raise SessionError("This session is busy with another turn. Wait for it or stop it first.")
        settings = self._settings(spec, editor, choices, known)
        provider, model = self.target(settings)
        plan = plan_for(settings, model)
        self.host(provider)
        session = known or self.session(None, spec.workspace)
        turn_id = secrets.token_hex(8)
        self._busy[session.id] = turn_id
        return Turn(
            id=turn_id,
            session=session,
            spec=spec,
            overlay=EditOverlay(spec.view),
            config=_config(model, settings, plan, spec),
            display=settings.thinking.display,
            review=settings.edits.review,
            notices=(*plan.notices, *_unpriced(settings, model)),
            connect=lambda: self._connect(provider),
            spending=self._spending,
            update=self.store.update,
            release=lambda: self._release(session.id, turn_id),
        )

    def target(self, settings: Settings) -> tuple[Provider, ModelInfo]:
        """Provider and model that a turn with these settings would use."""
        provider: Provider = settings.provider
        if provider == "auto":
            keyed = self.keyed()
            found = next((name for name in ADAPTERS if name in keyed), None)
            if found is None:
                raise TurnRefused(
                    "No model provider has a key. Set ANTHROPIC_API_KEY in the environment, or the setting "
                    "thinklsp.provider to simulator to look around without one."
                )
            provider = found
        elif provider not in ADAPTERS:
            raise TurnRefused(f"This version cannot talk to {provider} yet. Set thinklsp.provider to anthropic.")
        return provider, lookup(provider, settings.model or default_model(provider))

    def host(self, provider: Provider) -> Access | None:
        """As `access`, but at once and without what a key command prints. Raises SettingsError."""
        return None if provider == "simulator" or provider == "auto" else provider_access(provider, self.user)

    async def access(self, provider: Provider) -> Access | None:
        """Host and key; None for the simulator, which has neither before it runs.

        A key command runs once in the life of the engine and may take seconds. Raises SettingsError.
        """
        if provider == "simulator" or provider == "auto" or (command := key_command(provider, self.user)) is None:
            return self.host(provider)
        # Turns that begin together would else make the command ask for its password twice.
        async with self._one_command:
            if command not in self._printed:
                self._printed[command] = await run_key_command(provider, command)
        return provider_access(provider, self.user, printed=self._printed[command])

    def _settings(self, spec: TurnSpec, editor: EditorSettings, choices: Choices, session: Session | None) -> Settings:
        session_choices = {} if session is None else session.choices
        command = {key: value for key, value in (("effort", spec.effort), ("model", spec.model)) if value is not None}
        by_action: Choices = {}
        if isinstance(spec.task, ActionTask):
            plain = self.resolved(editor).settings.effort_by_action
            if spec.task.name in plain:
                by_action = {"effort": plain[spec.task.name]}
        overrides = (("action", by_action), ("choice", choices), ("session", session_choices), ("command", command))
        try:
            return self.resolved(editor, *overrides).settings
        except ValueError:
            raise SettingsError("effort", "The effort must be auto, low, medium, high, xhigh or max.") from None

    async def _connect(self, provider: Provider) -> ModelCaller:
        access = await self.access(provider)
        if access is None:
            simulator = await self._running_simulator()
            endpoint = Endpoint(provider, simulator.base_url, "simulator")
        else:
            endpoint = Endpoint(provider, access.base_url, access.api_key, access.bearer, access.headers)
        # One caller per endpoint for the life of the engine: it remembers which conversations had to go on without
        # their earlier thinking.
        if endpoint not in self._callers:
            self._callers[endpoint] = HttpModelCaller(
                ADAPTERS[provider], endpoint, self.transport, policy=RetryPolicy(), rng=self._random.random
            )
        return self._callers[endpoint]

    async def _running_simulator(self) -> Simulator:
        if self._simulator is None:
            self._simulator = await self._resources.enter_async_context(Simulator(load("sample")))
        return self._simulator

    def _release(self, session_id: str, turn_id: str) -> None:
        if self._busy.get(session_id) == turn_id:
            del self._busy[session_id]


def plan_for(settings: Settings, model: ModelInfo) -> ThinkingPlan:
    thinking = settings.thinking
    return plan_thinking(
        model,
        mode=thinking.mode,
        budget_tokens=thinking.budget_tokens,
        budget_explicit="budget_tokens" in thinking.model_fields_set,
        effort=None if settings.effort == "auto" else settings.effort,
        display=thinking.display,
        max_tokens=None if settings.max_tokens == "auto" else settings.max_tokens,
        interleaved=True,
    )


def _config(model: ModelInfo, settings: Settings, plan: ThinkingPlan, spec: TurnSpec) -> TurnConfig:
    budget = settings.budget
    limits = Limits(settings.max_steps, budget.tokens_per_turn, budget.usd_per_turn, budget.usd_per_day)
    return TurnConfig(model, SYSTEM, plan.thinking, plan.max_tokens, limits, spec.mode)


def _unpriced(settings: Settings, model: ModelInfo) -> tuple[str, ...]:
    """Said when a budget in dollars cannot be kept. What the simulator answers costs nothing."""
    budget = settings.budget
    if model.price is not None or model.provider == "simulator" or not (budget.usd_per_turn or budget.usd_per_day):
        return ()
    said = f"The price of {model.id} is not known, so the budget in US dollars cannot be kept."
    return (f"{said} budget.tokensPerTurn works for every model.",)
