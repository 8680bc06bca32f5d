"""`thinklsp setup` in the real editors: from a fresh home to the first fixed diagnostic, and back byte for byte.

The program is one of an installation that is laid out like a wheel, in a folder with a space in its name, and not on
the PATH of the editor. The home holds only what a user of the editor has anyway: a client for Vim and Emacs, and
another program that finds the problem.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.editors import code_server, neovim
from tests.editors.emacs import LSP_MODE, Client, _Emacs, _program
from tests.editors.helix import _Helix
from tests.editors.pages import pasted
from tests.editors.programs import ran
from tests.editors.steps import Step
from tests.editors.terminal import Terminal
from tests.editors.trial import FILE, FIXED, ROOT, Trial, effort_of
from tests.editors.vim import _LINT, _PLAIN, _Vim
from tests.editors.workbench import SIZE, browser

_SETUP, _REMOVE = "setup changes what it shows, a second run nothing", "setup --remove restores every byte"
_CARRIED = ("emacs", "helix", "neovim", "vim")


async def drive_neovim(trial: Trial, room: Path) -> None:
    config = trial.home / "config" / "nvim"
    config.mkdir(parents=True)
    (config / "init.lua").write_text(neovim._PROBE)
    _add_program(trial, "nvim", str(room / "run"), "nvim")
    async with _set_up(trial, "neovim"):
        async with neovim._opened(trial, room, "config", "") as seat:
            with trial.check(Step.ATTACH):
                await seat.find_problem()
            with trial.check(Step.EDIT):
                await seat.fix_problem()
        options = pasted("editors/neovim/README.md", "lua", "vim.g.thinklsp")
        async with neovim._opened(trial, room, "config", options) as seat:
            with trial.check(Step.EFFORT):
                await seat.find_problem()
                await seat.fix_problem()
                assert [effort_of(trial.requests[number]) for number in (0, -1)] == [None, "high"]
        (config / "init.lua").write_text(neovim._PROBE)


def emacs_driver(client: Client) -> Callable[[Trial, Path], Awaitable[None]]:
    async def drive(trial: Trial, room: Path) -> None:
        program = _program(client, room)
        if client.suite:
            _add_program(trial, "emacs", program)
        _remove_ruff(trial)
        async with Terminal(trial.room) as terminal:
            editor = _Emacs(trial, terminal, client, program)
            editor.configure("")
            async with _set_up(trial, "emacs"):
                await editor.start(FILE)
                with trial.check(Step.ATTACH, fallback=client.alone):
                    await editor.finds_the_problem()
                with trial.check(Step.EDIT):
                    await terminal.keys("C-n")
                    if client is LSP_MODE:
                        await editor.act("thinklsp: fix undefined name 'value'")
                    else:
                        await terminal.keys("C-c", '"', "f")
                    await editor.holds(FILE, FIXED)
                    await terminal.hides(r"thinklsp\[")
                await editor.close()

    return drive


async def drive_helix(trial: Trial, room: Path) -> None:
    """Its own list of servers for Python has pylsp, whose place the lint server takes."""
    _add_program(trial, "hx", str(room / "run"), "hx")
    _add_program(trial, "pylsp", "thinklsp-lint")
    _remove_ruff(trial)
    async with _set_up(trial, "helix"), Terminal(trial.room) as terminal:
        editor = _Helix(trial, room, terminal)
        await editor.open(FILE)
        with trial.check(Step.ATTACH):
            await terminal.shows(r"● 1 .*1 sel")
        with trial.check(Step.EDIT):
            await terminal.keys("j", "g", "l", "h")
            await editor.act("thinklsp: fix undefined name 'value'")
            await terminal.shows(r"^thinklsp: thinklsp ⋅ done, changed 1 file")
            assert await editor.saved(FILE) == FIXED


async def drive_vim(trial: Trial, _: Path) -> None:
    """A user of ALE who has chosen a linter for Python."""
    (trial.home / ".vimrc").write_text(f"{_PLAIN}let g:ale_linters = {{'python': ['lint']}}\n{_LINT}")
    async with _set_up(trial, "vim"), Terminal(trial.room) as terminal:
        editor = _Vim(trial, terminal)
        await terminal.open(["vim", FILE], trial.workspace, trial.variables)
        with trial.check(Step.ATTACH):
            await terminal.shows("> undefined name 'value'")
        with trial.check(Step.EDIT, fallback="ALE takes no edits from a server: the action `apply`"):
            await terminal.keys("j", "$")
            await editor.act("thinklsp: fix undefined name 'value'")
            await terminal.shows("does not accept edits from a server; use the code action")
            await editor.command("pclose")
            await editor.act("thinklsp: apply")
            await terminal.shows(r"len\(values\)")
            assert await editor.saved(FILE) == FIXED


async def drive_vscode(trial: Trial, room: Path) -> None:
    """code-server, with the folders that it has without options."""
    key = trial.variables.pop("ANTHROPIC_API_KEY")
    profile = Path(trial.variables["XDG_DATA_HOME"])
    for folder in ("data", "extensions"):
        (profile / folder).mkdir()
    (profile / "code-server").symlink_to("data")
    (profile / "data" / "extensions").symlink_to("../extensions")
    (profile / "config.yaml").write_text("auth: none\n")
    _add_program(trial, "code-server", *code_server.command(room, profile))
    flags = ("--disable-workspace-trust",)
    package = await code_server.package(room)
    async with (
        _set_up(trial, "code-server", package),
        code_server.started(room, profile, trial.variables, _SETTINGS, *flags, ours=()) as address,
        browser(code_server.CHROMIUM, address, trial.workspace, trial.home, SIZE) as window,
    ):
        with trial.check(Step.ATTACH):
            await window.open(FILE)
            await window.page.locator(".squiggly-error").first.wait_for()
            await window.shows("thinklsp$")
        with trial.check(Step.EDIT):
            await window.go_to(2, 32)
            await window.action("thinklsp: fix undefined name")
            await window.row("Try offline").click()
            await window.reads(FIXED)
            await window.shows("thinklsp offline")
    trial.variables["ANTHROPIC_API_KEY"] = key


_SETTINGS = {
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "files.autoSave": "off",
    "workbench.quickOpen.closeOnFocusLost": False,
    "workbench.reduceMotion": "on",
    "remote.autoForwardPorts": False,
}


@asynccontextmanager
async def _set_up(trial: Trial, name: str, extension: Path | None = None) -> AsyncIterator[None]:
    """Sets up the editor, and takes it back at the end."""
    program = await _installed(trial, extension)
    before = _files_of(trial.home)
    shown = await _run(trial, program, name, "--print")
    with trial.check(_SETUP):
        assert _files_of(trial.home) == before, "--print has changed something"
        said = await _run(trial, program, name, "--yes")
        assert set(shown.splitlines()) <= set(said.splitlines()), said
        after = _files_of(trial.home)
        assert after != before
        assert "nothing to change" in await _run(trial, program, name, "--yes")
        assert _files_of(trial.home) == after
    yield
    with trial.check(_REMOVE):
        await _run(trial, program, name, "--remove", "--yes")
        left = _files_of(trial.home)
        # Editors write files of their own, too.
        assert {path: left.get(path) for path in before} == before
        written = [line.removeprefix("+++ ") for line in shown.splitlines() if line.startswith("+++ ")]
        assert written
        new = {path.removeprefix(f"{trial.home}/") for path in written} - before.keys()
        assert new & left.keys() == set()
        assert "nothing to remove" in await _run(trial, program, name, "--remove")


async def _run(trial: Trial, program: Path, *words: str) -> str:
    argv = (str(program), "setup", *words)
    return await ran(*argv, folder=trial.workspace, variables=trial.variables)


async def _installed(trial: Trial, extension: Path | None) -> Path:
    """The command of a new environment with the package as a wheel has it, and no other on the PATH."""
    environment = trial.room / "my install"
    await ran(sys.executable, "-m", "venv", "--without-pip", str(environment))
    packages = next(environment.glob("lib/python3*/site-packages"))
    shutil.copytree(ROOT / "thinklsp", packages / "thinklsp", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _CARRIED:
        shutil.copytree(ROOT / "editors" / name, packages / "thinklsp" / "editors" / name)
    if extension is not None:
        (packages / "thinklsp" / "editors" / "vscode").mkdir()
        shutil.copy(extension, packages / "thinklsp" / "editors" / "vscode")
    # What it needs comes from the environment of the trials.
    (packages / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    program = environment / "bin" / "thinklsp"
    program.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -P -m thinklsp "$@"\n')
    program.chmod(0o755)
    (trial.home / "bin" / "thinklsp").unlink()
    return program


def _add_program(trial: Trial, name: str, *argv: str) -> None:
    """On the PATH of the trial, first."""
    program = trial.home / "bin" / name
    program.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
    program.chmod(0o755)


def _remove_ruff(trial: Trial) -> None:
    """Else Emacs 30 starts it, and Helix lists its actions among ours."""
    (trial.home / "bin" / "ruff").unlink()
    trial.variables["PATH"] = f"{trial.home / 'bin'}:/usr/bin:/bin"


def _files_of(folder: Path) -> dict[str, bytes | str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file())
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes() for path in found
    }
