"""Questions to the person at the terminal: asked on standard error, answered on standard input, never into a pipe."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Sequence

from thinklsp.cli.terminal import harmless


def can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> bool:
    """True for a yes. The end of input is a no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def choose(question: str, options: Sequence[str]) -> str | None:
    """The chosen option, by number or by its text; None for anything else."""
    lines = [harmless(question), *(f"  {number}  {harmless(option)}" for number, option in enumerate(options, 1))]
    sys.stderr.write("\n".join(lines) + f"\nYour choice [1-{len(options)}]: ")
    sys.stderr.flush()
    answer = (await _line()).strip()
    if answer.isdecimal() and 1 <= int(answer) <= len(options):
        return options[int(answer) - 1]
    return answer if answer in options else None


async def _line() -> str:
    """One line of standard input. A cancel does not wait for the reader: its thread dies with the process."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[str] = loop.create_future()

    def take(text: str) -> None:
        if not answered.done():
            answered.set_result(text)

    def read() -> None:
        text = os.read(sys.stdin.fileno(), 4096).decode("utf-8", "replace")
        loop.call_soon_threadsafe(take, text)

    threading.Thread(target=read, daemon=True, name="terminal").start()
    return await answered
