"""From a provider to what calls its models: keys that have to be read, and one caller per endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING

from thinklsp.agent.model_call import HttpModelCaller, ModelCaller
from thinklsp.agent.remedies import Remedies
from thinklsp.core.remedies import Remedy
from thinklsp.engine.adapters import adapter_for, endpoint_of
from thinklsp.engine.user_config import Current
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.providers.base import Endpoint
from thinklsp.settings import (
    Access,
    Provider,
    UserSettings,
    key_command,
    keyring_entry,
    provider_access,
    read_keyring,
    run_key_command,
)

if TYPE_CHECKING:
    from thinklsp.simulator.server import Simulator


# A provider and the address of its service; None for the simulator.
_Service = tuple[Provider, str | None]


def host_of(provider: Provider, user: UserSettings) -> Access | None:
    """Return host and key, without a key that has to be read; None for the simulator. Raises SettingsError."""
    return None if provider == "simulator" or provider == "auto" else provider_access(provider, user)


class Connections:
    """Mutable state: keys that were read, a caller for each endpoint, and the in-process simulator once it runs."""

    def __init__(self) -> None:
        self.callers: dict[Endpoint, HttpModelCaller] = {}
        self._remedies: dict[_Service, Remedies] = {}
        self._transport: Transport | None = None
        self._random = Random()  # noqa: S311 - it only spreads retries in time
        self._read: dict[str | tuple[str, ...], str] = {}
        self._one_key = asyncio.Lock()
        self._simulator: Simulator | None = None
        self._resources = AsyncExitStack()

    async def aclose(self) -> None:
        await self._resources.aclose()

    async def access(self, provider: Provider, user: UserSettings) -> Access | None:
        """Return host and key; None for the simulator, which has neither before it runs.

        A key command runs, and a keyring is asked, once in the life of the engine; both may take seconds. Raises
        SettingsError.
        """
        if provider == "simulator" or provider == "auto":
            return None
        entry, command = keyring_entry(provider, user), key_command(provider, user)
        source = entry or command
        if source is None:
            return host_of(provider, user)
        # Turns that begin together would else make it ask for its password twice.
        async with self._one_key:
            if source not in self._read:
                reading = read_keyring(provider, entry) if entry else run_key_command(provider, command or ())
                self._read[source] = await reading
        return provider_access(provider, user, printed=self._read[source])

    async def connect(self, now: Current, provider: Provider, known: Iterable[Remedy]) -> ModelCaller:
        """Return what calls the provider's models. `known`: what the service is known to refuse."""
        access = await self.access(provider, now.user)
        if access is None:
            simulator = await self._running_simulator()
            endpoint = Endpoint(provider, simulator.base_url, "simulator")
        else:
            endpoint = endpoint_of(access)
        if self._transport not in (None, now.transport):
            # The user has changed the way out.
            self.callers.clear()
        self._transport = now.transport
        if endpoint not in self.callers:
            self.callers[endpoint] = HttpModelCaller(
                adapter_for(provider, access),
                endpoint,
                now.transport,
                policy=RetryPolicy(),
                rng=self._random.random,
                remedies=self.remedies(provider, access),
            )
        for remedy in known:
            self.remedies(provider, access).learn(remedy)
        return self.callers[endpoint]

    def remedies(self, provider: Provider, access: Access | None) -> Remedies:
        """Return what the service is known to refuse in this process."""
        return self._remedies.setdefault((provider, None if access is None else access.base_url), Remedies())

    async def _running_simulator(self) -> Simulator:
        if self._simulator is None:
            # Few turns talk to the simulator, and every process would have to load it.
            from thinklsp.simulator.scenario import load  # noqa: PLC0415 - see above
            from thinklsp.simulator.server import Simulator  # noqa: PLC0415 - see above

            self._simulator = await self._resources.enter_async_context(Simulator(load("sample")))
        return self._simulator
