"""The demo's language client: pygls' own, for one server process that has certainly ended afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import Event
from typing import IO, Any, TypeVar

from cattrs import Converter
from lsprotocol import types
from pygls.exceptions import FeatureRequestError, JsonRpcException, PyglsError
from pygls.io_ import run_async
from pygls.lsp.client import LanguageClient
from pygls.protocol import default_converter

from thinklsp import __version__
from thinklsp.core.errors import ThinkLspError

T = TypeVar("T")

# pygls logs errors that the demo reports itself. Without a handler, Python would print them on standard error.
logging.getLogger("pygls").addHandler(logging.NullHandler())


class DemoFailed(ThinkLspError):
    """The demo failed; the sentence says in which step."""


class ServerGone(DemoFailed):
    """The server's process ended too early."""


class DemoClient(LanguageClient):
    """A client of one server process.

    It uses its own `run_process`, because in pygls 2.1 `start_io` pipes standard error without reading it, `stop` waits
    for a process that may never end, and a request to a server that has ended is never answered.
    """

    def __init__(self, *, goodbye_seconds: float = 3.0) -> None:
        super().__init__("thinklsp demo", __version__, converter_factory=make_converter)
        self._goodbye_seconds = goodbye_seconds
        self._stopping = Event()
        self._reader: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def run_process(
        self, argv: Sequence[str], *, environment: Mapping[str, str], folder: str, log: IO[bytes]
    ) -> AsyncIterator[None]:
        """Run a server until the block ends, then shut it down. `log` receives its standard error."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=folder,
            start_new_session=True,  # Ctrl-C is for the demo, which then ends its server in good order.
        )
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process must be started with pipes")
        self.protocol.set_writer(process.stdin)
        reading = run_async(self._stopping, process.stdout, self.protocol, error_handler=self.report_server_error)
        self._reader = asyncio.create_task(reading)
        try:
            yield
            await self._leave(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def wait_for(self, request: Future[T]) -> T:
        """Return the answer to a request.

        Raises DemoFailed with the server's sentence for an error, ServerGone if the server's output ends before.
        """
        if self._reader is None:
            raise ValueError("no server has been started")
        answer = asyncio.wrap_future(request)
        try:
            await asyncio.wait((answer, self._reader), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ServerGone("The server ended before it had answered.")
            return answer.result()
        except JsonRpcException as error:
            raise DemoFailed(error.message) from None
        finally:
            answer.cancel()

    def report_server_error(
        self,
        error: Exception,  # noqa: ARG002 - pygls passes it
        source: type[PyglsError | JsonRpcException],
    ) -> None:
        """Stop reading after a message that cannot be handled: its request would never be answered.

        The server itself receives errors of its own requests.
        """
        if source is not FeatureRequestError:
            self._stopping.set()

    async def _leave(self, process: asyncio.subprocess.Process) -> None:
        """Send `shutdown` and `exit`. Raises DemoFailed unless the process then ends with code 0."""
        try:
            async with asyncio.timeout(self._goodbye_seconds):
                await self.wait_for(self.shutdown(None))
                self.exit(None)
                code = await process.wait()
        except TimeoutError:
            raise DemoFailed("The server did not leave when it was asked to.") from None
        if code != 0:
            raise DemoFailed(f"The server left with exit code {code} instead of 0.")


def make_converter() -> Converter:
    """Return pygls' converter, corrected: lsprotocol 2025.0 reads a code action that has a command as that command."""
    converter: Converter = default_converter()  # type: ignore[no-untyped-call] # pygls leaves it untyped.

    def structure_action(value: Mapping[str, Any], _: type) -> types.Command | types.CodeAction:
        if isinstance(value.get("command"), str):
            return converter.structure(value, types.Command)
        return converter.structure(value, types.CodeAction)

    converter.register_structure_hook(types.Command | types.CodeAction, structure_action)
    return converter
