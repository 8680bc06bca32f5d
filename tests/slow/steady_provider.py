"""The benchmark's service in place of the signing provider: it streams steadily and checks nothing."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from typing import Self

from tests.support.outside import ROOT


class SteadyProvider:
    """A service in a process of its own, for `outside.start`. Prompts are `tests.bench.source.build_prompt`."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._key = f"sk-ant-canary-{secrets.token_hex(24)}"
        self._url = ""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.source",
            cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert self._process.stdout is not None
        self._url = (await self._process.stdout.readline()).decode().strip()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()

    def environment(self) -> dict[str, str]:
        return {"ANTHROPIC_API_KEY": self._key, "ANTHROPIC_BASE_URL": self._url}

    def secrets(self) -> dict[str, str]:
        return {"api key": self._key}
