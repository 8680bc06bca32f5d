"""What helps those who begin with the extension: the message that its server is missing, and the walkthrough."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.editors.trial import Trial
from tests.editors.waiting import until
from tests.editors.workbench import Workbench

if TYPE_CHECKING:
    from playwright.async_api import Locator

_STEPS = ".gettingStartedContainer .getting-started-step"


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
    """All its steps are there; one is taken."""
    step = await step_of_model(window)
    assert await window.page.locator(_STEPS).count() == 4
    await step.locator(".monaco-button", has_text="Set an API key").click()
    await window.row("Anthropic").wait_for()
    await window.page.keyboard.press("Escape")


async def step_of_model(window: Workbench) -> Locator:
    """Open the walkthrough at the step that chooses a model.

    VS Code ticks a step with `onContext` only if the condition becomes true after the walkthrough was opened.
    """
    await window.command("Welcome: Open Walkthrough...")
    await window.row("Start with thinklsp").click()
    await window.page.locator(_STEPS, has_text="Chat about the code").wait_for()
    step = window.page.locator(_STEPS, has_text="Choose a model")
    await step.click()
    return step
