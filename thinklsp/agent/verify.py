"""Verification, which tests a turn's edits at the end of the turn.

If tests fail, the model receives the failures and can continue, at most twice. The turn ends with the outcome of the
last test run. Tests that the model has already run are not repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from thinklsp.agent.budget import Emit
from thinklsp.agent.prompts import format_test_failures
from thinklsp.core.check_results import VerificationOutcome
from thinklsp.core.choices import Verify
from thinklsp.core.edits import EditSet
from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.events import Notice, ToolFinished, ToolStarted
from thinklsp.core.messages import UserMessage
from thinklsp.sandbox.process import CommandResult
from thinklsp.tools.command import describe_ending, format_output
from thinklsp.tools.runners import ParsedTestRun, find_tests, format_command, parse_test_run
from thinklsp.tools.tool import Commands, NotPermitted
from thinklsp.workspace.overlay import EditOverlay

_MAX_REMINDERS = 2
_HEAD_CHARACTERS, _TAIL_CHARACTERS = 2_000, 8_000
_TOOL_NAME = "run_command"


@dataclass(frozen=True, slots=True)
class TestCommand:
    """A command that runs tests. `folder` is None for the root of the first workspace folder."""

    argv: tuple[str, ...]
    folder: str | None


@dataclass(frozen=True, slots=True)
class TrackedTestRun:
    """A test run on an edit set. `is_clean` is true if the tested files contained only these edits."""

    command: TestCommand
    edits: EditSet
    tests: ParsedTestRun
    is_clean: bool


class EditVerification:
    """A turn's commands, and the verification of its edits according to the setting `verify`.

    The latest test run is recorded. It counts only for the edits that it tested.
    """

    def __init__(self, commands: Commands, overlay: EditOverlay, verify: Verify, emit: Emit) -> None:
        self._commands = commands
        self._overlay = overlay
        self._verify = verify
        self._emit = emit
        self._latest_run: TrackedTestRun | None = None
        self._runs = self._reminders = 0
        self._reason = "the tests were not run."

    async def is_permitted(self, argv: Sequence[str], folder: str | None) -> bool:
        return await self._commands.is_permitted(argv, folder)

    async def run(
        self,
        argv: Sequence[str],
        overlay: EditOverlay,
        *,
        folder: str | None,
        seconds: float | None,
        fresh: bool = False,
    ) -> CommandResult:
        edits = overlay.build_edit_set()
        ran = await self._commands.run(argv, overlay, folder=folder, seconds=seconds, fresh=fresh)
        tests = parse_test_run(argv, ran)
        if tests is not None and overlay is self._overlay:
            self._latest_run = TrackedTestRun(TestCommand(tuple(argv), folder), edits, tests, ran.is_clean)
        return ran

    def _find_current_run(self) -> TrackedTestRun | None:
        """Return the latest test run if it tested exactly the current edits, or None."""
        latest = self._latest_run
        is_current = latest is not None and latest.is_clean and latest.edits == self._overlay.build_edit_set()
        return latest if is_current else None

    async def verify(self, *, can_continue: bool) -> VerificationOutcome | UserMessage | None:
        """Run the tests at the end of a turn. Return the outcome, or None if no tests ran.

        If tests fail and the turn can continue, return a message for the model that describes the failures.
        """
        if self._verify == "off" or not self._overlay.build_edit_set().files:
            return None
        latest = self._find_current_run()
        if latest is None or not latest.tests.outcome.ok:
            command = await self._find_command()
            if command is not None and (latest is None or command != latest.command):
                reminder = await self._run_tests(command, can_continue=can_continue)
                if reminder is not None:
                    return reminder
                latest = self._find_current_run()
        if latest is None:
            await self._emit(Notice("info", f"Not verified: {self._reason}"))
            return None
        verified = latest.tests.outcome
        await self._emit(Notice("info" if verified.ok else "warning", verified.format_sentence()))
        return verified

    async def _find_command(self) -> TestCommand | None:
        """Return a detected test command or the model's last test command, or None.

        Commands that run without asking the user have priority.
        """
        runner = await asyncio.to_thread(find_tests, self._overlay)
        choices = [] if runner is None else [TestCommand(argv, runner.folder) for argv in runner.commands]
        if (latest := self._latest_run) is not None:
            choices.append(latest.command)
        for command in choices:
            if await self.is_permitted(command.argv, command.folder):
                return command
        if not choices:
            self._reason = "no test command was found for this workspace."
            return None
        self._reason = (
            f"you have not permitted `{format_command(choices[0].argv)}`. Set `verify` to `always` to be asked."
        )
        return choices[0] if self._verify == "always" else None

    async def _run_tests(self, command: TestCommand, *, can_continue: bool) -> UserMessage | None:
        """Run the tests. Return a message for the model if tests fail and the model can continue."""
        ran = await self._run_command(command, self._overlay)
        latest = self._find_current_run()
        is_at_end = self._reminders >= _MAX_REMINDERS or not can_continue
        if latest is None or ran is None or latest.tests.outcome.ok or is_at_end:
            return None
        before: ParsedTestRun | None = None
        # Also run the tests without the edits, unless this requires another question to the user.
        if await self.is_permitted(command.argv, command.folder):
            without = await self._run_command(command, EditOverlay(self._overlay.view), " without the edits")
            before = None if without is None else parse_test_run(command.argv, without)
        self._reminders += 1 if _has_new_failures(latest.tests, before) else _MAX_REMINDERS
        return UserMessage.from_text(
            format_test_failures(latest.tests, before, format_output(ran, _HEAD_CHARACTERS, _TAIL_CHARACTERS))
        )

    async def _run_command(
        self, command: TestCommand, overlay: EditOverlay, title_suffix: str = ""
    ) -> CommandResult | None:
        self._runs += 1
        ran: CommandResult | None = None
        call, title = f"verify-{self._runs}", f"run {format_command(command.argv)}{title_suffix}"
        await self._emit(ToolStarted(call, _TOOL_NAME, title))
        try:
            ran = await self.run(command.argv, overlay, folder=command.folder, seconds=None, fresh=True)
            self._reason = f"`{format_command(command.argv)}` {describe_ending(ran)}, but ran no tests."
        except NotPermitted:
            self._reason = f"you have not permitted `{format_command(command.argv)}`."
        except (ToolFailed, PathRefused) as error:
            self._reason = str(error)
        await self._emit(ToolFinished(call, _TOOL_NAME, title, is_error=ran is None or ran.status != 0))
        return ran


def _has_new_failures(tests: ParsedTestRun, before: ParsedTestRun | None) -> bool:
    """Return True if tests fail with the edits but not without them."""
    if before is None or before.outcome.ok:
        return True
    if tests.failures and before.failures:
        return not set(tests.failures) <= set(before.failures)
    return (tests.outcome.failed or 0) > (before.outcome.failed or 0)
