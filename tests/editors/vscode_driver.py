"""What the drivers of VS Code share: a window with the extension on the trial's workspace, and steps in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.editors import code_server
from tests.editors.trial import FILE, Trial, prompt_of
from tests.editors.waiting import until
from tests.editors.workbench import SIZE, Workbench, browser

if TYPE_CHECKING:
    from playwright.async_api import Locator

SETTINGS: Mapping[str, object] = {
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "editor.minimap.enabled": False,
    "files.autoSave": "off",
    "workbench.quickOpen.closeOnFocusLost": False,
    "workbench.reduceMotion": "on",
    "remote.autoForwardPorts": False,
}
TRUSTED = ("--disable-workspace-trust",)
_KEY = "ANTHROPIC_API_KEY"

Steps = Iterable[tuple[str, Callable[[], Awaitable[str | None]]]]


def keyless(trial: Trial) -> dict[str, str]:
    """Return the environment without the key: the editor shows its own environment to the window."""
    return {name: value for name, value in trial.variables.items() if name != _KEY}


@asynccontextmanager
async def opened(
    trial: Trial,
    room: Path,
    name: str,
    settings: Mapping[str, object] | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    flags: tuple[str, ...] = TRUSTED,
    size: tuple[int, int] = SIZE,
    ours: Sequence[Path] | None = None,
) -> AsyncIterator[Workbench]:
    """Open a window on the workspace. `name` is that of its profile; `variables` are `keyless` by default."""
    chosen = {**SETTINGS, **(settings or {})}
    async with (
        code_server.started(room, trial.room / name, variables or keyless(trial), chosen, *flags, ours=ours) as address,
        browser(code_server.CHROMIUM, address, trial.workspace, trial.home, size) as window,
    ):
        yield window


async def run_steps(trial: Trial, window: Workbench, name: str, steps: Steps, note: str = "") -> None:
    """Run each step as a row, which ends with `note`. A step may return a remark on its row. A failed step leaves a
    screenshot, whose name begins with `name`.
    """
    for step, run in steps:
        remark = None
        with trial.check(f"{step}{note}"):
            try:
                remark = await run()
            except Exception:
                failed = getattr(run, "__name__", step.replace(" ", "-"))
                await window.page.screenshot(path=trial.pictures / f"{name}-failed-{failed}.png")
                raise
        if remark:
            trial.rows[-1] = trial.noted(remark)
    with trial.check(f"no notification was cut off{note}"):
        assert window.cut_off == set(), window.cut_off


@dataclass
class Driver:
    """A person at a window. `name` begins the names of the screenshots."""

    trial: Trial
    window: Workbench
    name: str

    async def begin(self) -> None:
        await self.window.page.locator(".explorer-folders-view .monaco-list-row", has_text=FILE).dblclick()
        await self.window.shows("thinklsp$")
        await self.window.give_key(self.trial.service.key)

    async def ask(self, instruction: str) -> None:
        """Ask for an edit of the whole text that is shown."""
        asked = len(self.trial.requests)
        await self.window.page.locator(".editor-instance .view-line").first.click()
        await self.window.action("thinklsp: edit the selection", everything=True)
        await self.window.fill(instruction)
        await self.window.page.keyboard.press("Enter")
        await until(lambda: len(self.trial.requests) > asked, "a request")
        assert instruction in prompt_of(self.trial.requests[asked])

    async def write(self, text: str) -> None:
        """Write the file as another program does, and show it."""
        self.trial.file.write_text(text)
        await self.window.open(FILE)
        await self.window.command("File: Revert File")
        await self.window.reads(text)

    async def clear_messages(self) -> None:
        await self.window.command("Notifications: Clear All Notifications")

    async def saved(self, name: str, text: str) -> None:
        """Save all files until this one has the text."""
        path = self.trial.workspace / name

        async def holds() -> bool:
            # An edit of a file that is not shown arrives a little later.
            await self.window.command("File: Save All Files")
            return path.exists() and path.read_text() == text

        await until(holds, f"the saved {name}")

    def lens(self, title: str) -> Locator:
        return self.window.page.locator(".codelens-decoration a", has_text=title).first

    async def picture(self, name: str) -> None:
        await self.window.page.screenshot(path=self.trial.pictures / f"{self.name}-{name}.png")
