"""The demo's language client, which is based on pygls. The client starts a server process and always ends it."""

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

# The demo itself reports the errors that pygls logs. Without a handler, Python also prints them.
logging.getLogger("pygls").addHandler(logging.NullHandler())


class DemoFailed(ThinkLspError):
    """A failure of the demo. The message names the step that failed."""


class ServerExited(DemoFailed):
    """A failure caused by a server process that exited too early."""


class DemoClient(LanguageClient):
    """A language client for a single server process.

    pygls 2.1 has three limitations, which `run_process` avoids: `start_io` does not read standard error, `stop` may
    wait forever, and requests never complete after the server has exited.
    """

    def __init__(self, *, shutdown_seconds: float = 3.0) -> None:
        super().__init__("thinklsp demo", __version__, converter_factory=make_converter)
        self._shutdown_seconds = shutdown_seconds
        self._stopping = Event()
        self._reader: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def run_process(
        self, argv: Sequence[str], *, environment: Mapping[str, str], folder: str, log: IO[bytes]
    ) -> AsyncIterator[None]:
        """Start a server and shut it down at the end of the block. `log` receives the server's standard error."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=folder,
            start_new_session=True,  # Ctrl-C must reach only the demo, which then shuts down the server.
        )
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process must be started with pipes")
        self.protocol.set_writer(process.stdin)
        reading = run_async(self._stopping, process.stdout, self.protocol, error_handler=self.report_server_error)
        self._reader = asyncio.create_task(reading)
        try:
            yield
            await self._shut_down(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def wait_for(self, request: Future[T]) -> T:
        """Wait for the response to a request.

        Raises DemoFailed with the server's error message, or ServerExited if the server exits first.
        """
        if self._reader is None:
            raise ValueError("no server has been started")
        answer = asyncio.wrap_future(request)
        try:
            await asyncio.wait((answer, self._reader), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ServerExited("The server exited before it answered a request.")
            return answer.result()
        except JsonRpcException as error:
            raise DemoFailed(error.message) from None
        finally:
            answer.cancel()

    def report_server_error(
        self,
        error: Exception,  # noqa: ARG002 - pygls passes the error
        source: type[PyglsError | JsonRpcException],
    ) -> None:
        """Stop reading if the server sends an invalid message, because the pending request may never complete.

        Errors in the server's own requests are ignored here, because the server receives them as responses.
        """
        if source is not FeatureRequestError:
            self._stopping.set()

    async def _shut_down(self, process: asyncio.subprocess.Process) -> None:
        """Send `shutdown` and `exit`. Raises DemoFailed if the process does not exit with code 0."""
        try:
            async with asyncio.timeout(self._shutdown_seconds):
                await self.wait_for(self.shutdown(None))
                self.exit(None)
                code = await process.wait()
        except TimeoutError:
            raise DemoFailed("The server did not exit after `shutdown` and `exit`.") from None
        if code != 0:
            raise DemoFailed(f"The server exited with code {code} instead of 0.")


def make_converter() -> Converter:
    """Return pygls' converter with a workaround for lsprotocol 2025.0, which parses some code actions as commands."""
    converter: Converter = default_converter()  # type: ignore[no-untyped-call] # pygls does not type this function.

    def structure_action(value: Mapping[str, Any], _: type) -> types.Command | types.CodeAction:
        if isinstance(value.get("command"), str):
            return converter.structure(value, types.Command)
        return converter.structure(value, types.CodeAction)

    converter.register_structure_hook(types.Command | types.CodeAction, structure_action)
    return converter
