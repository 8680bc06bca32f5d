"""VS Code's refactor preview, with boxes that are not checked: what was left out waits, and nothing is made up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.editors import code_server
from tests.editors.parts import BOTH, FIRST, NEW_FILE, NEW_TEXT, SECOND, WAITING, new_file, nothing_phantom
from tests.editors.trial import BROKEN, FILE, FIXED, OTHER_FILE, UNUSED, Trial
from tests.editors.waiting import until
from tests.editors.workbench import IDLE, Workbench, browser

if TYPE_CHECKING:
    from playwright.async_api import Locator

_SETTINGS = {
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "files.autoSave": "off",
    "workbench.reduceMotion": "on",
    "remote.autoForwardPorts": False,
}
_KEY = "ANTHROPIC_API_KEY"
_ROWS = ".bulk-edit-panel .monaco-list-row"


async def drive(trial: Trial, room: Path) -> None:
    variables = {name: value for name, value in trial.variables.items() if name != _KEY}
    flags = ("--disable-workspace-trust",)
    async with (
        code_server.started(room, trial.room / "vscode-parts", variables, _SETTINGS, *flags) as address,
        browser(code_server.CHROMIUM, address, trial.workspace, trial.home) as window,
    ):
        parts = _Parts(trial, window)
        for step, run in (
            ("begins", parts.begin),
            ("the preview makes what is checked, and one message names the rest", parts.one_of_three),
            ("the next turn reads and edits what is on disk", parts.next_turn),
            ("Apply brings in the rest", parts.apply),
            ("undo takes the turn back without a preview", parts.undo),
            ("a box that a hand has cleared is left out", parts.cleared_box),
            ("Discard is no failure", parts.discard),
        ):
            with trial.check(step):
                try:
                    await run()
                except Exception:
                    await window.page.screenshot(path=trial.pictures / f"vscode-parts-{run.__name__}.png")
                    raise


class _Parts:
    def __init__(self, trial: Trial, window: Workbench) -> None:
        self.trial = trial
        self.window = window

    async def begin(self) -> None:
        await self.window.page.locator(".explorer-folders-view .monaco-list-row", has_text=FILE).dblclick()
        await self.window.shows("thinklsp$")
        await self.window.give_key(self.trial.service.key)

    async def one_of_three(self) -> None:
        """As the preview is when it opens: the boxes of the other files are not checked."""
        await self.ask(FIRST)
        await self.previewed()
        await self.press("Apply")
        await self.window.reads(FIXED)
        await self.window.shows(IDLE)
        toast = self.window.toast(WAITING)
        for button in ("Apply", "Show diff"):
            await toast.locator("a", has_text=button).wait_for()
        assert (self.trial.workspace / OTHER_FILE).read_text() == UNUSED
        assert not new_file(self.trial).exists()

    async def next_turn(self) -> None:
        await self.ask(SECOND)
        await self.previewed()
        await self.check(OTHER_FILE)
        await self.press("Apply")
        await self.window.shows(IDLE)
        nothing_phantom(self.trial, new_text=None)
        await self.saved(OTHER_FILE, UNUSED.replace("return len", "return 2 * len"))

    async def apply(self) -> None:
        await self.window.command("Notifications: Show Notifications")
        await self.window.toast(WAITING).locator("a", has_text="Apply").click()
        await self.saved(OTHER_FILE, BOTH)
        await self.saved(f"tests/{NEW_FILE}", NEW_TEXT)

    async def undo(self) -> None:
        """The first turn: what came at once, and what came later."""
        await self.window.open(FILE)
        await self.window.action("thinklsp: undo: edit stats.py")
        await self.window.reads(BROKEN)
        assert await self.window.page.locator(".bulk-edit-panel").count() == 0
        await self.saved(OTHER_FILE, UNUSED.replace("return len", "return 2 * len"))
        await until(lambda: not new_file(self.trial).exists(), "the end of the new file")

    async def cleared_box(self) -> None:
        (self.trial.workspace / OTHER_FILE).write_text(UNUSED)
        await self.window.set(thinklsp__edits__review="always")
        await self.ask(FIRST)
        await self.previewed()
        for name in (FILE, OTHER_FILE):
            await self.check(name)
        await self.check(OTHER_FILE, wanted=False)
        await self.press("Apply")
        await self.window.reads(FIXED)
        await self.window.shows(IDLE)
        await self.window.toast(WAITING).wait_for()
        await self.window.set(thinklsp__edits__review=None)

    async def discard(self) -> None:
        await self.window.command("Notifications: Clear All Notifications")
        await self.write(BROKEN)
        await self.ask(FIRST)
        await self.previewed()
        await self.press("Discard")
        await self.window.shows(IDLE)
        await self.window.toast("Nothing was changed").wait_for()
        assert not await self.window.toast("did not apply").is_visible()

    async def ask(self, instruction: str) -> None:
        await self.window.page.locator(".editor-instance .view-line").first.click()
        await self.window.action("thinklsp: edit the selection", everything=True)
        await self.window.fill(instruction)
        await self.window.page.keyboard.press("Enter")

    async def previewed(self) -> None:
        await self.window.page.locator(_ROWS).first.wait_for()

    async def press(self, button: str) -> None:
        await self.window.page.locator(".bulk-edit-panel .monaco-button", has_text=button).click()

    async def check(self, name: str, *, wanted: bool = True) -> None:
        """Set the box of a file by a click, as a hand does."""
        box = self.box(name)
        if await box.is_checked() != wanted:
            await box.click()
        assert await box.is_checked() == wanted

    def box(self, name: str) -> Locator:
        return self.window.page.locator(_ROWS, has_text=name).locator(".monaco-custom-toggle").first

    async def saved(self, name: str, text: str) -> None:
        path = self.trial.workspace / name

        async def holds() -> bool:
            # An edit of a file that is not shown arrives a little later.
            await self.window.command("File: Save All Files")
            return path.exists() and path.read_text() == text

        await until(holds, f"the saved {name}")

    async def write(self, text: str) -> None:
        self.trial.file.write_text(text)
        await self.window.open(FILE)
        await self.window.command("File: Revert File")
        await self.window.reads(text)
