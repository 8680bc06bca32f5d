"""Watch a complete turn without a key, a network connection or any configuration. Your files stay unchanged.

The server's offline model replaces a real model. Everything else is real. The demo starts the language server as an
editor does and communicates with it over standard input and output.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from thinklsp.cli.demo_editor import DemoEditor, DemoFailed, DemoScreen, Json, ServerExited
from thinklsp.cli.terminal import create_console, format_usage_line
from thinklsp.offline.scenario import list_packaged, load_scenario
from thinklsp.offline.service import PAUSES_VARIABLE, SCENARIO_VARIABLE
from thinklsp.workspace.paths import Root

_TERMINATED = 128 + signal.SIGTERM
_QUESTION = "Why did both files have to change?"
_REVIEW = "Review this folder and propose what to do first."
# Prefixes of environment variables to remove, because the user's own settings must not affect the demo.
_USER_VARIABLE_PREFIXES = ("THINKLSP_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_")
NEXT_STEPS = """\
To use a real model, set ANTHROPIC_API_KEY, OPENAI_API_KEY or
GEMINI_API_KEY in your editor's environment. For a server of your own, set
THINKLSP_COMPATIBLE_BASE_URL, for example to http://localhost:11434/v1.

thinklsp demo --workspace .   review the folder that you are in, offline
thinklsp ask "…"              ask a question in this terminal
thinklsp doctor               check your configuration
thinklsp setup                add thinklsp to your editor"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(list_packaged())
    parser.add_argument(
        "--scenario", metavar="NAME", help=f"the script of the simulated model: a scenario file, or one of {names}"
    )
    parser.add_argument(
        "--workspace",
        metavar="DIR",
        help="run the demo in this folder; the model proposes changes, but nothing is written",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo. Returns 0 if the edits arrived and, in the sample project, made the failing tests pass."""
    scenario = args.scenario or ("demo" if args.workspace is None else "review")
    load_scenario(scenario)  # Report an invalid scenario before the demo starts.
    console = create_console(sys.stdout)
    is_packaged = scenario in list_packaged()
    variables = {SCENARIO_VARIABLE: scenario if is_packaged else os.path.abspath(scenario)}
    if is_packaged and not console.is_terminal:
        variables[PAUSES_VARIABLE] = "off"
    with tempfile.TemporaryDirectory(prefix="thinklsp-demo-") as folder, DemoScreen(console) as screen:
        try:
            asyncio.run(_cancel_on_sigterm(_play(variables, os.path.realpath(folder), args.workspace, screen)))
        except asyncio.CancelledError:
            return _TERMINATED
    return 0


async def _cancel_on_sigterm(play: Coroutine[Any, Any, None]) -> None:
    """Run the demo. SIGTERM cancels the demo like Ctrl-C, so that the server exits and the folder is removed."""
    playing = asyncio.ensure_future(play)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    await playing


async def _play(variables: Mapping[str, str], folder: str, workspace: str | None, screen: DemoScreen) -> None:
    """Start a server and run the demo in the user's folder, or in the sample project if `workspace` is None.

    The sample project and the server's own files are written to `folder`. `variables` select the scenario.
    """
    started_at = time.monotonic()
    subtitle = "about 10 seconds; offline: no key, no network, your files stay unchanged"
    screen.print_title("thinklsp demo", subtitle=subtitle)
    project = os.path.join(folder, "shop") if workspace is None else workspace
    if workspace is None:
        make_project(project)
    with Root(project) as root, tempfile.TemporaryFile() as log:
        editor = DemoEditor(root, screen, writes_files=workspace is None)
        environment = _build_environment(variables, folder)
        try:
            async with editor.client.run_process(
                (sys.executable, "-m", "thinklsp"), environment=environment, folder=folder, log=log
            ):
                play = _play_sample if workspace is None else _play_folder
                usage = await play(editor, root.path)
        except ServerExited as gone:
            log.seek(0)
            last_line = log.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise DemoFailed(f"{gone} The last line of its log: {last_line}" if last_line else str(gone)) from None
    screen.print_text()
    screen.print_note(f"{time.monotonic() - started_at:.1f} s · simulated: {format_usage_line(usage)}")
    screen.print_text()
    screen.print_title("Next steps")
    screen.print_text(NEXT_STEPS)


def _build_environment(scenario: Mapping[str, str], folder: str) -> dict[str, str]:
    """Build environment variables for a server that uses the offline model and writes its files to `folder`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_USER_VARIABLE_PREFIXES)}
    # A checkout needs the `PYTHONPATH`, an installed package does not.
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if home not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (home, environment.get("PYTHONPATH"))))
    return {
        **environment,
        **scenario,
        "THINKLSP_PROVIDER": "simulator",
        "THINKLSP_THINKING_DISPLAY": "summary",
        "THINKLSP_CONFIG": os.path.join(folder, "config.toml"),
        "THINKLSP_STATE_DIR": os.path.join(folder, "state"),
    }


