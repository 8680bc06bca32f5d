"""The engine, which runs the turns of one client."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pydantic import ValidationError

from thinklsp.agent.budget import ContextMeter, DaySpending, TurnConfig, UsageLedger
from thinklsp.core.bounded_dict import BoundedDict
from thinklsp.core.errors import SettingsError
from thinklsp.core.server_context import LOCAL_IDENTITY, ClientIdentity
from thinklsp.engine.connections import (
    ProviderConnections,
    apply_server_capabilities,
    identify_service,
    select_adapter,
)
from thinklsp.engine.instructions import ProjectInstructions
from thinklsp.engine.mcp_servers import McpServers
from thinklsp.engine.session_claims import SessionClaims
from thinklsp.engine.session_stores import TeamBudgets
from thinklsp.engine.turn import Turn
from thinklsp.engine.turn_config import Choices, build_turn_config, list_overrides
from thinklsp.engine.turn_request import TurnRequest, check_images, read_excerpts, read_images
from thinklsp.engine.user_commands import RunnerFactory, UserCommands, create_sandbox_runner
from thinklsp.engine.user_config import UserConfig, locate_permissions
from thinklsp.http.transport import Transport
from thinklsp.providers.base import Thinking
from thinklsp.providers.catalogue import Catalogue, ModelInfo
from thinklsp.sessions.session import Session
from thinklsp.sessions.sqlite_store import MemoryStore
from thinklsp.sessions.store import SessionStore
from thinklsp.settings.access import list_keyed_providers
from thinklsp.settings.admin_file import load_budgets_section
from thinklsp.settings.model import KEYED_PROVIDERS, Provider, Settings, describe_limit
from thinklsp.settings.sources import EditorSettings, ResolvedSettings, resolve_settings
from thinklsp.settings.user_file import UserSettings
from thinklsp.tools.command import Approval
from thinklsp.workspace.overlay import EditOverlay

_log = logging.getLogger(__name__)

_MAX_METERS, _MAX_SESSIONS = 16, 1_000


class Engine:
    """The shared state of a client's turns.

    The state includes the settings, the session store, the provider connections, today's spending and the user's
    approvals.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        store: SessionStore | None = None,
        *,
        identity: ClientIdentity = LOCAL_IDENTITY,
        runner_factory: RunnerFactory = create_sandbox_runner,
    ) -> None:
        self.identity = identity
        self.config = UserConfig(environment)
        self.store: SessionStore = MemoryStore() if store is None else store
        self.connections = ProviderConnections(self.config)
        self._spending = DaySpending()
        self.budgets = TeamBudgets(load_budgets_section(environment), identity, self.store)
        self.claims = SessionClaims(self.store)
        self._meters: dict[str, ContextMeter] = BoundedDict(_MAX_METERS)
        self._runner_factory = runner_factory
        self._session_approvals: dict[str, set[Approval]] = BoundedDict(_MAX_SESSIONS)
        self.permissions = locate_permissions(self.user, identity)
        self.instructions = ProjectInstructions(self.permissions, self.user.path)
        self.mcp_servers = McpServers(environment, self.permissions, identity)

    async def aclose(self) -> None:
        await self.mcp_servers.aclose()
        await self.connections.aclose()
        await self.store.aclose()
        await self.config.aclose()

    @property
    def user(self) -> UserSettings:
        return self.config.current.user

    @property
    def catalogue(self) -> Catalogue:
        return self.config.current.catalogue

    @property
    def transport(self) -> Transport:
        return self.config.current.transport

    def resolve_settings(self, editor: EditorSettings, *overrides: tuple[str, Choices]) -> ResolvedSettings:
        return resolve_settings(self.user, editor, overrides=overrides)

    async def open_session(self, session_id: str | None, workspace: str) -> Session:
        """Return a session in the workspace, or a new session if `session_id` is None.

        The id `last` means the newest session. Raises SessionError if the id is unknown or belongs to another
        workspace.
        """
        if session_id is None:
            return await self.store.create(workspace)
        if session_id == "last":
            return await self.store.find_latest(workspace)
        return await self.store.get(session_id, workspace)

    async def _find_session(self, request: TurnRequest, turn_id: str) -> Session | None:
        """Return the session that a request continues, or None for a new one. Raises SessionError if it is busy."""
        if request.session_id is None:
            return None
        session = await self.open_session(request.session_id, request.workspace)
        self.claims.check(session.id, turn_id)
        return session

    async def record_undo(self, session_id: str) -> None:
        """Record that the user undid edits, so that the session's next prompt informs the model.

        Raises SessionError.
        """
        await self.store.update(session_id, lambda session: session.mark_undone())
        await self.claims.release_lease(session_id)

    async def start_turn(
        self, request: TurnRequest, editor: EditorSettings, choices: Choices, *, turn_id: str | None = None
    ) -> Turn:
        """Check a request without calling a model, claim its session, and return the turn.

        The caller may already have claimed the session with `turn_id`. Raises TurnRefused, ImageRefused, SettingsError,
        SessionError or PathRefused with a message for the user. A failed call leaves the engine unchanged.
        """
        excerpts, images = read_excerpts(request), read_images(request)
        turn_id = turn_id or secrets.token_hex(8)
        config_notices = await self.config.refresh()
        now = self.config.current
        known = await self._find_session(request, turn_id)
        settings = self._resolve_turn_settings(request, editor, choices, known)
        provider, model = self.resolve_target(settings)
        check_images(images, model, () if known is None else known.conversation)
        select_adapter(provider, self.connections.resolve_host(provider))
        commands = self.user.file.commands
        runner = await self._runner_factory(commands, self.user.environment) if commands.enabled else None
        config, notices = build_turn_config(model, settings, request, has_commands=runner is not None)
        session = known or await self.open_session(None, request.workspace)
        granted = self._session_approvals[session.id] = self._session_approvals.get(session.id, set())
        _log.debug("turn %s: %s, model %s, thinking %s", turn_id, provider, model.id, config.thinking)
        self.claims.claim(session.id, turn_id)
        return Turn(
            turn_id,
            self,
            request,
            session,
            config,
            now.user,
            settings,
            notices=(*config_notices, *notices),
            excerpts=excerpts,
            images=images,
            connect=lambda known: self.connections.connect(now, provider, known),
            service_id=identify_service(self.connections.resolve_host(provider)),
            commands=None if runner is None else UserCommands(runner, self.user, self.permissions, granted),
            usage=UsageLedger(self._spending),
            overlay=EditOverlay(request.view),
        )

    def get_meter(self, session_id: str) -> ContextMeter:
        """Return the session's context meter. The engine keeps only the most recently used meters."""
        meter = self._meters[session_id] = self._meters.get(session_id) or ContextMeter()
        return meter

    def forget_session(self, session_id: str) -> None:
        """Discard the context meter and the approvals of a deleted session."""
        self._meters.pop(session_id, None)
        self._session_approvals.pop(session_id, None)
        self.mcp_servers.forget_session(session_id)

    def resolve_target(self, settings: Settings) -> tuple[Provider, ModelInfo]:
        """Return the provider and the model for a turn with the given settings.

        The model id is empty if the first model of an OpenAI-compatible server is not known yet. Raises
        SettingsError if no provider has a key.
        """
        provider: Provider = settings.provider
        if provider == "auto":
            keyed = list_keyed_providers(self.user)
            if not keyed:
                raise SettingsError(
                    "key",
                    "No model provider has a key. Set the environment variable `ANTHROPIC_API_KEY`, `OPENAI_API_KEY` "
                    "or `GEMINI_API_KEY`, or `THINKLSP_COMPATIBLE_BASE_URL` for your own server (Ollama: "
                    "http://localhost:11434/v1), or set `thinklsp.provider` to `simulator` "
                    "(in a terminal: `THINKLSP_PROVIDER=simulator`) to try thinklsp offline.",
                )
            provider = self._find_provider(settings.model, keyed)
        return provider, self._resolve_model(provider, settings.model or self.catalogue.find_default_model(provider))

    def _resolve_model(self, provider: Provider, model_id: str) -> ModelInfo:
        host = self.connections.resolve_host(provider)
        catalogue_model = self.catalogue.find_model(provider, model_id, day=datetime.now(UTC).date())
        return apply_server_capabilities(catalogue_model, host, self.connections.find_capabilities(host))

    def _find_provider(self, model: str | None, keyed_providers: Sequence[Provider]) -> Provider:
        """Return the first provider that lists the model.

        If no provider lists it, return the first provider with a key.
        """
        listing_providers = (name for name in keyed_providers if model and self.catalogue.find_model(name, model).known)
        return next(listing_providers, keyed_providers[0])

    def list_model_choices(self, provider: Provider) -> tuple[str, ...]:
        """Return the ids of the provider's models in the catalogue. `auto` selects all providers that have a key."""
        names = list_keyed_providers(self.user) if provider == "auto" else (provider,)
        return tuple(model for name in names or KEYED_PROVIDERS for model in self.catalogue.list_models(name))

    def _resolve_turn_settings(
        self, request: TurnRequest, editor: EditorSettings, choices: Choices, session: Session | None
    ) -> Settings:
        by_action = self.resolve_settings(editor).settings.effort_by_action
        overrides = list_overrides(request, by_action, choices, {} if session is None else session.choices)
        try:
            return self.resolve_settings(editor, *overrides).settings
        except ValidationError as error:
            key = ".".join(str(part) for part in error.errors(include_url=False, include_input=False)[0]["loc"])
            raise SettingsError(key, f"`{key}` must be {describe_limit(error)}.") from None

    def adjust_thinking(self, provider: Provider, model: ModelInfo, thinking: Thinking) -> Thinking:
        """Adjust the thinking parameters according to the fallbacks that this process has learned."""
        return self.connections.find_fallbacks(provider, self.connections.resolve_host(provider)).adjust_thinking(
            model, thinking
        )

    async def load_fallbacks(self, session_id: str, settings: Settings) -> None:
        """Load the stored fallbacks for the provider that a turn with the given settings calls."""
        provider, _ = self.resolve_target(settings)
        if service := identify_service(self.connections.resolve_host(provider)):
            remedies = self.connections.find_fallbacks(provider, self.connections.resolve_host(provider))
            for remedy in await self.store.list_fallbacks(session_id, service):
                remedies.learn(remedy)

    async def complete_config(self, turn: Turn) -> tuple[TurnConfig, tuple[str, ...]]:
        """Query an OpenAI-compatible server for its first model or an unknown context window, if the turn needs it.

        Returns the turn's configuration with the answer, and notices for the user.
        """
        model = turn.config.model
        if model.provider != "openai-compatible" or (model.id and model.context_window is not None):
            return turn.config, ()
        access = await self.connections.resolve_access("openai-compatible")
        if access is None:
            raise AssertionError("an OpenAI-compatible server must have an address")
        cached = self.connections.find_capabilities(access)
        if model.id:
            if cached is None:
                await self.connections.query_context_windows(access)
            return self._build_config(turn, model.id)[0], ()
        models = await self.connections.list_models(access)
        config, notices = self._build_config(turn, models[0])
        if cached is not None and cached.models:
            return config, notices
        others_text = (
            f" The server has {len(models) - 1} more. To choose one, set `thinklsp.model`." if len(models) > 1 else ""
        )
        text = f"No model is set, so the server's first model is used: {config.model.id}.{others_text}"
        return config, (text, *notices)

    def _build_config(self, turn: Turn, model_id: str) -> tuple[TurnConfig, tuple[str, ...]]:
        model = self._resolve_model("openai-compatible", model_id)
        return build_turn_config(model, turn.settings, turn.request, has_commands=turn.commands is not None)
