"""A real llama-server as one process, with the model of `says`. Stands where a provider stands in `outside.start`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import urllib.request
from pathlib import Path
from typing import Any, Self

from tests.support.watching import Watched

KEY = "sk-llama-canary-Wd5xTn8qRb2kLm7vHs4c"
_LISTENING = "listening on http"
_START_SECONDS = 60.0


class LlamaServer(Watched):
    """`async with LlamaServer(folder, model, *options):`. `key` is what thinklsp is given, None for nothing.

    `kind` and `config` are what thinklsp's own file says of it.
    """

    def __init__(
        self, folder: Path, *options: str, key: str | None = None, kind: str = "llama.cpp", config: str = ""
    ) -> None:
        super().__init__()
        self.violations: list[str] = []
        self.port = _free_port()
        self.log = ""
        self._options, self._key = options, key
        self._config = folder / "thinklsp.toml"
        self._config.write_text(f'[providers.openai-compatible]\nserver = "{kind}"\n{config}\n')
        self._config.chmod(0o600)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        where = ("--host", "127.0.0.1", "--port", str(self.port), "--slots")
        self._process = await asyncio.create_subprocess_exec(
            program(),
            *where,
            *self._options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._reader = asyncio.create_task(self._read())
        await self.wait_for(lambda: _LISTENING in self.log, within=_START_SECONDS, what="that llama-server listens")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        if self._process is not None and self._reader is not None:
            await self._process.wait()
            await self._reader

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def environment(self) -> dict[str, str]:
        key = {} if self._key is None else {"THINKLSP_COMPATIBLE_API_KEY": self._key}
        return {"THINKLSP_COMPATIBLE_BASE_URL": f"{self.url}/v1", "THINKLSP_CONFIG": str(self._config), **key}

    def secrets(self) -> dict[str, str]:
        return {} if self._key is None else {"the server's key": self._key}

    async def is_busy(self) -> bool:
        """Whether a slot of the server works."""
        slots: Any = await asyncio.to_thread(_read_json, f"{self.url}/slots")
        return any(slot["is_processing"] for slot in slots)

    def describe(self) -> str:
        return self.log[-3000:]

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.log += line.decode("utf-8", "replace")
            self.changed()


def program() -> str:
    """Return the program. Raises RuntimeError with a sentence if it is missing."""
    found = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    if found is None or not os.access(found, os.X_OK):
        raise RuntimeError(
            "These tests need llama-server: `tests/llama_server/scripts/build_llama_server.sh FOLDER` builds one in 12 "
            "minutes and prints its path, for the environment variable `LLAMA_SERVER`."
        )
    return os.path.abspath(found)


def _read_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - an address of our own
        return json.load(answer)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port
