"""A short tour of VS Code that leaves the two screenshots of the documentation: a code action and a chat."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.editors import code_server
from tests.editors.chat_frame import Chat
from tests.editors.trial import HERE, Trial
from tests.editors.vscode_driver import opened
from tests.editors.workbench import IDLE, Workbench
from tests.support.services import Service
from thinklsp.cli.demo import PROJECT_FILES
from thinklsp.offline.scenario import load_scenario

SCENARIO = HERE / "tour.toml"
ACTION, CHAT = "vscode-action", "vscode-chat"
SCREENSHOTS = (ACTION, CHAT)

_COMMENT = "# Round the tax to the nearest cent. AI!"
_PROMPT = "Why is the total of a book one cent short? Please fix it and add a test."
_SETTINGS = {
    "workbench.colorTheme": "Default Dark Modern", "workbench.layoutControl.enabled": False,
    "chat.disableAIFeatures": True, "editor.fontSize": 14,
    "diffEditor.codeLens": True, "diffEditor.renderSideBySide": False,
    "thinklsp.thinking.display": "summary", "thinklsp.edits.review": "auto",
}  # fmt: skip


async def take_screenshots(room: Path, folder: Path, out: Path) -> None:
    """Take the screenshots. `room` has the editor, `folder` gets its files, `out` the screenshots."""
    await code_server.install(room)
    async with Service(load_scenario(str(SCENARIO))) as service:
        trial = Trial("VS Code", folder, out, service)
        _make_project(trial.workspace)
        async with opened(trial, room, "profile", _SETTINGS, variables=trial.variables) as window:
            await _show_action(window, out)
            await _show_chat(window, out)


async def _show_action(window: Workbench, out: Path) -> None:
    await window.open("invoice.py")
    await window.go_to(15, 5)
    await window.action("thinklsp: edit as the comment says")
    await window.shows(r"thinking · [3-9] s")
    await window.page.screenshot(path=out / f"{ACTION}.png")
    await window.page.locator(".view-line", has_text="VAT_PERCENT + 50").wait_for()
    await window.shows(IDLE)


async def _show_chat(window: Workbench, out: Path) -> None:
    chat = Chat(window)
    await chat.open()
    await chat.ask(_PROMPT)
    await chat.turn.locator(".edits", has_text="Changed 2 files").wait_for()
    await chat.idle()
    await window.open("money.py")
    await window.command("File: Save All")
    await window.page.locator(".editor-actions .codicon-compare-changes").first.click()
    await window.page.locator(".monaco-diff-editor .line-insert").first.wait_for()
    await window.page.locator(".monaco-diff-editor .codelens-decoration", has_text="undo").first.wait_for()
    await chat.prompt.focus()
    await window.page.screenshot(path=out / f"{CHAT}.png")


def _make_project(workspace: Path) -> None:
    """Make the sample project of the demo a repository with one commit."""
    shutil.rmtree(workspace)
    for name, text in PROJECT_FILES.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("    return int(net", f"    {_COMMENT}\n    return int(net"), "utf-8")
    identity = ("-c", "user.name=tour", "-c", "user.email=tour@example.com")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "A shop")):
        subprocess.run(("git", *words), cwd=workspace, check=True)
