"""Which models a compatible server has, and how much they read, as the server tells it; asked once."""

from __future__ import annotations

import asyncio

from thinklsp.core.errors import Overloaded, ThinkLspError, TransportFailed, TurnRefused
from thinklsp.engine.adapters import adapter_for, endpoint_of
from thinklsp.engine.user_config import UserConfig
from thinklsp.providers.capabilities import Capabilities
from thinklsp.settings import Access, Provider

_SECONDS = 10.0
# Where a turn can do without.
_ASIDE_SECONDS = 2.0
_BYTES = 4 * 1024 * 1024


class ServerModels:
    """Mutable, owned by the engine: by base URL, what each server has told."""

    def __init__(self, config: UserConfig) -> None:
        self._config = config
        self._told: dict[str, Capabilities] = {}

    def told(self, host: Access | None) -> Capabilities | None:
        """None where it has not been asked."""
        return None if host is None else self._told.get(host.base_url)

    def keep(self, host: Access, told: Capabilities) -> None:
        self._told[host.base_url] = told

    async def of(self, provider: Provider, access: Access, *, seconds: float = _SECONDS) -> tuple[str, ...]:
        """Ids of the models that the server has, at least one. Raises a ThinkLspError that says what to do where it has
        none or does not tell."""
        known = self.told(access)
        if known is not None and known.models:
            return known.models
        adapter, endpoint = adapter_for(provider, access), endpoint_of(access)
        url, headers = adapter.encode_model_query(endpoint, "")
        try:
            async with asyncio.timeout(seconds), self._config.now.transport.get(url, headers) as answer:
                status, said, body = answer.status, answer.headers, await answer.read(_BYTES)
        except TimeoutError:
            sentence = f"The server at {endpoint.host} did not say within {seconds:.0f} s which models it has."
            raise TransportFailed(f"{sentence} Set thinklsp.model.") from None
        if status != 200:
            failure = adapter.failure(status, said, body)
            failure.args = (endpoint.without_secrets(str(failure)),)
            raise failure
        listed = adapter.parse_capabilities(body)
        if listed is None:
            raise TurnRefused(
                f"The server at {access.base_url} did not answer with a list of models: check the base URL, which "
                "usually ends in /v1, or set thinklsp.model."
            )
        if not listed.models:
            raise TurnRefused(f"The server at {access.base_url} has no model yet. Load one there.")
        self.keep(access, listed)
        return listed.models

    async def measure(self, provider: Provider, access: Access) -> None:
        """Asks for what the models read. Where the server does not tell, that is known from then on; nothing is raised,
        for whether it can be reached the model call will say."""
        try:
            await self.of(provider, access, seconds=_ASIDE_SECONDS)
        except Overloaded:
            pass
        except ThinkLspError:
            self.keep(access, Capabilities())
