"""Helix in a terminal, with what its page says to paste. It cannot cancel progress: the action `stop` does."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from tests.editors.pages import pasted
from tests.editors.programs import apt, debs, version_of
from tests.editors.shop import COMMENT, OPEN, PLAIN, Shop, rows
from tests.editors.steps import Step
from tests.editors.terminal import Terminal
from tests.editors.trial import BROKEN, FILE, FIXED, OTHER_FILE, Trial, effort_of, result_of

_PAGE = "editors/helix/README.md"
_NORMAL = r"^ NOR "
# An entry of the menu, which is indented; what stands at the beginning of a line is progress.
_OFFERED = r"(?<=[^\n])thinklsp: "
_NONE = "No code actions|No configured"


async def install(room: Path) -> str:
    await apt("tmux")
    await debs("sid", room, "hx")
    return await version_of(str(room / "run"), "hx", "--version")


async def drive(trial: Trial, room: Path) -> None:
    async with Terminal(trial.room) as terminal:
        helix = _Helix(trial, room, terminal)
        helix.configure()
        await helix.open(FILE)
        await helix.works_on_a_diagnostic()
        await helix.cancels()
        await helix.takes_an_effort()
        await helix.knows()
        document = await helix.chats()
        await helix.goes_on(document)
        await helix.open(FILE)
        await rows(_Question(helix))


class _Question:
    no_parts = "the question takes no answer in part: yes, and `u` in one file"

    def __init__(self, helix: _Helix) -> None:
        self.shop = Shop(helix.trial, head=COMMENT, deleted=PLAIN)
        self._helix, self._terminal = helix, helix.terminal

    async def begin(self) -> None:
        await self._helix.command("buffer-close-all!")
        await self._helix.command(f"open {OPEN}")
        await self._terminal.shows(rf"^ NOR   {OPEN}")

    async def ask(self) -> str:
        await self._helix.act("thinklsp: edit as the comment says")
        asked = await self._terminal.shows(r"(?s)goes beyond.*Apply it\?.*Show the diff")
        return re.sub(r"[\s│]", "", asked.group())

    async def answer(self, kept: Sequence[str] | None) -> None:
        # The first answer is chosen already: not now.
        await self._terminal.keys(*["Down"] * bool(kept), "Enter")
        await self._terminal.shows("^thinklsp: thinklsp ⋅ done")

    async def save(self) -> None:
        await self._helix.command("write-all!")

    async def undo(self) -> None:
        await self._helix.act("thinklsp: undo")

    async def undo_here(self) -> None:
        await self._terminal.keys("u")


class _Helix:
    def __init__(self, trial: Trial, room: Path, terminal: Terminal) -> None:
        self.trial, self._room, self.terminal = trial, room, terminal
        self._languages = Path(self.trial.variables["XDG_CONFIG_HOME"], "helix", "languages.toml")
        self._log = self.trial.home / "helix.log"

    def configure(self, effort: str = "", own: str = '"lint"') -> None:
        """The page's text, with this trial's lint server, or another, as the language's own."""
        languages = pasted(_PAGE, "toml", "[language-server.thinklsp]").replace('"pylsp"', own)
        languages += '\n[language-server.lint]\ncommand = "thinklsp-lint"\n'
        languages += '\n[language-server.ruff]\ncommand = "ruff"\nargs = ["server"]\n'
        if effort:
            languages += f'\n[language-server.thinklsp.config]\neffort = "{effort}"\n'
        self._languages.parent.mkdir(exist_ok=True)
        self._languages.write_text(languages)
        self._languages.with_name("config.toml").write_text(pasted(_PAGE, "toml", "display-progress-messages"))

    async def open(self, name: str) -> None:
        runtime = {"HELIX_RUNTIME": str(self._room / "root/usr/lib/hx/runtime")}
        argv = [str(self._room / "run"), "hx", "-vvv", "--log", str(self._log), name]
        await self.terminal.open(argv, self.trial.workspace, {**self.trial.variables, **runtime})
        await self.terminal.shows(_NORMAL)

    async def works_on_a_diagnostic(self) -> None:
        with self.trial.check(Step.ATTACH):
            await self.terminal.shows(r"● 1 .*1 sel")
            await self._heard("thinklsp <- ", '"serverInfo":{"name":"thinklsp"')
        with self.trial.check(Step.ACTION):
            # To the last letter of the undefined name: Helix sends the diagnostics below the selection only.
            await self.terminal.keys("j", "g", "l", "h")
            await self.act("thinklsp: fix undefined name 'value'")
        with self.trial.check(Step.THINKING):
            await self.terminal.shows(r"^thinklsp: thinklsp ⋅ thinking · \d+ s")
        with self.trial.check(Step.EDIT):
            await self.terminal.shows(r"^thinklsp: thinklsp ⋅ done, changed 1 file")
            # The file stays in front; the answer was one message.
            await self.terminal.shows(r"^ NOR   stats\.py \[\+\]")
            assert await self.saved(FILE) == FIXED
        with self.trial.check(Step.UNDO):
            await self.terminal.keys("u")
            assert await self.saved(FILE) == BROKEN

    async def cancels(self) -> None:
        with self.trial.check(Step.CANCEL, fallback="no cancel for progress in Helix: the action `stop`"):
            before = len(self.trial.requests)
            await self.command('lsp-workspace-command thinklsp.chat {"prompt": "think forever"}')
            await self.trial.until(lambda: len(self.trial.requests) > before, "a request of the turn")
            await self.terminal.shows(r"thinking · \d+ s")
            await self.act("thinklsp: stop")
            await self.trial.until(lambda: self.trial.requests[before].closed_by_client, "the connection closed")
            await self.terminal.shows(r"^thinklsp: thinklsp ⋅ .*cancelled")

    async def takes_an_effort(self) -> None:
        with self.trial.check(Step.EFFORT):
            assert effort_of(self.trial.requests[0]) is None
            self.configure(effort="high")
            await self.command("config-reload")
            await self.command("lsp-restart thinklsp")
            before = len(self.trial.requests)
            await self._heard("thinklsp -> ", '"effort":"high"')
            await self.terminal.keys("g", "g", "j", "g", "l", "h")
            await self.act("thinklsp: fix undefined name 'value'")
            await self.trial.until(lambda: len(self.trial.requests) > before, "a request of the turn")
            assert effort_of(self.trial.requests[before]) == "high"
            await self.terminal.shows(r"^thinklsp: thinklsp ⋅ done, changed 1 file")
            await self.command("buffer-close!")

    async def knows(self) -> None:
        with self.trial.check(Step.KNOWS, fallback="no plugin for Helix: what came along with the code action"):
            # Its own actions would stand among ours.
            self.configure(own='{ name = "ruff", except-features = ["code-action"] }')
            await self.open(OTHER_FILE)
            await self.terminal.shows(r"● 1 .*1 sel")
            # To the name that is not used.
            await self.terminal.keys("w", "w")
            asked = len(self.trial.requests)
            await self.act("thinklsp: fix `os` imported but unused")
            await self.trial.until(lambda: len(self.trial.requests) > asked + 1, "the request with the tool's result")
            said = result_of(self.trial.requests[-1])
            assert "1 problem in 1 file, from code action requests only" in said, said
            assert "line 1: warning: `os` imported but unused" in said, said
            await self.terminal.shows(r"^thinklsp: thinklsp ⋅ done")

    async def chats(self) -> str:
        """The name of the chat document, saved."""
        name = "talk.chat.md"
        with self.trial.check(Step.CHAT):
            (self.trial.workspace / name).write_text("## You\n\n")
            await self.command(f"open {name}")
            await self.terminal.shows(rf"{name}")
            await self.write("hello")
            await self.act("thinklsp: send")
            await self.terminal.shows(r"My word is \*\*heliotrope\*\*")
            await self.terminal.shows(r"^thinklsp: thinklsp ⋅ done")
            text = await self.saved(name)
            assert text.startswith("<!-- thinklsp session: ")
            assert text.count("\n## You\n") == 2
            assert text.endswith("## You\n\n")
        return name

    async def goes_on(self, document: str) -> None:
        with self.trial.check(Step.RESUME):
            await self.open(document)
            await self.write("what did I ask first?")
            await self.act("thinklsp: send")
            await self.terminal.shows(r"You greeted me first")
            said = json.dumps(self.trial.requests[-1].body["messages"])
            assert "hello" in said
            assert "heliotrope" in said

    async def act(self, title: str) -> None:
        """Picks the action from the menu; opens it again until it is offered: the server may not be there yet."""
        offered: list[str] = []

        async def is_offered() -> bool:
            nonlocal offered
            await self.terminal.keys("Space", "a")
            screen = (await self.terminal.shows(rf"(?s){_OFFERED}.*|{_NONE}")).group()
            offered = [line[line.index("thinklsp: ") :] for line in screen.splitlines() if "thinklsp: " in line]
            if any(line.startswith(title) for line in offered):
                return True
            # Once it has been seen to: Escape and Space at once would be one key, with Alt.
            await self.terminal.keys("Escape")
            await self.terminal.hides(f"{_OFFERED}|{_NONE}")
            return False

        await self.trial.until(is_offered, f"the action {title}")
        wanted = next(number for number, line in enumerate(offered) if line.startswith(title))
        # The first entry is chosen already.
        await self.terminal.keys(*["Down"] * wanted, "Enter")

    async def write(self, line: str) -> None:
        """A line below the last one."""
        await self.terminal.keys("g", "e", "o")
        await self.terminal.shows("^ INS ")
        await self.terminal.type(line, "Escape")
        await self.terminal.shows(_NORMAL)

    async def command(self, line: str) -> None:
        await self.terminal.keys(":")
        await self.terminal.type(line, "Enter")

    async def saved(self, name: str) -> str:
        await self.command("write")
        await self.terminal.shows(rf"'{name}' written")
        return (self.trial.workspace / name).read_text()

    async def _heard(self, *parts: str) -> None:
        """Waits for lines of Helix's own log, which holds what it sent (`->`) and received (`<-`)."""

        def heard() -> bool:
            lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
            return any(all(part in line for part in parts) for line in lines)

        await self.trial.until(heard, f"in Helix's log: {' '.join(parts)}")
