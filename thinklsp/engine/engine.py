"""Composes settings, session, model and workspace into turns. One engine serves one client."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256

from pydantic import ValidationError

from thinklsp.agent.budget import DaySpending
from thinklsp.agent.context_meter import ContextMeter
from thinklsp.agent.turn_state import TurnConfig
from thinklsp.core.errors import SessionError, SettingsError, ThinkLspError, TurnRefused
from thinklsp.engine.adapters import PROVIDERS, adapter_for, on_server
from thinklsp.engine.cached_prefix import LastSent, Sent, dropped_cache
from thinklsp.engine.commands import MakeRunner, UserCommands, sandbox
from thinklsp.engine.connections import Connections, host_of
from thinklsp.engine.instructions import ProjectInstructions
from thinklsp.engine.server_models import ServerModels
from thinklsp.engine.turn import Choices, Turn
from thinklsp.engine.turn_config import config_for, list_overrides, not_kept, plan_for
from thinklsp.engine.turn_spec import TurnSpec, user_text
from thinklsp.engine.user_config import UserConfig
from thinklsp.http.transport import Transport
from thinklsp.providers.base import Thinking
from thinklsp.providers.catalog import Catalogue
from thinklsp.providers.model_info import ModelInfo
from thinklsp.sessions.session import Session
from thinklsp.sessions.sqlite_store import MemoryStore
from thinklsp.sessions.store import SessionStore
from thinklsp.settings import (
    Access,
    EditorSettings,
    Provider,
    Resolved,
    Settings,
    UserSettings,
    keyed_providers,
    resolve,
)
from thinklsp.settings.model import limit_of
from thinklsp.settings.permissions import Permissions
from thinklsp.tools.commands import Runner
from thinklsp.tools.permission import Approval
from thinklsp.workspace.overlay import EditOverlay

_log = logging.getLogger(__name__)

_MOST_METERS = 16
_BUSY = "This session is busy with another turn. Wait for it or stop it first."


class Engine:
    """Mutable state: the user's settings, the store, the connections to providers, who is busy, which models a server
    has, how full the sessions are, which commands were allowed in them, what the day has cost, and what was answered
    about the workspace's instructions."""

    def __init__(
        self, environment: Mapping[str, str], store: SessionStore | None = None, *, make_runner: MakeRunner = sandbox
    ) -> None:
        self.config = UserConfig(environment)
        self.store: SessionStore = MemoryStore() if store is None else store
        self.connections = Connections()
        self._spending = DaySpending()
        self._busy: dict[str, str] = {}
        self._meters: dict[str, ContextMeter] = {}
        self._last_sent = LastSent()
        self._make_runner = make_runner
        self._granted: dict[str, set[Approval]] = {}
        self.models = ServerModels(self.config)
        self.permissions = Permissions.beside(self.user.path)
        self._instructions = ProjectInstructions(self.permissions)

    async def aclose(self) -> None:
        await self.connections.aclose()
        await self.store.aclose()
        await self.config.aclose()

    @property
    def user(self) -> UserSettings:
        return self.config.now.user

    @property
    def catalogue(self) -> Catalogue:
        return self.config.now.catalogue

    @property
    def transport(self) -> Transport:
        return self.config.now.transport

    def keyed(self) -> frozenset[str]:
        return frozenset(keyed_providers(self.user))

    def resolved(self, editor: EditorSettings, *overrides: tuple[str, Choices]) -> Resolved:
        return resolve(self.user, editor, keyed=self.keyed(), overrides=overrides)

    async def session(self, session_id: str | None, workspace: str) -> Session:
        """Raises SessionError for an id that is unknown or belongs elsewhere; `last` is the workspace's newest."""
        if session_id is None:
            return await self.store.create(workspace)
        if session_id == "last":
            return await self.store.latest(workspace)
        return await self.store.get(session_id, workspace)

    async def tell_of_undo(self, session_id: str) -> None:
        """The next prompt of the session says that edits were taken back. Raises SessionError."""
        await self.store.update(session_id, lambda session: session.with_undo())
        if session_id not in self._busy:
            await self.store.release(session_id)

    def is_busy(self, session_id: str) -> bool:
        """Whether a turn of this process, or work of another kind, has claimed it."""
        return session_id in self._busy

    def claim(self, session_id: str, turn_id: str) -> Callable[[], None]:
        """Takes the session for one turn or for what commands do to it; gives what lets go of it again.

        Raises SessionError while another turn has it.
        """
        if self._busy.setdefault(session_id, turn_id) != turn_id:
            raise SessionError(_BUSY)
        return lambda: self._release(session_id, turn_id)

    async def begin(
        self, spec: TurnSpec, editor: EditorSettings, choices: Choices, *, turn_id: str | None = None
    ) -> Turn:
        """Checks everything that can be checked without a model and takes the session; `turn_id` may have claimed it.

        Raises TurnRefused, SettingsError, SessionError or PathRefused with a sentence; nothing has changed then.
        """
        user_text(spec)
        turn_id = turn_id or secrets.token_hex(8)
        news = await self.config.refresh()
        now = self.config.now
        known = None if spec.session_id is None else await self.session(spec.session_id, spec.workspace)
        if known is not None and self._busy.get(known.id, turn_id) != turn_id:
            raise SessionError(_BUSY)
        settings = self._settings(spec, editor, choices, known)
        provider, model = self.target(settings)
        plan = plan_for(settings, model)
        adapter_for(provider, self.host(provider))
        runner = await self._runner()
        configured = partial(
            config_for, settings=settings, mode=spec.mode, commands=runner is not None, tested=spec.tested
        )
        session = known or await self.session(None, spec.workspace)
        usual = self._settings(replace(spec, effort=None, model=None, thinking=None), editor, choices, known)
        dropped = await self._dropped_cache(spec, usual, session, (model, plan.thinking))
        granted = self._granted.setdefault(session.id, set())
        release = self.claim(session.id, turn_id)
        _log.debug("turn %s: %s, model %s, thinking %s", turn_id, provider, model.id, plan.thinking)
        return Turn(
            id=turn_id,
            session=session,
            spec=spec,
            overlay=EditOverlay(spec.view),
            config=configured(model, plan=plan),
            display=settings.thinking.display,
            review=settings.edits.review,
            notices=(*news, *plan.notices, *not_kept(settings, model), *dropped),
            connect=lambda known: self.connections.connect(now, provider, known),
            service=self._service(provider),
            instructions=self._instructions,
            choose_model=self._chooser(provider, model, settings, configured),
            spending=self._spending,
            store=self.store,
            meter=self.meter(session.id),
            release=release,
            commands=None if runner is None else UserCommands(runner, self.user, granted),
        )

    async def _runner(self) -> Runner | None:
        """Of one turn; None where the user has not enabled commands or nothing can contain them."""
        commands = self.user.file.commands
        return await self._make_runner(commands, self.user.environment) if commands.enabled else None

    def meter(self, session_id: str) -> ContextMeter:
        """What is known of the session's size. Of those that were used last, since it holds their conversations; for
        others estimates begin anew, as they do in a new process."""
        meter = self._meters.pop(session_id, None) or ContextMeter()
        self._meters[session_id] = meter
        if len(self._meters) > _MOST_METERS:
            del self._meters[next(iter(self._meters))]
        return meter

    def forget(self, session_id: str) -> None:
        """It was deleted."""
        self._meters.pop(session_id, None)
        self._granted.pop(session_id, None)

    def target(self, settings: Settings) -> tuple[Provider, ModelInfo]:
        """Provider and model that a turn with these settings would use. A compatible server's model has no id where the
        user names none: it is the server's first, which takes a question to find out."""
        provider: Provider = settings.provider
        if provider == "auto":
            keyed = [name for name in PROVIDERS if name in self.keyed()]
            if not keyed:
                raise TurnRefused(
                    "No model provider has a key. Set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY in the "
                    "environment, or THINKLSP_COMPATIBLE_BASE_URL for a server of your own (Ollama: "
                    "http://localhost:11434/v1); or the setting thinklsp.provider to simulator to look around without."
                )
            provider = self._provider_of(settings.model, keyed)
        return provider, self._model(provider, settings.model or self.catalogue.default_model(provider))

    def _model(self, provider: Provider, model_id: str) -> ModelInfo:
        host = self.host(provider)
        listed = self.catalogue.lookup(provider, model_id, on=datetime.now(UTC).date())
        return on_server(listed, host, self.models.told(host))

    def _provider_of(self, model: str | None, keyed: Sequence[Provider]) -> Provider:
        """The first with a key, unless the model that the user names is listed for a later one only."""
        listed = (name for name in keyed if model and self.catalogue.lookup(name, model).known)
        return next(listed, keyed[0])

    def model_choices(self, provider: Provider) -> tuple[str, ...]:
        """Ids of the models that can be chosen: the provider's, or those of all that have a key."""
        names = [name for name in PROVIDERS if name in self.keyed()] if provider == "auto" else [provider]
        return tuple(model for name in names or PROVIDERS for model in self.catalogue.known_models(name))

    def host(self, provider: Provider) -> Access | None:
        """As `access`, but at once and without a key that has to be read. Raises SettingsError."""
        return host_of(provider, self.user)

    async def access(self, provider: Provider) -> Access | None:
        """Host and key as they are now; None for the simulator. Raises SettingsError."""
        return await self.connections.access(provider, self.user)

    def sent(self, settings: Settings) -> Sent:
        """Return what a turn with these settings sends about model and thinking. Raises ThinkLspError."""
        _, model = self.target(settings)
        return model, plan_for(settings, model).thinking

    async def _dropped_cache(self, spec: TurnSpec, usual: Settings, session: Session, now: Sent) -> tuple[str, ...]:
        """Return a notice if the command's own effort, thinking or model makes the service forget the session. `usual`:
        the settings without them."""
        former = self._last_sent.swap(session.id, now)
        if not spec.chosen:
            return ()
        try:
            dropped = await dropped_cache(self.store, session.id, former or self.sent(usual), now)
        except ThinkLspError:
            return ()
        return () if dropped is None else (dropped,)

    def _settings(self, spec: TurnSpec, editor: EditorSettings, choices: Choices, session: Session | None) -> Settings:
        by_action = self.resolved(editor).settings.effort_by_action
        overrides = list_overrides(spec, by_action, choices, {} if session is None else session.choices)
        try:
            return self.resolved(editor, *overrides).settings
        except ValidationError as error:
            key = ".".join(str(part) for part in error.errors(include_url=False, include_input=False)[0]["loc"])
            raise SettingsError(key, f"The {key} must be {limit_of(error)}.") from None

    def _service(self, provider: Provider) -> str:
        """Tells services apart, without showing an address that may hold a password. Empty for the simulator."""
        host = self.host(provider)
        if host is None:
            return ""
        return sha256(f"{host.provider} {host.base_url}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def accepted(self, provider: Provider, model: ModelInfo, thinking: Thinking) -> Thinking:
        """Return the thinking that the service is sent, as far as its refusals are known in this process."""
        return self.connections.remedies(provider, self.host(provider)).accepted(model, thinking)

    async def recall_refusals(self, session_id: str, settings: Settings) -> None:
        """Learn from the store what the service that a turn with these settings would use has refused."""
        provider, _ = self.target(settings)
        if service := self._service(provider):
            remedies = self.connections.remedies(provider, self.host(provider))
            for remedy in await self.store.remedies(session_id, service):
                remedies.learn(remedy)

    def _chooser(
        self, provider: Provider, model: ModelInfo, settings: Settings, configured: Callable[..., TurnConfig]
    ) -> Callable[[], Awaitable[tuple[TurnConfig, tuple[str, ...]]]] | None:
        """What the server has to be asked before the turn; None where nothing is missing."""
        if not model.id:
            return lambda: self._chosen(provider, settings, configured)
        if provider != "openai-compatible" or model.context_window is not None:
            return None
        if self.models.told(self.host(provider)) is not None:
            return None
        return lambda: self._measured(provider, settings, configured, model.id)

    async def _measured(
        self, provider: Provider, settings: Settings, configured: Callable[..., TurnConfig], model_id: str
    ) -> tuple[TurnConfig, tuple[str, ...]]:
        """The turn's configuration with the window that the server tells, where it does."""
        await self.models.measure(provider, await self._access(provider))
        model = self._model(provider, model_id)
        return configured(model, plan=plan_for(settings, model)), ()

    async def _chosen(
        self, provider: Provider, settings: Settings, configured: Callable[..., TurnConfig]
    ) -> tuple[TurnConfig, tuple[str, ...]]:
        """The turn's configuration with the server's own choice of model, and what to tell the user."""
        known = self.models.told(self.host(provider))
        models = await self.models.of(provider, await self._access(provider))
        model = self._model(provider, models[0])
        plan = plan_for(settings, model)
        others = f" It has {len(models) - 1} more; thinklsp.model chooses." if len(models) > 1 else ""
        said = f"No model is set; the first one of the server is used, {model.id}.{others}"
        news = () if known is not None and known.models else (said,)
        return configured(model, plan=plan), (*news, *plan.notices, *not_kept(settings, model))

    async def _access(self, provider: Provider) -> Access:
        access = await self.access(provider)
        if access is None:
            raise AssertionError("a compatible server has an address")
        return access

    def _release(self, session_id: str, turn_id: str) -> None:
        if self._busy.get(session_id) == turn_id:
            del self._busy[session_id]
