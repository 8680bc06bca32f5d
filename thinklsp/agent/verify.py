"""Verify before offering: at the end of a turn that edits the tests are run on the edits, unless the model has done so.

Where they fail the model is told, at most twice, and may go on; the turn ends with the last outcome, whatever it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from thinklsp.agent.checks import Check, Checks
from thinklsp.agent.prompts import tests_failed
from thinklsp.agent.turn_state import Progress
from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.events import Notice, Reminded, ToolFinished, ToolStarted, TurnEvent
from thinklsp.core.messages import UserMessage
from thinklsp.tools.command import ending, shown_output
from thinklsp.tools.commands import NotPermitted, Ran
from thinklsp.tools.permission import readable
from thinklsp.tools.test_counts import RunOfTests, run_of_tests
from thinklsp.tools.test_runs import recognised
from thinklsp.workspace.overlay import EditOverlay

_MOST_TOLD = 2
_HEAD, _TAIL = 2_000, 8_000
_TOOL = "run_command"


@dataclass(frozen=True, slots=True)
class _Command:
    argv: tuple[str, ...]
    folder: str | None

    def is_that_of(self, check: Check | None) -> bool:
        return check is not None and (check.argv, check.folder) == (self.argv, self.folder)


@dataclass(slots=True)
class Verification:
    """Of one turn. `ran`: its latest own run; `why`: why the tests could not be run."""

    turn: Progress
    checks: Checks
    overlay: EditOverlay
    runs: int = 0
    told: int = 0
    ran: Ran | None = None
    why: str = "the tests were not run."

    async def end(self) -> AsyncGenerator[TurnEvent, None]:
        """At the model's end of turn: TurnFinished last, or Reminded where the model is to go on."""
        if self.turn.config.verify == "off" or not self.overlay.edit_set().files:
            yield self.turn.finished("end_turn")
            return
        known = self.checks.present()
        if known is None or not known.tests.verified.ok:
            command = await self._command()
            if command is not None and not command.is_that_of(known):
                async with aclosing(self._tested(command)) as events:
                    async for event in events:
                        yield event
                        if isinstance(event, Reminded):
                            return
                known = self.checks.present()
        if known is None:
            yield Notice("info", f"Not verified: {self.why}")
            yield self.turn.finished("end_turn")
        else:
            verified = known.tests.verified
            yield Notice("info" if verified.ok else "warning", verified.sentence())
            yield self.turn.finished("end_turn", verified)

    async def _command(self) -> _Command | None:
        """What tests the edits: as it is recognised, else as the model last did; first what needs no question."""
        found = await asyncio.to_thread(recognised, self.overlay)
        choices = [] if found is None else [_Command(argv, found.folder) for argv in found.spellings]
        if (latest := self.checks.latest) is not None:
            choices.append(_Command(latest.argv, latest.folder))
        for command in choices:
            if await self.checks.permitted(command.argv, command.folder):
                return command
        if not choices:
            self.why = "no command that tests this workspace was found."
            return None
        self.why = f"you have not permitted `{readable(choices[0].argv)}`. verify = always asks for it."
        return choices[0] if self.turn.config.verify == "always" else None

    async def _tested(self, command: _Command) -> AsyncGenerator[TurnEvent, None]:
        """The run; ends with Reminded where the tests fail and the model may go on."""
        async with aclosing(self._run(command, self.overlay)) as events:
            async for event in events:
                yield event
        known, ran = self.checks.present(), self.ran
        if known is None or ran is None or known.tests.verified.ok or not self._may_go_on():
            return
        before: RunOfTests | None = None
        # A question for each run would be one too many.
        if await self.checks.permitted(command.argv, command.folder):
            async with aclosing(self._run(command, EditOverlay(self.overlay.view), " without the edits")) as events:
                async for event in events:
                    yield event
            before = None if self.ran is None else run_of_tests(command.argv, self.ran)
        self.told += 1 if _is_new(known.tests, before) else _MOST_TOLD
        message = UserMessage.of(tests_failed(known.tests, before, shown_output(ran, _HEAD, _TAIL)))
        self.turn.conversation = (*self.turn.conversation, message)
        yield Reminded(message)

    async def _run(self, command: _Command, overlay: EditOverlay, how: str = "") -> AsyncGenerator[TurnEvent, None]:
        self.runs += 1
        self.ran = None
        call, title = f"verify-{self.runs}", f"run {readable(command.argv)}{how}"
        yield ToolStarted(call, _TOOL, title)
        try:
            self.ran = await self.checks.run(command.argv, overlay, folder=command.folder, seconds=None, fresh=True)
            self.why = f"`{readable(command.argv)}` {ending(self.ran)} without having run a test."
        except NotPermitted:
            self.why = f"you have not permitted `{readable(command.argv)}`."
        except (ToolFailed, PathRefused) as error:
            self.why = str(error)
        yield ToolFinished(call, _TOOL, title, is_error=self.ran is None or self.ran.status != 0)

    def _may_go_on(self) -> bool:
        return self.told < _MOST_TOLD and self.turn.steps_left > 0


def _is_new(tests: RunOfTests, before: RunOfTests | None) -> bool:
    """Whether more fails than did without the edits."""
    if before is None or before.verified.ok:
        return True
    if tests.failures and before.failures:
        return not set(tests.failures) <= set(before.failures)
    return (tests.verified.failed or 0) > (before.verified.failed or 0)
