"""Vim with ALE in a terminal, the client that can least: no progress, no edits from a server, only actions."""

from __future__ import annotations

import json
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


class _Vim:
    def __init__(self, trial: Trial, terminal: Terminal) -> None:
        self._trial, self._terminal = trial, terminal

    async def open(self, name: str, effort: str = "auto") -> None:
        """Vim anew, with the page's text."""
        text = pasted(_PAGE, "vim", "ale#linter#Define").replace("'effort': 'auto'", f"'effort': '{effort}'")
        linters = "let g:ale_linters = {'python': ['lint', 'thinklsp'], 'markdown': ['thinklsp']}\n"
        vimrc = self._trial.home / ".vimrc"
        vimrc.write_text(_PLAIN + linters + text + _LINT)
        await self._terminal.open(["vim", name], self._trial.workspace, self._trial.variables)
        await self._terminal.shows(name)

    async def works_on_a_diagnostic(self) -> None:
        trial, terminal = self._trial, self._terminal
        with trial.check(Step.ATTACH):
            await terminal.shows("> undefined name 'value'")
        with trial.check(Step.ACTION):
            await terminal.keys("j", "$")
            await self.act("thinklsp: fix undefined name 'value'")
            await trial.until(lambda: trial.requests, "a request of the turn")
        with trial.check(Step.THINKING, fallback="no progress in ALE: the answer comes as a message"):
            await terminal.shows("thinklsp: The parameter is called `values`")
        with trial.check(Step.EDIT, fallback="ALE takes no edits from a server: the action `apply`"):
            await terminal.shows("takes no edits from a server; use the action to apply it")
            await self.command("pclose")
            await self.act("thinklsp: apply")
            await terminal.shows(r"len\(values\)")
            assert await self.saved(FILE) == FIXED
        with trial.check(Step.UNDO):
            await terminal.keys("u")
            await terminal.shows(r"len\(value\)")
            assert await self.saved(FILE) == BROKEN

    async def cancels(self) -> None:
        trial, terminal = self._trial, self._terminal
        with trial.check(Step.CANCEL, fallback="no progress in ALE: the action `stop`"):
            before = len(trial.requests)
            (trial.workspace / "long.chat.md").write_text("## You\n\nthink forever\n")
            await self.command("edit long.chat.md")
            await terminal.keys("G", "$")
            await self.act("thinklsp: send")
            await trial.until(lambda: len(trial.requests) > before, "a request of the turn")
            await self.act("thinklsp: stop")
            await trial.until(lambda: trial.requests[before].closed_by_client, "the connection closed", 5)

    async def takes_an_effort(self) -> None:
        trial = self._trial
        with trial.check(Step.EFFORT):
            assert effort_of(trial.requests[0]) is None
            await self.open(FILE, effort="high")
            await self._terminal.shows("> undefined name 'value'")
            before = len(trial.requests)
            await self._terminal.keys("j", "$")
            await self.act("thinklsp: fix undefined name 'value'")
            await trial.until(lambda: len(trial.requests) > before, "a request of the turn")
            assert effort_of(trial.requests[before]) == "high"
            await self._terminal.shows("use the action to apply it")

    async def chats(self) -> None:
        trial, terminal = self._trial, self._terminal
        with trial.check(Step.CHAT, fallback="ALE takes no edits from a server: the answer comes as a message"):
            (trial.workspace / "talk.chat.md").write_text("## You\n\nhello\n")
            await self.open("talk.chat.md")
            await terminal.keys("G", "$")
            await self.act("thinklsp: send")
            await terminal.shows(r"My word is \*\*heliotrope\*\*")

    async def goes_on(self) -> None:
        """The session's name, which Vim could not be given by an edit, stands in the first line by hand."""
        trial, terminal = self._trial, self._terminal
        with trial.check(Step.RESUME):
            listed = json.loads(await self._sessions())
            name = next(row["sessionId"] for row in listed if "hello" in row["title"])
            text = f"<!-- thinklsp session: {name} -->\n\n## You\n\nwhat did I ask first?\n"
            (trial.workspace / "talk.chat.md").write_text(text)
            await self.open("talk.chat.md")
            await terminal.keys("G", "$")
            await self.act("thinklsp: send")
            await terminal.shows("You greeted me first")
            assert "heliotrope" in json.dumps(trial.requests[-1].body["messages"])

    async def act(self, title: str) -> None:
        """Picks the action from the list; asks again until it is offered: the server may not be there yet."""
        number = ""

        async def is_offered() -> bool:
            nonlocal number
            await self.command("ALECodeAction")
            screen = (await self._terminal.shows(rf"(?s).*{_ASKED}|No code actions")).group()
            rows = [line.split(") ", 1) for line in screen.splitlines() if ") thinklsp: " in line]
            number = next((row for row, offered in rows if offered.startswith(title)), "")
            if not number and _ASKED in screen:
                await self._terminal.keys("Enter")
                await self._terminal.hides(_ASKED)
            return bool(number)

        await self._trial.until(is_offered, f"the action {title}")
        await self._terminal.keys(number, "Enter")
        await self._terminal.hides(_ASKED)

    async def command(self, line: str) -> None:
        await self._terminal.keys("Escape")
        await self._terminal.type(f":{line}")
        await self._terminal.keys("Enter")

    async def saved(self, name: str) -> str:
        told = self._trial.home / "saved"
        await self.command(f"silent write | call writefile([], '{told}')")
        await self._trial.until(told.exists, f"{name} to be saved")
        told.unlink()
        return (self._trial.workspace / name).read_text()

    async def _sessions(self) -> str:
        return await ran(
            "thinklsp", "sessions", "list", "--json", folder=self._trial.workspace, variables=self._trial.variables
        )
