"""Sessions in the chat view of VS Code: what a resumed chat shows, prompts that are sent again, and what goes along."""

from __future__ import annotations

from pathlib import Path

from tests.editors import code_server
from tests.editors.chat_frame import ChatDriver, counts
from tests.editors.trial import FILE, FIXED, OTHER_FILE, Trial
from tests.editors.vscode_driver import opened, run_steps
from tests.editors.waiting import until

_SETTINGS = {
    "workbench.colorTheme": "Default Dark Modern",
    "chat.disableAIFeatures": True,
    "terminal.integrated.gpuAcceleration": "off",
}
_RULES = "Write short functions."
_NAMED = """name => [...document.querySelectorAll('.quick-input-widget input.input')].some(box => box.value === name)"""
_BROKEN_LABELS = """width => {
  document.body.style.width = width ? `${width}px` : '';
  const labels = [...document.querySelectorAll('#offers .offer-label')];
  const broken = labels.filter(one => one.offsetHeight > 28 || one.scrollWidth > one.clientWidth || !one.offsetHeight);
  document.body.style.width = '';
  return labels.length ? broken.map(one => one.textContent) : ['no commands'];
}"""
_MOVING = "() => document.getAnimations().filter(one => one.playState === 'running').length"


async def drive(trial: Trial, room: Path) -> None:
    async with opened(trial, room, "vscode-sessions", _SETTINGS) as window:
        driver = _Sessions(trial, window, "vscode-sessions", await code_server.axe(room))
        steps = (
            ("begins", driver.begin),
            ("a question waits as a card in the chat", driver.question),
            ("the chip says what goes along", driver.chip),
            ("a resumed chat is as it was", driver.resumed),
            ("an earlier prompt is edited and sent again", driver.edited),
            ("a session is searched, renamed and exported", driver.listed),
            ("modes and models are explained in their menus", driver.menus),
            ("a retry is one line, and an error has the button that helps", driver.errors),
            ("a command goes to the terminal and waits there", driver.terminal),
        )
        await run_steps(trial, window, "vscode-sessions", steps)


