"""The offline tour of VS Code: opened from the first message, and its five steps taken to their outcome."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.editors.chat_frame import Chat
from tests.editors.trial import FILE, Trial
from tests.editors.vscode_driver import opened, run_steps
from tests.editors.waiting import MAX_WAIT_SECONDS, until
from tests.editors.workbench import Workbench

if TYPE_CHECKING:
    from playwright.async_api import Locator

_STATS, _REPORT = "stats.ts", "report.ts"
_OFFLINE = "thinklsp offline"


async def drive(trial: Trial, room: Path) -> None:
    async with opened(trial, room, "vscode-tour") as window:
        tour = _Tour(trial, window)
        steps = (
            ("Try offline leads to the tour in a window of its own", tour.begin),
            ("fix", tour.fix),
            ("edit several files, with a review", tour.edit_files),
            ("explain", tour.explain),
            ("review", tour.review),
            ("type while thinklsp works", tour.conflict),
            ("the tour's window stays offline", tour.stay_offline),
        )
        await run_steps(trial, window, "vscode-tour", steps)


class _Tour:
    def __init__(self, trial: Trial, window: Workbench) -> None:
        self.trial = trial
        self.window = self.outside = window

    async def begin(self) -> None:
        page = self.window.page
        await page.locator(".explorer-folders-view .monaco-list-row", has_text=FILE).dblclick()
        await self.window.shows("thinklsp$")
        await self.window.command("thinklsp: Try Offline")
        async with page.context.expect_page() as opening:
            await self.window.toast("A tour shows").locator("a", has_text="Take the tour").click()
        self.outside = Workbench(page, self.trial.home)
        self.window.page = await opening.value
        self.window.page.set_default_timeout(MAX_WAIT_SECONDS * 1_000)
        await self.window.page.locator(".monaco-workbench").wait_for()
        await self.picture("opened")
        await self.step("Fix a problem").wait_for()
        await self.window.shows(_OFFLINE)
        await self.picture("begin")

    async def fix(self) -> None:
        await self.take("Fix a problem", _STATS)
        await self.window.page.locator(".squiggly-error").first.wait_for()
        await self.window.go_to(3, self.lines(_STATS)[2].index("value.") + 2)
        await self.window.action("thinklsp: fix")
        await self.window.page.locator(".codelens-decoration a", has_text="Keep").first.wait_for()
        await self.picture("fix")
        await self.window.command("File: Save All Files")
        await self.file_says(_STATS, "values.length")
        await self.ticked("Fix a problem")

    async def edit_files(self) -> None:
        await self.take("Edit several files", _STATS)
        await self.at_comment("// Rename")
        question = self.window.toast("Keep the changes?")
        await question.wait_for()
        await self.picture("files")
        assert "function total" in self.text(_STATS)
        await question.locator("a", has_text="Keep all").click()
        await self.saved(_STATS, "function sum(")
        await self.saved(_REPORT, "sum(values)")
        assert "total(" not in self.text(_STATS) + self.text(_REPORT)
        await self.ticked("Edit several files")

    async def explain(self) -> None:
        await self.take("Explain code", _REPORT)
        await self.window.page.keyboard.press("Control+a")
        await self.window.action("thinklsp: explain the selection", everything=True)
        await self.answered("formats the number of values")
        await self.picture("explain")
        await self.ticked("Explain code")

    async def review(self) -> None:
        await self.take("Review a file", _REPORT)
        await self.window.action("thinklsp: review")
        await self.answered("correct for lists that are not empty")
        await self.picture("review")
        await self.ticked("Review a file")

    async def conflict(self) -> None:
        await self.take("Type while thinklsp works", _STATS)
        await self.at_comment("// Make the limit")
        await self.window.shows("thinking")
        line = next(at for at, text in enumerate(self.lines(_STATS), 1) if "limit = 100" in text)
        await self.window.go_to(line, self.lines(_STATS)[line - 1].index("100") + 1)
        await self.window.page.keyboard.type("2")
        toast = self.window.toast("was not changed")
        await toast.locator("a", has_text="Show diff").click()
        await self.window.page.locator(".tab.active", has_text="now ↔ proposed").wait_for()
        await self.picture("conflict")
        await self.window.toast("was not changed").locator("a", has_text="Apply").click()
        await self.saved(_STATS, "process.env.LIMIT")
        await self.ticked("Type while thinklsp works")

    async def stay_offline(self) -> None:
        await self.outside.set(thinklsp__provider=None)
        await self.outside.shows("thinklsp$")
        await self.window.shows(_OFFLINE)
        await self.window.command("thinklsp: Set an API Key")
        await self.window.toast("This window plays the offline tour").wait_for()
        assert self.trial.requests == []

    async def take(self, title: str, name: str) -> None:
        """Choose a step of the walkthrough and press its button, until the cursor is in its file.

        A walkthrough that was asked for earlier may come late and cover the file.
        """
        page = self.window.page
        step = self.step(title)
        button = step.locator(".monaco-button", has_text=f"Open {name}")
        tab = page.locator(f'.tab.active[data-resource-name="{name}"]')

        async def taken() -> bool:
            if not await step.is_visible():
                await self.window.command("thinklsp: Take the Offline Tour")
                await step.wait_for()
            if not await button.is_visible():
                await step.locator(".step-title").click()
            await button.click()
            await tab.wait_for()
            return await self.window.appears(page.locator(".editor-instance .monaco-editor.focused"))

        await until(taken, f"the cursor in {name}, by the step {title!r}")

    async def at_comment(self, text: str) -> None:
        line = next(at for at, found in enumerate(self.lines(_STATS), 1) if found.startswith(text))
        await self.window.go_to(line, 5)
        await self.window.action("thinklsp: edit as the comment says")

    async def answered(self, text: str) -> None:
        chat = Chat(self.window)
        await chat.restored()
        await chat.says(text)

    async def ticked(self, title: str) -> None:
        await self.window.command("thinklsp: Take the Offline Tour")
        await self.step(title).locator(".codicon.complete").wait_for()

    def step(self, title: str) -> Locator:
        return self.window.page.locator(".gettingStartedContainer .getting-started-step", has_text=title)

    async def saved(self, name: str, text: str) -> None:
        async def holds() -> bool:
            await self.window.command("File: Save All Files")
            return text in self.text(name)

        await until(holds, lambda: f"{text!r} in {name}: {self.text(name)}")

    async def file_says(self, name: str, text: str) -> None:
        await until(lambda: text in self.text(name), lambda: f"{text!r} in {name}: {self.text(name)}")

    def text(self, name: str) -> str:
        [folder] = (self.trial.room / "vscode-tour" / "data").rglob("thinklsp-tour")
        return (folder / name).read_text()

    def lines(self, name: str) -> list[str]:
        return self.text(name).splitlines()

    async def picture(self, name: str) -> None:
        await self.window.page.screenshot(path=self.trial.pictures / f"vscode-tour-{name}.png")
