"""The demo's script, which starts the server and runs a complete turn in the same way as an editor.

The sample project has two bugs in different files. Together, they make totals two cents too low. If only one bug is
fixed, one of the tests still fails.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsprotocol import types

from thinklsp.cli.demo_client import DemoClient, DemoFailed, ServerExited
from thinklsp.cli.demo_editor import DemoEditor
from thinklsp.cli.demo_screen import DemoScreen
from thinklsp.cli.terminal import format_usage_line
from thinklsp.workspace.paths import Root

_QUESTION = "Why did both files have to change?"
_REVIEW = "Review this folder and propose what to do first."

# Prefixes of environment variables to remove, because the user's own settings must not affect the demo.
_USER_VARIABLE_PREFIXES = ("THINKLSP_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_")


async def play_course(screen: DemoScreen, scenario: Mapping[str, str], folder: str, workspace: str | None) -> str:
    """Start a server and run the demo in the user's folder, or in the sample project if `workspace` is None.

    The sample project and the server's own files are written to `folder`. `scenario` contains the environment variables
    that select the scenario. Returns a description of the usage.
    """
    project = os.path.join(folder, "shop") if workspace is None else workspace
    if workspace is None:
        make_project(project)
    client = DemoClient()
    with Root(project) as root, tempfile.TemporaryFile() as log:
        editor = DemoEditor(root, screen, client, writes_files=workspace is None)
        argv = (sys.executable, "-m", "thinklsp")
        try:
            async with client.run_process(
                argv, environment=_build_environment(scenario, folder), folder=folder, log=log
            ):
                return await (_play_sample(editor, root.path) if workspace is None else _play_folder(editor, root.path))
        except ServerExited as gone:
            log.seek(0)
            last_line = log.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise DemoFailed(f"{gone} The last line of its log: {last_line}" if last_line else str(gone)) from None


def _build_environment(scenario: Mapping[str, str], folder: str) -> dict[str, str]:
    """Build environment variables for a server that uses the offline model and writes its files to `folder`."""
    server_variables = {
        **scenario,
        "THINKLSP_PROVIDER": "simulator",
        "THINKLSP_THINKING_DISPLAY": "summary",
        "THINKLSP_CONFIG": os.path.join(folder, "config.toml"),
        "THINKLSP_STATE_DIR": os.path.join(folder, "state"),
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_USER_VARIABLE_PREFIXES)}
    return {**inherited, **_build_python_path(inherited), **server_variables}


def _build_python_path(environment: Mapping[str, str]) -> dict[str, str]:
    """Build the `PYTHONPATH` for a server that runs from a checkout. It is not needed if thinklsp is installed."""
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if home in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (home, environment.get("PYTHONPATH"))))}


async def _play_sample(editor: DemoEditor, folder: str) -> str:
    """Run the demo in the sample project. A code action fixes the project's failing tests.

    A question about the edit follows. Returns a description of the usage.
    """
    screen = editor.screen
    screen.print_heading(1, "A small project with a bug")
    screen.print_note(f"{', '.join(SHOWN_FILES)} in a temporary folder")
    before = await _run_tests(editor, folder)
    if before.passed or before.failure is None:
        raise DemoFailed("The sample project's tests do not fail as expected before the fix.")

    screen.print_heading(2, "An editor opens the failing test and asks for code actions")
    screen.print_note(f"started {await editor.initialize()} on standard input and output")
    command, argument = await _request_fix(editor, before.failure)

    screen.print_heading(3, "The editor runs the code action")
    fixed = await editor.run_turn(command, argument)
    _check_edit(editor, fixed, applied="all")

    screen.print_heading(4, "The tests run again")
    after = await _run_tests(editor, folder)
    if not after.passed:
        raise DemoFailed("The edits were applied, but the sample project's tests still fail.")

    screen.print_heading(5, f"A question in the same session: {_QUESTION}")
    chat = {"prompt": _QUESTION, "sessionId": fixed["sessionId"], "mode": "ask"}
    reply = await editor.run_turn("thinklsp.chat", chat)
    return _format_usage(_add_usage(fixed["usage"], reply["usage"]))


async def _play_folder(editor: DemoEditor, folder: str) -> str:
    """Run the demo in the user's folder. The model proposes an edit, but the editor does not apply it."""
    screen = editor.screen
    screen.print_heading(1, f"An editor opens {folder}")
    screen.print_note(f"started {await editor.initialize()} on standard input and output")
    screen.print_heading(2, f"The editor asks in chat: {_REVIEW}")
    result = await editor.run_turn("thinklsp.chat", {"prompt": _REVIEW})
    _check_edit(editor, result, applied="none")
    screen.print_blank()
    screen.print_note("Nothing was written to your folder.")
    return _format_usage(result["usage"])


