"""VS Code: the extension as it is shipped, driven in a browser, with the editor's own AI features on and off.

The second pass begins in a folder that is not trusted, and trusts it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.editors import code_server
from tests.editors.steps import Step
from tests.editors.trial import BROKEN, FILE, FIXED, Trial, effort_of, prompt_of
from tests.editors.vscode_beginning import missing_server, walked_through
from tests.editors.vscode_bridge import another_server_is_heard
from tests.editors.vscode_driver import TRUSTED, Driver, keyless, opened, run_steps
from tests.editors.vscode_host import in_the_host
from tests.editors.waiting import until
from tests.editors.workbench import IDLE, Workbench

if TYPE_CHECKING:
    from tests.stand_ins.http_server import RecordedRequest

_LARGEST = 1_000_000  # bytes of the package
_THINKING = r"thinking · \d+ s"
_CHAT = "talk.chat.md"


@dataclass(frozen=True)
class Pass:
    """`flags` of code-server; `note` tells its rows apart."""

    name: str
    theme: str
    ai: bool
    flags: tuple[str, ...]

    @property
    def note(self) -> str:
        return "" if self.ai else " (AI features off)"


PASSES = (
    Pass("dark", "Default Dark Modern", ai=True, flags=TRUSTED),
    Pass("light", "Default Light Modern", ai=False, flags=()),
)

# Steps that use neither the editor's AI features nor the trust in a folder.
_INDEPENDENT_OF_AI_FEATURES = (
    Step.CANCEL,
    Step.EFFORT,
    Step.KNOWS,
    Step.RESUME,
    "the doctor's report is a page to read",
    "an edit under review is written after Keep all",
    "an edit that met typing is offered with its difference",
)


async def install(room: Path) -> str:
    return await code_server.install(room)


async def drive(trial: Trial, room: Path) -> None:
    with trial.check("its package is small"):
        size = (await code_server.package(room)).stat().st_size
        assert size < _LARGEST, size
    trial.rows[-1] = trial.noted(f"{size / 1000:.0f} kB")
    planted = _planted(trial)
    variables = {**keyless(trial), "PATH": f"{planted.parent}{os.pathsep}{trial.variables['PATH']}"}
    for each in PASSES:
        trial.file.write_text(BROKEN)
        planted.with_suffix(".ran").unlink(missing_ok=True)
        settings = {"workbench.colorTheme": each.theme, "chat.disableAIFeatures": not each.ai}
        name = f"vscode-{each.name}"
        async with opened(trial, room, name, settings, variables=variables, flags=each.flags) as window:
            await _Driven(trial, window, name, each).all_steps()
        with trial.check(f"nothing secret came to the window{each.note}"):
            _searched(trial, window)
    await in_the_host(trial, room)


def _searched(trial: Trial, window: Workbench) -> None:
    rest = window.unasked(trial.service.key)
    assert len(rest) < len(window.received), "the key went into the editor's storage"
    trial.searched(rest, "the window")


def _planted(trial: Trial) -> Path:
    """A program of the opened folder, first on the PATH; it leaves a file that says that it ran."""
    program = trial.workspace / "bin" / "thinklsp"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ntouch "$0.ran"\nexec "{trial.home / "bin" / "thinklsp"}" "$@"\n')
    program.chmod(0o755)
    return program


@dataclass
class _Driven(Driver):
    each: Pass

    @property
    def planted(self) -> Path:
        return self.trial.workspace / "bin" / "thinklsp.ran"

    async def all_steps(self) -> None:
        steps = (
            (Step.ATTACH, self.attach),
            ("a key goes into secret storage and to the server", self.key),
            (Step.ACTION, self.action),
            (Step.THINKING, self.thinking),
            (Step.EDIT, self.edit),
            (Step.UNDO, self.undo),
            (Step.CANCEL, self.cancel),
            (Step.EFFORT, self.effort),
            ("the menu chooses an effort", self.menu),
            (Step.KNOWS, self.knows),
            ("the doctor's report is a page to read", self.doctor),
            ("an edit under review is written after Keep all", self.review),
            ("an edit that met typing is offered with its difference", self.conflict),
            (Step.CHAT, self.chat),
            (Step.RESUME, self.resume),
            ("a missing server is said, with a way out", self.missing),
            ("the walkthrough leads to its commands", self.walkthrough),
        )
        if not self.each.ai:
            steps = tuple(step for step in steps if step[0] not in _INDEPENDENT_OF_AI_FEATURES)
        await run_steps(self.trial, self.window, self.name, steps, self.each.note)

    async def attach(self) -> None:
        page = self.window.page
        await page.locator(".explorer-folders-view .monaco-list-row", has_text=FILE).dblclick()
        await self.window.shows("thinklsp$")
        if not self.each.ai:
            assert not self.planted.exists(), "nothing from a folder that is not trusted is started"
            await self.trust()
        await page.locator(".squiggly-error").first.wait_for()

    async def trust(self) -> None:
        page = self.window.page
        await page.locator(".banner a, .banner .monaco-button", has_text="Manage").first.click()
        await page.locator(".workspace-trust-editor .monaco-button", has_text="Trust").first.click()
        await page.locator(".workspace-trust-editor", has_text="You trust this folder").wait_for()
        await page.locator(".modal-editor-part .codicon-close, .monaco-modal-editor-block .codicon-close").last.click()
        await page.locator(".workspace-trust-editor").wait_for(state="detached")

    async def key(self) -> None:
        await self.window.give_key(self.trial.service.key)
        assert self.planted.exists(), "in a folder that is trusted the PATH counts"
        await self.picture("idle")

    async def action(self) -> None:
        await self.window.go_to(2, 32)
        await self.window.action("thinklsp: fix undefined name")

    async def thinking(self) -> None:
        await self.window.shows(_THINKING)
        await self.window.shows("thinking · [1-9]")
        progress = self.window.page.locator(".statusbar-item", has_text=re.compile(r"\d+ s\b"))
        assert await progress.count() == 1, await progress.all_inner_texts()
        await self.picture("thinking")

    async def edit(self) -> None:
        await self.window.reads(FIXED)
        await self.window.shows(IDLE)
        await self.window.page.locator(".codelens-decoration a", has_text="Keep").first.wait_for()
        await self.picture("marks")
        assert self.trial.file.read_text() == BROKEN, "the server writes no file"

    async def undo(self) -> None:
        await self.window.page.keyboard.press("Control+z")
        await self.window.reads(BROKEN)
        await self.window.page.keyboard.press("Control+y")
        await self.window.reads(FIXED)
        await self.window.page.keyboard.press("Control+s")
        await until(lambda: self.trial.file.read_text() == FIXED, "the saved file")

    async def cancel(self) -> None:
        await self.ask_to("think forever")
        await self.window.shows(_THINKING)
        await self.window.status.click()
        await self.window.row("Stop").click()
        request = self.trial.requests[-1]
        await until(lambda: request.closed_by_client, "the end of the connection")
        await self.window.shows(IDLE)
        assert (await self.window.text()).rstrip("\n") == FIXED.rstrip("\n")

    async def effort(self) -> None:
        await self.window.set(thinklsp__effort="low")
        await self.window.shows(r" · low$")
        assert effort_of(await self.answered("hello")) == "low"
        await self.window.set(thinklsp__effort=None)
        await self.window.shows(r" · auto$")

    async def menu(self) -> None:
        await self.clear_messages()
        await self.window.status.click()
        await self.window.row("today: ").wait_for()
        await self.picture("menu")
        await self.window.row("Effort").click()
        await self.window.row("xhigh").wait_for()
        await self.picture("effort")
        await self.window.row("high").click()
        await self.window.shows(r" · high$")
        assert effort_of(await self.answered("hello")) == "high"
        # The choice is a setting now, so it outlives the window, and the last word wins.
        await self.window.set(thinklsp__effort=None)
        await self.window.shows(r" · auto$")

    async def knows(self) -> None:
        await another_server_is_heard(self.trial, self.window, self.ask_to)
        await self.window.shows(IDLE)
        await self.window.command("File: Revert File")
        await self.window.open(FILE)

    async def doctor(self) -> None:
        await self.window.command("thinklsp: Doctor")
        await until(lambda: self.window.frame_says("thinklsp is ready to run a turn."), "the report")
        await self.picture("doctor")

    async def review(self) -> None:
        await self.write(BROKEN)
        await self.window.set(thinklsp__edits__review="always")
        await self.window.go_to(2, 32)
        await self.window.action("thinklsp: fix undefined name")
        await self.window.shows("is waiting for you")
        await self.window.page.locator(".tab.active", has_text="thinklsp: fix").wait_for()
        question = self.window.toast("Keep the changes?")
        await question.wait_for()
        await self.picture("review")
        assert self.trial.file.read_text() == BROKEN
        await question.locator("a", has_text="Keep all").click()
        await self.window.page.locator(".tab", has_text="thinklsp: fix").wait_for(state="detached")
        await self.window.reads(FIXED)
        await self.window.shows(IDLE)
        await self.window.set(thinklsp__edits__review=None)

    async def conflict(self) -> None:
        page = self.window.page
        await self.write(BROKEN)
        await self.window.go_to(2, BROKEN.splitlines()[1].index("value)") + len("value") + 1)
        await self.window.action("thinklsp: fix undefined name")
        await page.keyboard.type("_of_mine")
        mine = BROKEN.replace("(value)", "(value_of_mine)")
        await self.window.reads(mine)
        toast = self.window.toast("was not changed")
        await toast.locator("a", has_text="Show diff").click()
        await page.locator(".tab.active", has_text="now ↔ proposed").wait_for()
        await page.locator(".diff-editor .line-insert, .monaco-diff-editor .line-insert").first.wait_for()
        await self.picture("difference")
        await self.window.toast("was not changed").locator("a", has_text="Apply").click()
        await page.locator(f'.tab[data-resource-name="{FILE}"]').first.click()
        await self.window.reads(FIXED)
        await page.keyboard.press("Control+s")

    async def chat(self) -> None:
        (self.trial.workspace / _CHAT).write_text("## You\n\nhello\n")
        await self.window.open(_CHAT)
        await self.window.page.locator(".codelens-decoration a", has_text="send").click()
        await until(lambda: self.said("heliotrope"), "the answer in the chat document")

    async def resume(self) -> None:
        await self.window.page.keyboard.press("Control+s")
        kept = self.trial.workspace / _CHAT
        await until(lambda: "heliotrope" in kept.read_text(), "the saved chat document")
        await self.window.page.reload()
        await self.window.shows("thinklsp$|" + IDLE)
        # In a browser secrets last as long as the page.
        await self.window.give_key(self.trial.service.key)
        await self.window.open(_CHAT)
        await self.window.page.keyboard.press("Control+End")
        await self.window.page.keyboard.type("what did I ask first?")
        await self.window.page.locator(".codelens-decoration a", has_text="send").click()
        await until(
            lambda: self.said("You greeted me first; I remember: heliotrope"), "the answer in the chat document"
        )
        asked = self.trial.requests[-1].body["messages"]
        assert len(asked) >= 3, "the earlier messages go along"

    async def missing(self) -> None:
        await missing_server(self.trial, self.window, self.picture)
        await self.window.shows(IDLE)

    async def walkthrough(self) -> None:
        await walked_through(self.window)
        await self.picture("walkthrough")

    async def said(self, text: str) -> bool:
        return text in await self.window.text()

    async def ask_to(self, instruction: str) -> None:
        await self.window.page.locator(".editor-instance .view-line").first.click()
        asked = len(self.trial.requests)
        await self.window.action("thinklsp: edit the selection", everything=True)
        await self.window.fill(instruction)
        await self.window.page.keyboard.press("Enter")
        await until(lambda: len(self.trial.requests) > asked, "a request")

    async def answered(self, instruction: str) -> RecordedRequest:
        """The request that came of it, when its turn has ended."""
        await self.ask_to(instruction)
        request = self.trial.requests[-1]
        assert instruction in prompt_of(request)
        await self.window.shows(IDLE)
        return request

    async def picture(self, name: str) -> None:
        await self.window.page.screenshot(path=self.trial.pictures / f"vscode-{name}-{self.each.name}.png")
