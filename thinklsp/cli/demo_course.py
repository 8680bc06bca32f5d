"""The course of the demo: the server is started, and an editor drives it through a whole turn."""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsprotocol import types

from thinklsp.cli import demo_project
from thinklsp.cli.demo_client import DemoClient, DemoFailed, ServerGone
from thinklsp.cli.demo_editor import Editor
from thinklsp.cli.demo_screen import Screen
from thinklsp.cli.terminal import usage_line
from thinklsp.workspace.paths import Root

_KEY = "demo-key"
_QUESTION = "Why did both files have to change?"
_REVIEW = "Review this folder and propose what to do first."

# Settings of the person who looks must not change what the demo shows.
_THEIRS = ("THINKLSP_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_")


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the demo plays."""

    screen: Screen
    editor: Editor


async def play_course(screen: Screen, base_url: str, folder: str, workspace: str | None) -> str:
    """Start a server and play the sample project or, if given, the user's folder. Return the usage in words.

    `folder` takes the sample project and the server's own files; `base_url` is the simulator's.
    """
    project = os.path.join(folder, "shop") if workspace is None else workspace
    if workspace is None:
        demo_project.make(project)
    client = DemoClient()
    with Root(project) as root, tempfile.TemporaryFile() as log:
        stage = Stage(screen, Editor(root, screen, client, writes=workspace is None))
        argv = (sys.executable, "-m", "thinklsp")
        try:
            async with client.run_process(argv, environment=_environment(base_url, folder), folder=folder, log=log):
                return await (_play_sample(stage, root.path) if workspace is None else _play_folder(stage, root.path))
        except ServerGone as gone:
            log.seek(0)
            said = log.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise DemoFailed(f"{gone} It last said: {said}" if said else str(gone)) from None


def _environment(base_url: str, folder: str) -> dict[str, str]:
    """Return an environment in which the server uses the simulator, and keeps its files in the folder."""
    own = {
        "ANTHROPIC_API_KEY": _KEY,
        "ANTHROPIC_BASE_URL": base_url,
        "THINKLSP_PROVIDER": "anthropic",
        "THINKLSP_THINKING_DISPLAY": "summary",
        "THINKLSP_CONFIG": os.path.join(folder, "config.toml"),
        "THINKLSP_STATE_DIR": os.path.join(folder, "state"),
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_THEIRS)}
    return {**kept, **_importable(kept), **own}


def _importable(environment: Mapping[str, str]) -> dict[str, str]:
    """Let the server find this package if it runs from a checkout instead of an installation."""
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if home in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (home, environment.get("PYTHONPATH"))))}


async def _play_sample(stage: Stage, folder: str) -> str:
    """Play the sample project: red, a code action, the edit, green, a question. Return the usage in words."""
    screen, editor = stage.screen, stage.editor
    screen.heading(1, "A small project with a bug")
    screen.note(f"{', '.join(demo_project.SHOWN)} in a temporary folder")
    before = await _run_tests(stage, folder)
    if before.passed or before.failure is None:
        raise DemoFailed("The tests of the sample project do not fail as they should before the fix.")

    screen.heading(2, "An editor opens the failing test and asks for code actions")
    screen.note(f"started {await editor.initialize()} on standard input and output")
    command, argument = await _request_fix(stage, before.failure)

    screen.heading(3, "It runs the action")
    fixed = await editor.run_turn(command, argument)
    _check_edit(stage, fixed, applied="all")

    screen.heading(4, "The tests again")
    after = await _run_tests(stage, folder)
    if not after.passed:
        raise DemoFailed("The edits arrived, but the tests of the sample project still fail.")

    screen.heading(5, f"A question in the same conversation: {_QUESTION}")
    chat = {"prompt": _QUESTION, "sessionId": fixed["sessionId"], "mode": "ask"}
    answered = await editor.run_turn("thinklsp.chat", chat)
    return usage_line(_add(fixed["usage"], answered["usage"]))


async def _play_folder(stage: Stage, folder: str) -> str:
    """Play in the user's folder: the model looks around and proposes; the editor refuses to write."""
    screen, editor = stage.screen, stage.editor
    screen.heading(1, f"An editor opens {folder}")
    screen.note(f"started {await editor.initialize()} on standard input and output")
    screen.heading(2, f"It asks in chat: {_REVIEW}")
    result = await editor.run_turn("thinklsp.chat", {"prompt": _REVIEW})
    _check_edit(stage, result, applied="none")
    screen.blank()
    screen.note("Nothing was written: this is your folder.")
    return usage_line(result["usage"])


async def _run_tests(stage: Stage, folder: str) -> demo_project.TestRun:
    done = await demo_project.run_tests(folder)
    stage.screen.command("python -m unittest", done.lines, good=done.passed)
    return done


async def _request_fix(stage: Stage, failure: demo_project.Failure) -> tuple[str, Mapping[str, Any]]:
    """Return the command of the server's `fix` for the failure, and its argument.

    A test plugin of an editor would show the failure as a diagnostic.
    """
    uri = stage.editor.open(demo_project.TEST_FILE)
    stage.screen.say(f"{demo_project.TEST_FILE}, line {failure.line}: {failure.message}", style="red")
    line = failure.line - 1
    place = types.Range(types.Position(line, 8), types.Position(line, 200))
    error = types.DiagnosticSeverity.Error
    actions = await stage.editor.request_actions(
        uri, types.Diagnostic(place, failure.message, severity=error, source="unittest")
    )
    for action in actions:
        stage.screen.say(f"• {action.title}")
    for action in actions:
        if isinstance(action, types.CodeAction) and action.kind == types.CodeActionKind.QuickFix and action.command:
            argument: Any = next(iter(action.command.arguments or ()), {})
            return action.command.command, argument
    raise DemoFailed("The server offered no fix for the failing test.")


def _check_edit(stage: Stage, result: Mapping[str, Any], *, applied: str) -> None:
    """Raise DemoFailed unless an edit arrived and the server has its outcome."""
    if result["stopReason"] != "end_turn":
        raise DemoFailed(f"The turn ended with {result['stopReason']}, so no edit was sent. {result['text']}".strip())
    if not stage.editor.edits:
        raise DemoFailed("The turn ended well but proposed no edit; this scenario changes no file.")
    if result["edits"]["applied"] != applied:
        reasons = "; ".join(filter(None, (file["reason"] for file in result["edits"]["files"])))
        raise DemoFailed(f"The edit arrived but was not applied as expected: {reasons or 'no reason was given'}.")


def _add(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Add the figures of two turns; a figure that either of them lacks is unknown."""
    return {key: None if one[key] is None or other[key] is None else one[key] + other[key] for key in one}