class _Sessions(ChatDriver):
    async def begin(self) -> None:
        await super().begin()
        await self.chat.open()
        # The editor begins a title with a capital letter.
        title = await self.window.page.locator(".part.sidebar .composite.title h2").inner_text()
        assert title.lower() == "thinklsp", title
        await self.chat.prompt.fill("/")
        for width in (0, 300):
            assert await self.chat.frame.evaluate(_BROKEN_LABELS, width) == [], width
        # A reference that is put before other words has one space after it.
        await self.chat.prompt.fill("Look at  please")
        await self.chat.prompt.evaluate("field => field.setSelectionRange(8, 8)")
        await self.chat.prompt.press_sequentially("@sta")
        await self.chat.options.filter(has_text=FILE).wait_for()
        await self.chat.prompt.press("Tab")
        assert await self.chat.prompt.input_value() == f"Look at @{FILE} please"
        await self.chat.prompt.fill("")

    async def question(self) -> None:
        """It is answered in one place, and outlives the view."""
        (self.trial.workspace / "AGENTS.md").write_text(f"{_RULES}\n")
        await self.chat.ask("hello")
        card = self.chat.frame.get_by_role("region", name="Question")
        await card.filter(has_text="Follow these instructions?").wait_for()
        assert await self.window.page.locator(".notification-toast").count() == 0, "asked once"
        await self.picture("question")
        await self.checked()
        await self.chat.close()
        await self.window.toast("Follow these instructions?").wait_for()
        await self.clear_messages()
        await self.chat.open()
        card = self.chat.frame.get_by_role("region", name="Question")
        await card.wait_for()
        await self.window.page.keyboard.press("Shift+Alt+Q")
        await card.locator("button:focus", has_text="Follow them").wait_for()
        await self.window.page.keyboard.press("Tab")
        await self.window.page.keyboard.press("Enter")
        await self.window.page.locator('.tab.active[data-resource-name="AGENTS.md"]').wait_for()
        await card.get_by_role("button", name="Follow them").click()
        await card.wait_for(state="detached")
        await self.chat.says("heliotrope")
        await self.chat.idle()
        assert _RULES in self.trial.find_prompt("hello")
        (self.trial.workspace / "AGENTS.md").unlink()

    async def chip(self) -> None:
        await self.window.open(OTHER_FILE)
        await self.chat.button(f"Leave out {OTHER_FILE}").wait_for()
        await self.chat.ask("I greet the open file")
        assert f"{OTHER_FILE}, lines 1-" in await self.sent("I greet the open file")
        await self.chat.turn.get_by_role("list", name="Attached").get_by_text(OTHER_FILE).wait_for()
        await self.chat.idle()
        await self.chat.button(f"Leave out {OTHER_FILE}").click()
        await self.window.open(FILE)
        await self.chat.button(f"Include {FILE}").wait_for()
        await self.checked()
        await self.chat.ask("I greet without a file")
        assert "<excerpt>" not in await self.sent("I greet without a file")
        await self.chat.idle()
        await self.chat.close()
        await self.chat.open()
        await self.chat.button(f"Include {FILE}").click()
        await self.chat.button(f"Leave out {FILE}").click()
        await self.window.command("thinklsp: New Chat")
        await self.chat.button(f"Leave out {FILE}").wait_for()
        # A long file is sent in part, and the chip says which part.
        (self.trial.workspace / "long.txt").write_text("".join(f"line {number}\n" for number in range(1_000)))
        await self.window.open("long.txt")
        await self.chat.button("Leave out long.txt:1-400").wait_for()
        (self.trial.workspace / ".env").write_text("TOKEN=1\n")
        await self.window.open(".env")
        await self.chat.frame.get_by_role("list", name="Included context").wait_for(state="hidden")
        await self.window.open(FILE)

    async def resumed(self) -> None:
        await self.window.set(thinklsp__edits__review="auto")
        await self.new_chat()
        await self.chat.ask("fix it please")
        await self.window.reads(FIXED)
        await self.chat.turn.locator(".edits", has_text=FILE).wait_for()
        await self.chat.idle()
        await self.window.command("File: Save All Files")
        await self.chat.ask("Tell it slowly")
        await self.chat.says("Once there was")
        await self.chat.button("Stop").click()
        await self.chat.turn.locator(".foot", has_text="Stopped").wait_for()
        written = await self.chat.turn.locator(".markdown").last.inner_text()
        assert "Once there was" in written
        await self.window.page.reload()
        await self.chat.restored()
        await self.chat.turn.locator(".foot", has_text="Stopped").wait_for()
        assert "Once there was" in await self.chat.turn.locator(".markdown").last.inner_text()
        first = self.chat.frame.locator(".turn").first
        await first.locator(".foot", has_text="$").wait_for()
        await first.locator(".edits", has_text=FILE).wait_for()
        await first.get_by_role("list", name="Attached").get_by_text(FILE).wait_for()
        await first.locator("details.tool summary", has_text="read stats.py").press("Enter")
        await first.locator("details.tool[open] pre", has_text="def mean").first.wait_for()
        said = await self.chat.text()
        for scaffolding in ("<excerpt>", "<note>", "project_instructions", _RULES):
            assert scaffolding not in said, scaffolding
        await self.picture("resumed")
        await self.checked()

    async def edited(self) -> None:
        """The fork has the other words, and the context that the first words had."""
        rows = self.chat.frame.locator(".turn")
        await self.chat.button("Edit prompt: fix it please").focus()
        await self.window.page.keyboard.press("Enter")
        field = self.chat.frame.get_by_role("textbox", name="Edit the prompt")
        assert await field.input_value() == "fix it please"
        await field.fill("hello again")
        await self.picture("edited")
        await self.checked()
        await field.press("Escape")
        await field.wait_for(state="detached")
        await self.chat.button("Edit prompt: fix it please").press("Enter")
        await field.fill("hello again")
        await field.press("Enter")
        await self.chat.says("heliotrope")
        await self.chat.idle()
        assert await rows.count() == 1
        assert f"{FILE}, lines 1-" in self.trial.find_prompt("hello again")
        assert len(self.trial.requests[-1].body["messages"]) == 1, "nothing of the former prompts"
        asked = len(self.trial.requests)
        await self.chat.ask("hello, the second")
        await self.chat.idle()
        await self.chat.button("Retry prompt: hello, the second").click()
        await until(lambda: len(self.trial.requests) == asked + 2, "the same request again")
        await until(lambda: counts(rows, 2), "the turn in place of the former")
        await self.chat.idle()
        first, second = (request.body["messages"] for request in self.trial.requests[-2:])
        assert len(first) == len(second)
        await self.window.command("thinklsp: Chat Sessions")
        titles = await self.chat.frame.locator(".page .session-title").all_inner_texts()
        assert {"hello again", "hello again (fork)", "fix it please"} <= set(titles), titles
        await self.chat.button("Back to the Chat").click()

    async def listed(self) -> None:
        page = self.window.page
        await self.window.command("thinklsp: Chat Sessions")
        rows = self.chat.frame.locator(".page .session")
        search = self.chat.frame.get_by_role("searchbox", name="Search the sessions")
        await search.fill("please FIX")
        await until(lambda: counts(rows, 1), "one session")
        await self.chat.button("Rename fix it please").click()
        await page.wait_for_function(_NAMED, arg="fix it please")
        await self.window.fill("Around the world")
        await page.keyboard.press("Enter")
        await until(lambda: counts(rows, 0), "no session with the former words")
        await search.fill("world")
        await rows.filter(has_text="Around the world").wait_for()
        await self.picture("sessions")
        await self.checked()
        await self.chat.button("Export Around the world").click()
        await page.locator(".tab.active", has_text="Untitled-1").wait_for()

        async def exported() -> bool:
            return "# Around the world" in await self.window.text()

        await until(exported, "the exported session")
        await search.press("Escape")
        await self.chat.prompt.wait_for()

    async def menus(self) -> None:
        await self.chat.picker("Mode").press("Enter")
        modes = self.chat.frame.get_by_role("listbox", name="Mode", exact=True)
        await modes.get_by_text("Answers and changes nothing").wait_for()
        await self.picture("modes")
        await self.checked()
        await self.chat.picker("Mode").press("ArrowDown")
        await self.chat.picker("Mode").press("Enter")
        await self.chat.picked("Mode", "ask")
        await modes.wait_for(state="hidden")
        await self.chat.picker("Model").press("ArrowDown")
        models = self.chat.frame.get_by_role("listbox", name="Model", exact=True)
        await models.get_by_role("group", name="Anthropic").get_by_text("per million tokens").first.wait_for()
        assert await models.get_by_role("group", name="(no key)").count() > 0
        await self.picture("models")
        await self.checked()
        await self.chat.picker("Model").press("Escape")
        await models.wait_for(state="hidden")
        await self.chat.choose("Mode", "agent")

    async def errors(self) -> None:
        await self.window.open(FILE)
        await self.new_chat()
        await self.chat.ask("be patient")
        await self.chat.says("Retrying, 2 of")
        await self.chat.says("Retrying, 3 of")
        assert (await self.chat.transcript()).count("etrying") == 1, "it replaces itself"
        await self.picture("retrying")
        await self.chat.says("Patience is rewarded.")
        await self.chat.idle()
        assert "etrying" not in await self.chat.text()
        file = self.trial.home / "config" / "thinklsp" / "config.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text("# Nothing is set here.\n")
        await self.chat.ask("ask the wrong server")
        card = self.chat.frame.locator(".told.error")
        await card.get_by_role("button", name="Open config.toml").wait_for()
        await self.picture("error")
        await self.checked()
        said = await card.locator(".markdown").inner_text()
        assert (await self.chat.transcript()).count(said) == 1, "told once"
        await card.get_by_role("button", name="Open config.toml").click()
        await self.window.page.locator('.tab.active[data-resource-name="config.toml"]').wait_for()
        file.unlink()

    async def terminal(self) -> None:
        await self.window.open(FILE)
        await self.new_chat()
        await self.chat.ask("how do I run the tests?")
        await self.chat.button("Put into Terminal").first.press("Enter")
        assert await self.chat.turn.get_by_role("button", name="Put into Terminal").count() == 1, "of two blocks"
        await self.window.page.locator(".xterm-rows", has_text="touch ran.txt").first.wait_for()
        assert not (self.trial.workspace / "ran.txt").exists()
        await self.picture("terminal")
        await self.window.page.keyboard.press("Enter")
        await until((self.trial.workspace / "ran.txt").exists, "what the command has made")

    async def sent(self, words: str) -> str:
        return str(await until(lambda: self.trial.find_prompt(words), f"the prompt {words!r}"))

    async def checked(self) -> None:
        """No serious finding of axe, nothing that sticks out of a narrow view, and nothing that moves."""
        findings = await self.chat.findings(self.axe)
        assert findings == [], findings
        for width in (180, 300):
            assert await self.chat.too_wide(width) == [], width
        assert await self.chat.frame.evaluate(_MOVING) == 0
