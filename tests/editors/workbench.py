"""VS Code's window as the trial sees it: files, texts, menus, status bar. Reads what stands there, waits for it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tests.editors.waiting import MAX_WAIT_SECONDS, until

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

_TEXT = """() => {
  const all = [...document.querySelectorAll('.editor-instance .view-lines .view-line')];
  const lines = all.filter(line => line.offsetParent !== null);
  const top = line => parseInt(line.style.top);
  const shown = [...lines].sort((one, other) => top(one) - top(other));
  return shown.map(line => line.textContent.replace(/\\u00a0/g, ' ').replace(/\\u200c/g, '')).join('\\n');
}"""
SIZE = (1120, 700)
# Tells which messages of toasts do not fit, as they are shown.
_WATCH_TOASTS = """() => {
  const look = () => document.querySelectorAll('.notification-toast .notification-list-item-message').forEach(at => {
    const cut = at.scrollWidth > at.clientWidth + 1 || at.scrollHeight > at.clientHeight + 1;
    if (cut && at.clientWidth > 0) window.trialTellCut(at.textContent);
  });
  new MutationObserver(() => requestAnimationFrame(look)).observe(document, {childList: true, subtree: true});
}"""
IDLE = r"claude-[\w.-]+ · "
_STATUS = "#thinklsp\\.thinklsp\\.thinklsp"


@dataclass
class Workbench:
    """`received`: everything that came to the browser. `cut_off`: the toasts that did not fit."""

    page: Page
    home: Path
    received: bytearray = field(default_factory=bytearray)
    cut_off: set[str] = field(default_factory=set)

    def unasked(self, key: str) -> bytes:
        """What came to the browser but for the one message that may hold a key: the extension has the editor keep it,
        and here its keeper is the window."""
        kept = rb'\$setPassword.{4}\["thinklsp\.thinklsp","[A-Z_]+","' + re.escape(key.encode()) + rb'"\]'
        return re.sub(kept, b"", self.received, flags=re.DOTALL)

    def tell_cut(self, text: str) -> None:
        self.cut_off.add(text)

    async def set(self, **changed: Any) -> None:
        """Settings of the user, by key with `__` for dots; None takes one away."""
        settings = {name.replace("__", "."): value for name, value in changed.items()}
        asked = self.home / "settings.json"
        asked.write_text(json.dumps(settings))
        await self.command("Trial: Take Settings")
        await until(lambda: not asked.exists(), "the settings")

    async def give_key(self, key: str) -> None:
        """Into the editor's secret storage, by our command."""
        await self.command("thinklsp: Set an API Key")
        await self.row("Anthropic").click()
        await self.fill(key)
        assert await self.input.get_attribute("type") == "password"
        await self.page.keyboard.press("Enter")
        await self.shows(IDLE)

    async def open(self, name: str) -> None:
        # A file that has just been made may not be listed yet; asked anew, it is.
        await self._choose("Control+p", name, self.focused(name))
        await self.page.locator(f'.tab.active[data-resource-name="{name}"]').wait_for()
        await self.page.locator(".quick-input-widget").wait_for(state="hidden")
        await self.page.locator(".editor-instance .monaco-editor.focused").wait_for()
        await self.page.locator(".editor-instance .view-line").first.wait_for()

    async def fill(self, text: str) -> None:
        """Into the quick input that is open or about to be."""
        await self.input.wait_for()
        await self.input.fill(text)

    async def command(self, title: str) -> None:
        """From the palette, by its whole title."""
        await self._choose("F1", f">{title}", self.focused(title))

    async def go_to(self, line: int, column: int = 1) -> None:
        await self._choose("Control+g", f":{line}:{column}", self.focused(str(line)))
        await self.page.locator(".quick-input-widget").wait_for(state="hidden")

    async def _choose(self, key: str, text: str, row: Locator) -> None:
        """Open the quick input by its key, type the text, and take `row` once it has the focus.

        The window loses keys while it restores a focus, so each is pressed again until it has had its effect.
        """
        from playwright.async_api import TimeoutError as NotYet

        async def offered() -> bool:
            await self.page.keyboard.press(key)
            try:
                await self.input.fill(text, timeout=2_000)
            except NotYet:
                return False
            if await self.appears(row):
                return True
            await self.page.keyboard.press("Escape")
            return False

        async def taken() -> bool:
            if await row.is_visible():
                await self.input.press("Enter")
            return await self._reaches(row, "hidden")

        await until(offered, lambda: f"{text!r} in the quick input")
        await until(taken, lambda: f"the end of the quick input with {text!r}")

    async def text(self) -> str:
        """Of the editor, as far as it is in view."""
        return str(await self.page.evaluate(_TEXT))

    async def reads(self, text: str) -> None:
        """Until the editor's text is this."""
        seen = ""

        async def holds() -> bool:
            nonlocal seen
            seen = await self.text()
            return seen.rstrip("\n") == text.rstrip("\n")

        await until(holds, lambda: f"the text {text!r}, last {seen!r}")

    async def action(self, title: str, *, everything: bool = False) -> None:
        """Chooses a code action at the cursor, or for the whole text."""
        menu = self.page.locator(".action-widget:not(.action-list-submenu-panel)")
        row = menu.locator(".monaco-list-row.action", has_text=title).first

        async def offered() -> bool:
            # The menu shows what was there when it was opened.
            if await menu.is_visible():
                await self.page.keyboard.press("Escape")
            if everything:
                await self.page.keyboard.press("Control+a")
            await self.page.keyboard.press("Control+.")
            return await self.appears(row)

        await until(offered, f"the action {title!r}")
        await row.click()
        await menu.wait_for(state="hidden")

    async def appears(self, what: Locator) -> bool:
        return await self._reaches(what, "visible")

    async def _reaches(self, what: Locator, state: Literal["visible", "hidden"]) -> bool:
        """Return whether the element reaches the state within two seconds."""
        from playwright.async_api import TimeoutError as NotYet

        try:
            await what.wait_for(state=state, timeout=2_000)
        except NotYet:
            return False
        return True

    @property
    def input(self) -> Locator:
        return self.page.locator(".quick-input-widget:visible input.input")

    @property
    def status(self) -> Locator:
        return self.page.locator(_STATUS)

    async def shows(self, pattern: str) -> str:
        """Until our item of the status bar matches; what it says then."""
        seen = ""

        async def holds() -> bool:
            nonlocal seen
            seen = " ".join(await self.status.all_inner_texts()).strip()
            return re.search(pattern, seen) is not None

        await until(holds, lambda: f"{pattern!r} in the status bar, which says {seen!r}")
        return seen

    async def frame_says(self, text: str) -> bool:
        """Whether a web view shows this text."""
        from playwright.async_api import Error

        for frame in self.page.frames:
            try:
                if await frame.locator("body", has_text=text).count():
                    return True
            except Error:
                continue  # It has gone meanwhile.
        return False

    async def toasts(self, text: str) -> int:
        """How many notifications say this, shown or hidden."""
        await self.command("Notifications: Show Notifications")
        rows = self.page.locator(".notifications-center .monaco-list-row", has_text=text)
        await rows.first.wait_for()
        count = await rows.count()
        await self.command("Notifications: Hide Notifications")
        return count

    def row(self, title: str) -> Locator:
        """Of the quick pick that is open."""
        return self.page.locator(".quick-input-list .monaco-list-row", has_text=title).first

    def focused(self, title: str) -> Locator:
        """The row of the quick pick that Enter would take, where it is this one."""
        return self.page.locator(".quick-input-list .monaco-list-row.focused", has_text=title)

    def toast(self, text: str) -> Locator:
        return (
            self.page.locator(".notifications-toasts .notification-toast, .notifications-center .monaco-list-row")
            .filter(has_text=text)
            .first
        )


@asynccontextmanager
async def browser(
    executable: str, address: str, folder: Path, home: Path, size: tuple[int, int]
) -> AsyncIterator[Workbench]:
    """A window on the folder. `home`: of whom code-server runs for."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playing:
        chromium = await playing.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        try:
            context = await chromium.new_context(viewport={"width": size[0], "height": size[1]})
            page = await context.new_page()
            page.set_default_timeout(MAX_WAIT_SECONDS * 1_000)
            window = Workbench(page, home)
            page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: _keep(window.received, frame)))
            await page.expose_function("trialTellCut", window.tell_cut)
            await page.add_init_script(f"({_WATCH_TOASTS})()")
            await page.goto(f"{address}/?folder={folder}")
            await page.locator(".monaco-workbench").wait_for()
            yield window
        finally:
            await chromium.close()


def _keep(received: bytearray, frame: str | bytes) -> None:
    received += frame.encode() if isinstance(frame, str) else frame
