"""The function that runs a command in the sandbox, with limits on time, memory, processes, output and disk space."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from thinklsp.sandbox import launcher
from thinklsp.sandbox.resource_usage import ResourceMeter, WritableStorage, list_children

EndReason = Literal["exit", "signal", "timeout", "memory", "output", "processes", "disk"]

_CHUNK_BYTES = 1 << 16
_CHECK_SECONDS = 0.05
# The maximum time between the end of the output and the exit of the process.
_EXIT_SECONDS = 1.0
# The maximum time that a killed command needs to exit.
_KILL_SECONDS = 5.0
# The amount of data that a command may write between two checks.
_AHEAD_BYTES = 256 * 1024**2
# The ratio between the maximum size of the output and the size of its stored part.
_MAX_OUTPUT_FACTOR = 10


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """The limits for a command.

    `max_memory_bytes` applies to all processes of the command together. `max_output_bytes` limits the stored output.
    `max_disk_bytes` limits the data that the command writes. `min_free_bytes` must remain free on the disk.
    """

    max_memory_bytes: int = 4 * 1024**3
    max_processes: int = 512
    max_output_bytes: int = 1024**2
    max_disk_bytes: int = 2 * 1024**3
    min_free_bytes: int = 500 * 1024**2


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The result of a command.

    `output` contains standard output and standard error. `omitted_bytes` is the number of bytes that were cut from the
    middle of the output. `status` is the exit status, or the signal number if `end_reason` is `signal`.
    """

    end_reason: EndReason
    status: int
    output: bytes
    seconds: float
    omitted_bytes: int = 0


class SandboxFailed(Exception):
    """Raised if a command cannot be started in the sandbox."""


