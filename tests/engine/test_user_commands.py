"""Who is asked before a command runs, what their answer is good for, and when commands can be run at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_engine import KEY, PLAIN, action, place, play, run, spec
from tests.support.scripted_model import give_no_answer, says, tool
from tests.support.shadowing import PlainRunner, make_runner
from thinklsp.core.choices import ALLOW_FOR_SESSION, DO_NOT_RUN, RUN_ONCE
from thinklsp.core.messages import UserMessage
from thinklsp.engine import CompactRequest, Engine
from thinklsp.engine.user_commands import UserCommands
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.settings.sources import load_user_settings
from thinklsp.settings.user_file import ActionSection
from thinklsp.tools.command import Approval
from thinklsp.tools.registry import TOOLS_WITH_COMMANDS
from thinklsp.tools.tool import NotPermitted
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import WorkspaceView

TRUE, ECHO = ["true"], ["echo", "hi"]
EXACTLY = "Always allow exactly this command"


@dataclass
class Desk:
    """A user with their files, who answers what the test says, and dismisses what it does not."""

    config: Path
    root: Root
    answers: list[str | None] = field(default_factory=list)
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    granted: set[Approval] = field(default_factory=set)
    runner: PlainRunner = field(default_factory=PlainRunner)

    @property
    def kept(self) -> Path:
        return self.config.with_name("permissions.toml")

    async def run(self, argv: list[str], *, seconds: float | None = None, folder: str | None = None) -> None:
        """As in a turn of its own."""
        user = load_user_settings({"THINKLSP_CONFIG": str(self.config)})
        permissions = PermissionsFile.locate_beside(user.path)
        commands = UserCommands(self.runner, user, permissions, self.granted, self._ask)
        view = WorkspaceView([self.root])
        before = len(self.asked)
        free = await commands.is_permitted(argv, folder)
        try:
            await commands.run(argv, EditOverlay(view), folder=folder, seconds=seconds)
        finally:
            assert not (free and len(self.asked) > before)

    async def refuses(self, argv: list[str], *, match: str | None = None, folder: str | None = None) -> None:
        with pytest.raises(NotPermitted, match=match):
            await self.run(argv, folder=folder)

    async def _ask(self, question: str, options: tuple[str, ...]) -> str | None:
        self.asked.append((question, options))
        return self.answers.pop(0) if self.answers else None


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    (tmp_path / "ws").mkdir()
    with Root(str(tmp_path / "ws")) as root:
        yield Desk(tmp_path / "config.toml", root)


async def test_once_is_for_one_run(desk: Desk) -> None:
    desk.answers = [RUN_ONCE]
    await desk.run(TRUE)
    await desk.refuses(TRUE)
    assert [len(desk.asked), len(desk.runner.runs)] == [2, 1]
    question, options = desk.asked[0]
    assert '\n\n"true"\n\n' in question
    assert "in a sandbox, on a copy" in question
    assert options == (RUN_ONCE, ALLOW_FOR_SESSION, EXACTLY, DO_NOT_RUN)
    assert not desk.kept.exists()


async def test_a_session_keeps_its_yes_for_this_command_alone(desk: Desk) -> None:
    desk.answers = [ALLOW_FOR_SESSION]
    for _ in range(2):
        await desk.run(TRUE)
    for argv in (ECHO, ["true", "x"]):
        await desk.refuses(argv)
    await desk.refuses(TRUE, folder=".")
    assert len(desk.asked) == 4
    desk.granted.clear()
    await desk.refuses(TRUE)
    assert not desk.kept.exists()


@pytest.mark.parametrize("answer", [None, DO_NOT_RUN, "", "run once", "Yes", "Always allow true"])
async def test_every_other_answer_is_a_no(desk: Desk, answer: str | None) -> None:
    desk.answers = [answer]
    await desk.refuses(TRUE, match="did not allow")
    assert desk.runner.runs == []


async def test_always_is_written_down(desk: Desk) -> None:
    always = "Always allow python3 -m unittest"
    desk.answers = [EXACTLY, always]
    await desk.run(TRUE)
    await desk.run(["python3", "-m", "unittest", "-v"])
    assert desk.asked[1][1] == (RUN_ONCE, ALLOW_FOR_SESSION, always, DO_NOT_RUN)
    assert PermissionsFile(str(desk.kept)).read().commands.model_dump() == {
        "allow": (("python3", "-m", "unittest"),), "deny": (), "exact": (("true",),),
    }  # fmt: skip
    desk.granted.clear()
    await desk.run(TRUE)
    await desk.run(["python3", "-m", "unittest", "-q"])
    assert len(desk.asked) == 2
    await desk.refuses(["true", "x"])


async def test_a_yes_that_cannot_be_written_holds_for_the_session(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.answers = [EXACTLY]
    desk.kept.symlink_to("/proc/1/nowhere/permissions.toml")
    for _ in range(2):
        await desk.run(TRUE)
    assert "for this session only" in caplog.text


async def test_rules_of_both_files_count_and_deny_wins(desk: Desk) -> None:
    desk.config.write_text('[permissions]\nallow = [["true"], ["echo"]]\ndeny = [["cat"]]\n')
    desk.kept.write_text('[commands]\ndeny = [["echo"]]\nexact = [["cat"]]\n')
    await desk.run(TRUE)
    for argv in (ECHO, ["cat"], ["/bin/cat"]):
        await desk.refuses(argv, match="rules forbid")
    assert desk.asked == []


async def test_a_broken_file_denies_everything(desk: Desk) -> None:
    desk.config.write_text('[permissions]\nallow = [["true"]]\n')
    desk.kept.write_text("allow = [")
    desk.granted.add(Approval(("true",)))
    await desk.refuses(TRUE, match=r"Commands cannot run: Your permissions\.toml is not valid TOML")
    assert (desk.asked, desk.runner.runs) == ([], [])


async def test_nobody_is_asked_about_what_is_odd(desk: Desk) -> None:
    for argv in (["cd", ".git"], ["x"] * 51, ["a\u202eb"]):
        await desk.refuses(argv)
    assert (desk.asked, desk.runner.runs) == ([], [])


async def test_the_users_limit_of_time_is_the_most(desk: Desk) -> None:
    desk.config.write_text('[commands]\ntimeout_seconds = 60\n[permissions]\nallow = [["true"]]\n')
    for seconds in (None, 5, 600):
        await desk.run(TRUE, seconds=seconds)
    assert [seconds for _, _, seconds in desk.runner.runs] == [60, 5, 60]


@pytest.fixture
async def enabled(tmp_path: Path) -> AsyncIterator[Engine]:
    config = tmp_path / "config.toml"
    config.write_text("[commands]\nenabled = true\n")
    made = Engine({"THINKLSP_CONFIG": str(config), "ANTHROPIC_API_KEY": KEY}, runner_factory=make_runner)
    yield made
    await made.aclose()


async def test_commands_are_offered_if_enabled_and_possible(enabled: Engine, tmp_path: Path) -> None:
    (tmp_path / "off.toml").write_text("[commands]\nenabled = false\n")
    key = {"ANTHROPIC_API_KEY": KEY}
    off = Engine(key | {"THINKLSP_CONFIG": str(tmp_path / "off.toml")}, runner_factory=make_runner)
    nowhere = Engine(key | {"THINKLSP_CONFIG": str(tmp_path / "config.toml")}, runner_factory=give_no_answer)
    for engine, offered in ((enabled, True), (off, False), (nowhere, False)):
        with await engine.start_turn(spec(), PLAIN, {}) as turn:
            assert ("run_command" in [each.name for each in turn.config.tools]) is offered
            assert (turn.commands is not None, turn.config.verify) == (offered, "auto" if offered else "off")
    await off.aclose()
    await nowhere.aclose()


def own_action(tools: str) -> Any:
    own = ActionSection.model_validate({"name": "own", "title": "Own", "prompt": "Go.", "tools": tools})
    return action("own", place(), own_action=own)


# What is asked for, and whether its edits are tested by default and where that is always wanted.
VERIFIED = {
    **{name: (action(name, place()), "auto", "always") for name in ("fix", "edit", "complete", "test")},
    **{name: (action(name, place()), "off", "always") for name in ("document", "simplify")},
    **{name: (action(name, place()), "off", "off") for name in ("explain", "review")},
    "own, with all tools": (own_action("all"), "auto", "always"),
    **{f"own, with {tools} tools": (own_action(tools), "off", "off") for tools in ("read", "none")},
    "a question": (spec(mode="ask"), "off", "off"),
    "compaction": (spec(kind=CompactRequest), "off", "off"),
}


@pytest.mark.parametrize("name", VERIFIED)
async def test_what_is_verified(enabled: Engine, name: str) -> None:
    request, *expected = VERIFIED[name]
    for settings, verify in zip(({}, {"verify": "always"}), expected, strict=True):
        with await enabled.start_turn(request, PLAIN.apply_configuration(settings)[0], {}) as turn:
            # The same tools in every mode: the conversation could else not go on.
            assert (turn.config.verify, turn.config.tools) == (verify, TOOLS_WITH_COMMANDS)


async def test_reading_turn_runs_nothing_and_runner_is_closed(enabled: Engine) -> None:
    for mode, words in (("ask", "read-only"), ("agent", "did not allow")):
        turn = await enabled.start_turn(spec(mode=mode), PLAIN, {})
        play(turn, says(tool("c", "run_command", {"argv": ["true"]})), says("Done."))
        await run(turn)
        results = turn.session.conversation[2]
        assert isinstance(results, UserMessage)
        assert words in results.blocks[0].text  # type: ignore[union-attr] # it is a result
        assert turn.commands is not None
        runner = turn.commands.runner
        assert isinstance(runner, PlainRunner)
        assert (runner.runs, runner.closed) == ([], True)


async def test_what_a_session_was_granted_is_not_another_sessions(enabled: Engine) -> None:
    async def approvals(session_id: str | None = None) -> tuple[str, set[Approval]]:
        with await enabled.start_turn(spec(session_id=session_id), PLAIN, {}) as turn:
            assert turn.commands is not None
            return turn.session.id, turn.commands.session_approvals

    session, granted = await approvals()
    granted.add(Approval(("true",)))
    assert (await approvals())[1] == set()
    assert (await approvals(session))[1] == {Approval(("true",))}
