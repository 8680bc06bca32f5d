"""Verify before offering: when the tests are run on a turn's edits, what the model is told, and what comes out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.scripted_model import Answer, check_sendable, says, tool
from tests.support.scripted_turn import ScriptedTurn
from tests.support.shadowing import PlainRunner
from thinklsp.agent.budget import BudgetLimits
from thinklsp.agent.prompts import TESTS_FAILED
from thinklsp.agent.summary import split_turns
from thinklsp.core.choices import Verify
from thinklsp.core.events import (
    ReminderAdded,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from thinklsp.core.messages import TextBlock, describe_text
from thinklsp.sandbox.process import CommandResult
from thinklsp.tools.registry import TOOLS_WITH_COMMANDS, Mode
from thinklsp.tools.tool import NotPermitted
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import WorkspaceView

TESTS = """\
import unittest
from app import add

class T(unittest.TestCase):
    def test_add(self): self.assertEqual(add(1, 1), 2)
    def test_old(self): self.assertEqual(1, OLD)
"""
UNITTEST = ("python3", "-m", "unittest")
WRONG, RIGHT = "def add(a, b): return a - b\n", "def add(a, b): return a + b\n"


def writes(text: str, call: str = "w") -> Answer:
    return says(tool(call, "write_file", {"path": "app.py", "content": text}))


def runs(*argv: str, call: str = "r") -> Answer:
    return says(tool(call, "run_command", {"argv": list(argv)}))


@dataclass
class Rules:
    """Commands that are permitted without a question, and those that a question would permit."""

    runner: PlainRunner
    free: set[tuple[str, ...]]
    yes: set[tuple[str, ...]] = field(default_factory=set)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    async def is_permitted(self, argv: Sequence[str], folder: str | None) -> bool:
        return tuple(argv) in self.free

    async def run(
        self,
        argv: Sequence[str],
        overlay: EditOverlay,
        *,
        folder: str | None,
        seconds: float | None,
        fresh: bool = False,
    ) -> CommandResult:
        if tuple(argv) not in self.free:
            self.asked.append(tuple(argv))
            if tuple(argv) not in self.yes:
                raise NotPermitted("No.")
        return await self.runner.run(argv, overlay, folder=folder, seconds=seconds or 60, fresh=fresh)


@dataclass
class Played:
    """A turn on a project whose function is wrong, and what came of it."""

    root: Root
    path: Path
    runner: PlainRunner = field(default_factory=PlainRunner)

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)
        (self.path / name).chmod(0o755)

    def remove(self, name: str) -> None:
        (self.path / name).unlink()

    async def play(
        self,
        *script: Answer,
        verify: Verify = "auto",
        free: Sequence[tuple[str, ...]] = (UNITTEST,),
        yes: Sequence[tuple[str, ...]] = (),
        mode: Mode = "agent",
        max_steps: int = 20,
    ) -> None:
        self.rules = Rules(self.runner, set(free), set(yes))
        view = WorkspaceView([self.root])
        place = view.resolve("app.py")
        text = view.peek(place)
        self.turn = ScriptedTurn(
            script,
            view=view,
            prompt="Repair add.",
            sight=(describe_text(place.key, None if text is None else text.text, is_whole=True),),
            limits=BudgetLimits(max_steps),
            mode=mode,
            tools=TOOLS_WITH_COMMANDS,
            verify=verify,
            commands=self.rules,
        )
        await self.turn.play()
        self.turn.check_next()
        # Within one loop tools and thinking are the same, and history only grows.
        for earlier, later in pairwise(self.turn.caller.requests):
            assert later.conversation[: len(earlier.conversation)] == earlier.conversation
            assert (later.tools, later.thinking, later.system) == (earlier.tools, earlier.thinking, earlier.system)

    @property
    def finished(self) -> TurnFinished:
        assert self.turn.finished.stop_reason == "end_turn"
        return self.turn.finished

    @property
    def verified(self) -> tuple[str, bool, int | None, int | None] | None:
        found = self.finished.test_outcome
        return None if found is None else (found.command, found.ok, found.passed, found.failed)

    @property
    def said(self) -> list[str]:
        return self.turn.notices

    @property
    def told(self) -> list[str]:
        """What the model was told of tests that fail."""
        texts = []
        for event in self.turn.events:
            if isinstance(event, ReminderAdded):
                [block] = event.message.blocks
                assert isinstance(block, TextBlock)
                texts.append(block.text)
        return texts

    @property
    def commands(self) -> list[tuple[str, ...]]:
        return [argv for argv, _, _ in self.runner.runs]


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Played]:
    (tmp_path / "ws").mkdir()
    with Root(str(tmp_path / "ws")) as root:
        played = Played(root, tmp_path / "ws")
        played.write("app.py", WRONG)
        played.write("test_app.py", TESTS.replace("OLD", "1"))
        yield played


async def test_edits_are_tested_before_they_are_offered(project: Played) -> None:
    await project.play(writes(RIGHT), says("Repaired."))
    assert project.verified == ("python3 -m unittest", True, 2, 0)
    assert project.commands == [UNITTEST]
    [sentence] = project.said
    assert sentence.startswith("Verified: `python3 -m unittest` – 2 passed in ")
    shown = [event for event in project.turn.events if isinstance(event, ToolStarted | ToolFinished)]
    assert [(type(event).__name__, event.title) for event in shown[2:]] == [
        ("ToolStarted", "run python3 -m unittest"),
        ("ToolFinished", "run python3 -m unittest"),
    ]
    assert (project.path / "app.py").read_text() == WRONG


async def test_what_the_model_has_tested_itself_counts(project: Played) -> None:
    await project.play(writes(RIGHT), runs(*UNITTEST, "-v"), says("Done."), free=[UNITTEST, (*UNITTEST, "-v")])
    assert project.verified == ("python3 -m unittest -v", True, 2, 0)
    assert project.commands == [(*UNITTEST, "-v")]


async def test_an_edit_after_a_test_run_makes_it_stale(project: Played) -> None:
    script = writes(RIGHT), runs(*UNITTEST, "-v"), writes(RIGHT + "# more\n", "w2")
    await project.play(*script, says("Done."), free=[(*UNITTEST, "-v")])
    # What the model ran is run again, as it may be and nothing better is.
    assert project.commands == [(*UNITTEST, "-v")] * 2
    await project.play(*script, says("Done."), free=[], yes=[(*UNITTEST, "-v")])
    assert project.verified is None
    assert project.said[-1].startswith("Not verified: you have not permitted `python3 -m unittest`")


async def test_an_edit_taken_back_makes_it_count_again(project: Played) -> None:
    await project.play(
        writes(RIGHT), runs(*UNITTEST), writes(WRONG, "w2"), writes(RIGHT, "w3"), says("Done."), free=[UNITTEST]
    )
    assert project.verified == ("python3 -m unittest", True, 2, 0)
    assert project.commands == [UNITTEST]


async def test_a_failing_test_is_told_and_may_be_repaired(project: Played) -> None:
    await project.play(writes("def add(a, b): return 7\n"), says("Done."), writes(RIGHT, "w2"), says("Now it is."))
    assert project.verified == ("python3 -m unittest", True, 2, 0)
    assert project.finished.text == "Now it is."
    [told] = project.told
    assert told.startswith(TESTS_FAILED)
    assert "Failed: test_add (test_app.T.test_add)" in told
    assert "Failed without your edits as well: test_add" in told
    assert "AssertionError: 7 != 2" in told
    # With the edits, without them, and with the better ones.
    assert project.commands == [UNITTEST] * 3
    assert len(split_turns(project.turn.session.conversation)) == 1


async def test_the_model_is_told_at_most_twice(project: Played) -> None:
    project.write("app.py", RIGHT)
    script = [
        answer
        for number in range(5)
        for answer in (writes(f"def add(a, b): return {number + 5}\n", f"w{number}"), says("Done."))
    ]
    await project.play(*script)
    assert len(project.told) == 2
    assert "Without your edits all of them pass." in project.told[0]
    assert project.verified == ("python3 -m unittest", False, 1, 1)
    assert project.said[-1].startswith("Not verified: `python3 -m unittest` – 1 failed, 1 passed in ")
    assert len(project.turn.caller.requests) == 6


async def test_what_failed_before_is_told_once_and_does_not_loop(project: Played) -> None:
    project.write("app.py", RIGHT)
    project.write("test_app.py", TESTS.replace("OLD", "2"))
    await project.play(
        writes(RIGHT + "# better\n"), says("Done."), writes(RIGHT + "# best\n", "w2"), says("The other failed before.")
    )
    [told] = project.told
    assert "Failed without your edits as well: test_old" in told
    assert project.verified == ("python3 -m unittest", False, 1, 1)
    # A second answer without another edit is not even tested again.
    project.runner.runs.clear()
    await project.play(writes(RIGHT + "# better\n"), says("Done."), says("It failed before."))
    assert project.commands == [UNITTEST] * 2
    assert project.finished.text == "It failed before."
    assert project.verified == ("python3 -m unittest", False, 1, 1)


async def test_a_model_that_saw_its_tests_fail_is_not_told_again(project: Played) -> None:
    await project.play(writes("def add(a, b): return 7\n"), runs(*UNITTEST), says("I could not."))
    assert (project.told, project.commands) == ([], [UNITTEST])
    assert project.verified == ("python3 -m unittest", False, 1, 1)


async def test_the_last_step_of_a_turn_is_its_end(project: Played) -> None:
    await project.play(writes("def add(a, b): return 7\n"), says("Done."), max_steps=2)
    assert project.told == []
    assert project.verified == ("python3 -m unittest", False, 1, 1)


NOT_TESTED: dict[str, tuple[Verify, list[tuple[str, ...]], int, str]] = {
    "off": ("off", [UNITTEST], 0, ""),
    "not permitted": (
        "auto",
        [],
        0,
        "you have not permitted `python3 -m unittest`. Set `verify` to `always` to be asked.",
    ),
    "refused": ("always", [], 1, "you have not permitted `python3 -m unittest`."),
}


@pytest.mark.parametrize("name", NOT_TESTED)
async def test_what_is_not_permitted_is_not_run(project: Played, name: str) -> None:
    verify, free, asked, said = NOT_TESTED[name]
    await project.play(writes(RIGHT), says("Done."), verify=verify, free=free)
    assert (project.verified, project.commands, len(project.rules.asked)) == (None, [], asked)
    assert project.said == ([f"Not verified: {said}"] if said else [])


async def test_always_asks_no_second_time_for_the_state_before(project: Played) -> None:
    await project.play(
        writes("def add(a, b): return 7\n"), says("Done."), says("Stays."), verify="always", free=[], yes=[UNITTEST]
    )
    assert project.rules.asked == [UNITTEST]
    assert project.verified == ("python3 -m unittest", False, 1, 1)


@pytest.mark.parametrize("script", [[says("Nothing to do.")], [writes(WRONG), says("As it was.")]])
async def test_without_edits_nothing_is_run(project: Played, script: list[Answer]) -> None:
    await project.play(*script, verify="always")
    assert (project.verified, project.commands, project.said) == (None, [], [])


async def test_a_workspace_without_tests_is_said(project: Played) -> None:
    project.remove("test_app.py")
    await project.play(writes(RIGHT), says("Done."))
    assert project.said == ["Not verified: no test command was found for this workspace."]


async def test_tests_that_could_not_run_are_said(project: Played) -> None:
    own = (".venv/bin/python", "-m", "unittest")
    for content, said in (
        ("#!/bin/sh\nexit 3\n", "`.venv/bin/python -m unittest` exited with status 3, but ran no tests."),
        ("#!/nowhere\n", "`.venv/bin/python` cannot be started: No such file or directory."),
    ):
        project.write(".venv/bin/python", content)
        await project.play(writes(RIGHT), says("Done."), free=[own])
        assert (project.verified, project.said) == (None, [f"Not verified: {said}"])


async def test_a_cancel_ends_the_run(project: Played) -> None:
    project.write("test_app.py", "import unittest, time\ntime.sleep(600)\n")
    task = asyncio.create_task(project.play(writes(RIGHT), says("Done.")))
    async with asyncio.timeout(60):
        await project.runner.running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    # The step is committed: what the model said is not lost.
    assert project.turn.session.steps == 2
    check_sendable(project.turn.session.cut_short().add_user_message("Go on.").conversation)
