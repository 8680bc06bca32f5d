"""The process of an MCP server on this machine, which a guard process starts and ends."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from thinklsp.core.errors import McpFailed, PathRefused
from thinklsp.mcp_client import server_guard
from thinklsp.mcp_client.message_limits import make_printable
from thinklsp.sandbox.bubblewrap import (
    SandboxFolder,
    SandboxHost,
    build_filter,
    build_options,
    can_disable_namespaces,
    find_sandbox_problem,
    is_same_or_parent,
)
from thinklsp.sandbox.process import find_program, run_uninterrupted
from thinklsp.workspace.paths import Root
from thinklsp.workspace.protected import load_patterns
from thinklsp.workspace.shadow import find_masks

_CHUNK_BYTES = 1 << 16
_MAX_STDERR_BYTES = 64 * 1024
_MAX_SHOWN_CHARACTERS = 200
# The time that the guard has to kill the server, and that the last output has to arrive.
_GUARD_SECONDS, _OUTPUT_SECONDS = 4.0, 1.0


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """The command line of a server. If `sandbox_options` is set, `argv` begins with bubblewrap."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    sandbox_options: Sequence[str] | None = None
    system_call_filter: str = ""


class ServerProcess:
    """A running server. Call `aclose` in any case after `start`."""

    def __init__(self) -> None:
        self._program = ""
        self._guard: asyncio.subprocess.Process | None = None
        self._control: asyncio.StreamWriter | None = None
        self._reports: dict[str, Any] = {}
        self._stderr = bytearray()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, command: ServerCommand) -> None:
        """Start the server. Raises OSError if the guard cannot be started."""
        self._program = make_printable(command.argv[0], _MAX_SHOWN_CHARACTERS)
        with ExitStack() as unless_started:
            ours, theirs = socket.socketpair()
            unless_started.callback(ours.close)
            with theirs:
                self._guard = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", "-S", server_guard.__file__, str(theirs.fileno()),
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                    cwd="/", env={}, pass_fds=(theirs.fileno(),), start_new_session=True,
                )  # fmt: skip
            reader, self._control = await asyncio.open_connection(sock=ours)
            unless_started.pop_all()
        task = {
            "argv": list(command.argv),
            "env": dict(command.environment),
            "cwd": command.cwd,
            "settings": None if command.sandbox_options is None else list(command.sandbox_options),
            "filter": command.system_call_filter,
        }
        self._control.write(json.dumps(task).encode() + b"\n")
        self._tasks = [
            asyncio.create_task(self._read_reports(reader)),
            asyncio.create_task(self._read_stderr(self._require_guard())),
        ]

    async def read(self) -> bytes:
        """Return the next part of the server's output, or an empty string at its end."""
        stdout = self._require_guard().stdout
        return await stdout.read(_CHUNK_BYTES) if stdout is not None else b""

    async def write(self, data: bytes) -> None:
        """Write to the server's input and wait until most of the data is written. Raises ConnectionError."""
        stdin = self._require_guard().stdin
        if stdin is not None:
            stdin.write(data)
            await stdin.drain()

    @property
    def stderr_tail(self) -> str:
        """The last 64 KiB of the server's standard error."""
        return bytes(self._stderr).decode("utf-8", "replace")

    @property
    def server_pid(self) -> int | None:
        """The id of the server's first process, if it was started."""
        pid = self._reports.get("pid")
        return pid if isinstance(pid, int) else None

    async def explain_exit(self) -> str:
        """Wait a moment for the exit of the server and return the end of a sentence about it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_OUTPUT_SECONDS):
                await asyncio.wait(self._tasks)
        if "failed" in self._reports:
            return f"cannot be run: `{self._program}`: {str(self._reports['failed']).lower()}"
        status = self._reports.get("status")
        if not isinstance(status, int):
            return "closed its output"
        what = f"exited with status {status}" if status >= 0 else f"was ended by {_name_signal(-status)}"
        lines = self.stderr_tail.strip().splitlines()
        return f"{what}: {make_printable(lines[-1], _MAX_SHOWN_CHARACTERS)}" if lines else what

    async def aclose(self, *, is_faulty: bool = False) -> None:
        """End the server and all of its processes, within 9 seconds. Cancellation is delayed until the end.

        A faulty server is killed at once. Another one can exit by itself after its input ends.
        """
        await run_uninterrupted(self._end(is_faulty))

    async def _end(self, is_faulty: bool) -> None:
        try:
            if self._guard is not None:
                self._tasks.append(asyncio.create_task(self._discard_output(self._guard)))
                await self._end_guard(self._guard, is_faulty)
        finally:
            if self._control is not None:
                self._control.close()
            if self._tasks:
                # The pipes stay open if a process of another user holds them.
                await asyncio.wait(self._tasks, timeout=_OUTPUT_SECONDS)
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end_guard(self, guard: asyncio.subprocess.Process, is_faulty: bool) -> None:
        # The buffered input is discarded: a server that does not read would keep its input open.
        if guard.stdin is not None and not guard.stdin.transport.is_closing():
            guard.stdin.transport.abort()
        if guard.returncode is None and self._control is not None:
            self._control.write(b"K" if is_faulty else b"E")
            await _wait_for_exit(guard, _GUARD_SECONDS + (0 if is_faulty else 2 * server_guard.GRACE_SECONDS))
        if guard.returncode != 0:
            await self._kill(guard)

    async def _kill(self, guard: asyncio.subprocess.Process) -> None:
        """Kill the guard and the server's group, because the guard itself was killed or is stuck."""
        with suppress(ProcessLookupError):
            guard.kill()
        if self.server_pid is not None and "status" not in self._reports:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.server_pid, signal.SIGKILL)
        await _wait_for_exit(guard, _OUTPUT_SECONDS)

    async def _discard_output(self, guard: asyncio.subprocess.Process) -> None:
        while guard.stdout is not None and await guard.stdout.read(_CHUNK_BYTES):
            pass

    async def _read_reports(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError, ValueError):
            while line := await reader.readline():
                self._reports |= json.loads(line)

    async def _read_stderr(self, guard: asyncio.subprocess.Process) -> None:
        while guard.stderr is not None and (data := await guard.stderr.read(_CHUNK_BYTES)):
            self._stderr += data
            del self._stderr[:-_MAX_STDERR_BYTES]

    def _require_guard(self) -> asyncio.subprocess.Process:
        if self._guard is None:
            raise RuntimeError("the server was not started")
        return self._guard


