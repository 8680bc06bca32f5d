"""Connections to model providers: adapters, API keys, model callers and the model lists of servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING

from thinklsp.agent.model_call import HttpModelCaller, ModelCaller
from thinklsp.agent.request_fallbacks import RequestFallbacks
from thinklsp.core.errors import Overloaded, ThinkLspError, TransportFailed, TurnRefused
from thinklsp.core.events import Fallback
from thinklsp.engine.user_config import ConfigSnapshot, UserConfig
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.providers.anthropic import AnthropicAdapter
from thinklsp.providers.base import Adapter, Endpoint
from thinklsp.providers.catalogue import Capabilities, ModelInfo
from thinklsp.providers.chat_adapter import OpenAiChatAdapter
from thinklsp.providers.chat_servers import ChatServer, resolve_server
from thinklsp.providers.google import GoogleAdapter
from thinklsp.providers.responses_adapter import OpenAiResponsesAdapter
from thinklsp.settings.access import (
    Access,
    find_key_source,
    read_external_key,
    resolve_access,
)
from thinklsp.settings.model import Provider
from thinklsp.settings.user_file import UserSettings

if TYPE_CHECKING:
    from thinklsp.offline.service import OfflineService

# The simulator uses Anthropic's wire format.
_ADAPTERS: Mapping[str, Adapter] = {
    "simulator": AnthropicAdapter(),
    "anthropic": AnthropicAdapter(),
    "openai": OpenAiResponsesAdapter(),
    "google": GoogleAdapter(),
}


def identify_service(host: Access | None) -> str:
    """Return a hash that identifies a provider and its address. The result is empty for the simulator."""
    if host is None:
        return ""
    return sha256(f"{host.provider} {host.base_url}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def select_adapter(provider: Provider, access: Access | None) -> Adapter:
    """Return the provider's adapter. The adapter for an OpenAI-compatible server depends on its address.

    Raises SettingsError if the kind of server is unknown.
    """
    return OpenAiChatAdapter(_resolve_server(access)) if provider == "openai-compatible" else _ADAPTERS[provider]


def apply_server_capabilities(model: ModelInfo, access: Access | None, capabilities: Capabilities | None) -> ModelInfo:
    """Add the server's effort levels and context window to a model that the catalogue does not list.

    `capabilities` describes the server's models. It is None if the server has not been queried yet.
    """
    if model.provider != "openai-compatible" or model.known:
        return model
    window = None if capabilities is None else capabilities.find_window(model.id)
    return replace(model, efforts=_resolve_server(access).native_efforts, context_window=window or model.context_window)


def _resolve_server(access: Access | None) -> ChatServer:
    if access is None:
        raise AssertionError("an OpenAI-compatible server must have an address")
    return resolve_server(access.base_url, kind=access.server, echo=access.reasoning, think_tags=access.think_tags)


def build_endpoint(access: Access) -> Endpoint:
    return Endpoint(access.provider, access.base_url, access.api_key, access.bearer, access.headers, access.source)


_QUERY_SECONDS = 10.0
# The time limit for queries whose results are optional.
_OPTIONAL_QUERY_SECONDS = 2.0
_MAX_ANSWER_BYTES = 4 * 1024 * 1024

# The offline model answers in this process. The host name appears only in error messages.
_OFFLINE_ENDPOINT = Endpoint("simulator", "http://localhost", "simulator")
# A provider and its base URL, which is None for the simulator.
_Service = tuple[Provider, str | None]


class ProviderConnections:
    """The provider connections of an engine, for the current settings of the user.

    The object caches API keys, model callers, and by base URL what OpenAI-compatible servers say about their models.
    It opens the offline model.
    """

    def __init__(self, config: UserConfig) -> None:
        self._config = config
        self.callers: dict[Endpoint, HttpModelCaller] = {}
        self._fallbacks: dict[_Service, RequestFallbacks] = {}
        self._transport: Transport | None = None
        self._random = Random()  # noqa: S311 - only spreads retries over time
        self._keys: dict[str | tuple[str, ...], str] = {}
        self._key_lock = asyncio.Lock()
        self._offline_transport: Transport | None = None
        self._offline_lock = asyncio.Lock()
        self._capabilities: dict[str, Capabilities] = {}

    async def aclose(self) -> None:
        if self._offline_transport is not None:
            await self._offline_transport.aclose()

    def resolve_host(self, provider: Provider) -> Access | None:
        """Return the provider's host and key without running a key command or opening the keyring.

        Returns None for the simulator. Raises SettingsError.
        """
        return (
            None
            if provider == "simulator" or provider == "auto"
            else resolve_access(provider, self._config.current.user)
        )

    async def resolve_access(self, provider: Provider, user: UserSettings | None = None) -> Access | None:
        """Return the provider's host and key, or None for the simulator. `user` defaults to the current settings.

        Key commands and keyrings can take seconds, so the engine caches each key. Raises SettingsError, or
        ScenarioError if the simulator's scenario is invalid.
        """
        user = user or self._config.current.user
        if provider == "simulator":
            await self._ensure_offline_transport(user)
        if provider == "simulator" or provider == "auto":
            return None
        source = find_key_source(provider, user)
        if source is None:
            return resolve_access(provider, user)
        # Without the lock, two turns that start at the same time could both run the key command.
        async with self._key_lock:
            if source not in self._keys:
                self._keys[source] = await read_external_key(provider, source, user.environment)
        return resolve_access(provider, user, external_key=self._keys[source])

    async def connect(
        self, now: ConfigSnapshot, provider: Provider, known_fallbacks: Iterable[Fallback]
    ) -> ModelCaller:
        """Return the model caller for the provider.

        `known_fallbacks` are the fallbacks that an earlier process has stored for the provider.
        """
        access = await self.resolve_access(provider, now.user)
        if access is None:
            endpoint, transport = _OFFLINE_ENDPOINT, await self._ensure_offline_transport(now.user)
        else:
            endpoint, transport = build_endpoint(access), now.transport
        if self._transport not in (None, now.transport):
            # Discard all model callers, because the user has changed the proxy or the CA bundle.
            self.callers.clear()
        self._transport = now.transport
        if endpoint not in self.callers:
            self.callers[endpoint] = HttpModelCaller(
                select_adapter(provider, access),
                endpoint,
                transport,
                policy=RetryPolicy(),
                rng=self._random.random,
                fallbacks=self.find_fallbacks(provider, access),
            )
        for remedy in known_fallbacks:
            self.find_fallbacks(provider, access).learn(remedy)
        return self.callers[endpoint]

    def find_fallbacks(self, provider: Provider, access: Access | None) -> RequestFallbacks:
        """Return the fallbacks that this process has learned for the provider at this address."""
        return self._fallbacks.setdefault((provider, None if access is None else access.base_url), RequestFallbacks())

    async def _ensure_offline_transport(self, user: UserSettings) -> Transport:
        """Return the transport to the offline model of this process. Raises ScenarioError."""
        async with self._offline_lock:
            if self._offline_transport is None:
                service = await asyncio.to_thread(_open_offline_service, user.environment)
                self._offline_transport = Transport(handler=service.send_response)
        return self._offline_transport

    def find_capabilities(self, host: Access | None) -> Capabilities | None:
        """Return the capabilities that the server reported, or None if the server has not been queried yet."""
        return None if host is None else self._capabilities.get(host.base_url)

    def store_capabilities(self, host: Access, capabilities: Capabilities) -> None:
        self._capabilities[host.base_url] = capabilities

    async def list_models(self, access: Access, *, seconds: float = _QUERY_SECONDS) -> tuple[str, ...]:
        """Return the ids of an OpenAI-compatible server's models, of which there is at least one.

        Raises ThinkLspError with a message for the user if the server lists no models or does not respond in time.
        """
        cached = self.find_capabilities(access)
        if cached is not None and cached.models:
            return cached.models
        adapter, endpoint = select_adapter("openai-compatible", access), build_endpoint(access)
        url, headers = adapter.encode_model_query(endpoint, "")
        try:
            async with asyncio.timeout(seconds), self._config.current.transport.get(url, headers) as answer:
                status, response_headers, body = answer.status, answer.headers, await answer.read(_MAX_ANSWER_BYTES)
        except TimeoutError:
            sentence = f"The server at {endpoint.host} did not list its models within {seconds:.0f} seconds."
            raise TransportFailed(f"{sentence} Set `thinklsp.model`.") from None
        if status != 200:
            failure = adapter.parse_failure(status, response_headers, body)
            failure.args = (endpoint.hide_secrets(str(failure)),)
            raise failure
        capabilities = adapter.parse_capabilities(body)
        if capabilities is None:
            raise TurnRefused(
                f"The server at {access.base_url} did not return a list of models. Check the base URL, which usually "
                "ends in `/v1`, or set `thinklsp.model`."
            )
        if not capabilities.models:
            raise TurnRefused(f"The server at {access.base_url} has no models. Load a model on the server.")
        self.store_capabilities(access, capabilities)
        return capabilities.models

    async def query_context_windows(self, access: Access) -> None:
        """Query the context windows of the server's models.

        Ignores errors. If the server cannot be reached, the next model call reports the error.
        """
        try:
            await self.list_models(access, seconds=_OPTIONAL_QUERY_SECONDS)
        except Overloaded:
            pass
        except ThinkLspError:
            self.store_capabilities(access, Capabilities())


def _open_offline_service(environment: Mapping[str, str]) -> OfflineService:
    """Open the offline model. The first call imports a fifth of the engine's modules, so use a thread."""
    from thinklsp.offline.service import open_service  # noqa: PLC0415 - only users who try thinklsp offline need it

    return open_service(environment)
