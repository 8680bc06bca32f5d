"""The provider that signs and the simulator as everybody else, side by side."""

from __future__ import annotations

import secrets
from typing import Self

from tests.support.services import Service
from tests.support.signing_server import SigningServer


class BothServices:
    """Stands where one provider stands in `outside.start`."""

    def __init__(self) -> None:
        self.signing = SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}")
        self.others = Service()

    async def __aenter__(self) -> Self:
        await self.signing.__aenter__()
        await self.others.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.others.__aexit__()
        await self.signing.__aexit__()

    @property
    def violations(self) -> list[str]:
        return self.signing.violations + self.others.violations

    def environment(self) -> dict[str, str]:
        return self.others.environment() | self.signing.environment()

    def secrets(self) -> dict[str, str]:
        return self.others.secrets() | self.signing.secrets()