async def _play_sample(editor: DemoEditor, folder: str) -> Json:
    """Run the demo in the sample project. A code action fixes the project's failing tests.

    A question about the edit follows. Returns the usage.
    """
    screen = editor.screen
    screen.print_heading(1, "A small project with a bug")
    screen.print_note(f"{', '.join(_SHOWN_FILES)} in a temporary folder")
    before = await _run_tests(editor, folder)
    if before.passed or before.message is None:
        raise DemoFailed("The sample project's tests do not fail as expected before the fix.")

    screen.print_heading(2, "An editor opens the failing test and asks for code actions")
    screen.print_note(f"started {await editor.initialize()} on standard input and output")
    command = await _request_fix(editor, before.line, before.message)

    screen.print_heading(3, "The editor runs the code action")
    fixed = await editor.run_turn(command["command"], command["arguments"][0])
    _check_edit(editor, fixed, applied="all")

    screen.print_heading(4, "The tests run again")
    if not (await _run_tests(editor, folder)).passed:
        raise DemoFailed("The edits were applied, but the sample project's tests still fail.")

    screen.print_heading(5, f"A question in the same session: {_QUESTION}")
    chat = {"prompt": _QUESTION, "sessionId": fixed["sessionId"], "mode": "ask"}
    first, second = fixed["usage"], (await editor.run_turn("thinklsp.chat", chat))["usage"]
    return {key: None if first[key] is None or second[key] is None else first[key] + second[key] for key in first}


async def _play_folder(editor: DemoEditor, folder: str) -> Json:
    """Run the demo in the user's folder. The model proposes an edit, but the editor does not apply it."""
    screen = editor.screen
    screen.print_heading(1, f"An editor opens {folder}")
    screen.print_note(f"started {await editor.initialize()} on standard input and output")
    screen.print_heading(2, f"The editor asks in chat: {_REVIEW}")
    result = await editor.run_turn("thinklsp.chat", {"prompt": _REVIEW})
    _check_edit(editor, result, applied="none")
    screen.print_text()
    screen.print_note("Nothing was written to your folder.")
    usage: Json = result["usage"]
    return usage


async def _request_fix(editor: DemoEditor, line: int, message: str) -> Json:
    """Request code actions for the failing test. Return the command of the `fix` action.

    The failure is sent as a diagnostic, in the same way as an editor's test plugin reports it.
    """
    uri = editor.open_document(_TEST_FILE)
    editor.screen.print_text(f"{_TEST_FILE}, line {line}: {message}", style="red")
    place = {"start": {"line": line - 1, "character": 8}, "end": {"line": line - 1, "character": 200}}
    diagnostic = {"range": place, "message": message, "severity": 1, "source": "unittest"}
    actions = await editor.request_actions(uri, diagnostic)
    for action in actions:
        editor.screen.print_text(f"• {action['title']}")
    for action in actions:
        if action.get("kind") == "quickfix" and "command" in action:
            command: Json = action["command"]
            return command
    raise DemoFailed("The server offered no fix for the failing test.")


