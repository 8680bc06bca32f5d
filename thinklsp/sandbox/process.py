"""The functions that find and start programs, and that run a command in the sandbox within its limits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal

if sys.platform == "linux":
    import resource


def find_program(name: str, folders: Iterable[str], path: str | None = None) -> str | None:
    """Return the path of a program outside the workspace folders, or None.

    `path` defaults to the PATH of this process. Relative entries are ignored.
    """
    inside = tuple(folder.rstrip("/") + "/" for folder in folders)
    for entry in (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep):
        if not os.path.isabs(entry):
            continue
        # Check the path both before and after resolving links, because a link in the workspace can point to any
        # program.
        named_path, program = os.path.join(os.path.realpath(entry), name), os.path.realpath(os.path.join(entry, name))
        if is_executable(program) and not any(place.startswith(inside) for place in (named_path, program)):
            return program
    return None


def is_executable(program: str) -> bool:
    return os.path.isfile(program) and os.access(program, os.X_OK)


# The memory limit of a child process. Without the limit, an ignore file that links to `/dev/zero` could use all memory.
_MAX_MEMORY_BYTES = 512 * 1024 * 1024
# The launcher loads ctypes, so this process does not import it.
_LAUNCHER = os.path.join(os.path.dirname(__file__), "launcher.py")
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


@asynccontextmanager
async def run_child(
    argv: Sequence[str], folder: str, *, has_stdin: bool = False, environment: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a child process, and kill it when the context exits.

    The child does not inherit thinklsp's environment, input or output. If `has_stdin` is true, the caller writes
    to the child's standard input. `environment` is added to the minimal environment.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=folder,
        env={**_ENVIRONMENT, **environment},
        stdin=asyncio.subprocess.PIPE if has_stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _limit_memory(process.pid)
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            # Read the remaining output, because a full pipe would prevent the process from exiting.
            await process.communicate()


def _limit_memory(process: int) -> None:
    """Limit the memory of a running process. Only Linux supports this."""
    if sys.platform == "linux":
        with suppress(ProcessLookupError):
            # A process cannot raise a limit above its own limit.
            own = resource.prlimit(process, resource.RLIMIT_DATA)
            most = min([_MAX_MEMORY_BYTES, *(limit for limit in own if limit != resource.RLIM_INFINITY)])
            resource.prlimit(process, resource.RLIMIT_DATA, (most, most))


# The disk space for a file name. Even an empty file needs it.
_NAME_BYTES = 1024
_BLOCK_BYTES = 512
# The minimum interval between two counts of files. It is longer if the last count took a long time.
_COUNT_SECONDS = 1.0
_COUNT_SHARE = 20
_MEMFD = "/memfd:"


@dataclass(frozen=True, slots=True)
class WritableStorage:
    """The locations to which a command can write.

    `folders` are on the same disk, and contained `initial_bytes` before the first command. `memory_folders` are the
    in-memory file systems of the sandbox.
    """

    folders: Sequence[str]
    memory_folders: Sequence[str] = ()
    initial_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """The resources that a command uses. `free_bytes` is the free space on the disk to which it writes."""

    processes: int
    memory_bytes: int
    disk_bytes: int
    free_bytes: int


class ResourceMeter:
    """A meter for the resources of a command. `pid` is the first process of the command."""

    def __init__(self, pid: int, writable: WritableStorage) -> None:
        self._pid = pid
        self._writable = writable
        self._files = _FileSizes(writable.folders)

    def measure(self, max_processes: int, max_disk_bytes: int) -> ResourceUsage:
        """Measure the resources. If there are more than `max_processes` processes, only their number is measured."""
        processes = list(islice(_iterate_tree(self._pid), max_processes + 1))
        if len(processes) > max_processes:
            return ResourceUsage(len(processes), 0, 0, sys.maxsize)
        folders = _measure_memory_folders(processes, self._writable.memory_folders)
        unnamed, unnamed_on_disk = _measure_unnamed_files(processes, folders.keys())
        other = sum(folders.values()) + unnamed_on_disk - self._writable.initial_bytes
        memory = sum(map(_measure_memory, processes)) + sum(folders.values()) + unnamed
        free = min(map(measure_free_bytes, self._writable.folders), default=sys.maxsize)
        return ResourceUsage(len(processes), memory, self._files.measure(free, max_disk_bytes - other) + other, free)


def measure_free_bytes(folder: str) -> int:
    """Return the number of bytes that an unprivileged user can still write to the disk with this folder."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def list_children(pid: int) -> list[int]:
    """Return the running child processes of a process, including those that its threads started."""
    pids: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError, ValueError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids += map(int, file.read().split())
    return pids


