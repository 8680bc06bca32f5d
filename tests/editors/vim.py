"""Vim with ALE in a terminal, the client that can least: no progress, no edits from a server, only actions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.editors.pages import pasted
from tests.editors.programs import apt, ran, version_of
from tests.editors.steps import Step
from tests.editors.terminal import Terminal
from tests.editors.trial import BROKEN, FILE, FIXED, Trial, effort_of

_PAGE = "editors/vim/README.md"
_LINT = """
call ale#linter#Define('python', {
\\ 'name': 'lint', 'lsp': 'stdio', 'executable': 'thinklsp-lint', 'command': '%e', 'project_root': getcwd(),
\\})
"""
# Errors of a script must not wait for a key, and the screen holds the file and messages only.
_PLAIN = "set nocompatible shortmess+=I nomore\nfiletype plugin on\npackadd! ale\nlet g:ale_linters_explicit = 1\n"
_ASKED = "Type number and <Enter>"


async def install(_: Path) -> str:
    await apt("vim-nox", "vim-ale", "tmux")
    return (await version_of("vim", "--version")).split(" (")[0]


async def drive(trial: Trial, _: Path) -> None:
    async with Terminal(trial.room) as terminal:
        vim = _Vim(trial, terminal)
        await vim.open(FILE)
        await vim.works_on_a_diagnostic()
        await vim.cancels()
        await vim.takes_an_effort()
        await vim.chats()
        await vim.goes_on()


@dataclass
class _Vim:
    trial: Trial
    terminal: Terminal

    async def open(self, name: str, effort: str = "auto") -> None:
        """Vim anew, with the page's text."""
        text = pasted(_PAGE, "vim", "ale#linter#Define").replace("'effort': 'auto'", f"'effort': '{effort}'")
        linters = "let g:ale_linters = {'python': ['lint', 'thinklsp'], 'markdown': ['thinklsp']}\n"
        vimrc = self.trial.home / ".vimrc"
        vimrc.write_text(_PLAIN + linters + text + _LINT)
        await self.terminal.open(["vim", name], self.trial.workspace, self.trial.variables)
        await self.terminal.shows(name)

    async def works_on_a_diagnostic(self) -> None:
        with self.trial.check(Step.ATTACH):
            await self.terminal.shows("> undefined name 'value'")
        with self.trial.check(Step.ACTION):
            await self.terminal.keys("j", "$")
            await self.act("thinklsp: fix undefined name 'value'")
            await self.trial.until(lambda: self.trial.requests, "a request of the turn")
        with self.trial.check(Step.THINKING, fallback="no progress in ALE: the answer comes as a message"):
            await self.terminal.shows("The parameter is called `values`")
        with self.trial.check(Step.EDIT, fallback="ALE takes no edits from a server: the action `apply`"):
            await self.terminal.shows("does not accept edits from a server; use the code action")
            await self.command("pclose")
            await self.act("thinklsp: apply")
            await self.terminal.shows(r"len\(values\)")
            assert await self.saved(FILE) == FIXED
        with self.trial.check(Step.UNDO):
            await self.terminal.keys("u")
            await self.terminal.shows(r"len\(value\)")
            assert await self.saved(FILE) == BROKEN

    async def cancels(self) -> None:
        with self.trial.check(Step.CANCEL, fallback="no progress in ALE: the action `stop`"):
            before = len(self.trial.requests)
            (self.trial.workspace / "long.chat.md").write_text("## You\n\nthink forever\n")
            await self.command("edit long.chat.md")
            await self.terminal.keys("G", "$")
            await self.act("thinklsp: send")
            await self.trial.until(lambda: len(self.trial.requests) > before, "a request of the turn")
            await self.act("thinklsp: stop")
            await self.trial.until(lambda: self.trial.requests[before].closed_by_client, "the connection closed")

    async def takes_an_effort(self) -> None:
        with self.trial.check(Step.EFFORT):
            assert effort_of(self.trial.requests[0]) is None
            await self.open(FILE, effort="high")
            await self.terminal.shows("> undefined name 'value'")
            before = len(self.trial.requests)
            await self.terminal.keys("j", "$")
            await self.act("thinklsp: fix undefined name 'value'")
            await self.trial.until(lambda: len(self.trial.requests) > before, "a request of the turn")
            assert effort_of(self.trial.requests[before]) == "high"
            await self.terminal.shows("use the code action")

    async def chats(self) -> None:
        with self.trial.check(Step.CHAT, fallback="ALE takes no edits from a server: the answer comes as a message"):
            (self.trial.workspace / "talk.chat.md").write_text("## You\n\nhello\n")
            await self.open("talk.chat.md")
            await self.terminal.keys("G", "$")
            await self.act("thinklsp: send")
            await self.terminal.shows(r"My word is \*\*heliotrope\*\*")

    async def goes_on(self) -> None:
        """The session's name, which Vim could not be given by an edit, stands in the first line by hand."""
        with self.trial.check(Step.RESUME):
            argv = ("thinklsp", "sessions", "list", "--json")
            listed = json.loads(await ran(*argv, folder=self.trial.workspace, variables=self.trial.variables))
            name = next(row["sessionId"] for row in listed if "hello" in row["title"])
            text = f"<!-- thinklsp session: {name} -->\n\n## You\n\nwhat did I ask first?\n"
            (self.trial.workspace / "talk.chat.md").write_text(text)
            await self.open("talk.chat.md")
            await self.terminal.keys("G", "$")
            await self.act("thinklsp: send")
            await self.terminal.shows("You greeted me first")
            assert "heliotrope" in json.dumps(self.trial.requests[-1].body["messages"])

    async def act(self, title: str) -> None:
        """Picks the action from the list; asks again until it is offered: the server may not be there yet."""
        number = ""

        async def is_offered() -> bool:
            nonlocal number
            await self.command("ALECodeAction")
            screen = (await self.terminal.shows(rf"(?s).*{_ASKED}|No code actions")).group()
            rows = [line.split(") ", 1) for line in screen.splitlines() if ") thinklsp: " in line]
            number = next((row for row, offered in rows if offered.startswith(title)), "")
            if not number and _ASKED in screen:
                await self.terminal.keys("Enter")
                await self.terminal.hides(_ASKED)
            return bool(number)

        await self.trial.until(is_offered, f"the action {title}")
        await self.terminal.keys(number, "Enter")
        await self.terminal.hides(_ASKED)

    async def command(self, line: str) -> None:
        await self.terminal.keys("Escape")
        await self.terminal.type(f":{line}", "Enter")

    async def saved(self, name: str) -> str:
        told = self.trial.home / "saved"
        await self.command(f"silent write | call writefile([], '{told}')")
        await self.trial.until(told.exists, f"{name} to be saved")
        told.unlink()
        return (self.trial.workspace / name).read_text()
