"""Watch a whole turn with nothing to configure: no key, no network, no file of yours is touched.

The model is the offline simulator on a loopback port. Everything else is real: the language server is started as an
editor would start it and driven over its standard input and output.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from thinklsp.cli import demo_project
from thinklsp.cli.demo_client import DemoFailed, ServerGone, ServerProcess, started
from thinklsp.cli.demo_editor import Editor
from thinklsp.cli.demo_screen import Screen
from thinklsp.cli.terminal import console_for, usage_line
from thinklsp.simulator.scenario import Pacing, Scenario, Step, load, packaged
from thinklsp.simulator.server import Simulator
from thinklsp.workspace.paths import Root

_TERMINATED = 128 + signal.SIGTERM
_KEY = "demo-key"
_QUESTION = "Why did both files have to change?"
_REVIEW = "Review this folder and propose what to do first."
_NEXT = """\
Give your editor ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY – or THINKLSP_COMPATIBLE_BASE_URL for a
server of your own, like http://localhost:11434/v1 – and the same server talks to a real model.
`thinklsp doctor` says what would be used and what is missing.
`thinklsp demo --workspace .` looks at your folder; `thinklsp ask "…"` runs one turn here.
The README shows the set-up for each editor."""

# Settings of the person who looks must not change what the demo shows.
_THEIRS = ("THINKLSP_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_")


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the demo plays."""

    screen: Screen
    server: ServerProcess
    editor: Editor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(packaged())
    parser.add_argument("--scenario", metavar="NAME", help=f"what the model does: a scenario file, or one of {names}")
    parser.add_argument(
        "--workspace", metavar="DIR", help="use this folder: the model looks and proposes, nothing is written"
    )


def run(args: argparse.Namespace) -> int:
    """0 only when the edits arrived and, in the sample project, the tests went from red to green."""
    scenario = load(args.scenario or ("demo" if args.workspace is None else "review"))
    console = console_for(sys.stdout)
    if not console.is_terminal and args.scenario in (None, *packaged()):
        scenario = _hurried(scenario)
    with tempfile.TemporaryDirectory(prefix="thinklsp-demo-") as folder, Screen(console) as screen:
        try:
            asyncio.run(_stoppable(_play(scenario, os.path.realpath(folder), args.workspace, screen)))
        except asyncio.CancelledError:
            return _TERMINATED
    return 0


async def _stoppable(play: Coroutine[Any, Any, None]) -> None:
    """Told to end, it leaves through every `finally`, so that server and folder are gone as after Ctrl-C."""
    playing = asyncio.ensure_future(play)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    await playing


def _hurried(scenario: Scenario) -> Scenario:
    """The same course without pauses: nobody is watching."""
    turns = [turn.model_copy(update={"step": tuple(map(_unpaced, turn.step))}) for turn in scenario.turn]
    return scenario.model_copy(update={"pacing": Pacing(), "turn": tuple(turns)})


def _unpaced(step: Step) -> Step:
    blocks = tuple(part.model_copy(update={"delay_ms": 0}) for part in step.block)
    return step.model_copy(update={"pacing": Pacing(), "block": blocks})


async def _play(scenario: Scenario, folder: str, workspace: str | None, screen: Screen) -> None:
    begun = time.monotonic()
    screen.title("thinklsp demo", aside="offline: no key, no network, none of your files is written")
    project = os.path.join(folder, "shop") if workspace is None else workspace
    if workspace is None:
        demo_project.make(project)
    with Root(project) as root:
        editor = Editor(root, screen, writes=workspace is None)
        async with Simulator(scenario) as simulator, _server(editor, simulator.base_url, folder) as server:
            stage = Stage(screen, server, editor)
            usage = await (_sample(stage, root.path) if workspace is None else _own_folder(stage, root.path))
    screen.blank()
    screen.note(f"{time.monotonic() - begun:.1f} s · simulated: {usage}")
    screen.blank()
    screen.title("Where to go next")
    screen.say(_NEXT)


@asynccontextmanager
async def _server(editor: Editor, base_url: str, folder: str) -> AsyncIterator[ServerProcess]:
    """The server in a folder and with an environment of its own."""
    own = {
        "ANTHROPIC_API_KEY": _KEY,
        "ANTHROPIC_BASE_URL": base_url,
        "THINKLSP_PROVIDER": "anthropic",
        "THINKLSP_THINKING_DISPLAY": "summary",
        "THINKLSP_CONFIG": os.path.join(folder, "config.toml"),
        "THINKLSP_STATE_DIR": os.path.join(folder, "state"),
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_THEIRS)}
    environment = {**kept, **_importable(kept), **own}
    argv = (sys.executable, "-m", "thinklsp")
    with tempfile.TemporaryFile() as log:
        try:
            async with started(argv, editor, environment=environment, folder=folder, log=log) as server:
                yield server
        except ServerGone as gone:
            log.seek(0)
            said = log.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise DemoFailed(f"{gone} It last said: {said}" if said else str(gone)) from None


