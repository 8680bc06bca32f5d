"""Runs one command in the sandbox to its end, whatever it does, and keeps what it may take up."""

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

from thinklsp.sandbox import enter
from thinklsp.sandbox.usage import Meter, Usage, Writable, children

Ended = Literal["exit", "signal", "timeout", "memory", "output", "processes", "disk"]

_CHUNK = 1 << 16
_LOOK_SECONDS = 0.05
# In which what has said its last word comes to its end.
_GOING_SECONDS = 1.0
# What a killed command may take to be gone.
_GONE_SECONDS = 5.0
# A command can write so much between two looks.
_AHEAD_BYTES = 256 * 1024**2
# A command that says so many times more than is kept says nothing any more.
_TOO_MUCH = 10


@dataclass(frozen=True, slots=True)
class Limits:
    """`memory`: bytes of all its processes together; `output`: bytes that are kept of what it says; `disk`: bytes that
    it may write; `free`: bytes that it must leave on the disk."""

    memory: int = 4 * 1024**3
    processes: int = 512
    output: int = 1024**2
    disk: int = 2 * 1024**3
    free: int = 500 * 1024**2


@dataclass(frozen=True, slots=True)
class Outcome:
    """`status`: the exit status. `cut`: bytes left out in the middle of `output`."""

    ended: Ended
    status: int
    output: bytes
    cut: int
    seconds: float


class SandboxFailed(Exception):
    """The command was not run."""


@dataclass(slots=True)
class _Said:
    """The beginning and the end of all that came."""

    most: int
    total: int = 0
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)

    def take(self, data: bytes) -> None:
        self.total += len(data)
        room = self.most // 2 - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        if len(self.tail) > self.most:
            del self.tail[: -self.most // 2]

    def kept(self) -> tuple[bytes, int]:
        tail = bytes(self.tail[-(self.most - self.most // 2) :])
        return bytes(self.head) + tail, self.total - len(self.head) - len(tail)


async def run(task: Mapping[str, Any], writable: Writable, limits: Limits, seconds: float) -> Outcome:
    """`task` as `enter` takes it, without `status` and `parent`. What was started is gone when this ends, cancelled or
    not.

    Raises SandboxFailed where the command could not be started.
    """
    began = time.monotonic()
    heard, told = os.pipe()
    said = _Said(limits.output)
    reports: dict[str, Any] = {}
    ended: Ended | None = "timeout"
    with open(heard, "rb", buffering=0) as pipe:  # noqa: ASYNC230 - a pipe, open already
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", enter.__file__,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                cwd="/", env={}, pass_fds=(told,), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(told)
        try:
            words = json.dumps({**task, "status": told, "parent": os.getpid()}).encode()
            ended = await _watched(process, words, said, _Watch(Meter(process.pid, writable), limits), seconds)
        finally:
            await _in_any_case(_end(process, pipe.fileno(), reports, by_itself=ended is None))
    output, cut = said.kept()
    if ended is None and "exit-code" not in reports:
        raise SandboxFailed(str(reports.get("failed") or _last_line(output) or "it ended before it began"))
    status = int(reports.get("exit-code", 0))
    return Outcome(ended or "exit", status, output, cut, time.monotonic() - began)


async def _watched(
    process: asyncio.subprocess.Process, task: bytes, said: _Said, watch: _Watch, seconds: float
) -> Ended | None:
    """Which limit it has reached; None where it ended by itself."""
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both are pipes")
    over = asyncio.ensure_future(watch.over())
    listen = asyncio.ensure_future(_listen(process.stdout, said, watch.limits.output * _TOO_MUCH))
    tell = asyncio.ensure_future(_tell(process.stdin, task))
    try:
        done, _ = await asyncio.wait((over, listen), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return "timeout"
        return over.result() if over in done else ("output" if listen.result() else None)
    finally:
        for task_of_ours in (over, listen, tell):
            task_of_ours.cancel()
        await asyncio.gather(over, listen, tell, return_exceptions=True)


async def _tell(stream: asyncio.StreamWriter, task: bytes) -> None:
    """It may be gone before it has heard all of it."""
    with suppress(ConnectionError):
        stream.write(task)
        await stream.drain()
    stream.close()


async def _listen(stream: asyncio.StreamReader, said: _Said, most: int) -> bool:
    """To the end of what is said; True where it is too much."""
    while data := await stream.read(_CHUNK):
        said.take(data)
        if said.total > most:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Watch:
    """The limits of one command."""

    meter: Meter
    limits: Limits

    async def over(self) -> Ended:
        """Return the limit that the command has passed, once it has."""
        pause = _LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            try:
                usage = await asyncio.to_thread(self.meter.read, self.limits.processes, self.limits.disk)
            except RuntimeError:
                # The machine is so full of processes that not even a thread can be started.
                return "processes"
            if (passed := self._passed(usage)) is not None:
                return passed
            # Never busy for more than half of the time, however much there is to look at.
            pause = max(_LOOK_SECONDS, time.monotonic() - began)

    def _passed(self, usage: Usage) -> Ended | None:
        if usage.processes > self.limits.processes:
            return "processes"
        if usage.memory > self.limits.memory:
            return "memory"
        if usage.disk > self.limits.disk or usage.free < self.limits.free + _AHEAD_BYTES:
            return "disk"
        return None


async def _in_any_case(what: Coroutine[Any, Any, None]) -> None:
    """To its end, however often we are cancelled meanwhile."""
    task, cancelled = asyncio.ensure_future(what), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def _end(process: asyncio.subprocess.Process, pipe: int, reports: dict[str, Any], *, by_itself: bool) -> None:
    """The sandbox's first process takes all others with it: they live in a world of its own."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_GOING_SECONDS if by_itself else 0):
            await process.wait()
    if process.returncode is None:
        below = children(process.pid)
        with suppress(ProcessLookupError):
            process.kill()
        # Had it died in a moment in which it has not told them yet that they die with it.
        for pid in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(_GONE_SECONDS):
            await process.communicate()
            reports |= _reports(pipe)
            first = reports.get("inside", reports.get("child-pid"))
            if isinstance(first, int):
                await _gone(first)


async def _gone(pid: int) -> None:
    """Until a process is no more that is not a child of ours. It may have closed all that we hear it by."""
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


def _reports(descriptor: int) -> dict[str, Any]:
    """What `enter` and bubblewrap have told so far, taken together."""
    os.set_blocking(descriptor, False)
    try:
        data = os.read(descriptor, _CHUNK)
    except OSError:
        data = b""
    found: dict[str, Any] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        with suppress(ValueError):
            found |= json.loads(line)
    return found


def _last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("bwrap: ")[:200] if lines else ""
