"""Errors in VS Code: one sentence, shown once, with a button that helps. The buttons are pressed."""

from __future__ import annotations

from pathlib import Path

from tests.editors.chat_frame import ChatDriver
from tests.editors.trial import BROKEN, FILE, FIXED, Trial
from tests.editors.vscode_driver import keyless, opened, run_steps
from tests.editors.vscode_first_run import STRICT_PORT, RejectingServer, give_key, served
from tests.editors.waiting import until
from tests.editors.workbench import IDLE

_MALFORMED = "# My settings\n\nmodel =\n"
_REJECTED = "The provider rejected the API key"


async def drive(trial: Trial, room: Path) -> None:
    variables = {**keyless(trial), "OPENAI_BASE_URL": f"http://127.0.0.1:{STRICT_PORT}/v1"}
    async with opened(trial, room, "vscode-errors", variables=variables) as window:
        driver = _Errors(trial, window, "vscode-errors")
        steps = (
            ("begins", driver.begin),
            ("a malformed config.toml is opened at its error and corrected", driver.malformed_file),
            ("a rejected key is told once in the chat", driver.rejected_in_chat),
            ("a rejected key is told once after an action, and a new key runs the action", driver.rejected_key),
            ("retries are one line, and Retry runs the action again", driver.outage),
        )
        await run_steps(trial, window, "vscode-errors", steps)


class _Errors(ChatDriver):
    async def malformed_file(self) -> None:
        file = self.trial.home / "config" / "thinklsp" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_MALFORMED)
        await self.window.command("thinklsp: Restart the Server")
        toast = self.window.toast("Your config.toml is not valid TOML")
        await toast.wait_for()
        await self.window.shows("thinklsp$")
        await self.picture("malformed")
        assert await self.window.toasts("is not valid TOML") == 1
        await self.window.command("Notifications: Show Notifications")
        await toast.locator("a", has_text="Open config.toml").click()
        await self.window.page.locator('.tab.active[data-resource-name="config.toml"]').wait_for()
        await self.window.page.locator(".statusbar-item", has_text="Ln 3, Col 1").wait_for()
        await self.window.page.keyboard.press("Control+Shift+k")
        await self.window.page.keyboard.press("Control+s")
        await self.window.shows(IDLE)
        await self.clear_messages()
        await self.window.open(FILE)

    async def rejected_in_chat(self) -> None:
        """A message tells it as long as the chat is not open, and then the chat."""
        with served(STRICT_PORT, RejectingServer):
            await give_key(self.window, "sk-wrong", "OpenAI")
            await self.window.toast("The key for OpenAI does not work").wait_for()
            await self.clear_messages()
            await self.explain()
            await self.window.toast(_REJECTED).locator("a", has_text="Set an API key").wait_for()
            await self.chat.restored()
            await self.window.page.locator(".editor-instance .view-line").first.click()
            await self.clear_messages()
            await self.chat.open()
            await self.explain()
            await self.chat.says(_REJECTED)
            await self.picture("chat")
        assert not await self.window.toast(_REJECTED).is_visible()

    async def explain(self) -> None:
        await self.window.open(FILE)
        await self.window.action("thinklsp: explain the selection", everything=True)

    async def rejected_key(self) -> None:
        await self.window.open(FILE)
        with served(STRICT_PORT, RejectingServer):
            await self.window.go_to(2, 32)
            await self.window.action("thinklsp: fix undefined name")
            toast = self.window.toast(_REJECTED)
            await toast.wait_for()
            await self.picture("rejected")
            assert await self.window.toasts(_REJECTED) == 1
            await self.window.command("Notifications: Show Notifications")
            await toast.locator("a", has_text="Set an API key").click()
        await self.window.row("Anthropic").click()
        await self.window.fill(self.trial.service.key)
        await self.window.page.keyboard.press("Enter")
        await self.window.reads(FIXED)
        await self.window.shows(IDLE)
        await self.clear_messages()
        await self.write(BROKEN)

    async def outage(self) -> None:
        await self.ask("stay away for a while")
        asked = len(self.trial.requests)
        await self.window.shows("retrying")
        await self.picture("retrying")
        toast = self.window.toast("overloaded")
        await toast.locator("a", has_text="Retry").wait_for()
        await self.picture("outage")
        assert await self.window.toasts("overloaded") == 1
        await self.window.command("Notifications: Show Notifications")
        await toast.locator("a", has_text="Retry").click()
        await until(lambda: len(self.trial.requests) > asked + 3, "another request")
        await self.window.toast("Back again.").wait_for()
        await self.window.shows(IDLE)
