"""Answers of code actions in the chat view of VS Code: what they show, where their links lead, what a review leaves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.editors import code_server
from tests.editors.chat_frame import ChatDriver
from tests.editors.parts import NEW_FILE, new_file
from tests.editors.trial import BROKEN, FILE, FIXED, OTHER_FILE, UNUSED, Trial
from tests.editors.vscode_driver import opened, run_steps
from tests.editors.waiting import until
from tests.editors.workbench import IDLE

if TYPE_CHECKING:
    from playwright.async_api import Locator

_SETTINGS = {"workbench.colorTheme": "Default Dark Modern", "chat.disableAIFeatures": True}
# Each update is measured from its message to the next frame's tasks, the painting included.
_LONG_ANSWER = """async () => {
  const send = data => window.dispatchEvent(new MessageEvent('message', {data}));
  const piece = 'Some **words** about `stats.py:2`.\\n\\n```python\\n' + 'x = f(1)  # note\\n'.repeat(58) + '```\\n\\n';
  send({kind: 'began', prompt: 'A long answer', attachments: []});
  const took = [];
  let first;
  for (let at = 0; at < 200; at += 1) {
    const began = performance.now();
    send({kind: 'partial', value: {kind: 'text', delta: piece}});
    document.body.getBoundingClientRect();
    took.push(performance.now() - began);
    first ??= document.querySelector('.turn:last-child .code-block');
    await new Promise(done => setTimeout(done, 0));
  }
  return {took, kept: first.isConnected && document.querySelectorAll('.turn:last-child .code-block').length === 200};
}"""


async def drive(trial: Trial, room: Path) -> None:
    async with opened(trial, room, "vscode-answers", _SETTINGS) as window:
        driver = _Answers(trial, window, "vscode-answers", await code_server.axe(room))
        steps = (
            ("begins", driver.begin),
            ("an explanation is shown in the chat, with links to places", driver.explain),
            ("the findings of a review are checked off", driver.review),
            ("a question in a comment is answered in the chat", driver.question),
            ("the card of changed files agrees with the marks", driver.card),
            ("code is coloured and applied to its file", driver.code),
            ("a long answer keeps the view quick", driver.quick),
            ("a follow-up is queued, and taken back", driver.follow_up),
        )
        await run_steps(trial, window, "vscode-answers", steps)


class _Answers(ChatDriver):
    async def explain(self) -> None:
        await self.window.action("thinklsp: explain", everything=True)
        await self.chat.restored()
        await self.chat.says("handle an empty list")
        turn = self.chat.turn
        assert await turn.locator("li.task input:checked").count() == 1
        assert await turn.locator("li.task input:not(:checked)").count() == 1
        assert "[ ]" not in await self.chat.text()
        await self.nothing_else()
        await self.chat.close()
        await self.chat.open()
        await self.chat.says("handle an empty list")
        assert "Change no files" not in await self.chat.text(), "the prompt is the user's"
        turn = self.chat.turn
        assert await turn.locator("a.place").all_inner_texts() == ["stats.py:2", "tally.py:4"]
        await self.picture("explain")
        for name, line in (("tally.py", 4), (FILE, 2)):
            await turn.get_by_role("link", name=f"{name}:{line}").click()
            await self.window.page.locator(f'.tab.active[data-resource-name="{name}"]').wait_for()
            await self.cursor_at(line)
        await self.nothing_else()

    async def review(self) -> None:
        await self.window.open(FILE)
        await self.window.action("thinklsp: review this file")
        await self.chat.says("Findings: 2 of 2 open")
        turn = self.chat.turn
        assert await turn.locator(".findings li").count() == 2
        assert await turn.locator(".parts li").count() == 0, "the list is not repeated"
        await self.problems(2)
        await self.picture("review")
        assert await self.chat.findings(self.axe) == []
        await turn.locator(".findings li").first.get_by_role("checkbox").check()
        await self.chat.says("Findings: 1 of 2 open")
        await self.problems(1)
        await self.window.open(FILE)
        await self.window.go_to(1)
        await self.window.action("thinklsp: check off this finding")
        await self.chat.says("Findings: 0 of 2 open")
        await self.problems(0)
        assert await turn.get_by_role("checkbox").last.is_checked()
        await turn.get_by_role("checkbox").last.uncheck()
        await self.problems(1)
        await self.window.command("thinklsp: Check Off All Findings")
        await self.problems(0)
        await self.nothing_else()

    async def question(self) -> None:
        await self.write(f"# Why not append? AI?\n{BROKEN}")
        await self.window.go_to(1)
        await self.window.action("Why not append?")
        await self.chat.says("tuples have no append")
        await self.window.shows(IDLE)
        await self.nothing_else()

    async def card(self) -> None:
        await self.window.set(thinklsp__edits__review="auto")
        await self.write(BROKEN)
        await self.new_chat()
        await self.chat.ask("use decimal numbers")
        card = self.chat.turn.locator(".edits")
        await self.chat.button(f"Keep {NEW_FILE}").wait_for()
        await self.picture("card")
        assert await self.chat.findings(self.axe) == []
        await self.chat.button(f"Diff of {OTHER_FILE}").click()
        await self.window.page.locator(".tab.active", has_text=f"{OTHER_FILE}: before").wait_for()
        await self.chat.button(f"Undo {OTHER_FILE}").click()
        await card.locator("li", has_text=OTHER_FILE).locator(".state", has_text="undone").wait_for()
        # The lens decides too, and the card follows.
        await self.window.open(FILE)
        await self.window.reads(FIXED)
        await self.window.page.locator(".codelens-decoration a", has_text="Keep").first.click()
        await card.locator("li", has_text=FILE).locator(".state", has_text="kept").first.wait_for()
        await self.chat.button(f"Undo {NEW_FILE}").click()
        await self.window.page.locator(".statusbar-item", has_text="change in").wait_for(state="detached")
        assert await card.get_by_role("button", name="Undo").count() == 0
        await self.window.command("File: Save All Files")
        await until(lambda: self.trial.file.read_text() == FIXED, "the saved file")
        assert (self.trial.workspace / OTHER_FILE).read_text() == UNUSED
        await until(lambda: not new_file(self.trial).exists(), "the end of the new file")
        await self.chat.ask("what did I keep?")
        said = await until(lambda: self.trial.find_prompt("what did I keep"), "the prompt")
        assert OTHER_FILE in said, said

    async def code(self) -> None:
        page = self.window.page
        await self.window.command("File: Save All Files")
        await self.chat.ask("how would you write mean?")
        block = self.chat.turn.locator(".code-block").first
        await block.locator(".token-keyword", has_text="return").wait_for()
        await block.locator(".token-string", has_text="none").wait_for()
        await self.chat.idle()
        for theme in ("Default Light Modern", "Default High Contrast", "Default Dark Modern"):
            await self.window.set(workbench__colorTheme=theme)
            style = {"Light": "vscode-light", "High": "vscode-high-contrast"}.get(theme.split()[1], "vscode-dark")
            await self.chat.frame.locator(f"body.{style}").wait_for()
            findings = await self.chat.findings(self.axe)
            assert findings == [], (theme, findings)
        await block.get_by_role("button", name="Apply to File").focus()
        await self.picture("code")
        await block.get_by_role("button", name="Apply to File").click()
        better = FIXED.replace("    return", "    # Round nothing.\n    return")
        better = better.replace("len(values)", 'max(1, len(values)) if values else "none"')
        await page.locator(f'.tab.active[data-resource-name="{FILE}"]').wait_for()
        await self.window.reads(better)
        await page.locator(".codelens-decoration a", has_text="Undo").first.click()
        await self.window.reads(FIXED)
        await page.locator(".codelens-decoration a", has_text="Undo").first.wait_for(state="detached")
        await self.chat.turn.get_by_role("button", name="Apply to File").last.click()
        await page.locator('.tab.active[data-resource-name="new.py"]').wait_for()
        assert (self.trial.workspace / "notes" / "new.py").read_text() == "x = 1\n"

    async def quick(self) -> str:
        """Show 200 KB in pieces, and measure how long the view works on each."""
        measured = await self.chat.frame.evaluate(_LONG_ANSWER)
        assert measured["kept"], "a closed block is not rendered again"
        took = sorted(measured["took"])
        assert len(took) == 200
        note = f"an update took {took[100]:.1f} ms, one of 20 {took[190]:.1f} ms, the slowest {took[-1]:.1f} ms"
        assert took[190] < 50, note
        return note

    async def follow_up(self) -> None:
        await self.new_chat()
        await self.chat.ask("Look around first")
        await self.chat.turn.locator("details.thinking", has_text="Thinking").wait_for()
        queue = self.chat.frame.get_by_role("list", name="Queued prompts").get_by_role("listitem")
        for prompt in ("Say hello too", "Never mind this"):
            await self.chat.prompt.fill(prompt)
            await self.chat.prompt.press("Enter")
            await queue.filter(has_text=prompt).wait_for()
        await self.picture("queued")
        assert await self.chat.findings(self.axe) == []
        await self.chat.button("Remove queued prompt: Never mind this").click()
        await queue.filter(has_text="Never mind this").wait_for(state="detached")
        await until(lambda: self.trial.find_prompt("Say hello too"), "the queued prompt")
        await queue.first.wait_for(state="detached")
        await self.chat.turn.get_by_text("Say hello too").wait_for()
        await self.chat.idle()
        await self.chat.turn.locator(".foot", has_text="out").wait_for()
        assert not self.trial.find_prompt("Never mind this")
        assert await self.chat.frame.locator(".turn").count() == 2
        call = self.chat.frame.locator("details.tool", has_text="read stats.py").first
        await call.locator("summary").press("Enter")
        await call.locator("pre", has_text=FILE).first.wait_for()
        await call.locator("pre", has_text="return sum").first.wait_for()
        # What was written before a stop stays, and the queued prompt is sent.
        await self.chat.ask("Tell it slowly")
        await self.chat.says("Once there was")
        await self.chat.prompt.fill("hello")
        await self.chat.prompt.press("Enter")
        await queue.filter(has_text="hello").wait_for()
        await self.chat.button("Stop").click()
        await self.chat.says("heliotrope")
        await self.chat.idle()
        assert "Once there was" in await self.chat.text()

    async def nothing_else(self) -> None:
        """No chat document, and no notification that repeats the answer."""
        await self.chat.idle()
        names = await self.window.page.locator(".tab").evaluate_all("tabs => tabs.map(tab => tab.dataset.resourceName)")
        assert not [name for name in names if ".chat.md" in name or name == ".gitignore"], names
        assert await self.window.page.locator(".notification-toast").count() == 0
        assert not (self.trial.workspace / ".thinklsp").exists()

    async def problems(self, count: int) -> None:
        """Until the Problems view lists so many findings of the review."""
        await self.window.command("Problems: Focus on Problems View")
        rows = self.window.page.locator(".markers-panel .monaco-list-row", has_text="thinklsp review")

        async def holds() -> bool:
            return await rows.count() == count

        await until(holds, f"{count} findings in the Problems view")

    async def cursor_at(self, line: int) -> None:
        status: Locator = self.window.page.locator(".statusbar-item", has_text=f"Ln {line},")
        await status.first.wait_for()
