"""One server process with a socket, and as many raw clients on it as a test wants."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from tests.support.canary import Canary
from tests.support.client.actions import Editing
from tests.support.client.raw import RawClient
from tests.support.forking import Forked, Nursery
from tests.support.watching import HANG_SECONDS, Watched

Kind = Literal["tcp", "ws"]
Process = asyncio.subprocess.Process | Forked
_TOKEN = re.compile(r"token: ([A-Za-z0-9_-]{43})\n")
ARGV = (sys.executable, "-W", "error", "-m", "thinklsp")


class Listening(Watched):
    """Begins with `start`, or as the first `connect` says. `nursery`: where it is forked from, if it is."""

    def __init__(
        self,
        kind: Kind,
        *options: str,
        argv: Sequence[str] = ARGV,
        nursery: Nursery | None = None,
        client: type[Editing] = RawClient,
    ) -> None:
        super().__init__()
        self._client = client
        self.kind = kind
        self._argv, self._nursery = argv, nursery
        self.words = (f"--{kind}", "127.0.0.1:0", *options)
        self.process: Process | None = None
        self.stdout, self.stderr = bytearray(), bytearray()
        self.clients: list[Editing] = []
        self._readers: list[asyncio.Task[None]] = []

    async def start(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.process = await self._begin(folder, environment)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        for stream, into in ((self.process.stdout, self.stdout), (self.process.stderr, self.stderr)):
            self._readers.append(asyncio.create_task(self._read(stream, into)))
        await self.wait_for(lambda: "listening on" in self.log, what="the address")

    async def _begin(self, folder: Path, environment: Mapping[str, str]) -> Process:
        if self._nursery is not None:
            return await self._nursery.process(self.words, folder, environment, silent=True)
        nothing, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        argv = (*self._argv, *self.words)
        return await asyncio.create_subprocess_exec(
            *argv, cwd=folder, env=dict(environment), stdin=nothing, stdout=pipe, stderr=pipe
        )

    @property
    def log(self) -> str:
        return self.stderr.decode()

    @property
    def port(self) -> int:
        address = re.search(rf"^thinklsp: listening on {self.kind}://127\.0\.0\.1:(\d+)$", self.log, re.MULTILINE)
        assert address is not None, self.log
        return int(address[1])

    @property
    def token(self) -> str:
        """Standard output holds nothing else."""
        told = _TOKEN.fullmatch(self.stdout.decode())
        assert told is not None, self.stdout
        return told[1]

    async def read_token(self) -> str:
        """The token is written before the address, but another task reads it."""
        await self.wait_for(lambda: self.stdout.endswith(b"\n"), what="the token")
        return self.token

    async def connect(self, root: Path, variables: Mapping[str, str]) -> Any:
        if self.process is None:
            await self.start(root, variables)
        assert self.process is not None
        token = await self.read_token()
        client = await self._client.on_socket(cast("Any", self.process), self.kind, self.port, token)
        self.clients.append(client)
        return client

    def leaks(self) -> list[str]:
        """Where the token can be read but on standard output."""
        canary = Canary({"token": self.token})
        written = b"".join(bytes(client.stdout) for client in self.clients)
        found = [*canary.search(bytes(self.stderr), "stderr"), *canary.search(written, "what clients were sent")]
        return [str(leak) for leak in found]

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """By a signal, which is the only way; gives the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        async with asyncio.timeout(HANG_SECONDS):
            code = await self.process.wait()
            await asyncio.gather(*self._readers)
        return code

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        await asyncio.gather(*self._readers)

    def describe(self) -> str:
        return self.log[-3000:]

    async def _read(self, stream: asyncio.StreamReader, into: bytearray) -> None:
        while chunk := await stream.read(65536):
            into += chunk
            self.changed()
