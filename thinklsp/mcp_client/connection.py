"""The connection to one MCP server, which is started when it is first needed and again after a crash."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from thinklsp.core.errors import McpFailed, format_install_command
from thinklsp.core.import_context import reduce_gc, switch_threads_often
from thinklsp.mcp_client.call_result import CallResult
from thinklsp.mcp_client.elicitation import Elicit
from thinklsp.mcp_client.guarded_process import ServerCommand, build_sandboxed_command
from thinklsp.mcp_client.server_config import ListedTool, ServerConfig
from thinklsp.settings.access import KEY_VARIABLES
from thinklsp.settings.user_file import NetworkSection

if TYPE_CHECKING:
    from thinklsp.mcp_client.sdk_session import SdkSession

_LOG = logging.getLogger(__name__)

_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR")
_OWN_PREFIX = "THINKLSP_"


def build_environment(config: ServerConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Return a server's environment: a few of the user's variables, and those of the server's configuration.

    Provider keys and thinklsp's own variables are left out, even if the configuration names them. So are relative
    entries of the inherited PATH, because a program in the workspace must not replace a system program.
    """
    inherited = {name: environment[name] for name in _INHERITED if name in environment}
    path = [entry for entry in inherited.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(entry)]
    inherited["PATH"] = os.pathsep.join(path) or os.defpath
    return {
        name: value
        for name, value in {**inherited, **config.env}.items()
        if name not in KEY_VARIABLES and not name.upper().startswith(_OWN_PREFIX)
    }


REQUIREMENT = "mcp>=2.3,<3"
_MODULE = "thinklsp.mcp_client.sdk_session"
# The first use of anyio would import this module on the event loop, which takes 20 ms.
_LATE_MODULE = "anyio._backends._asyncio"
# The SDK logs parts of messages and the URLs of requests.
_SILENT_LOGGERS = ("mcp", "httpx2", "httpcore2")


def explain_missing_sdk() -> str | None:
    """Return a sentence that names the command that installs the SDK, or None if the SDK is installed."""
    if find_spec("mcp") is not None:
        return None
    return f"MCP servers need one more package. Run {format_install_command(REQUIREMENT)} and restart thinklsp."


async def load_session_class() -> type[SdkSession]:
    """Import the SDK in a thread and return the class of sessions. Raises McpFailed if the SDK cannot be used."""
    return await asyncio.to_thread(_load)


def _load() -> type[SdkSession]:
    if (problem := explain_missing_sdk()) is not None:
        raise McpFailed(problem)
    for name in _SILENT_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with reduce_gc(), switch_threads_often():
            session: type[SdkSession] = importlib.import_module(_MODULE).SdkSession
            importlib.import_module(_LATE_MODULE)
    except ImportError as error:
        command = format_install_command(REQUIREMENT)
        raise McpFailed(f"The installed package `mcp` cannot be used ({error.name}). Run {command}.") from None
    return session


State = Literal["stopped", "starting", "ready", "failed", "off"]

RESTART_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0)
# A server that was ready for this long before a crash has all of its restarts again.
_STABLE_SECONDS = 600.0
# A server that is slow to start, because it is being downloaded, may become ready for a later turn.
_ATTEMPT_FACTOR = 6


