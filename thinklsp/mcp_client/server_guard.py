"""The guard, a small process between thinklsp and an MCP server, which ends every process of the server.

It runs as `python -I -S server_guard.py DESCRIPTOR`. The descriptor is a socket, on which the guard reads its task as a
line of JSON. The guard starts the server, whose standard streams are those of the guard. It ends the server and all of
its descendants if the server exits, if thinklsp sends `E` (end) or `K` (kill), or if the socket closes because
thinklsp has died.

On Linux, descendants that leave the server's session become children of the guard and are found there. If the guard
is killed, the kernel kills the server's first process. On other systems, only the server's process group is ended.

The task has these fields:
`argv`, `env`, `cwd`: the server's command line, environment and working directory
`settings`: options of bubblewrap, which are passed through a descriptor, or null
`filter`: a seccomp program in base64, or an empty string

The guard reports `{"pid": …}`, `{"failed": …}` if the program cannot be run, and `{"status": …}` when it has exited.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_DIE_WITH_PARENT, _ADOPT_ORPHANS = 1, 36
# The time that a server has to exit after its input ends, and again after a signal.
GRACE_SECONDS = 2.0
# The same times if thinklsp has died, or if the server has exited without all of its processes.
_SHORT_GRACE_SECONDS = 1.0
# The time in which killed processes have to exit. A process that is stuck in the kernel, or that belongs to another
# user, cannot be killed.
_KILL_SECONDS = 2.0
_POLL_SECONDS = 0.02
_MAX_TASK_BYTES = 16 * 1024 * 1024


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    task = _read_task(control)
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is not None:
        libc.prctl(_ADOPT_ORPHANS, 1)
    wake, waking = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    guard = _Guard(control, wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, guard.note_signal)
    pid = os.fork()
    if pid == 0:
        _run_server(task, control, libc)
    null_device = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null_device, descriptor)
    guard.watch(pid)
    os._exit(0)


def _read_task(control: socket.socket) -> dict[str, Any]:
    data = b""
    while not data.endswith(b"\n"):
        chunk = control.recv(1 << 16)
        if not chunk or len(data) > _MAX_TASK_BYTES:
            os._exit(125)
        data += chunk
    task: dict[str, Any] = json.loads(data)
    return task


def _run_server(task: dict[str, Any], control: socket.socket, libc: ctypes.CDLL | None) -> None:
    """Replace this process, the guard's child, with the server."""
    try:
        os.setsid()
        if libc is not None:
            libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        argv: list[str] = task["argv"]
        if task["settings"] is not None:
            options = b"".join(os.fsencode(setting) + b"\0" for setting in task["settings"])
            sandbox = [argv[0], "--args", str(_store_in_descriptor(options))]
            if task["filter"]:
                sandbox += ["--seccomp", str(_store_in_descriptor(base64.b64decode(task["filter"])))]
            argv = [*sandbox, "--", *argv[1:]]
        os.chdir(task["cwd"])
        os.execvpe(argv[0], argv, task["env"])  # noqa: S606 - starting without a shell is intended
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        with suppress(OSError):
            control.sendall(json.dumps({"failed": reason or type(error).__name__}).encode() + b"\n")
    finally:
        os._exit(127)


def _store_in_descriptor(data: bytes) -> int:
    descriptor = os.memfd_create("task", 0)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.set_inheritable(descriptor, True)
    return descriptor


class _Guard:
    """The guard's knowledge of its server. `_command` is the last command, or `D` if thinklsp has died."""

    def __init__(self, control: socket.socket, wake: int) -> None:
        self._control = control
        self._wake = wake
        self._inputs: list[Any] = [wake, control]
        self._pid = 0
        self._is_running = self._has_children = True
        self._is_signalled = False
        self._command = b""

    def note_signal(self, _number: int, _frame: object) -> None:
        self._is_signalled = True

    def watch(self, pid: int) -> None:
        """Wait until the server exits or must end, and then end all of its processes."""
        self._pid = pid
        self._report({"pid": pid})
        while self._is_running and not self._command and not self._is_signalled:
            self._wait(None)
        seconds = GRACE_SECONDS if self._command == b"E" else _SHORT_GRACE_SECONDS
        if not self._is_signalled:
            self._wait_for_exit(seconds, lambda: self._is_running)
        if self._has_processes():
            self._signal_group(signal.SIGTERM)
            self._wait_for_exit(seconds, self._has_processes)
        if self._has_processes():
            self._kill_all()

    def _wait_for_exit(self, seconds: float, is_there: Callable[[], bool]) -> None:
        """Wait while `is_there` returns True, for at most `seconds`, unless thinklsp sends the command to kill."""
        end = time.monotonic() + seconds
        while self._command != b"K" and is_there() and (left := end - time.monotonic()) > 0:
            # An orphan that has left the group is noticed by polling, because its end sends no signal on some systems.
            self._wait(min(left, _POLL_SECONDS))

    def _wait(self, seconds: float | None) -> None:
        """Wait for a signal or a command, and collect the exited children."""
        ready, _, _ = select.select(self._inputs, (), (), seconds)
        if self._wake in ready:
            with suppress(BlockingIOError):
                os.read(self._wake, 4096)
        if self._control in ready:
            try:
                command = self._control.recv(1)
            except OSError:
                command = b""
            if not command:
                self._inputs.remove(self._control)
            self._command = command or self._command or b"D"
        self._has_children = self._reap()

    def _has_processes(self) -> bool:
        return self._is_running or self._has_children or self._signal_group(0)

    def _reap(self) -> bool:
        """Collect the exited children. Return whether other children are running."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                self._is_running = False
                self._report({"status": os.waitstatus_to_exitcode(status)})

    def _report(self, report: dict[str, int]) -> None:
        with suppress(OSError):
            self._control.sendall(json.dumps(report).encode() + b"\n")

    def _signal_group(self, number: int) -> bool:
        try:
            os.killpg(self._pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _kill_all(self) -> None:
        """Kill the group and all descendants until none is left. Stop them first, so that they start no others."""
        end = time.monotonic() + _KILL_SECONDS
        while time.monotonic() < end:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                self._signal_group(number)
                for pid in _list_descendants(os.getpid()):
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
            if not self._reap() and not self._signal_group(0):
                return
            time.sleep(_POLL_SECONDS)


def _list_descendants(ancestor: int) -> list[int]:
    """Return the ids of all processes below a process. Only Linux lists them."""
    children: dict[int, list[int]] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{int(name)}/stat", "rb") as file:
                # The name of the program, in parentheses, may contain anything.
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found, waiting = [], [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


if __name__ == "__main__":
    main()