def _importable(environment: Mapping[str, str]) -> dict[str, str]:
    """Lets the server find this very package when it runs from a checkout instead of an installation."""
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if home in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (home, environment.get("PYTHONPATH"))))}


async def _sample(stage: Stage, folder: str) -> str:
    """The sample project: red, a code action, the edit, green, a question. Returns the usage in words."""
    screen, editor, server = stage.screen, stage.editor, stage.server
    screen.heading(1, "A small project with a bug")
    screen.note(f"{', '.join(demo_project.SHOWN)} in a temporary folder")
    before = await _tests(stage, folder)
    if before.passed or before.failure is None:
        raise DemoFailed("The tests of the sample project do not fail as they should before the fix.")

    screen.heading(2, "An editor opens the failing test and asks for code actions")
    screen.note(f"started {await editor.initialize(server)} on standard input and output")
    action = await _fix_action(stage, before.failure)

    screen.heading(3, "It runs the action")
    fixed = await editor.turn(server, action["command"]["command"], action["command"]["arguments"][0])
    _check_edit(stage, fixed, applied="all")

    screen.heading(4, "The tests again")
    after = await _tests(stage, folder)
    if not after.passed:
        raise DemoFailed("The edits arrived, but the tests of the sample project still fail.")

    screen.heading(5, f"A question in the same conversation: {_QUESTION}")
    chat = {"prompt": _QUESTION, "sessionId": fixed["sessionId"], "mode": "ask"}
    answered = await editor.turn(server, "thinklsp.chat", chat)
    return usage_line(_sum(fixed["usage"], answered["usage"]))


async def _own_folder(stage: Stage, folder: str) -> str:
    """The user's folder: the model looks around and proposes; the editor refuses to write."""
    screen, editor, server = stage.screen, stage.editor, stage.server
    screen.heading(1, f"An editor opens {folder}")
    screen.note(f"started {await editor.initialize(server)} on standard input and output")
    screen.heading(2, f"It asks in chat: {_REVIEW}")
    result = await editor.turn(server, "thinklsp.chat", {"prompt": _REVIEW})
    _check_edit(stage, result, applied="none")
    screen.blank()
    screen.note("Nothing was written: this is your folder.")
    return usage_line(result["usage"])


async def _tests(stage: Stage, folder: str) -> demo_project.TestRun:
    done = await demo_project.run_tests(folder)
    stage.screen.command("python -m unittest", done.lines, good=done.passed)
    return done


async def _fix_action(stage: Stage, failure: demo_project.Failure) -> Mapping[str, Any]:
    """The `fix` that the server offers for the failure, which a test plugin would show as a diagnostic."""
    uri = stage.editor.open(stage.server, demo_project.TEST_FILE)
    stage.screen.say(f"{demo_project.TEST_FILE}, line {failure.line}: {failure.message}", style="red")
    line = failure.line - 1
    place = {"start": {"line": line, "character": 8}, "end": {"line": line, "character": 200}}
    diagnostic = {"range": place, "severity": 1, "source": "unittest", "message": failure.message}
    params = {"textDocument": {"uri": uri}, "range": place, "context": {"diagnostics": [diagnostic], "triggerKind": 1}}
    actions = await stage.server.request("textDocument/codeAction", params) or []
    for action in actions:
        stage.screen.say(f"• {action['title']}")
    fix = next((action for action in actions if action.get("kind") == "quickfix"), None)
    if fix is None:
        raise DemoFailed("The server offered no fix for the failing test.")
    return dict(fix)


def _check_edit(stage: Stage, result: Mapping[str, Any], *, applied: str) -> None:
    """Raises DemoFailed unless an edit arrived and the server knows what became of it."""
    if result["stopReason"] != "end_turn":
        raise DemoFailed(f"The turn ended with {result['stopReason']}, so no edit was sent. {result['text']}".strip())
    if not stage.editor.edits:
        raise DemoFailed("The turn ended well but proposed no edit; this scenario changes no file.")
    if result["edits"]["applied"] != applied:
        reasons = "; ".join(filter(None, (file["reason"] for file in result["edits"]["files"])))
        raise DemoFailed(f"The edit arrived but was not applied as expected: {reasons or 'no reason was given'}.")


def _sum(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of two turns; one that either of them lacks is not known."""
    return {key: None if one[key] is None or other[key] is None else one[key] + other[key] for key in one}
