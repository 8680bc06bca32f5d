"""The question about an edit in Neovim without the plugin, as its user sees it on the screen."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence

from tests.editors.neovim_seat import Seat
from tests.editors.shop import ANSWER, COMMENT, FILES, OPEN, PLAIN, Shop, rows
from tests.editors.waiting import until


async def question_rows(seat: Seat) -> None:
    await seat.nvim.lua("vim.ui.select = trial.select")
    dismissing = asyncio.create_task(_dismiss_messages(seat))
    try:
        await rows(_Bare(seat), "without the plugin: an edit of four files")
    finally:
        dismissing.cancel()


async def _dismiss_messages(seat: Seat) -> None:
    """Press Enter once for each message behind which Neovim waits for it."""

    def is_waiting() -> bool:
        return "Press ENTER" in seat.nvim.screen.text()

    while True:
        await until(is_waiting, "a message to dismiss", math.inf)
        await seat.nvim.type("<CR>")
        await until(lambda: not is_waiting(), "the message is dismissed")


class _Bare:
    no_parts = "the question takes no answer in part: yes, and `u` in one file"

    def __init__(self, seat: Seat) -> None:
        self.shop = Shop(seat.trial, head=COMMENT, deleted=PLAIN)
        self._seat, self._nvim = seat, seat.nvim

    async def begin(self) -> None:
        paths = [str(self._seat.trial.workspace / name) for name in FILES]
        await self._nvim.lua("trial.forget(...)", paths)
        await self._nvim.command(f"edit! {OPEN}")
        await self._nvim.command("messages clear")

    async def ask(self) -> str:
        await self._act("thinklsp: edit as the comment says")
        await self._seat.trial.until(lambda: self._shown(r"Apply it\?.*empty cancels"), self._nvim.screen.text)
        return self._screen()

    async def answer(self, kept: Sequence[str] | None) -> None:
        title = "Apply" if kept else "Not now"
        number = "" if kept is None else re.findall(rf"(\d): {title}", self._nvim.screen.text())[-1]
        await self._nvim.type(f"{number}<CR>")
        await self._seat.until(
            "trial.messages():find(..., 1, true)", "the end of the turn", ANSWER if kept else "not confirmed"
        )

    async def save(self) -> None:
        await self._nvim.command("silent wall")

    async def undo(self) -> None:
        await self._act("thinklsp: undo")

    async def undo_here(self) -> None:
        await self._nvim.type("u")

    async def _act(self, title: str) -> None:
        await self._nvim.type("gg")
        await self._seat.until("trial.offers(...)", title, title)
        await self._nvim.lua("trial.act(...)", title)

    def _screen(self) -> str:
        """Return the text of the screen, on which lines are broken anywhere."""
        return re.sub(r"\s", "", self._nvim.screen.text())

    def _shown(self, pattern: str) -> bool:
        return re.search(pattern.replace(" ", ""), self._screen()) is not None
