"""Neovim with the plugin of editors/neovim and its page's configuration, and with the page's snippet alone."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.editors import neovim_bare, neovim_chats, neovim_first_run, neovim_own, neovim_parts, neovim_review
from tests.editors.neovim_rpc import Neovim
from tests.editors.neovim_seat import FIX, Seat
from tests.editors.pages import ROOT, pasted
from tests.editors.programs import debs, version_of
from tests.editors.steps import Step
from tests.editors.trial import BROKEN, FILE, FIXED, HERE, OTHER_FILE, Trial, effort_of, prompt_of

_PROBE = f"dofile([[{HERE / 'neovim' / 'probe.lua'}]])\n"
_OLDEST = (0, 10)  # The plugin needs it.


def installer(suite: str) -> Callable[[Path], Awaitable[str]]:
    async def install(room: Path) -> str:
        await debs(suite, room, "neovim")
        return await version_of(str(room / "run"), "nvim", "--version")

    return install


async def find(cache: Path) -> Path:
    """Install Neovim, or find a new enough one on the PATH. Return the folder for `drive_smoke`.

    Raises RuntimeError if there is none.
    """
    room = cache / "Neovim-0.10"
    try:
        await installer("trixie")(room)
    except RuntimeError:
        found = shutil.which("nvim") and re.match(r"NVIM v(\d+)\.(\d+)", await version_of("nvim", "--version"))
        if not found or (int(found[1]), int(found[2])) < _OLDEST:
            raise
    return room


async def drive(trial: Trial, room: Path) -> None:
    with_plugin = _with_plugin()
    async with _opened(trial, room, "config", with_plugin) as seat:
        await _has_a_screen(seat)
        await _works_on_a_diagnostic(seat)
        await _cancels(seat)
        with trial.check(Step.EFFORT):
            assert {effort_of(request) for request in trial.requests} == {"high"}
        document = await _chats(seat)
    async with _opened(trial, room, "config", with_plugin, document) as seat:
        await _has_a_screen(seat)
        await _goes_on(seat)
        await neovim_own.rows(seat)
    asked_by_another = with_plugin.replace("setup({", "setup({ cmd = { 'thinklsp-asking' },")
    async with _opened(trial, room, "config", asked_by_another, OTHER_FILE) as seat:
        await neovim_own.bridge_rows(seat)
    trial.file.write_text(BROKEN)
    await _without_the_plugin(trial, room)


async def drive_smoke(trial: Trial, room: Path) -> None:
    """An edit and its undo, without anything that a slow machine could miss."""
    del trial.variables["LOOP_WATCH"]  # It judges time.
    async with _opened(trial, room, "config", _with_plugin()) as seat:
        await _has_a_screen(seat)
        with trial.check(Step.ATTACH):
            await seat.find_problem()
        with trial.check(Step.EDIT):
            await seat.fix_problem()
        with trial.check(Step.UNDO):
            await seat.nvim.type("u")
            await seat.text_is(BROKEN)


async def drive_parts(trial: Trial, room: Path) -> None:
    """The review of edits in a float, and the first steps without a key."""
    with_plugin = _with_plugin()
    async with _opened(trial, room, "config", with_plugin) as seat:
        await seat.until("vim.tbl_contains(trial.servers(), 'thinklsp')", "the server")
        await _has_a_screen(seat)
        await neovim_parts.rows(seat)
        await neovim_review.rows(seat)
        await neovim_chats.rows(seat)
    trial.file.write_text(BROKEN)
    key = trial.variables.pop("ANTHROPIC_API_KEY")
    trial.variables["OPENAI_BASE_URL"] = f"http://127.0.0.1:{neovim_first_run.STRICT_PORT}/v1"
    async with _opened(trial, room, "config", with_plugin) as seat:
        await seat.until("vim.tbl_contains(trial.servers(), 'thinklsp')", "the server")
        await _has_a_screen(seat)
        await neovim_first_run.rows(seat)
    trial.file.write_text(BROKEN)
    trial.variables["OPENAI_API_KEY"] = "sk-unknown"
    async with _opened(trial, room, "config", with_plugin) as seat:
        await seat.until("vim.tbl_contains(trial.servers(), 'thinklsp')", "the server")
        await _has_a_screen(seat)
        await neovim_first_run.rows_with_a_wrong_key(seat)
    del trial.variables["OPENAI_API_KEY"], trial.variables["OPENAI_BASE_URL"]
    trial.variables["ANTHROPIC_API_KEY"] = key


def _with_plugin() -> str:
    return pasted("editors/neovim/README.md", "lua", "setup({").replace("/path/to/thinklsp", str(ROOT))


@asynccontextmanager
async def _opened(trial: Trial, room: Path, name: str, init: str, file: str = FILE) -> AsyncIterator[Seat]:
    """A Neovim of a user with this configuration; its user leaves it at the end."""
    folder = trial.home / name / "nvim"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "init.lua").write_text(init + _PROBE)
    variables = {**trial.variables, "XDG_CONFIG_HOME": str(folder.parent)}
    argv = ["nvim", "-n", file]
    if (room / "run").exists():  # Else it is the Neovim of the PATH.
        variables["VIMRUNTIME"] = str(room / "root/usr/share/nvim/runtime")
        # Neovim looks for its parsers beside its program, which the loader hides.
        parsers = f"set runtimepath+={room / 'root/usr/lib/nvim'}"
        argv = [str(room / "run"), *argv, "--cmd", parsers]
    async with Neovim(argv, trial.workspace, variables, trial.room / "nvim.log") as nvim:
        yield Seat(trial, nvim)
        await nvim.quit()


async def _has_a_screen(seat: Seat) -> None:
    """Of the usual size and with a command line of one row: a message that waits for Enter would stop the trial."""
    await seat.nvim.attach(80, 24)


async def _works_on_a_diagnostic(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    with trial.check(Step.ATTACH):
        await seat.find_problem()
    with trial.check(Step.ACTION):
        await nvim.type("2G")
        await seat.choosing(FIX, "vim.lsp.buf.code_action()")
        await trial.until(lambda: trial.requests, "the model's call")
    with trial.check(Step.THINKING):
        await seat.until("trial.status_line():find('thinking · %d+ s')", "the thinking in the status line")
        # Without room for all, the name of the file stays.
        narrow = await nvim.lua("return vim.api.nvim_eval_statusline(vim.o.statusline, { maxwidth = 20 }).str")
        assert narrow.startswith(f"{FILE} "), narrow
        assert await nvim.lua("return vim.lsp.status():find('thinklsp: thinking', 1, true) ~= nil")
    with trial.check(Step.EDIT):
        await nvim.type("ggO# typed meanwhile<Esc>")
        await seat.text_is(f"# typed meanwhile\n{FIXED}")
        await seat.idle()
    with trial.check(Step.UNDO):
        await nvim.type("u")
        await seat.text_is(f"# typed meanwhile\n{BROKEN}")
        await nvim.type("u")
        await seat.text_is(BROKEN)


async def _cancels(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    with trial.check(Step.CANCEL):
        await nvim.command("Thinklsp chat think forever")
        await seat.until("trial.status_line():find('thinking', 1, true)", "the thinking in the status line")
        await seat.shows("thinking · ")
        await nvim.command("Thinklsp stop")
        await seat.idle()
        await trial.until(lambda: trial.requests[-1].closed_by_client, "the end of the connection")
        assert await nvim.lua("return trial.shown(0)") == []
        assert await seat.text() == BROKEN


async def _chats(seat: Seat) -> str:
    """The chat document that was made, saved."""
    trial, nvim = seat.trial, seat.nvim
    document = ""
    with trial.check(Step.CHAT):
        await seat.new_chat()
        await nvim.type("Gohello<Esc>")
        await nvim.command("Thinklsp send")
        await seat.until(
            "trial.text():match('## thinklsp.*heliotrope.*\\n## You\\n')", "the answer and an empty prompt"
        )
        await seat.idle()
        await nvim.command("write")
        document = str(await nvim.lua("return vim.api.nvim_buf_get_name(0)"))
        assert "heliotrope" in await asyncio.to_thread(Path(document).read_text)
    return document


async def _goes_on(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    with trial.check(Step.RESUME):
        await seat.until("vim.deep_equal(trial.servers(), { 'thinklsp' })", "the server of the chat document")
        await nvim.type("Gowhat did I ask first?<Esc>")
        await nvim.command("Thinklsp send")
        await seat.until("trial.text():find('You greeted me first', 1, true)", "what it remembers")
        asked = trial.requests[-1]
        assert "hello" in str(asked.body["messages"][0]), prompt_of(asked)
        await seat.idle()


async def _without_the_plugin(trial: Trial, room: Path) -> None:
    """What its page tells those to paste who want no plugin; Neovim 0.10 needs another one than the newer."""
    names = {step: f"without the plugin: {step}" for step in (Step.ATTACH, Step.ACTION, Step.EDIT)}
    async with _opened(trial, room, "bare", "") as seat:
        is_new: Any = await seat.nvim.lua("return vim.fn.has('nvim-0.11')")
    snippet = pasted("editors/neovim/README.md", "lua", "vim.lsp.enable('thinklsp')" if is_new else "vim.lsp.start({")
    async with _opened(trial, room, "bare", snippet) as seat:
        nvim = seat.nvim
        with trial.check(names[Step.ATTACH]):
            await seat.find_problem()
        before = len(trial.requests)
        if is_new:
            with trial.check(names[Step.ACTION]):
                await nvim.type("2G")
                await seat.choosing(FIX, "vim.api.nvim_input('gra')")
                await trial.until(lambda: len(trial.requests) > before, "the model's call")
            wanted = FIXED
        else:
            comment = "# fix the mean AI!\n"
            with trial.check(
                names[Step.ACTION], fallback="0.10 tells no other server's diagnostics: edit at a comment"
            ):
                await nvim.type(f"ggO{comment.rstrip()}<Esc>")
                await seat.choosing("thinklsp: edit as the comment says", "vim.lsp.buf.code_action()")
                await trial.until(lambda: len(trial.requests) > before, "the model's call")
            wanted = comment + FIXED
        with trial.check(names[Step.EDIT]):
            await seat.text_is(wanted)
    async with _opened(trial, room, "bare", snippet) as seat:
        await _has_a_screen(seat)
        await neovim_bare.question_rows(seat)
