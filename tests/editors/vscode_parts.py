"""VS Code's refactor preview, with boxes that are not checked: what was left out waits, and nothing is made up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.editors.parts import (
    BOTH,
    FIRST,
    NEW_FILE,
    NEW_TEXT,
    SECOND,
    WAITING,
    new_file,
    nothing_phantom,
    offer_server,
)
from tests.editors.trial import BROKEN, FILE, FIXED, OTHER_FILE, UNUSED, Trial
from tests.editors.vscode_driver import Driver, opened, run_steps
from tests.editors.waiting import until
from tests.editors.workbench import IDLE

if TYPE_CHECKING:
    from playwright.async_api import Locator

_ROWS = ".bulk-edit-panel .monaco-list-row"


async def drive(trial: Trial, room: Path) -> None:
    async with opened(trial, room, "vscode-parts", {"thinklsp.ui.review": "preview"}) as window:
        parts = _Parts(trial, window, "vscode-parts")
        steps = (
            ("begins", parts.begin),
            ("the preview makes what is checked, and one message names the rest", parts.one_of_three),
            ("the next turn reads and edits what is on disk", parts.next_turn),
            ("Apply brings in the rest", parts.apply),
            ("undo takes the turn back without a preview", parts.undo),
            ("the lens is named by its turn, and goes when the file is reverted", parts.revert),
            ("a box that a hand has cleared is left out", parts.cleared_box),
            ("Discard is no failure", parts.discard),
            ("the MCP servers of the project are a page to read, and none is started", parts.servers),
        )
        await run_steps(trial, window, "vscode-parts", steps)


class _Parts(Driver):
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
        await self.window.action("thinklsp: undo “edit stats.py”")
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
        await self.clear_messages()
        await self.write(BROKEN)
        await self.ask(FIRST)
        await self.previewed()
        await self.press("Discard")
        await self.window.shows(IDLE)
        await self.window.toast("Nothing was changed").wait_for()
        assert not await self.window.toast("did not apply").is_visible()

    async def revert(self) -> None:
        await self.clear_messages()
        await self.window.page.locator(".squiggly-error").first.wait_for()
        await self.window.go_to(2, 32)
        await self.window.action("thinklsp: fix undefined name")
        await self.window.reads(FIXED)
        await self.lens("thinklsp: undo “fix stats.py”").wait_for()
        await self.window.command("File: Revert File")
        await self.window.reads(BROKEN)
        await self.lens("thinklsp: undo").wait_for(state="detached")

    async def servers(self) -> None:
        program = offer_server(self.trial)
        await self.window.command("thinklsp: Show MCP Servers")
        for text in ("thinklsp: MCP servers", "sky", "not approved", "Command", str(program)):
            await until(lambda text=text: self.window.frame_says(text), f"{text!r} in the report")
        assert not program.with_suffix(".ran").exists()
        (self.trial.workspace / ".mcp.json").unlink()

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