class McpConnection:
    """The connection to one server.

    `environment` is the user's environment, of which the server receives a few variables. `folders` are the workspace
    folders. `network` comes from the user's own configuration. `pause` waits before a restart. `clock` returns seconds.

    `state` is `failed` while the connection waits for a restart, and `off` if the server is not started again. `tools`
    are the tools as the server listed them, and `are_tools_stale` is true if the list has changed since.
    `start_seconds` is the time from the start to the list of tools, and `era` the version of the protocol.
    """

    def __init__(
        self, config: ServerConfig, environment: Mapping[str, str], folders: Sequence[str],
        network: NetworkSection | None = None, *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep, clock: Callable[[], float] | None = None,
    ) -> None:  # fmt: skip
        self.config = config
        self.state: State = "stopped"
        self.era = ""
        self.start_seconds: float | None = None
        self.last_error = ""
        self.tools: tuple[ListedTool, ...] = ()
        self._environment = environment
        self._folders = folders
        self._network = network or NetworkSection()
        self._pause = pause
        self._clock = clock or asyncio.get_running_loop().time
        self._session: SdkSession | None = None
        self._owner: asyncio.Task[None] | None = None
        self._state_event = asyncio.Event()
        self._attempt_started = 0.0
        self._crashes = 0
        self.are_tools_stale = False
        self._stderr_tail = ""
        self._is_closed = False

    @property
    def label(self) -> str:
        """The name of the server at the beginning of a message."""
        return f"The MCP server `{self.config.name}`"

    @property
    def stderr_tail(self) -> str:
        """The last 64 KiB that the server wrote to its standard error."""
        return self._session.transport.stderr_tail if self._session is not None else self._stderr_tail

    @property
    def server_pid(self) -> int | None:
        """The id of the server's first process, if it is running on this machine."""
        return self._session.transport.server_pid if self._session is not None else None

    async def start(self) -> None:
        """Start the server if it is not running, and list its tools again if they have changed.

        The start takes at most `start_timeout_seconds`, which all concurrent callers share. A start that takes longer
        goes on in the background for a later turn. Raises McpFailed if the server is not ready.
        """
        if self._is_closed:
            raise McpFailed(f"{self.label} was closed.")
        if self._owner is None:
            # The import takes more than a second once, and does not count as the server's time.
            await load_session_class()
        if self._owner is None:
            self._begin_attempt()
            self._owner = asyncio.create_task(self._run(), name=f"mcp-{self.config.name}")
        remaining = self._attempt_started + self.config.start_timeout_seconds - self._clock()
        await self._wait_while("starting", remaining)
        if self.state == "starting":
            raise McpFailed(self._explain_timeout())
        session = self._require_session()
        if self.are_tools_stale:
            await self._refresh_tools(session)

    async def call(self, name: str, arguments: Mapping[str, Any], elicit: Elicit) -> CallResult:
        """Call a tool. A call is never repeated.

        After a crash, wait for the restart for at most `start_timeout_seconds`. Raises McpFailed if the server is not
        ready, does not finish in time, or crashes during the call, when the outcome is unknown.
        """
        await self._wait_while(("starting", "failed"), self.config.start_timeout_seconds)
        session = self._require_session()
        call = asyncio.ensure_future(session.call(name, arguments, elicit))
        ended = asyncio.ensure_future(session.transport.ended.wait())
        try:
            await asyncio.wait((call, ended), return_when=asyncio.FIRST_COMPLETED)
            if call.done() and not call.cancelled() and not isinstance(call.exception(), Exception):
                return call.result()
            if call.done() and isinstance(error := call.exception(), McpFailed):
                raise error
            await asyncio.wait((ended,), timeout=1.0)
            reason = session.transport.failure or "has failed"
            raise McpFailed(f"{self.label} {reason}. The outcome of the tool `{name}` is unknown.")
        finally:
            for task in (call, ended):
                task.cancel()
            await asyncio.gather(call, ended, return_exceptions=True)

    async def aclose(self) -> None:
        """End the server. Afterwards the connection cannot be used again."""
        self._is_closed = True
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.cancel()
            await asyncio.wait((owner,))
        self._set_state("stopped")

    async def _run(self) -> None:
        """Run the server until the connection is closed or the server has crashed too often.

        The SDK requires that one task enters and leaves a session.
        """
        while True:
            ready_at = None
            try:
                ready_at = await self._run_once()
            except _Permanent as error:
                self.last_error = str(error)
                # The next turn tries again, because the user may have fixed the cause.
                self._owner = None
                self._set_state("failed")
                return
            if self._is_closed:
                # The libraries below the SDK may have swallowed the cancellation while the session was left.
                return
            if ready_at is not None and self._clock() - ready_at >= _STABLE_SECONDS:
                self._crashes = 0
            if self._crashes == len(RESTART_SECONDS):
                self.last_error += f" It was started {self._crashes + 1} times and is now off for this session."
                self._set_state("off")
                return
            self._set_state("failed")
            await self._pause(RESTART_SECONDS[self._crashes])
            self._crashes += 1
            self._begin_attempt()

    async def _run_once(self) -> float | None:
        """Run the server until it has ended. Return the time at which it was ready, or None."""
        ready_at = None
        session: SdkSession | None = None
        reason = ""
        try:
            async with asyncio.timeout(_ATTEMPT_FACTOR * self.config.start_timeout_seconds) as limit:
                session = self._session = await self._open_session()
                async with session:
                    self.are_tools_stale = False
                    self.tools = await session.list_tools()
                    self.era = session.era
                    ready_at = self._clock()
                    self.start_seconds = ready_at - self._attempt_started
                    limit.reschedule(None)
                    self._set_state("ready")
                    await session.transport.ended.wait()
                    self.last_error = f"{self.label} {session.transport.failure}."
                    self._set_state("failed")
        except _Permanent:
            raise
        except McpFailed as error:
            reason = str(error)
        except TimeoutError:
            reason = self._explain_timeout()
        except Exception as error:  # noqa: BLE001 - the SDK raises errors of its libraries, in groups
            cause = find_cause(error)
            name = type(cause).__name__
            reason = str(cause) if isinstance(cause, McpFailed) else f"{self.label} failed ({name})."
            _LOG.info("the connection to an MCP server failed: %s", name)
        finally:
            if session is not None:
                self._stderr_tail = session.transport.stderr_tail
            self._session = None
        if session is not None and session.transport.failure:
            reason = f"{self.label} {session.transport.failure}."
        self.last_error = reason
        return ready_at

    async def _open_session(self) -> SdkSession:
        """Prepare a session. Raises _Permanent if the configuration or this machine must change first."""
        try:
            session_class = await load_session_class()
            command = None if self.config.url is not None else await asyncio.to_thread(self._build_command)
            return await session_class.open(
                self.config, self.label, self._folders, self._note_list_change, command=command,
                environment=self._environment, network=self._network,
            )  # fmt: skip
        except McpFailed as error:
            raise _Permanent(str(error)) from None

    def _build_command(self) -> ServerCommand:
        environment = build_environment(self.config, self._environment)
        cwd = self.config.cwd or (self._folders[0] if self._folders else environment.get("HOME", "/"))
        if not os.path.isabs(cwd) or not os.path.isdir(cwd):
            raise McpFailed(f"{self.label} does not start, because its working directory does not exist: {cwd}.")
        if self.config.is_sandboxed:
            return build_sandboxed_command(self.label, self.config.command, environment, cwd, self._folders)
        return ServerCommand(self.config.command, environment, cwd)

    async def _refresh_tools(self, session: SdkSession) -> None:
        self.are_tools_stale = False
        try:
            async with asyncio.timeout(self.config.start_timeout_seconds):
                self.tools = await session.list_tools()
        except TimeoutError:
            self.are_tools_stale = True
            raise McpFailed(f"{self.label} did not list its tools in time.") from None

    def _note_list_change(self) -> None:
        self.are_tools_stale = True

    def _begin_attempt(self) -> None:
        self._attempt_started = self._clock()
        self._set_state("starting")

    def _set_state(self, state: State) -> None:
        self.state = state
        self._state_event.set()
        self._state_event = asyncio.Event()

    async def _wait_while(self, states: str | tuple[str, ...], seconds: float) -> None:
        """Wait until the state is another one, for at most `seconds`."""
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                while self.state in states:
                    await self._state_event.wait()
        except TimeoutError:
            return

    def _require_session(self) -> SdkSession:
        if self.state == "ready" and self._session is not None:
            return self._session
        raise McpFailed(self.last_error or f"{self.label} is not running.")

    def _explain_timeout(self) -> str:
        text = f"{self.label} was not ready within {self.config.start_timeout_seconds:g} seconds."
        if self._session is not None and self._session.transport.unreadable_lines:
            return f"{text} It prints text that is not JSON-RPC to its standard output."
        return f"{text} If it needs more time, raise its `start_timeout_s`."


class _Permanent(McpFailed):
    """The error raised if another attempt cannot help."""


def find_cause(error: BaseException) -> BaseException:
    """Return the first error of a group, which the SDK's task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