def _iterate_tree(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        at = waiting.pop()
        yield at
        waiting += list_children(at)


def _measure_memory(pid: int) -> int:
    """Return the memory of a process in bytes, or 0 if it is unknown.

    The proportional set size divides shared memory between the processes that share it. The resident set size, which is
    larger, replaces it if the kernel does not report it or the process cannot be inspected.
    """
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        rows = (line.split() for line in file)
        return 1024 * sum(int(row[1]) for row in rows if row[0] in (b"Pss:", b"SwapPss:"))
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _measure_memory_folders(processes: Sequence[int], places: Iterable[str]) -> dict[int, int]:
    """Return the used bytes of the in-memory file systems by device, as the innermost process sees them."""
    for pid in reversed(processes):
        root = f"/proc/{pid}/root"
        with suppress(OSError):
            if not os.path.samestat(os.stat(root), os.stat("/")):
                return dict(_measure_memory_folder(root + place) for place in places)
    return {}


def _measure_memory_folder(place: str) -> tuple[int, int]:
    """Return the device and the used bytes of an in-memory file system. Raises OSError."""
    device, status = os.stat(place).st_dev, os.statvfs(place)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    return device, used + (status.f_files - status.f_ffree) * _NAME_BYTES


def _measure_unnamed_files(processes: Iterable[int], memory_devices: Collection[int]) -> tuple[int, int]:
    """Return the bytes in memory and on disk used by open files that have no name.

    Files on `memory_devices` are excluded, because the sizes of these file systems already include them.
    """
    memory: dict[tuple[int, int], int] = {}
    disk: dict[tuple[int, int], int] = {}
    for pid in processes:
        for path in _list_descriptors(pid):
            with suppress(OSError):
                status = os.stat(path)
                if not stat.S_ISREG(status.st_mode) or status.st_nlink or status.st_dev in memory_devices:
                    continue
                kind = memory if os.readlink(path).startswith(_MEMFD) else disk
                kind[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK_BYTES
    return sum(memory.values()), sum(disk.values())


def _list_descriptors(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            yield f"/proc/{pid}/fd/{number}"


@dataclass(slots=True)
class _FileSizes:
    """The total size of all files in `folders`.

    Counting files is slow. Between two counts, the size is estimated from the decrease in free disk space.
    """

    folders: Sequence[str]
    _counted_bytes: int = 0
    _last_free_bytes: int | None = None
    _next_count_at: float = 0.0

    def measure(self, free_bytes: int, max_bytes: int) -> int:
        """Return the exact size or an upper estimate. A result above `max_bytes` is always exact."""
        before = free_bytes if self._last_free_bytes is None else self._last_free_bytes
        estimate = self._counted_bytes + max(0, before - free_bytes)
        if self._last_free_bytes is not None and estimate <= max_bytes and time.monotonic() < self._next_count_at:
            return estimate
        started_at = time.monotonic()
        sizes = [measure_folder(folder) for folder in self.folders]
        self._counted_bytes = sum(size for size, _ in sizes)
        if not all(complete for _, complete in sizes):
            # If some files cannot be counted, the size must not be smaller than the estimate.
            self._counted_bytes = max(self._counted_bytes, estimate)
        self._last_free_bytes, now = free_bytes, time.monotonic()
        self._next_count_at = now + max(_COUNT_SECONDS, _COUNT_SHARE * (now - started_at))
        return self._counted_bytes


def measure_folder(folder: str) -> tuple[int, bool]:
    """Return the disk space that all files in a folder use, and True if every subfolder was readable."""
    total, complete = 0, True
    linked: set[int] = set()
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
                    elif status.st_nlink > 1:
                        if status.st_ino in linked:
                            continue
                        linked.add(status.st_ino)
                    total += status.st_blocks * _BLOCK_BYTES + _NAME_BYTES
        except FileNotFoundError:
            # The command has deleted this file or folder. The next count includes the remaining files.
            continue
        except OSError:
            complete = False
    return total, complete


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
class CommandResult:
    """The result of a command.

    `output` contains standard output and standard error. `omitted_bytes` is the number of bytes that were cut from the
    middle of the output. `status` is the exit status, or the signal number if `end_reason` is `signal`.
    `changed_paths` contains the readable paths that the command changed on the copy of the workspace. `is_clean` is
    true if the copy contained no files that earlier commands had created.
    """

    end_reason: EndReason
    status: int
    output: bytes
    seconds: float
    omitted_bytes: int = 0
    changed_paths: tuple[str, ...] = ()
    is_clean: bool = True


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
) -> CommandResult:
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
                sys.executable, "-I", "-S", _LAUNCHER,
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
            await run_uninterrupted(_end_process(process, pipe.fileno(), reports, has_ended=ended is None))
    output, cut = buffer.build_output()
    if ended is None and "exit-code" not in reports:
        reason = reports.get("failed") or _find_last_line(output) or "the sandbox ended before the command started"
        raise SandboxFailed(str(reason))
    status = int(reports.get("exit-code", 0))
    return CommandResult(ended or "exit", status, output, time.monotonic() - started_at, cut)


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


async def run_uninterrupted(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine until it completes, even if the caller is cancelled."""
    task, cancelled = asyncio.ensure_future(coroutine), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
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
