"""A terminal for editors that need one: tmux on a socket of its own, keys in, the screen out."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.editors.waiting import until

_COLUMNS, _LINES = 110, 36


class Terminal:
    """`async with Terminal(room) as terminal`; one program at a time, ended with the terminal."""

    def __init__(self, room: Path) -> None:
        self._room = room
        self._socket = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def open(self, argv: Sequence[str], folder: Path, variables: Mapping[str, str]) -> None:
        """Starts the program, in place of the one before, with this environment and nothing else."""
        await self._end()
        # A new one each time, as the old server takes its time to go. Its address is short: 108 characters at most.
        self._socket = str(self._room / f"t{len(list(self._room.glob('t[0-9]*')))}")
        own = [f"{name}={value}" for name, value in {**variables, "TERM": "tmux-256color"}.items()]
        size = ("-x", str(_COLUMNS), "-y", str(_LINES))
        command = shlex.join(["env", "-i", *own, *argv])
        await self._tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", str(folder), command)
        # Else tmux waits after Escape whether it begins a key, and takes the next one for its rest.
        await self._tmux("set-option", "-s", "escape-time", "0")

    async def keys(self, *names: str) -> None:
        """By tmux's names: `Enter`, `Escape`, `Down`, `C-x`, or characters."""
        await self._tmux("send-keys", *names)

    async def type(self, text: str, *keys: str) -> None:
        """The text, and then keys by name."""
        await self._tmux("send-keys", "-l", text)
        if keys:
            await self.keys(*keys)

    async def screen(self) -> str:
        return await self._tmux("capture-pane", "-p", may_fail=True)

    async def shows(self, pattern: str) -> re.Match[str]:
        """Waits for the pattern on the screen. Raises AssertionError with the screen."""
        screen = ""

        async def found() -> re.Match[str] | None:
            nonlocal screen
            screen = await self.screen()
            return re.search(pattern, screen, re.MULTILINE)

        match: re.Match[str] = await until(found, lambda: f"on the screen {pattern!r}\n{screen}")
        return match

    async def hides(self, pattern: str) -> None:
        """Waits until the pattern is not on the screen any more."""

        async def gone() -> bool:
            return re.search(pattern, await self.screen(), re.MULTILINE) is None

        await until(gone, f"the end of {pattern!r} on the screen")

    async def ends(self) -> None:
        """Waits until the program has ended by itself."""

        async def gone() -> bool:
            return not await self._tmux("list-sessions", may_fail=True)

        await until(gone, "the end of the program")

    async def _end(self) -> None:
        if self._socket:
            await self._tmux("kill-server", may_fail=True)

    async def _tmux(self, *arguments: str, may_fail: bool = False) -> str:
        process = await asyncio.create_subprocess_exec(
            "tmux", "-S", self._socket, *arguments,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, complained = await process.communicate()
        if process.returncode and not may_fail:
            raise RuntimeError(f"tmux {arguments[0]}: {complained.decode()}")
        return said.decode("utf-8", "replace")