async def _run_tests(editor: DemoEditor, folder: str) -> TestRun:
    result = await run_tests(folder)
    editor.screen.print_command("python -m unittest", result.lines, good=result.passed)
    return result


async def _request_fix(editor: DemoEditor, failure: FailedTest) -> tuple[str, Mapping[str, Any]]:
    """Request code actions for the failing test. Return the command of the `fix` action and the command's argument.

    The failure is sent as a diagnostic, in the same way as an editor's test plugin reports it.
    """
    uri = editor.open_document(TEST_FILE)
    editor.screen.print_text(f"{TEST_FILE}, line {failure.line}: {failure.message}", style="red")
    line = failure.line - 1
    place = types.Range(types.Position(line, 8), types.Position(line, 200))
    error = types.DiagnosticSeverity.Error
    actions = await editor.request_actions(
        uri, types.Diagnostic(place, failure.message, severity=error, source="unittest")
    )
    for action in actions:
        editor.screen.print_text(f"• {action.title}")
    for action in actions:
        if isinstance(action, types.CodeAction) and action.kind == types.CodeActionKind.QuickFix and action.command:
            argument: Any = next(iter(action.command.arguments or ()), {})
            return action.command.command, argument
    raise DemoFailed("The server offered no fix for the failing test.")


def _check_edit(editor: DemoEditor, result: Mapping[str, Any], *, applied: str) -> None:
    """Check that the turn sent an edit and that `applied` is the edit's outcome. Raise DemoFailed otherwise."""
    if result["stopReason"] != "end_turn":
        raise DemoFailed(f"The turn ended with {result['stopReason']}, so no edit was sent. {result['text']}".strip())
    if not editor.edits:
        raise DemoFailed("The turn proposed no edit: this scenario changes no files.")
    if result["edits"]["applied"] != applied:
        reasons = "; ".join(filter(None, (file["reason"] for file in result["edits"]["files"])))
        raise DemoFailed(f"The edit arrived but was not applied as expected: {reasons or 'no reason was given'}.")


def _format_usage(usage: Mapping[str, Any]) -> str:
    """Describe the usage of the offline model, which costs nothing."""
    return format_usage_line({**usage, "costUsd": 0.0})


def _add_usage(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Add the usage of two turns. If a value is unknown for one of the turns, the sum is None."""
    return {key: None if first[key] is None or second[key] is None else first[key] + second[key] for key in first}


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

TEST_FILE = "tests/test_invoice.py"
PROJECT_FILES = {
    "README.md": "# shop\n\nPrices, tax and invoices. Run the tests with `python -m unittest`.\n",
    "shop/__init__.py": "",
    "shop/money.py": _MONEY,
    "shop/invoice.py": _INVOICE,
    "tests/__init__.py": "",
    TEST_FILE: _TESTS,
}
SHOWN_FILES = ("shop/invoice.py", "shop/money.py", TEST_FILE)

_FAILURE_LOCATION = re.compile(rf'File "[^"]*{re.escape(TEST_FILE)}", line (\d+)')
_SHOWN_LINE = re.compile(r"(FAIL|ERROR): |\w*(Error|Exception)\b|Ran \d+|FAILED|OK")


@dataclass(frozen=True, slots=True)
class FailedTest:
    """A failed test, with the line number (from 1) and the message of the failure."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class TestRun:
    """A test run, with the output lines to show and the first failure, if any."""

    passed: bool
    lines: tuple[str, ...]
    failure: FailedTest | None


def make_project(folder: str) -> None:
    """Write the sample project to a new folder."""
    for name, text in PROJECT_FILES.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8", newline="") as file:
            file.write(text)


async def run_tests(folder: str) -> TestRun:
    """Run `python -m unittest` in the project."""
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
    output, _ = await process.communicate()
    text = output.decode("utf-8", "replace")
    lines = tuple(line.strip() for line in text.splitlines() if _SHOWN_LINE.match(line))
    return TestRun(process.returncode == 0, lines, _parse_failure(text))


def _parse_failure(text: str) -> FailedTest | None:
    place = _FAILURE_LOCATION.search(text)
    message = re.search(r"^\w*(?:Error|Exception): .*$", text, re.MULTILINE)
    return FailedTest(int(place[1]), message[0]) if place and message else None
