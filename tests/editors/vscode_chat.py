"""The chat view of the extension for VS Code, in a browser: what it shows, how it is used, what it never receives."""

from __future__ import annotations

import base64
from functools import partial
from pathlib import Path

from tests.editors import code_server
from tests.editors.chat_frame import ChatDriver, counts
from tests.editors.trial import BROKEN, FILE, FIXED, Trial, effort_of
from tests.editors.vscode_driver import opened, run_steps
from tests.editors.waiting import until
from tests.support.images import png

_THEMES = {
    "light": "Default Light Modern",
    "dark": "Default Dark Modern",
    "high contrast": "Default High Contrast",
}
_SETTINGS = {
    "workbench.colorTheme": _THEMES["light"],
    "files.autoSave": "afterDelay",
    "chat.disableAIFeatures": True,
    "thinklsp.thinking.display": "summary",
}
_IN_ORDER = ["Chat", "Prompt", "Mode", "Model", "Effort", "Thinking"]
_INSIDE = ("Copy", "Insert at Cursor", "read stats.py, done", "Plan, 0 of 2 done", "the file", "Table")


async def drive(trial: Trial, room: Path) -> None:
    async with opened(trial, room, "vscode-chat", _SETTINGS) as window:
        driver = _Driven(trial, window, "vscode", await code_server.axe(room))
        chat = driver.chat
        await driver.all_steps()
    with trial.check("nothing secret came to the chat"):
        assert any('"kind":"partial"' in message for message in chat.received)
        trial.searched("\n".join(chat.received).encode(), "the chat view")


