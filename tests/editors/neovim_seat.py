"""What the rows of Neovim are asserted with: one Neovim, and what its user would see there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.editors.neovim_rpc import Neovim
from tests.editors.trial import FIXED, Trial

FIX = "thinklsp: fix undefined name 'value'"


@dataclass(frozen=True)
class Seat:
    """`probe.lua` beside this file's folder is loaded there: its functions are `trial.…` in Lua."""

    trial: Trial
    nvim: Neovim

    async def until(self, expression: str, what: str, *arguments: Any) -> Any:
        """Waits until the Lua expression is true."""

        async def holds() -> Any:
            return await self.nvim.lua(f"return {expression}", *arguments)

        return await self.trial.until(holds, what)

    async def text(self) -> str:
        return str(await self.nvim.lua("return trial.text()"))

    async def text_is(self, wanted: str) -> None:
        try:
            await self.until("trial.text() == ...", "the text", wanted)
        except AssertionError:
            told = f"after {await self.nvim.lua('return trial.messages()')!r}"
            raise AssertionError(f"the buffer holds {await self.text()!r}, not {wanted!r}, {told}") from None

    async def find_problem(self) -> None:
        """Wait until both servers are attached and one has found the problem."""
        await self.until("vim.deep_equal(trial.servers(), { 'lint', 'thinklsp' })", "both servers")
        await self.until("#vim.diagnostic.get(0) == 1", "the lint server's diagnostic")

    async def fix_problem(self) -> None:
        """Run the code action, and wait for its edit and the end of its turn."""
        await self.nvim.type("2G")
        await self.choosing(FIX, "vim.lsp.buf.code_action()")
        await self.text_is(FIXED)
        await self.idle()

    async def idle(self) -> None:
        await self.until("require('thinklsp.progress').status() == ''", "the end of the turn")

    async def shows(self, text: str, number: int = 0) -> None:
        """In virtual lines of the buffer."""
        await self.until("trial.shows(...)", f"virtual lines with {text!r}", number, text)

    async def choosing(self, text: str, code: str) -> list[str]:
        """Runs the code, which offers a list; the first entry with the text is chosen. What was offered."""
        await self.nvim.lua("trial.offered, trial.wanted = {}, { ... }", text)
        await self.nvim.lua(code)
        await self.until("#trial.offered > 0", f"a list with {text!r}")
        offered: list[str] = await self.nvim.lua("return trial.offered[1]")
        assert any(text in one for one in offered), offered
        return offered

    async def new_chat(self) -> None:
        """An empty chat document in the current window."""
        before = await self.nvim.lua("return vim.api.nvim_buf_get_name(0)")
        await self.nvim.command("Thinklsp chat")
        name = "vim.api.nvim_buf_get_name(0)"
        await self.until(f"{name} ~= ... and vim.endswith({name}, '.chat.md')", "a new chat document", before)
        await self.until("vim.tbl_contains(trial.servers(), 'thinklsp')", "its server")

    async def said(self, text: str) -> None:
        """In a message to the user."""
        try:
            await self.until("trial.messages():find(..., 1, true)", "the message", text)
        except AssertionError:
            raise AssertionError(f"nothing said {text!r}: {await self.nvim.lua('return trial.messages()')!r}") from None
