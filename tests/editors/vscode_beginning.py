"""What helps those who begin with the extension: the message that its server is missing, and the walkthrough."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.editors.trial import Trial
from tests.editors.waiting import until
from tests.editors.workbench import Workbench


async def missing_server(trial: Trial, window: Workbench, picture: Callable[[str], Awaitable[None]]) -> None:
    """Says so in words and in the status bar; the server is chosen in the end, and starts."""
    await window.set(thinklsp__ui__server__path="/nowhere/thinklsp")
    await window.command("thinklsp: Restart the Server")
    toast = window.toast("The thinklsp server was not found")
    for button in ("How to install", "Choose…", "Show log"):
        await toast.locator("a", has_text=button).wait_for()
    await until(lambda: window.status.get_attribute("aria-label"), "a label")
    await window.shows("thinklsp$")
    await picture("error")
    await toast.locator("a", has_text="How to install").click()
    await window.page.locator(".tab.active", has_text="Preview readme.md").wait_for()
    await until(lambda: window.frame_says("Build the extension in a clone"), "the page")
    await window.command("thinklsp: Restart the Server")
    await toast.locator("a", has_text="Choose…").click()
    # The dialog writes over what stands there when it has read a folder, and takes nothing before.
    await window.row("runtime").wait_for()
    await window.fill(str(trial.home / "bin" / "thinklsp"))
    await window.row("thinklsp-lint").wait_for()
    await window.page.locator(".quick-input-widget .monaco-button", has_text="Choose").click()


async def walked_through(window: Workbench) -> None:
    """All its steps are there; one is taken, and is ticked."""
    page = window.page
    await window.command("Welcome: Open Walkthrough...")
    await window.row("Start with thinklsp").click()
    steps = page.locator(".gettingStartedContainer .getting-started-step")
    await steps.filter(has_text="Chat about the code").wait_for()
    assert await steps.count() == 4
    step = steps.filter(has_text="Choose a model")
    await step.click()
    await step.locator(".monaco-button", has_text="Set an API key").click()
    await window.row("Anthropic").wait_for()
    await page.keyboard.press("Escape")
    await step.locator(".codicon.complete").wait_for()