class _Driven(ChatDriver):
    async def all_steps(self) -> None:
        steps = (
            ("says in the chat what is missing, and helps", self.keyless),
            ("goes on where its first turn has failed", self.failed),
            ("an answer streams", self.streams),
            ("a thought is shown live, and opens", self.thought),
            ("a call of a tool opens", self.tool),
            ("code is copied and inserted", self.code),
            ("commands, files and effort are completed and used", self.words),
            ("the selection goes along, or not", self.selection),
            ("images are pasted, dropped, removed and sent", self.images),
            ("Escape stops a turn, and so does the button", self.stop),
            ("closed and opened again in mid-turn", self.reopened),
            ("an edit that is held is compared and applied", self.held),
            ("sessions are resumed after a reload, forked and deleted", self.sessions),
            ("everything is reached by keyboard", self.keyboard),
            ("no serious finding of axe in any theme, at any width", self.accessible),
        )
        await run_steps(self.trial, self.window, "vscode", steps)

    async def keyless(self) -> None:
        await self.chat.listen()
        await self.window.open(FILE)
        await self.chat.open()
        await self.chat.button("Explain what this file does").click()
        assert await self.chat.prompt.input_value() == "Explain what this file does"
        await self.chat.prompt.fill("hello")
        await self.chat.prompt.press("Enter")
        await self.window.row("Try offline").wait_for()
        await self.window.page.keyboard.press("Escape")
        await until(lambda: self._drafted("hello"), "the prompt that was not sent")
        await self.chat.prompt.press("Enter")
        await self.window.row("Set an API key").click()
        await self.window.row("Try offline").wait_for(state="detached")
        await self.window.row("Anthropic").click()
        secret = self.window.page.locator(".quick-input-widget:visible input[type=password]")
        await secret.fill(self.trial.service.key)
        await secret.press("Enter")
        await self.chat.says("heliotrope")
        await self.chat.picker("Model").filter(has_text="auto").wait_for()
        await self.new_chat()

    async def failed(self) -> None:
        await self.chat.ask("break down")
        await self.chat.frame.locator(".told.error").get_by_role("button", name="Retry").wait_for()
        assert (await self.chat.transcript()).count("This is where it breaks down.") == 1, "told once"
        asked = len(self.trial.requests)
        await self.chat.frame.locator(".told").get_by_role("button", name="Retry").click()
        await until(lambda: len(self.trial.requests) > asked, "another request")
        await self.chat.frame.locator(".told.error").wait_for()
        assert await self.chat.frame.locator(".turn").count() == 1, "in place of the failed one"
        await self.chat.ask("hello")
        await self.chat.says("heliotrope")
        await self.chat.idle()
        assert "break down" in str(self.trial.requests[-1].body["messages"]), "what was said before goes along"
        await self.new_chat()

    async def streams(self) -> None:
        await self._asks_for_a_report("dark")
        await self.chat.prompt.press("Escape")
        await self.chat.turn.locator(".foot", has_text="Stopped").wait_for()
        await self.new_chat()
        await self._asks_for_a_report("light")
        await self.chat.says("periwinkle")
        await self.chat.idle()
        await until(self.chat.at_its_end, "the end of the answer in view")
        turn = self.chat.turn
        assert await turn.locator("table tr").count() == 3
        assert await turn.locator("li .code-block").count() == 1
        assert await turn.locator("img, b, a[href]").count() == 0, "nothing of another place"
        await turn.get_by_text("<b>no markup</b>").wait_for()
        await turn.get_by_text("Plan, 0 of 2 done").wait_for()
        await turn.locator(".foot", has_text="out · $").wait_for()
        assert await self.chat.frame.locator(".session-usage", has_text="$").count() == 0, "the cost is told once"
        assert "def mean" in self.trial.find_prompt("Write a report"), "the file that was named goes along"
        await turn.get_by_role("link", name="the file").click()
        await self.window.page.locator(".editor-instance .monaco-editor.focused").wait_for()

    async def _asks_for_a_report(self, theme: str) -> None:
        """Until half of it is there."""
        await self.window.set(workbench__colorTheme=_THEMES[theme])
        await self.chat.frame.locator(f"body.vscode-{theme}").wait_for()
        await self.chat.ask("Write a report about @stats.py please")
        await self.chat.says("It takes any sequence")
        assert "periwinkle" not in await self.chat.text()
        await self.picture(f"chat-streaming-{theme}")

    async def thought(self) -> None:
        line = self.chat.turn.locator("details.thinking summary").first
        assert (await line.inner_text()).startswith("Thought")
        await line.press("Enter")
        await self.chat.turn.locator("details.thinking strong", has_text="look at the file").wait_for()
        await line.press("Enter")
        assert not await self.chat.turn.locator("details.thinking[open]").count()

    async def tool(self) -> None:
        await self.chat.turn.locator("details.tool summary", has_text="read stats.py").press("Enter")
        await self.chat.turn.locator("details.tool[open] pre", has_text="return sum(values)").wait_for()

    async def code(self) -> None:
        block = self.chat.turn.locator(".code-block").first
        await self.window.open(FILE)
        await self.window.page.keyboard.press("Control+End")
        await block.get_by_role("button", name="Insert at Cursor").click()
        inserted = f"{BROKEN}def mean(values):\n    return sum(values) / len(values)"
        await self.window.reads(inserted)
        await block.get_by_role("button", name="Copy").click()
        await self.window.open(FILE)
        await self.window.page.keyboard.press("Control+a")
        await self.window.page.keyboard.press("Control+v")
        await self.window.reads(inserted.removeprefix(BROKEN))
        for text in (inserted, BROKEN):
            await self.window.page.keyboard.press("Control+z")
            await self.window.reads(text)

    async def words(self) -> None:
        await self.chat.prompt.press_sequentially("/eff")
        await self.chat.options.first.wait_for()
        await self.chat.prompt.press("Enter")
        assert await self.chat.prompt.input_value() == "/effort "
        await self.chat.prompt.press_sequentially("low")
        await self.chat.prompt.press("Enter")
        await self.chat.picked("Effort", "low")
        await self.chat.ask("hello")
        await self.chat.says("heliotrope")
        assert effort_of(self.trial.requests[-1]) == "low"
        await self.chat.idle()
        await self.chat.frame.locator(".session-usage", has_text="Session: $").wait_for()
        await self.chat.choose("Effort", "high")
        await self.chat.prompt.press("ArrowUp")
        assert await self.chat.prompt.input_value() == "hello"
        await self.chat.prompt.fill("")
        await self.chat.prompt.press_sequentially("I say to @sta")
        await self.chat.options.filter(has_text=FILE).wait_for()
        await self.chat.prompt.press("Tab")
        assert await self.chat.prompt.input_value() == f"I say to @{FILE} "
        await self.chat.prompt.press_sequentially("and @dia")
        await self.chat.options.filter(has_text="@diagnostics").wait_for()
        await self.chat.prompt.press("Escape")
        assert await self.chat.options.count() == 0
        await self.chat.prompt.press_sequentially("gnostics")
        await self.chat.prompt.press("Shift+Enter")
        await self.chat.prompt.press("Enter")
        asked = await until(lambda: self.trial.find_prompt("I say to"), "the request")
        await self.chat.turn.locator(".edits", has_text="Changed 1 file").wait_for()
        await self.chat.idle()
        assert "undefined name 'value' (lint)" in asked
        assert effort_of(self.trial.requests[-1]) == "high"

    async def selection(self) -> None:
        await self.window.open(FILE)
        await self.window.go_to(2)
        await self.window.page.keyboard.press("Shift+End")
        chip = self.chat.frame.get_by_role("listitem").filter(has_text=f"{FILE}:2").last
        await chip.wait_for()
        await self.chat.ask("I greet the second line")
        await until(lambda: self.trial.find_prompt("I greet the second line"), "the request")
        assert "lines 2-2 of" in self.trial.find_prompt("I greet the second line")
        await self.chat.idle()
        await self.chat.button(f"Leave out {FILE}:2").click()
        await self.chat.button(f"Include {FILE}:2").wait_for()
        await self.chat.ask("I greet nobody")
        await until(lambda: self.trial.find_prompt("I greet nobody"), "the request")
        assert "lines 2-2 of" not in self.trial.find_prompt("I greet nobody")
        await self.chat.idle()

    async def images(self) -> None:
        shots = [png(shade=shade) for shade in (1, 2)]
        thumbnails = self.chat.frame.locator(".composer .pictures img")
        await self.chat.attach("paste", "first.png", shots[0])
        await until(lambda: counts(thumbnails, 1), "the preview of the pasted image")
        await self.chat.attach("drop", "second.png", shots[1])
        await until(lambda: counts(thumbnails, 2), "the preview of the dropped image")
        await self.chat.attach("paste", "drawing.svg", b"<svg/>", "image/svg+xml")
        await self.chat.says("drawing.svg was not attached")
        await self.picture("chat-images")
        names = [at["name"] for at in await self.chat.tabbed()]
        assert {"Remove Image 1", "Remove Image 2"} <= set(names), names
        await self.chat.button("Remove Image 1").press("Enter")
        await until(lambda: counts(thumbnails, 1), "one preview less")
        await self.chat.ask("I greet the picture")
        await until(lambda: self.trial.find_prompt("I greet the picture"), "the request")
        assert base64.b64encode(shots[1]).decode() in str(self.trial.requests[-1].body)
        assert base64.b64encode(shots[0]).decode() not in str(self.trial.requests[-1].body)
        await self.chat.turn.get_by_role("img", name="Image 1").wait_for()
        assert await thumbnails.count() == 0, "they go with their prompt"
        await self.chat.idle()

    async def stop(self) -> None:
        for way in ("key", "button"):
            await self.chat.ask(f"think forever, by {way}")
            await self.chat.turn.locator("details.thinking", has_text="Thinking · ").wait_for()
            request = self.trial.requests[-1]
            if way == "key":
                await self.chat.prompt.press("Escape")
            else:
                await self.chat.button("Stop").click()
            await self.chat.turn.locator(".foot", has_text="Stopped").wait_for()
            await until(partial(getattr, request, "closed_by_client"), "the end of the connection")
            await self.chat.idle()

    async def reopened(self) -> None:
        await self.chat.ask("take your time")
        await self.chat.turn.locator("details.thinking", has_text="Thinking · ").wait_for()
        await self.chat.prompt.fill("A draft")
        await self.chat.close()
        await self.chat.open()
        await self.chat.turn.get_by_text("take your time").wait_for()
        await self.chat.turn.locator("details.thinking summary").click()
        await self.chat.turn.locator("details.thinking .markdown", has_text="Round and round").wait_for()
        await self.chat.says("I greet nobody")
        assert await self.chat.prompt.input_value() == "A draft"
        # Left for another chat it goes on, and is attached to where its session is opened again.
        await self.window.command("thinklsp: New Chat")
        await self.chat.frame.locator(".recent .open-session", has_text="running").click()
        await self.chat.turn.locator("details.thinking", has_text="Thinking · ").wait_for()
        await self.chat.button("Stop").click()
        await self.chat.turn.locator(".foot", has_text="Stopped").wait_for()
        await self.chat.prompt.fill("")

    async def held(self) -> None:
        page = self.window.page
        await self.chat.ask("rename the parameter")
        await self.chat.turn.locator("details.tool", has_text="edit stats.py, done").wait_for()
        await self.chat.prompt.press("Escape")
        await self.chat.turn.locator(".edits", has_text="Pending: 1 file").wait_for()
        # It waits for as long as the server runs, whether the view is there or not.
        await self.chat.close()
        await self.chat.open()
        await self.picture("chat-held")
        await self.chat.turn.get_by_role("button", name=f"Diff of {FILE}").click()
        await page.locator(".tab.active", has_text="proposed").wait_for()
        await page.locator(".line-insert").first.wait_for()
        await self.chat.turn.get_by_role("button", name="Apply", exact=True).click()
        await self.chat.turn.locator(".edits", has_text="Changed 1 file").wait_for()
        await self.chat.turn.locator(".edits .file").click()
        await page.locator(f'.tab.active[data-resource-name="{FILE}"]').wait_for()
        await page.locator(".tab.active", has_text="proposed").wait_for(state="detached")
        await self.window.reads(FIXED.replace("sum(values)", "float(sum(values))"))

    async def sessions(self) -> None:
        await self.window.page.reload()
        await self.chat.restored()
        await self.chat.says("periwinkle")
        await self.chat.ask("what did I ask first?")
        await self.chat.says("I remember: heliotrope")
        await self.chat.idle()
        assert len(self.trial.requests[-1].body["messages"]) > 5, "the earlier messages go along"
        await self.window.command("thinklsp: Chat Sessions")
        rows = self.chat.frame.locator(".page .session")
        await until(rows.count, "the list of sessions")
        before = await rows.count()
        await self.picture("chat-sessions")
        await self.chat.button("Fork ").first.click()
        await self.chat.says("I remember: heliotrope")
        await self.window.command("thinklsp: Chat Sessions")
        await until(lambda: counts(rows, before + 1), "the fork in the list")
        await self.chat.button("Delete ").first.click()
        await self.window.page.locator(".monaco-dialog-box .monaco-button", has_text="Delete").click()
        await until(lambda: counts(rows, before), "the list without it")
        await self.chat.frame.locator(".page .open-session", has_text="report").first.press("Enter")
        await self.chat.says("periwinkle")

    async def keyboard(self) -> None:
        found = await self.chat.tabbed()
        names = [at["name"] for at in found]
        assert [at for at in found if not at["visible"]] == [], found
        assert [name for name in names if name in _IN_ORDER] == _IN_ORDER
        assert [name for name in _INSIDE if name not in names] == [], names
        await self.window.command("thinklsp: Chat Sessions")
        await self.chat.frame.locator(".page .open-session").first.wait_for()
        listed = [at["name"].split()[0] for at in await self.chat.tabbed()]
        assert {"Back", "Search", "Rename", "Export", "Fork", "Delete"} <= set(listed), listed
        await self.chat.frame.locator(".page .open-session").first.press("Escape")
        await self.chat.prompt.wait_for()

    async def accessible(self) -> None:
        for name, theme in _THEMES.items():
            await self.window.set(workbench__colorTheme=theme)
            style = {"light": "vscode-light", "dark": "vscode-dark"}.get(name, "vscode-high-contrast")
            await self.chat.frame.locator(f"body.{style}").wait_for()
            await self.chat.prompt.fill("/")
            await self.chat.options.first.wait_for()
            findings = await self.chat.findings(self.axe)
            await self.chat.prompt.fill("")
            await self.picture(f"chat-{style.removeprefix('vscode-')}")
            assert findings == [], (name, findings)
            await self.window.command("thinklsp: Chat Sessions")
            await self.chat.frame.locator(".page .open-session").first.wait_for()
            findings = await self.chat.findings(self.axe)
            await self.chat.button("Back to the Chat").click()
            assert findings == [], (name, "sessions", findings)
        for width in (180, 300, 900):
            assert await self.chat.too_wide(width) == [], width

    async def _drafted(self, text: str) -> bool:
        return bool(await self.chat.prompt.input_value() == text)