def _check_edit(editor: DemoEditor, result: Json, *, applied: str) -> None:
    """Check that the turn sent an edit and that `applied` is the edit's outcome. Raise DemoFailed otherwise."""
    if result["stopReason"] != "end_turn":
        raise DemoFailed(f"The turn ended with {result['stopReason']}, so no edit was sent. {result['text']}".strip())
    if not editor.edits:
        raise DemoFailed("The turn proposed no edit: this scenario changes no files.")
    if result["edits"]["applied"] != applied:
        reasons = "; ".join(filter(None, (file["reason"] for file in result["edits"]["files"])))
        raise DemoFailed(f"The edit arrived but was not applied as expected: {reasons or 'no reason was given'}.")


# The sample project has two bugs in different files. Together, they make totals two cents too low. If only one bug is
# fixed, one of the tests still fails.
_MONEY = '''\
"""Amounts of money: whole cents in calculations, text for input and output."""


def to_cents(price: str) -> int:
    """`"19.99"` is 1999 cents."""
    return int(float(price) * 100)


def shown(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d} €"
'''

_INVOICE = '''\
"""The totals of an invoice."""

from shop.money import shown, to_cents

VAT_PERCENT = 19


def net(items: list[tuple[str, int]]) -> int:
    """Cents without tax, for items of (price, quantity)."""
    return sum(to_cents(price) * quantity for price, quantity in items)


def gross(items: list[tuple[str, int]]) -> int:
    """Cents with tax, which is rounded to the nearest cent."""
    return int(net(items) * (1 + VAT_PERCENT / 100))


def total(items: list[tuple[str, int]]) -> str:
    return shown(gross(items))
'''

_TESTS = """\
import unittest

from shop.invoice import total


class TotalTest(unittest.TestCase):
    def test_nothing_costs_nothing(self):
        self.assertEqual(total([]), "0.00 €")

    def test_round_prices(self):
        self.assertEqual(total([("10.00", 2)]), "23.80 €")

    def test_a_book(self):
        self.assertEqual(total([("19.99", 1)]), "23.79 €")
"""

_TEST_FILE = "tests/test_invoice.py"
PROJECT_FILES = {
    "README.md": "# shop\n\nPrices, tax and invoices. Run the tests with `python -m unittest`.\n",
    "shop/__init__.py": "",
    "shop/money.py": _MONEY,
    "shop/invoice.py": _INVOICE,
    "tests/__init__.py": "",
    _TEST_FILE: _TESTS,
}
_SHOWN_FILES = ("shop/invoice.py", "shop/money.py", _TEST_FILE)

_FAILURE_LOCATION = re.compile(rf'File "[^"]*{re.escape(_TEST_FILE)}", line (\d+)')
_FAILURE_MESSAGE = re.compile(r"^\w*(?:Error|Exception): .*$", re.MULTILINE)
_SHOWN_LINE = re.compile(r"(FAIL|ERROR): |\w*(Error|Exception)\b|Ran \d+|FAILED|OK")


@dataclass(frozen=True, slots=True)
class _TestRun:
    """A test run. `line` (from 1) and `message` describe the first failure, if any."""

    passed: bool
    line: int
    message: str | None


def make_project(folder: str) -> None:
    """Write the sample project to a new folder."""
    for name, text in PROJECT_FILES.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8", newline="") as file:
            file.write(text)


async def _run_tests(editor: DemoEditor, folder: str) -> _TestRun:
    """Run `python -m unittest` in the project and show its output."""
    # Do not write compiled files, because Python does not notice a change of a source file within the same second.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1", "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-m", "unittest"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        env=environment,
    )
    text = (await process.communicate())[0].decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if _SHOWN_LINE.match(line)]
    place, message = _FAILURE_LOCATION.search(text), _FAILURE_MESSAGE.search(text)
    has_passed = process.returncode == 0
    editor.screen.print_command("python -m unittest", lines, good=has_passed)
    return _TestRun(has_passed, int(place[1]) if place else 0, message[0] if place and message else None)