@dataclass(slots=True)
class _OutputBuffer:
    """A buffer that stores the beginning and the end of a command's output."""

    max_bytes: int
    total: int = 0
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)

    def append(self, data: bytes) -> None:
        self.total += len(data)
        room = self.max_bytes // 2 - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        if len(self.tail) > self.max_bytes:
            del self.tail[: -self.max_bytes // 2]

    def build_output(self) -> tuple[bytes, int]:
        tail = bytes(self.tail[-(self.max_bytes - self.max_bytes // 2) :])
        return bytes(self.head) + tail, self.total - len(self.head) - len(tail)


async def run_command(
    task: Mapping[str, Any], writable: WritableStorage, limits: CommandLimits, seconds: float
) -> ProcessResult:
    """Run a command in the sandbox and return its result.

    All processes of the command have exited when this function returns, even on cancellation. `task` is a launcher task
    without `status` and `parent`. Raises SandboxFailed if the command cannot be started.
    """
    started_at = time.monotonic()
    status_reader, status_writer = os.pipe()
    buffer = _OutputBuffer(limits.max_output_bytes)
    reports: dict[str, Any] = {}
    ended: EndReason | None = "timeout"
    with open(status_reader, "rb", buffering=0) as pipe:  # noqa: ASYNC230 - opening a pipe does not block
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", launcher.__file__,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                cwd="/", env={}, pass_fds=(status_writer,), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(status_writer)
        try:
            task_json = json.dumps({**task, "status": status_writer, "parent": os.getpid()}).encode()
            ended = await _wait_for_end(
                process, task_json, buffer, ResourceMeter(process.pid, writable), limits, seconds
            )
        finally:
            await _run_uninterrupted(_end_process(process, pipe.fileno(), reports, has_ended=ended is None))
    output, cut = buffer.build_output()
    if ended is None and "exit-code" not in reports:
        reason = reports.get("failed") or _find_last_line(output) or "the sandbox ended before the command started"
        raise SandboxFailed(str(reason))
    status = int(reports.get("exit-code", 0))
    return ProcessResult(ended or "exit", status, output, time.monotonic() - started_at, cut)


async def _wait_for_end(
    process: asyncio.subprocess.Process,
    task: bytes,
    buffer: _OutputBuffer,
    meter: ResourceMeter,
    limits: CommandLimits,
    seconds: float,
) -> EndReason | None:
    """Wait until the command exits or reaches a limit. Return the limit, or None if the command exited."""
    if process.stdin is None or process.stdout is None:
        raise AssertionError("stdin and stdout are pipes")
    limit_task = asyncio.ensure_future(_wait_for_limit(meter, limits))
    read_task = asyncio.ensure_future(
        _read_output(process.stdout, buffer, limits.max_output_bytes * _MAX_OUTPUT_FACTOR)
    )
    send_task = asyncio.ensure_future(_send_task(process.stdin, task))
    try:
        done, _ = await asyncio.wait((limit_task, read_task), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return "timeout"
        return limit_task.result() if limit_task in done else ("output" if read_task.result() else None)
    finally:
        for helper in (limit_task, read_task, send_task):
            helper.cancel()
        await asyncio.gather(limit_task, read_task, send_task, return_exceptions=True)


async def _send_task(stream: asyncio.StreamWriter, task: bytes) -> None:
    """Send the task to the launcher, which may exit before it has read the entire task."""
    with suppress(ConnectionError):
        stream.write(task)
        await stream.drain()
    stream.close()


async def _read_output(stream: asyncio.StreamReader, buffer: _OutputBuffer, max_bytes: int) -> bool:
    """Read all output. Return True if the output exceeds `max_bytes`."""
    while data := await stream.read(_CHUNK_BYTES):
        buffer.append(data)
        if buffer.total > max_bytes:
            return True
    return False


async def _wait_for_limit(meter: ResourceMeter, limits: CommandLimits) -> EndReason:
    """Wait until the command exceeds a limit, and return the limit."""
    pause = _CHECK_SECONDS
    while True:
        await asyncio.sleep(pause)
        started_at = time.monotonic()
        try:
            usage = await asyncio.to_thread(meter.measure, limits.max_processes, limits.max_disk_bytes)
        except RuntimeError:
            # The system has too many processes to start another thread.
            return "processes"
        if usage.processes > limits.max_processes:
            return "processes"
        if usage.memory_bytes > limits.max_memory_bytes:
            return "memory"
        if usage.disk_bytes > limits.max_disk_bytes or usage.free_bytes < limits.min_free_bytes + _AHEAD_BYTES:
            return "disk"
        # Spend at most half of the time on measurements, even if they are slow.
        pause = max(_CHECK_SECONDS, time.monotonic() - started_at)


async def _run_uninterrupted(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine until it completes, even if the caller is cancelled."""
    task, cancelled = asyncio.ensure_future(coroutine), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def _end_process(
    process: asyncio.subprocess.Process, pipe: int, reports: dict[str, Any], *, has_ended: bool
) -> None:
    """Stop the command. When the first process of the namespace exits, the kernel kills all others."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_EXIT_SECONDS if has_ended else 0):
            await process.wait()
    if process.returncode is None:
        descendants = list_children(process.pid)
        with suppress(ProcessLookupError):
            process.kill()
        # Kill the children too. They may not have asked the kernel yet to kill them with their parent.
        for pid in descendants:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(_KILL_SECONDS):
            await process.communicate()
            reports |= _read_reports(pipe)
            first = reports.get("inside", reports.get("child-pid"))
            if isinstance(first, int):
                await _wait_until_gone(first)


async def _wait_until_gone(pid: int) -> None:
    """Wait until the process exits, even if it is not a child of this process."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _read_reports(descriptor: int) -> dict[str, Any]:
    """Return the combined status reports of the launcher and bubblewrap."""
    os.set_blocking(descriptor, False)
    try:
        data = os.read(descriptor, _CHUNK_BYTES)
    except OSError:
        data = b""
    reports: dict[str, Any] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        with suppress(ValueError):
            reports |= json.loads(line)
    return reports


def _find_last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("bwrap: ")[:200] if lines else ""
