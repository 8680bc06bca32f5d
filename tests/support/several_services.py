"""Three services side by side, none of which may hear what belongs to another: two hosts that sign, each with a key of
its own, and the simulator as everybody else. Stands where one provider stands in `outside.start`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Self

from tests.support.canary import Canary, Leak
from tests.support.services import Service
from tests.support.signing_server import SigningServer

# Where a service finds its own key.
_OWN_HEADERS = ("x-api-key", "authorization", "x-goog-api-key")


class SeveralServices:
    """`first` is the one that is spoken to at the beginning; `move` is the environment in which `second` is."""

    def __init__(self, *script: Any) -> None:
        self.first = SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}", *script)
        self.second = SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}")
        self.others = Service()
        self.here = self.first

    async def __aenter__(self) -> Self:
        for each in (self.first, self.second, self.others):
            await each.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in (self.first, self.second, self.others):
            await each.__aexit__()

    def environment(self) -> dict[str, str]:
        return self.others.environment() | self.here.environment()

    def move(self) -> dict[str, str]:
        """The environment of a server that knows the other host from now on."""
        self.here = self.second if self.here is self.first else self.first
        return self.environment()

    @property
    def key(self) -> str:
        return self.here.key

    @property
    def violations(self) -> list[str]:
        return self.first.violations + self.second.violations + self.others.violations

    def secrets(self) -> dict[str, str]:
        """By the name of who issued them: `first, signature 0`."""
        owners = {"first": self.first, "second": self.second, "others": self.others}
        return {
            f"{owner}, {name}": secret
            for owner, service in owners.items()
            for name, secret in service.secrets().items()
        }

    def leaks(self) -> list[Leak]:
        """What a service was sent that belongs to another one; or a key, its own too, but in its header."""
        canary = Canary(self.secrets())
        leaks = [
            leak
            for owner, texts in self._heard().items()
            for text in texts
            for leak in canary.search(text.encode(), f"a request to {owner}")
        ]
        return [leak for leak in leaks if leak.secret.endswith("key") or not leak.where.endswith(_owner(leak))]

    def _heard(self) -> dict[str, set[str]]:
        """By service: each message of a request once, as most of a request is what the last one was."""
        signed = {"first": self.first, "second": self.second}
        heard = {
            owner: {text for seen in service.requests for text in _parts(seen.body, seen.headers)}
            for owner, service in signed.items()
        }
        others = self.others.simulator.requests
        heard["others"] = {text for seen in others for text in _parts(seen.body or {}, seen.headers)}
        return heard


def _owner(leak: Leak) -> str:
    return leak.secret.partition(",")[0]


def _parts(body: Any, headers: Mapping[str, str]) -> Iterator[str]:
    yield json.dumps([value for name, value in headers.items() if name.lower() not in _OWN_HEADERS])
    for name, value in body.items():
        for part in value if isinstance(value, list) else [value]:
            yield json.dumps([name, part])
