"""VS Code without a key: three ways to a model, questions that wait, and the input for an edit at the cursor."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from tests.editors.trial import BROKEN, FILE, FIXED, Trial, prompt_of
from tests.editors.vscode_beginning import step_of_model
from tests.editors.vscode_driver import Driver, keyless, opened, run_steps
from tests.editors.waiting import until
from tests.editors.workbench import IDLE, Workbench

if TYPE_CHECKING:
    from playwright.async_api import Locator

_OFFLINE = "thinklsp offline"
_MAX_CLICKS, _MAX_SECONDS = 4, 60.0
_PORT, STRICT_PORT = 1234, 8081
_WAYS = ("Set an API key", "Use a local server", "Try offline")


async def drive(trial: Trial, room: Path) -> None:
    variables = {**keyless(trial), "OPENAI_BASE_URL": f"http://127.0.0.1:{STRICT_PORT}/v1"}
    async with opened(trial, room, "vscode-first", variables=variables) as window:
        driver = _FirstRun(trial, window, "vscode-first")
        steps = (
            ("a step of the walkthrough is not done by opening its dialog", driver.dialog),
            ("from opening VS Code to the first offline edit", driver.offline),
            ("the menu and the doctor say offline", driver.said_offline),
            ("the status bar and the menu offer the same three ways", driver.status_bar),
            ("a local server is found and added to the user's file", driver.local_server),
            ("the user's file chooses the simulator", driver.simulator),
            ("a good key is tested at once", driver.good_key),
            ("a wrong key is told beside a good one, and its buttons help", driver.wrong_key),
            ("a deleted key gives way to the other one", driver.deleted_key),
            ("models are grouped by provider, those with a key first", driver.models),
            ("a question survives its message, and shows AGENTS.md", driver.question),
            ("an edit without a selection takes the instruction at the cursor", driver.edit_at_cursor),
        )
        await run_steps(trial, window, "vscode-first", steps)


@dataclass
class _FirstRun(Driver):
    clicks: int = 0

    async def dialog(self) -> None:
        step = await step_of_model(self.window)
        await step.locator(".monaco-button", has_text="Set an API key").click()
        await self.window.row("Anthropic").wait_for()
        await self.window.page.keyboard.press("Escape")
        await self.window.row("Anthropic").wait_for(state="hidden")
        assert not await step.locator(".codicon.complete").count()
        await self.window.command("View: Close All Editors")

    async def offline(self) -> str:
        """Count the clicks of a user who has a folder open and no key."""
        began = time.monotonic()
        page = self.window.page
        await self.click(page.locator(".explorer-folders-view .monaco-list-row", has_text=FILE))
        await page.locator(".squiggly-error").first.wait_for()
        await self.window.shows("thinklsp$")
        await self.window.go_to(2, 32)
        await self.window.action("thinklsp: fix undefined name")
        self.clicks += 1
        await self.window.row("Try offline").wait_for()
        await self.picture("ways")
        assert len(await page.locator(".quick-input-list .monaco-list-row").all()) == 3
        await self.click(self.window.row("Try offline"))
        await self.window.reads(FIXED)
        seconds = time.monotonic() - began
        await self.window.shows(_OFFLINE)
        await self.picture("offline")
        figures = f"{self.clicks} clicks, {seconds:.0f} s"
        assert self.clicks <= _MAX_CLICKS, figures
        assert seconds <= _MAX_SECONDS, figures
        assert self.trial.requests == []
        return figures

    async def said_offline(self) -> None:
        await self.window.status.click()
        await self.window.row("offline: scripted answers").wait_for()
        await self.picture("menu-offline")
        await self.window.page.keyboard.press("Escape")
        await self.window.command("thinklsp: Doctor")
        await until(lambda: self.window.frame_says("It is offline"), "the report")
        await self.picture("doctor-offline")
        await (await step_of_model(self.window)).locator(".codicon.complete").wait_for()
        await self.window.open(FILE)

    async def status_bar(self) -> None:
        await self.window.set(thinklsp__provider=None)
        await self.window.shows("thinklsp$")
        await self.window.command("thinklsp: Effort, Model and More")
        for way in _WAYS:
            await self.window.row(way).wait_for()
        await self.window.page.keyboard.press("Escape")
        for theme in ("Dark", "Light"):
            await self.window.set(workbench__colorTheme=f"Default {theme} Modern")
            await self.window.status.click()
            for way in _WAYS:
                await self.window.row(way).wait_for()
            await self.window.page.screenshot(path=self.trial.pictures / f"vscode-ways-{theme.lower()}.png")
            if theme == "Dark":
                await self.window.page.keyboard.press("Escape")

    async def local_server(self) -> None:
        page = self.window.page
        file = self.trial.home / "config" / "thinklsp" / "config.toml"
        with served(_PORT, _Models):
            await self.window.row("Use a local server").click()
            await self.window.row("tiny-model").wait_for()
            await self.picture("local-server")
            await self.window.row("tiny-model").click()
            dialog = page.locator(".monaco-dialog-box")
            await dialog.filter(has_text="[providers.openai-compatible]").wait_for()
            await self.picture("local-server-lines")
            assert not file.exists()
            await dialog.locator(".monaco-button", has_text="Add these lines").click()
            await self.window.toast("works. The next turn uses tiny-model").wait_for()
        assert file.read_text() == f'[providers.openai-compatible]\nbase_url = "http://127.0.0.1:{_PORT}/v1"\n'
        await self.window.shows("tiny-model")
        file.unlink()
        await self.window.set(thinklsp__provider=None, thinklsp__model=None)
        await self.clear_messages()

    async def simulator(self) -> None:
        """The server names the provider of the next turn, which no setting of the editor does here."""
        file = self.trial.home / "config" / "thinklsp" / "config.toml"
        file.write_text('provider = "simulator"\n')
        await self.window.set(thinklsp__effort="low")
        await self.window.shows(_OFFLINE)
        await self.window.status.click()
        await self.window.row("offline: scripted answers").wait_for()
        await self.window.page.keyboard.press("Escape")
        file.unlink()
        await self.window.set(thinklsp__effort=None)
        await self.window.shows("thinklsp$")

    async def good_key(self) -> None:
        await self.window.give_key(self.trial.service.key)
        await self.window.toast("The key for Anthropic works.").wait_for()
        await self.picture("good-key")
        await self.clear_messages()

    async def wrong_key(self) -> None:
        """The provider of the key is tested, not the one that works."""
        page = self.window.page
        title = page.locator(".quick-input-title", has_text="API key for OpenAI")
        with served(STRICT_PORT, RejectingServer):
            await give_key(self.window, "sk-wrong", "OpenAI")
            toast = self.window.toast("The key for OpenAI does not work")
            await toast.locator("a", has_text="Try again").wait_for()
            # The status bar got the focus back, and its tooltip covers the buttons.
            await page.locator(".editor-instance .view-line").first.click()
            await page.locator(".monaco-hover", has_text="next turn").first.wait_for(state="hidden")
            await self.picture("wrong-key")
            await toast.locator("a", has_text="Where to create an API key").click()
            await page.locator(".monaco-dialog-box", has_text="platform.openai.com").wait_for()
            await page.keyboard.press("Escape")
            await title.wait_for()
            await self.window.fill("sk-wrong-too")
            await page.keyboard.press("Enter")
            await toast.locator("a", has_text="Try again").click()
            await title.wait_for()
            await page.keyboard.press("Escape")
        await self.window.shows(r"^\S* ?gpt-")

    async def deleted_key(self) -> None:
        await give_key(self.window, "", "OpenAI")
        await self.window.toast("The key for OpenAI was deleted.").wait_for()
        await self.window.shows(IDLE)
        await self.clear_messages()

    async def models(self) -> None:
        await self.window.status.click()
        await self.window.row("today: ").wait_for()
        await self.window.row("Model").click()
        await self.window.row("per million tokens").wait_for()
        await self.window.row("Claude Opus 5.5").wait_for()
        await self.picture("models")
        separators = self.window.page.locator(".quick-input-list .quick-input-list-separator")
        assert "Anthropic" in " ".join(await separators.all_inner_texts())
        await self.window.page.keyboard.press("Escape")

    async def question(self) -> None:
        """Nothing is answered by the message's end; the status bar opens the question again."""
        instructions = self.trial.workspace / "AGENTS.md"
        instructions.write_text("Write short functions.\n")
        await self.write(BROKEN)
        await self.window.go_to(2, 32)
        await self.window.action("thinklsp: fix undefined name")
        question = self.window.toast("Follow these instructions?")
        await question.wait_for()
        await self.window.shows("is waiting for you")
        await self.clear_messages()
        await question.wait_for(state="detached")
        await self.window.status.click()
        await question.locator("a", has_text="Show AGENTS.md").click()
        await self.window.page.locator('.tab.active[data-resource-name="AGENTS.md"]').wait_for()
        await question.wait_for()
        await self.picture("question")
        await question.locator("a", has_text="Follow them").click()
        await self.window.open(FILE)
        await self.window.reads(FIXED)
        await self.window.shows(IDLE)
        assert "Write short functions." in prompt_of(self.trial.requests[-3])
        instructions.unlink()

    async def edit_at_cursor(self) -> None:
        asked = len(self.trial.requests)
        await self.window.go_to(2, 8)
        await self.window.page.keyboard.press("Shift+Alt+E")
        await self.window.page.locator(".quick-input-title", has_text="thinklsp: edit the code at line 2").wait_for()
        facts = self.window.page.locator(".quick-input-message", has_text="effort auto · the last turn cost $0.")
        await facts.wait_for()
        await self.window.fill("hello")
        await self.picture("edit-at-cursor")
        await self.window.page.keyboard.press("Enter")
        await until(lambda: len(self.trial.requests) > asked, "a request")
        prompt = prompt_of(self.trial.requests[asked])
        assert "Instruction: hello" in prompt
        assert f"{FILE}, lines 1-2" in prompt
        await self.window.shows(IDLE)

    async def click(self, what: Locator) -> None:
        await what.click()
        self.clicks += 1


async def give_key(window: Workbench, key: str, provider: str) -> None:
    await window.command("thinklsp: Set an API Key")
    await window.row(provider).click()
    await window.fill(key)
    await window.page.keyboard.press("Enter")


@contextmanager
def served(port: int, handler: type[BaseHTTPRequestHandler]) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


class _Models(BaseHTTPRequestHandler):
    """A model server of one model."""

    status = 200

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "tiny-model", "object": "model"}]})

    def do_POST(self) -> None:
        self._answer({"error": {"message": "No prompt."}})

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(self.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class RejectingServer(_Models):
    """A model server that accepts no key."""

    status = 401

    def do_GET(self) -> None:
        self._answer({"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}})
