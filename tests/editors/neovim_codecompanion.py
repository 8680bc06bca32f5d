"""Neovim with codecompanion.nvim, whose chat talks to `thinklsp acp`. Its settings are those of the page on ACP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.editors import neovim
from tests.editors.neovim_seat import Seat
from tests.editors.pages import pasted
from tests.editors.programs import apt, ran
from tests.editors.steps import Step
from tests.editors.trial import BROKEN, FILE, FIXED, Trial

# From GitHub, since no package of a distribution has them.
_PLUGINS = {
    "olimorris/codecompanion.nvim": "f1afd02537c68b3dd6e0d41d4adda5ef538e0473",
    "nvim-lua/plenary.nvim": "b9fd5226c2f76c951fc8ed5923d85e4de065e509",
}
_PATIENCE_SECONDS = "60"
# A message of two lines must not wait for Enter. In Debian's LuaJIT the main program counts as a coroutine; the plugin
# would yield there.
_BEFORE = """
vim.o.messagesopt = 'wait:1,history:500'
local running = coroutine.running
coroutine.running = function()
  local thread, is_main = running()
  if not is_main then
    return thread
  end
end
"""
_CHAT = "require('codecompanion').buf_get_chat(0)"
_IS_READY = r"trial.text():find('\n## Me\n%s*$') or trial.text():find('^## Me\n%s*$')"
_FIX = "fix the undefined name"
_DIFF = "-    return sum(values) / len(value)\n+    return sum(values) / len(values)\n"
_ACCEPT, _REJECT, _CANCEL, _VIEW = "g2", "g3", "g4", "gv"


async def install(room: Path) -> str:
    return await install_plugins(room, _PLUGINS)


async def install_plugins(room: Path, plugins: Mapping[str, str]) -> str:
    """Clone plugins of GitHub at their commits. Return the versions of the first one and of Neovim."""
    version = await neovim.installer("sid")(room)
    await apt("git")
    for name, commit in plugins.items():
        await _clone(name, commit, _folder(room, name))
    name, commit = next(iter(plugins.items()))
    return f"{name.rpartition('/')[2]} {commit[:7]}, {version}"


def load_plugins(room: Path, plugins: Iterable[str]) -> str:
    """Return Lua for `init.lua`."""
    return f"vim.opt.runtimepath:append({{ {', '.join(f'[[{_folder(room, name)}]]' for name in plugins)} }})\n"


def _folder(room: Path, name: str) -> Path:
    return room / "plugins" / name.rpartition("/")[2]


async def _clone(name: str, commit: str, folder: Path) -> None:
    if (folder / "lua").exists():
        return
    git = ("timeout", _PATIENCE_SECONDS, "git", "-C", str(folder))
    await ran("mkdir", "--parents", str(folder))
    await ran(*git, "init", "--quiet")
    await ran(*git, "fetch", "--quiet", "--depth", "1", f"https://github.com/{name}", commit)
    await ran(*git, "checkout", "--quiet", "FETCH_HEAD")


async def drive(trial: Trial, room: Path) -> None:
    async with _chatting(trial, room) as seat:
        with trial.check(Step.CHAT):
            await _send(seat, "hello")
            await _answers(seat, "My word is **heliotrope**")
            assert "### Reasoning\n\nA greeting." in await seat.text()
        await _edits(seat)
        await _cancels_a_question(seat)
        await _loses_unsaved_text(seat)
        await _cancels(seat)
    async with _chatting(trial, room) as seat:
        with trial.check(Step.RESUME):
            await _loads(seat)


@asynccontextmanager
async def _chatting(trial: Trial, room: Path) -> AsyncIterator[Seat]:
    """A Neovim with the file in one window and a new chat in the other, where the cursor is."""
    settings = pasted("docs/acp.md", "lua", 'require("codecompanion")').replace("/path/to/thinklsp", "thinklsp")
    init = f"{_BEFORE}{load_plugins(room, _PLUGINS)}{settings}"
    async with neovim._opened(trial, room, "config", init) as seat:
        await seat.nvim.attach(120, 60)
        with trial.check("opens a chat with a session of the agent"):
            await seat.nvim.command("CodeCompanionChat")
            await seat.until(f"{_CHAT}.acp_connection and {_CHAT}.acp_connection.session_id", "a session")
        yield seat


async def _send(seat: Seat, text: str) -> None:
    await _is_ready(seat)
    await seat.nvim.type(f"Go{text}<Esc>")
    await seat.nvim.type("<C-s>")


async def _answers(seat: Seat, text: str) -> None:
    """Wait until the chat has the text and an empty prompt below it."""
    try:
        await seat.until("trial.text():find(..., 1, true)", f"the answer {text!r}", text)
    except AssertionError as error:
        raise AssertionError(f"{error}; the chat: {(await seat.text())[-500:]!r}") from None
    await _is_ready(seat)


async def _is_ready(seat: Seat) -> None:
    try:
        await seat.until(_IS_READY, "an empty prompt")
    except AssertionError as error:
        raise AssertionError(f"{error}; the chat: {(await seat.text())[-500:]!r}") from None


async def _edits(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    with trial.check("shows the diff of an edit in the question"):
        await _send(seat, _FIX)
        await _is_asked(seat, 1)
        text = await seat.text()
        assert _DIFF in text, text
        assert "Read: stats.py" in text, text
        assert await _file(seat) == BROKEN
    with trial.check(Step.EDIT):
        await nvim.type(_ACCEPT)
        await _answers(seat, "You selected: Accept")
        assert await _file(seat) == trial.file.read_text() == FIXED
        assert not await nvim.lua("return vim.bo[trial.buffer('stats.py')].modified")
    with trial.check("a slash command of the agent undoes the edit"):
        await _send(seat, r"\undo")
        await _answers(seat, "stats.py was restored")
        assert await _file(seat) == trial.file.read_text() == BROKEN
    with trial.check("an edit that is rejected from its window changes nothing"):
        await _send(seat, _FIX)
        await _is_asked(seat, 2)
        await nvim.type(_VIEW)
        await seat.until("(trial.float() or ''):find('len(values)', 1, true)", "a window with the diff")
        await nvim.type(_REJECT)
        await _answers(seat, "You selected: Reject")
        assert await _file(seat) == trial.file.read_text() == BROKEN


async def _cancels_a_question(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    with trial.check("cancels a turn at its question"):
        await _send(seat, _FIX)
        await _is_asked(seat, 3)
        await nvim.type(_CANCEL)
        await _answers(seat, "You selected: Cancel")
        assert await _file(seat) == trial.file.read_text() == BROKEN


async def _loses_unsaved_text(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    with trial.check("text that is not saved", fallback="the plugin reads the disk, and a write replaces the buffer"):
        unsaved = f"# not saved\n{BROKEN}"
        # The file is in the window on the right.
        await nvim.type("<C-w>lggO# not saved<Esc>")
        assert await _file(seat) == unsaved
        await nvim.type("<C-w>h")
        await _send(seat, _FIX)
        await _is_asked(seat, 4)
        await nvim.type(_ACCEPT)
        await _is_ready(seat)
        assert await _file(seat) == trial.file.read_text() == FIXED
        await nvim.type("<C-w>lu")
        if await _file(seat) != unsaved:
            # The agent has written twice, without the line that the plugin had added.
            await nvim.type("u")
        assert await _file(seat) == unsaved
        await nvim.command("edit!")
        await nvim.type("<C-w>h")


async def _cancels(seat: Seat) -> None:
    """The plugin sends the prompt of a cancelled turn again, with the next one."""
    trial, nvim = seat.trial, seat.nvim
    with trial.check(Step.CANCEL):
        before = len(trial.requests)
        await _send(seat, "think forever")
        await seat.until("trial.text():find('Round and round', 1, true)", "the thinking in the chat")
        await nvim.type("q")
        await trial.until(lambda: trial.requests[before].closed_by_client, "the end of the connection")
        await _is_ready(seat)


async def _loads(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    await nvim.lua("trial.wanted = { 'hello' }")
    await nvim.type("Gi/resume<C-x><C-o><C-y><Esc>")
    await _answers(seat, "heliotrope")
    text = await seat.text()
    assert "hello" in text, text
    assert text.count(_FIX) == 4, text
    await _send(seat, "what did I ask first?")
    await _answers(seat, "You greeted me first")
    assert "hello" in str(trial.requests[-1].body["messages"][0])


async def _is_asked(seat: Seat, times: int) -> None:
    """Wait until the chat has had so many questions."""
    asked = f"select(2, trial.text():gsub('Proposed edits for `{FILE}`', '')) == ..."
    await seat.until(asked, "a question", times)


async def _file(seat: Seat) -> str:
    return str(await seat.nvim.lua(f"return trial.text(trial.buffer('{FILE}'))"))
