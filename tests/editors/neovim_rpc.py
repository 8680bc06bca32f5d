"""Neovim without a screen, driven through its own RPC: MessagePack over a socket."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgpack

from tests.editors.neovim_screen import Screen
from tests.editors.waiting import MAX_WAIT_SECONDS, until


class NeovimError(Exception):
    """What Neovim answered in place of a result."""


class Neovim:
    """`async with Neovim(…) as nvim:`; the whole process group is gone afterwards. `log` takes its standard error.

    `argv` without the options of the connection; it stands in a folder with a short name, as sockets want it.
    """

    def __init__(self, argv: Sequence[str], folder: Path, variables: Mapping[str, str], log: Path) -> None:
        self._socket = log.with_suffix(".socket")
        self._argv = (*argv, "--headless", "--listen", str(self._socket))
        self._folder = folder
        self._variables = variables
        self._log = log
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.screen = Screen()

    async def __aenter__(self) -> Self:
        self._socket.unlink(missing_ok=True)
        # From anything else than a terminal Neovim would read the text of its first buffer.
        self._keyboard, terminal = os.openpty()
        with self._log.open("ab") as log, os.fdopen(terminal):
            self._process = await asyncio.create_subprocess_exec(
                *self._argv, cwd=self._folder, env=dict(self._variables), stdin=terminal, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        try:
            await until(self._connected, "the socket of Neovim")
        except BaseException:
            await self._killed()
            raise
        self._reading = asyncio.create_task(self._read())
        return self

    async def _connected(self) -> bool:
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            return False
        return True

    async def __aexit__(self, *_: object) -> None:
        await self._killed()
        await self._reading
        self._writer.close()

    async def _killed(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        os.close(self._keyboard)

    async def ask(self, method: str, *arguments: Any) -> Any:
        """A function of Neovim's API. Raises NeovimError, also if Neovim waits for a key, with its screen."""
        self._asked += 1
        number = self._asked
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(msgpack.packb([0, number, method, arguments]))
        await self._writer.drain()
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                return await answer
        except TimeoutError:
            raise NeovimError(f"no answer to {method}; the screen:\n{self.screen.text()}") from None

    async def attach(self, columns: int, lines: int) -> None:
        """A screen of this size, which is drawn from now on."""
        await self.ask("nvim_ui_attach", columns, lines, {"ext_linegrid": True, "rgb": True})

    async def lua(self, code: str, *arguments: Any) -> Any:
        return await self.ask("nvim_exec_lua", code, arguments)

    async def type(self, keys: str) -> None:
        """As if at the keyboard: `<Esc>`, `<CR>` and so on. Returns when Neovim has dealt with them."""
        await self.ask("nvim_input", keys)
        # Blocked, Neovim would wait for the rest of a command and answer nothing else.
        await self.ask("nvim_get_mode")

    async def command(self, line: str) -> None:
        await self.ask("nvim_command", line)

    async def quit(self) -> None:
        """As users leave; what is not saved is lost."""
        with suppress(NeovimError):
            await self.ask("nvim_command", "qall!")
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            await self._process.wait()

    async def _read(self) -> None:
        unpacker = msgpack.Unpacker(strict_map_key=False, ext_hook=lambda _, data: msgpack.unpackb(data))
        while data := await self._reader.read(65536):
            unpacker.feed(data)
            for message in unpacker:
                if message[0] == 1:
                    self._answered(*message[1:])
                elif message[1] == "redraw":
                    self.screen.feed(message[2])
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(NeovimError("Neovim has gone"))

    def _answered(self, number: int, error: Any, result: Any) -> None:
        answer = self._waiting.pop(number)
        if answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(NeovimError(str(error[1])))