async def _wait_for_exit(process: asyncio.subprocess.Process, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_MEMORY_BYTES = 1024**3
_WILDCARDS = set("*?[")


def build_sandboxed_command(
    label: str, argv: Sequence[str], environment: Mapping[str, str], cwd: str, folders: Sequence[str]
) -> ServerCommand:
    """Return the command that starts a server in the sandbox. This function blocks.

    Raises McpFailed if the sandbox does not work on this machine or a folder cannot be mounted. `label` names the
    server.
    """
    bwrap = find_program("bwrap", folders)
    problem = find_sandbox_problem(bwrap)
    if bwrap is None or problem is not None:
        raise McpFailed(f"{label} does not start, because it is set to run in the sandbox. {problem}")
    try:
        mounts = [_build_folder(folder) for folder in folders]
    except (PathRefused, OSError) as error:
        raise McpFailed(f"{label} does not start in the sandbox. {error}") from None
    home = environment.get("HOME", "/")
    home = os.path.realpath(home) if os.path.isabs(home) and home != "/" else "/tmp/home"  # noqa: S108 - in the sandbox
    if any(is_same_or_parent(mount.path, home) for mount in mounts):
        raise McpFailed(f"{label} does not start in the sandbox, because the workspace is the entire home folder.")
    host = SandboxHost(environment, home, os.devnull, (sys.base_prefix, sys.prefix, *_find_prefixes(argv[0])))
    options = build_options(
        host, mounts, cwd, memory_bytes=_MEMORY_BYTES, disable_namespaces=can_disable_namespaces(bwrap)
    )
    for name, value in environment.items():
        if name not in ("HOME", "TMPDIR"):
            options += ["--setenv", name, value]
    system_call_filter = base64.b64encode(build_filter(os.uname().machine)).decode()
    return ServerCommand((bwrap, *argv), {"PATH": os.defpath}, "/", options, system_call_filter)


def _find_prefixes(program: str) -> Iterator[str]:
    """Yield the folders that a program outside of PATH needs, such as a virtual environment."""
    if os.path.isabs(program):
        for path in (program, os.path.realpath(program)):
            folder = os.path.dirname(path)
            yield os.path.dirname(folder) if os.path.basename(folder) == "bin" else folder


def _build_folder(folder: str) -> SandboxFolder:
    with Root(folder) as root:
        masks = find_masks(root)
        guarded = (pattern.strip("/") for pattern in load_patterns("guarded") if not set(pattern) & _WILDCARDS)
        read_only = tuple(path for path in guarded if os.path.lexists(os.path.join(root.path, path)))
        return SandboxFolder(root.path, root.path, read_only, (*masks.hidden, *masks.replaced))
