"""The chat view of VS Code as the trial sees it: its frame, what it says, what it received, how accessible it is."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tests.editors.trial import FILE
from tests.editors.vscode_driver import Driver
from tests.editors.waiting import until
from tests.editors.workbench import Workbench

if TYPE_CHECKING:
    from playwright.async_api import Frame, Locator

# The editor writes the view's document anew, and listeners go with the old one: so ours comes with the view's own.
_KEEP = """const add = window.addEventListener;
window.addEventListener = function (type, ...rest) {
  if (type === 'message') add.call(window, type, e => window.trialKeeps?.(JSON.stringify(e.data) ?? ''));
  return add.call(this, type, ...rest);
};"""
_FOCUSED = """() => {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  const style = getComputedStyle(at);
  const box = at.closest('.box');
  const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  const field = at.tagName === 'TEXTAREA' && box !== null;
  const labels = at.labels ? [...at.labels].map(label => label.textContent) : [];
  const name = at.getAttribute('aria-label') || labels.join(' ') || at.textContent;
  return {name: name.trim(), tag: at.tagName, visible: ring || field};
}"""
_AXE = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
  .filter(found => ['serious', 'critical'].includes(found.impact))
  .flatMap(({id, nodes}) => nodes.map(node => `${id}: ${node.html.slice(0, 120)} ${node.failureSummary}`))"""
_BACKGROUND = """() => {
  const style = document.documentElement.style;
  style.backgroundColor = getComputedStyle(document.documentElement).getPropertyValue('--vscode-sideBar-background');
}"""
_AT_ITS_END = "at => at.scrollHeight - at.scrollTop - at.clientHeight < 2"
_WIDE = """width => {
  document.body.style.width = width ? `${width}px` : '';
  const edge = document.body.getBoundingClientRect().right + 1;
  const over = [...document.querySelectorAll('body *')].filter(one => !one.closest('pre, .table, .unseen, svg')
    && one.getClientRects().length && one.getBoundingClientRect().right > edge);
  return over.map(one => one.className || one.tagName);
}"""


_ATTACH = """(prompt, {way, name, type, data}) => {
  const carried = new DataTransfer();
  carried.items.add(new File([Uint8Array.from(atob(data), one => one.charCodeAt(0))], name, {type}));
  const how = {bubbles: true, cancelable: true};
  prompt.dispatchEvent(way === 'paste'
    ? new ClipboardEvent('paste', {...how, clipboardData: carried})
    : new DragEvent('drop', {...how, dataTransfer: carried}));
}"""


@dataclass
class Chat:
    """`received`: every message that the view was sent, and all that it showed when it was looked at."""

    window: Workbench
    received: list[str] = field(default_factory=list)
    frame: Frame = field(init=False)

    async def listen(self) -> None:
        """Before the view is opened for the first time."""
        await self.window.page.expose_function("trialKeeps", self._keep)
        await self.window.page.add_init_script(_KEEP)

    async def open(self) -> None:
        await self.window.command("thinklsp: Open Chat")
        await self.restored()

    async def restored(self) -> None:
        """Until it is there, as after a reload of the window."""
        self.frame = await until(self._found, "the chat view")

    async def close(self) -> None:
        """Another view takes its place."""
        self.received.append(await self.text())
        await self.window.command("View: Show Explorer")
        await until(self.frame.is_detached, "the end of the chat view")

    async def ask(self, prompt: str) -> None:
        """Until it is there to see that something came of it."""
        entries = self.frame.locator(".entries > *")
        before = await entries.count()
        await self.prompt.fill(prompt)
        await self.prompt.press("Enter")

        async def holds() -> bool:
            return await entries.count() > before

        await until(holds, f"what came of {prompt!r}")

    async def attach(self, way: Literal["paste", "drop"], name: str, data: bytes, kind: str = "image/png") -> None:
        """Let a file come to the prompt as the browser brings it."""
        file = {"way": way, "name": name, "type": kind, "data": base64.b64encode(data).decode()}
        await self.prompt.evaluate(_ATTACH, file)

    async def says(self, text: str) -> None:
        async def holds() -> bool:
            return text in await self.text()

        await until(holds, f"{text!r} in the chat")

    async def idle(self) -> None:
        await self.button("Stop").wait_for(state="hidden")

    async def at_its_end(self) -> bool:
        return bool(await self.frame.locator(".transcript").evaluate(_AT_ITS_END))

    async def text(self) -> str:
        return str(await self.frame.evaluate("document.body.innerText"))

    async def transcript(self) -> str:
        """The entries alone, without what a screen reader is told of them."""
        return str(await self.frame.locator(".transcript").inner_text())

    @property
    def prompt(self) -> Locator:
        return self.frame.get_by_role("textbox", name="Prompt")

    @property
    def turn(self) -> Locator:
        """The last one."""
        return self.frame.locator(".turn").last

    @property
    def options(self) -> Locator:
        return self.frame.locator("#offers").get_by_role("option")

    def button(self, name: str) -> Locator:
        return self.frame.get_by_role("button", name=name)

    def picker(self, name: str) -> Locator:
        return self.frame.get_by_role("combobox", name=name, exact=True)

    async def choose(self, name: str, value: str) -> None:
        """In the menu of this name, until the picker shows the value."""
        await self.picker(name).click()
        await self.frame.get_by_role("listbox", name=name, exact=True).locator(f'[data-value="{value}"]').click()
        await self.picked(name, value)

    async def picked(self, name: str, value: str) -> None:
        await self.frame.locator(f'[role=combobox][aria-label="{name}"][data-value="{value}"]').wait_for()

    async def tabbed(self) -> list[dict[str, Any]]:
        """What has the focus in turn, from the beginning of the view to its end."""
        await self.frame.evaluate("() => { document.body.tabIndex = -1; document.body.focus(); }")
        found: list[dict[str, Any]] = []
        for _ in range(200):
            await self.window.page.keyboard.press("Tab")
            at = await self.frame.evaluate(_FOCUSED)
            if at is None:
                return found
            found.append(at)
        raise AssertionError(f"the focus does not leave the view: {found[-5:]}")

    async def findings(self, axe: str) -> list[str]:
        """What axe-core calls serious or critical. The view has no background of its own: it gets that of its place."""
        await self.frame.evaluate(_BACKGROUND)
        await self.frame.evaluate(axe)
        found: list[str] = await self.frame.evaluate(_AXE)
        return found

    async def too_wide(self, width: int) -> list[str]:
        """What sticks out when the view is so wide."""
        found: list[str] = await self.frame.evaluate(_WIDE, width)
        await self.frame.evaluate(_WIDE, 0)
        return found

    def _keep(self, message: str) -> None:
        self.received.append(message)

    async def _found(self) -> Frame | None:
        for frame in self.window.page.frames:
            with suppress(Exception):  # A frame may go while it is asked.
                if not frame.is_detached() and await frame.locator(".composer").count() == 1:
                    return frame
        return None


async def counts(rows: Locator, number: int) -> bool:
    return await rows.count() == number


@dataclass
class ChatDriver(Driver):
    """A person at a window with the chat view. `axe` is the text of axe-core."""

    axe: str = ""

    def __post_init__(self) -> None:
        self.chat = Chat(self.window)

    async def begin(self) -> None:
        await self.window.open(FILE)
        await self.window.shows("thinklsp$")
        await self.window.give_key(self.trial.service.key)
        await self.window.toast("works. The next turn uses").wait_for()
        await self.clear_messages()

    async def new_chat(self) -> None:
        await self.window.command("thinklsp: New Chat")
        await self.chat.says("Ask about your code")
