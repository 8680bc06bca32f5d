"""Processes of ours that need not load everything again: each is forked from one that has loaded it and does nothing.

What runs is the product's own `main`, in a process of its own, with the words, folder, environment, standard input and
output that it was asked for, and a server with the worst umask that a starter can have. How it starts cold is the
subject of other tests. Run with the descriptor of a socket, this is the process to fork from; it answers each request
with a process id and, when that has ended, its exit code.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Self, cast

from tests.support.client.actions import Editing
from tests.support.client.raw import RawClient
from tests.support.loop_watch import watch
from tests.support.watching import HANG_SECONDS

_LARGEST_REQUEST = 1 << 16
# What servers and commands import late. It takes three quarters of the processor time of a server's start.
PRELOADED = (
    "cli.serve_stdio", "lsp.transport.connection", "lsp.transport.websocket", "lsp.commands", "cli.acp", "acp.host",
    "acp.acp_server", "cli.ask", "cli.demo", "cli.mcp", "cli.sessions", "cli.uninstall_data", "offline.service",
)  # fmt: skip
_ROOT = Path(__file__).parents[2]


class Nursery:
    """Where servers and commands come from. `connect` is what `outside.start` wants; a context, and one for many event
    loops. `module`: one that is run in the place of this one, and calls `fork_servers`."""

    def __init__(self, module: str = "tests.support.forking") -> None:
        self._module = module

    def __enter__(self) -> Self:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, "-W", "error", "-m", self._module, str(theirs.fileno())]
            env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(_ROOT)}
            nothing = subprocess.DEVNULL
            self._process = subprocess.Popen(argv, cwd=_ROOT, env=env, pass_fds=[theirs.fileno()], stdin=nothing)
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        self._process.wait(timeout=HANG_SECONDS)

    async def connect(self, root: Path, variables: Mapping[str, str], client: type[Editing] = RawClient) -> Any:
        """A server for this client alone, on pipes."""
        return await client.on_pipes(cast("Any", await self.process((), root, variables)))

    async def process(
        self, words: Sequence[str], root: Path, variables: Mapping[str, str], *, silent: bool = False
    ) -> Forked:
        """`thinklsp` with these words, on pipes; `silent`: without a standard input."""
        loop = asyncio.get_running_loop()
        (stdin, to_process), (from_process, stdout), (log, stderr) = os.pipe(), os.pipe(), os.pipe()
        try:
            life = self._begin(words, root, variables, (stdin, stdout, stderr))
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
        ending = await _reading(life.detach())
        number = int(await ending.readline())
        pipe = os.fdopen(to_process, "wb")
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        if silent:
            writer.close()
        return Forked(number, ending, writer, await _reading(from_process), await _reading(log))

    def command(
        self, words: Sequence[str], folder: Path, variables: Mapping[str, str], standard: tuple[int, int, int]
    ) -> Command:
        """`thinklsp` with these words, which may talk to loopback alone."""
        return Command(self._begin(words, folder, variables, standard))

    def _begin(
        self, words: Sequence[str], folder: Path, variables: Mapping[str, str], standard: tuple[int, int, int]
    ) -> socket.socket:
        """Start on descriptors that may be closed then. The socket tells the process id and, at the end, the code."""
        ours, life = socket.socketpair()
        how = {"words": list(words), "folder": str(folder), "environment": dict(variables)}
        with life:
            socket.send_fds(self._control, [json.dumps(how).encode()], (*standard, life.fileno()))
        return ours


class Command:
    """As much of `subprocess.Popen` as is used. `pid` stays its own until its end has been seen."""

    def __init__(self, life: socket.socket) -> None:
        self._told = life.makefile("rb")
        life.close()
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with suppress(TimeoutError):
            return self.wait(0)
        return None

    def wait(self, timeout: float) -> int:
        """Raises TimeoutError."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise TimeoutError
            with self._told:
                self.returncode = int(self._told.read())
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def _reading(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb"))
    return reader


class Forked:
    """As much of `asyncio.subprocess.Process` as the client uses. `pid` stays its own until `wait` has returned."""

    def __init__(
        self,
        pid: int,
        life: asyncio.StreamReader,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
    ) -> None:
        self.pid, self.stdin, self.stdout, self.stderr = pid, stdin, stdout, stderr
        self.returncode: int | None = None
        self._ended = asyncio.create_task(self._end(life))

    async def _end(self, life: asyncio.StreamReader) -> int:
        # To its end, so that the loop has closed it before anybody goes on.
        self.returncode = int(await life.read())
        return self.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _serve(control: socket.socket) -> bool:
    """In the first process: until nobody asks any more, then False. In a forked one: True at once."""
    living: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd != control.fileno():
                    selector.unregister(key.fd)
                    _tell_end(key.fd, *living.pop(key.fd))
                    continue
                request, descriptors, _, _ = socket.recv_fds(control, _LARGEST_REQUEST, 4)
                if not request:
                    return False
                life = socket.socket(fileno=descriptors.pop())
                if (child := os.fork()) == 0:
                    selector.close()
                    for mine in (control, life, *(other for _, other in living.values())):
                        mine.close()
                    for watched in living:
                        os.close(watched)
                    _become(descriptors, **json.loads(request))
                    return True
                for descriptor in descriptors:
                    os.close(descriptor)
                with suppress(OSError):
                    life.sendall(b"%d\n" % child)
                watched = os.pidfd_open(child)
                living[watched] = (child, life)
                selector.register(watched, selectors.EVENT_READ)


def _tell_end(watched: int, child: int, life: socket.socket) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(watched)
    # Whoever asked for it may have gone.
    with life, suppress(OSError):
        life.sendall(b"%d\n" % code)


def _become(descriptors: list[int], words: list[str], folder: str, environment: dict[str, str]) -> None:
    for place, descriptor in enumerate(descriptors):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = words
    # Those of the first process were made for what it has itself.
    for name, place, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        setattr(sys, name, os.fdopen(place, mode, encoding="utf-8", closefd=False))
    if words:
        sys.addaudithook(only_loopback)
    else:
        os.umask(0)


def fork_servers(arm: Callable[[], object] = lambda: None) -> int:
    """Until nobody asks for servers any more; in each of them `arm` is called before its own `main`."""
    from thinklsp.__main__ import main
    from thinklsp.core.import_context import reduce_gc

    with reduce_gc():
        for name in PRELOADED:
            import_module(f"thinklsp.{name}")
        from thinklsp.engine.user_config import warm_up
        from thinklsp.lsp.protocol.converter import load_converter

        warm_up()
        load_converter()
        "".encode("utf-16-le")  # What lengths of text are counted in.
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        if not _serve(control):
            return 0
    arm()
    watch()
    return main()


def only_loopback(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook of a process that may connect to this machine only."""
    if event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][0] != "127.0.0.1":
        raise OSError("this test has no network")
    if event == "socket.getaddrinfo" and arguments[0] not in ("127.0.0.1", "localhost", None):
        raise OSError("this test has no network")


if __name__ == "__main__":
    sys.exit(fork_servers())
