"""Neovim with avante.nvim, whose chat talks to `thinklsp acp`. Its settings are those of the page on ACP.

The parts of the plugin in Rust, which render its own prompts, are left out: an agent gets only the words of the user.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.editors import neovim
from tests.editors.neovim_codecompanion import install_plugins, load_plugins
from tests.editors.neovim_seat import Seat
from tests.editors.pages import pasted
from tests.editors.steps import Step
from tests.editors.trial import BROKEN, FIXED, Trial

# From GitHub, since no package of a distribution has them.
_PLUGINS = {
    "yetone/avante.nvim": "a9334315e05ac750985c7d0b391e360e36e0278e",
    "MunifTanjim/nui.nvim": "de740991c12411b663994b2860f1a4fd0937c130",
    "nvim-lua/plenary.nvim": "b9fd5226c2f76c951fc8ed5923d85e4de065e509",
}
_BEFORE = """
vim.o.messagesopt = 'wait:1,history:500'
package.preload.avante_templates = function()
  return { initialize = function() end, render = function() return '' end }
end
"""
_SIDEBAR = "require('avante').get()"
_SHOWN = f"table.concat(vim.api.nvim_buf_get_lines({_SIDEBAR}.containers.result.bufnr, 0, -1, false), '\\n')"
_CLICK = f"""
local sidebar, kind = {_SIDEBAR}, ...
for _, button in ipairs(sidebar.permission_button_options) do
  if button.id == kind then
    sidebar.permission_handler(button.id)
    return
  end
end
"""


async def install(room: Path) -> str:
    return await install_plugins(room, _PLUGINS)


async def drive(trial: Trial, room: Path) -> None:
    async with _opened(trial, room) as seat:
        with trial.check(Step.CHAT):
            await _ask(seat, "hello")
            await _shows(seat, "My word is **heliotrope**")
        with trial.check("an edit that is rejected changes nothing"):
            await _fixes(seat, "reject_once")
            await _shows(seat, "you rejected it")
            assert trial.file.read_text() == BROKEN
        with trial.check(Step.EDIT):
            # Without its last line break, the plugin shows the same text.
            await _fixes(seat, "allow_once")
            await trial.until(lambda: trial.file.read_text() == FIXED, "the edit on the disk")
            await seat.until("trial.text(trial.buffer('stats.py')) == ...", "the edit in the buffer", FIXED)
        with trial.check(Step.CANCEL):
            before = len(trial.requests)
            await _ask(seat, "think forever")
            await trial.until(lambda: len(trial.requests) > before, "the model's call")
            await seat.nvim.command("AvanteStop")
            await trial.until(lambda: trial.requests[before].closed_by_client, "the end of the connection")


@asynccontextmanager
async def _opened(trial: Trial, room: Path) -> AsyncIterator[Seat]:
    # The plugin passes no other variables.
    passed = ", ".join(f"{name} = os.getenv('{name}')" for name in trial.variables)
    settings = pasted("docs/acp.md", "lua", 'require("avante")').replace("/path/to/thinklsp", "thinklsp")
    assert "env = {}" in settings
    init = f"{_BEFORE}{load_plugins(room, _PLUGINS)}{settings.replace('env = {}', f'env = {{ {passed} }}')}"
    async with neovim._opened(trial, room, "config", init) as seat:
        await seat.nvim.attach(160, 60)
        yield seat


async def _ask(seat: Seat, text: str) -> None:
    """Ask in a new chat, because the plugin sends the earlier prompts of a chat again."""
    await seat.nvim.lua("require('avante.api').ask({ question = ..., new_chat = true })", text)


async def _shows(seat: Seat, text: str) -> None:
    await seat.until(f"{_SIDEBAR} and ({_SHOWN}):find(..., 1, true)", f"{text!r} in the chat", text)


async def _fixes(seat: Seat, kind: str) -> None:
    await _ask(seat, "fix the undefined name")
    await seat.until(f"{_SIDEBAR}.permission_handler ~= nil", "a question")
    await seat.nvim.lua(_CLICK, kind)
