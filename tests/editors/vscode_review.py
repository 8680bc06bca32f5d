"""VS Code's review by the extension: marks with Keep and Undo, and the question before an edit is written."""

from __future__ import annotations

from pathlib import Path

from tests.editors.parts import DECIMAL, FIRST, NEW_FILE, NEW_TEXT, new_file
from tests.editors.trial import BROKEN, FILE, FIXED, OTHER_FILE, UNUSED, Trial
from tests.editors.vscode_driver import Driver, opened, run_steps
from tests.editors.waiting import until
from tests.editors.workbench import IDLE

_QUESTION = "Keep the changes?"


async def drive(trial: Trial, room: Path) -> None:
    async with opened(trial, room, "vscode-review") as window:
        driver = _Review(trial, window, "vscode-review")
        steps = (
            ("begins", driver.begin),
            ("a change is marked, and its lens undoes it", driver.undo_by_lens),
            ("keys find a change, keep it and undo it", driver.keys),
            ("typing moves the marks and survives an undo", driver.typing),
            ("an edit of several files waits for the review", driver.question),
            ("the question can be opened again", driver.reopen),
            ("Keep all writes every file", driver.keep_all),
            ("all changes are shown in one editor", driver.summary),
        )
        await run_steps(trial, window, "vscode-review", steps)


class _Review(Driver):
    async def undo_by_lens(self) -> None:
        await self.fix()
        await self.lens("The parameter is called values").wait_for()
        await self.clear_messages()
        await self.picture("marks")
        assert await self.window.page.locator(".cdr[class*='ced-']").count() > 0, "the changed line is marked"
        await self.lens("Undo").click()
        await self.window.reads(BROKEN)
        await self.no_marks()

    async def keys(self) -> None:
        page = self.window.page
        await self.fix()
        await self.window.go_to(1)
        await page.keyboard.press("Shift+Alt+N")
        await until(lambda: self.cursor_is_in(2), "the cursor at the change")
        await page.keyboard.press("Shift+Alt+U")
        await self.window.reads(BROKEN)
        await self.fix()
        await self.window.go_to(2)
        await page.keyboard.press("Shift+Alt+K")
        await self.no_marks()
        await self.window.reads(FIXED)

    async def typing(self) -> None:
        page = self.window.page
        await self.write(BROKEN)
        await self.fix()
        await self.window.go_to(1)
        await page.keyboard.type("# mine")
        await page.keyboard.press("Enter")
        await self.window.reads(f"# mine\n{FIXED}")
        await self.lens("Undo").click()
        await self.window.reads(f"# mine\n{BROKEN}")
        await self.no_marks()
        await self.write(BROKEN)

    async def question(self) -> None:
        await self.ask(FIRST)
        await self.asked()
        await self.picture("question")
        assert (self.trial.workspace / OTHER_FILE).read_text() == UNUSED
        assert not new_file(self.trial).exists()

    async def reopen(self) -> None:
        await self.clear_messages()
        await self.window.toast(_QUESTION).wait_for(state="detached")
        await self.window.status.click()
        await self.window.toast(_QUESTION).wait_for()

    async def keep_all(self) -> None:
        await self.answer("Keep all")
        await self.window.reads(FIXED)
        await self.saved(OTHER_FILE, DECIMAL)
        await self.saved(f"tests/{NEW_FILE}", NEW_TEXT)
        await self.no_marks()

    async def summary(self) -> None:
        await self.write(BROKEN)
        await self.fix()
        page = self.window.page
        await page.keyboard.press("Shift+Alt+S")
        await page.locator(".tab.active", has_text="summary and 1 change").wait_for()
        await page.locator(".multiDiffEditor .view-line:visible", has_text="The parameter is called").first.wait_for()
        await page.locator(".multiDiffEditor .line-delete").first.wait_for()
        await self.picture("summary")
        await page.locator(".statusbar-item", has_text="1 change in 1 file").click()
        await self.window.page.locator(f'.tab[data-resource-name="{FILE}"]').first.click()
        await self.window.command("thinklsp: Undo All Changes")
        await self.window.reads(BROKEN)

    async def fix(self) -> None:
        await self.window.page.locator(".squiggly-error").first.wait_for()
        await self.window.go_to(2, 32)
        await self.window.action("thinklsp: fix undefined name")
        await self.window.reads(FIXED)
        await self.window.shows(IDLE)
        await self.lens("Keep").wait_for()

    async def asked(self) -> None:
        await self.window.page.locator(".tab.active", has_text="thinklsp: edit").wait_for()
        await self.window.toast(_QUESTION).wait_for()

    async def answer(self, button: str) -> None:
        await self.window.toast(_QUESTION).locator("a", has_text=button).click()

    async def no_marks(self) -> None:
        await self.lens("Keep").wait_for(state="detached")
        await self.window.page.locator(".statusbar-item", has_text="change in").wait_for(state="detached")

    async def cursor_is_in(self, line: int) -> bool:
        shown = await self.window.page.locator(".statusbar-item", has_text="Ln ").first.inner_text()
        return f"Ln {line}," in shown
