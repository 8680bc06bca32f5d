"""Who is asked before a command runs, what their answer is good for, and when commands can be run at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.engine.test_engine import KEY, PLAIN, play, run, spec
from tests.support.plain_runner import PlainRunner, make_runner
from tests.support.scripted_model import says, tool
from thinklsp.core.messages import UserMessage
from thinklsp.engine import ActionTask, CompactTask, Engine, Reference
from thinklsp.engine.commands import DENY, ONCE, SESSION, UserCommands
from thinklsp.settings import load_user_settings
from thinklsp.settings.own_actions import ActionSection
from thinklsp.settings.permissions import Permissions
from thinklsp.tools.commands import NotPermitted
from thinklsp.tools.permission import Approval
from thinklsp.tools.registry import WITH_COMMANDS
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import WorkspaceFolder, WorkspaceView

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
        commands = UserCommands(self.runner, user, self.granted).asking(self._ask)
        view = WorkspaceView([(WorkspaceFolder("file:///x", "x"), self.root)])
        before = len(self.asked)
        free = await commands.permitted(argv, folder)
        try:
            await commands.run(argv, EditOverlay(view), folder=folder, seconds=seconds)
        finally:
            assert not (free and len(self.asked) > before)

    async def _ask(self, question: str, options: tuple[str, ...]) -> str | None:
        self.asked.append((question, options))
        return self.answers.pop(0) if self.answers else None


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    (tmp_path / "ws").mkdir()
    with Root(str(tmp_path / "ws")) as root:
        yield Desk(tmp_path / "config.toml", root)


async def test_once_is_for_one_run(desk: Desk) -> None:
    desk.answers = [ONCE]
    await desk.run(TRUE)
    with pytest.raises(NotPermitted):
        await desk.run(TRUE)
    assert [len(desk.asked), len(desk.runner.runs)] == [2, 1]
    question, options = desk.asked[0]
    assert '\n\n"true"\n\n' in question
    assert "in a sandbox, on a copy" in question
    assert options == (ONCE, SESSION, EXACTLY, DENY)
    assert not desk.kept.exists()


async def test_a_session_keeps_its_yes_for_this_command_alone(desk: Desk) -> None:
    desk.answers = [SESSION]
    for _ in range(2):
        await desk.run(TRUE)
    for argv in (ECHO, ["true", "x"]):
        with pytest.raises(NotPermitted):
            await desk.run(argv)
    with pytest.raises(NotPermitted):
        await desk.run(TRUE, folder=".")
    assert len(desk.asked) == 4
    desk.granted.clear()
    with pytest.raises(NotPermitted):
        await desk.run(TRUE)
    assert not desk.kept.exists()


@pytest.mark.parametrize("answer", [None, DENY, "", "run once", "Yes", "Always allow true"])
async def test_every_other_answer_is_a_no(desk: Desk, answer: str | None) -> None:
    desk.answers = [answer]
    with pytest.raises(NotPermitted, match="did not permit"):
        await desk.run(TRUE)
    assert desk.runner.runs == []


async def test_always_is_written_down(desk: Desk) -> None:
    always = "Always allow python3 -m unittest"
    desk.answers = [EXACTLY, always]
    await desk.run(TRUE)
    await desk.run(["python3", "-m", "unittest", "-v"])
    assert desk.asked[1][1] == (ONCE, SESSION, always, DENY)
    assert Permissions(str(desk.kept)).read().commands.model_dump() == {
        "allow": (("python3", "-m", "unittest"),), "deny": (), "exact": (("true",),),
    }  # fmt: skip
    desk.granted.clear()
    await desk.run(TRUE)
    await desk.run(["python3", "-m", "unittest", "-q"])
    assert len(desk.asked) == 2
    with pytest.raises(NotPermitted):
        await desk.run(["true", "x"])


async def test_a_yes_that_cannot_be_written_holds_for_the_session(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.answers = [EXACTLY]
    desk.kept.symlink_to("/proc/1/nowhere/permissions.toml")
    for _ in range(2):
        await desk.run(TRUE)
    assert "for the session only" in caplog.text


async def test_rules_of_both_files_count_and_deny_wins(desk: Desk) -> None:
    desk.config.write_text('[permissions]\nallow = [["true"], ["echo"]]\ndeny = [["cat"]]\n')
    desk.kept.write_text('[commands]\ndeny = [["echo"]]\nexact = [["cat"]]\n')
    await desk.run(TRUE)
    for argv in (ECHO, ["cat"], ["/bin/cat"]):
        with pytest.raises(NotPermitted, match="rules forbid"):
            await desk.run(argv)
    assert desk.asked == []


async def test_a_broken_file_denies_everything(desk: Desk) -> None:
    desk.config.write_text('[permissions]\nallow = [["true"]]\n')
    desk.kept.write_text("allow = [")
    desk.granted.add(Approval(("true",)))
    with pytest.raises(NotPermitted, match=r"No command may run: Your permissions\.toml is not valid TOML"):
        await desk.run(TRUE)
    assert (desk.asked, desk.runner.runs) == ([], [])


async def test_nobody_is_asked_about_what_is_odd(desk: Desk) -> None:
    for argv in (["cd", ".git"], ["x"] * 51, ["a\u202eb"]):
        with pytest.raises(NotPermitted):
            await desk.run(argv)
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
    made = Engine({"THINKLSP_CONFIG": str(config), "ANTHROPIC_API_KEY": KEY}, make_runner=make_runner)
    yield made
    await made.aclose()


async def test_commands_are_offered_where_they_are_enabled_and_possible(enabled: Engine, tmp_path: Path) -> None:
    (tmp_path / "off.toml").write_text("[commands]\nenabled = false\n")
    off = Engine({"THINKLSP_CONFIG": str(tmp_path / "off.toml"), "ANTHROPIC_API_KEY": KEY}, make_runner=make_runner)
    nowhere = Engine({"THINKLSP_CONFIG": str(tmp_path / "config.toml"), "ANTHROPIC_API_KEY": KEY}, make_runner=_none)
    for engine, offered in ((enabled, True), (off, False), (nowhere, False)):
        with await engine.begin(spec(), PLAIN, {}) as turn:
            assert ("run_command" in [each.name for each in turn.config.tools]) is offered
            assert (turn.commands is not None, turn.config.verify) == (offered, "auto" if offered else "off")
    await off.aclose()
    await nowhere.aclose()


async def _none(_limits: object, _environment: object) -> None:
    return None


async def test_what_is_verified(enabled: Engine) -> None:
    tested = {}
    for name in ("fix", "edit", "complete", "test", "document", "simplify", "explain"):
        asked = spec(task=ActionTask(name, Reference("untitled:a.py", (1, 1))))
        with await enabled.begin(asked, PLAIN, {}) as turn:
            tested[name] = turn.config.verify
    assert [name for name, verify in tested.items() if verify == "auto"] == ["fix", "edit", "complete", "test"]
    for tools, verify in (("all", "auto"), ("read", "off"), ("none", "off")):
        own = ActionSection.model_validate({"name": "own", "title": "Own", "prompt": "Go.", "tools": tools})
        task = ActionTask("own", Reference("untitled:a.py", (1, 1)), own=own)
        with await enabled.begin(spec(task=task), PLAIN, {}) as turn:
            assert turn.config.verify == verify
    with await enabled.begin(spec(mode="ask"), PLAIN, {}) as turn:
        # The same tools in every mode: the conversation could else not go on.
        assert (turn.config.verify, turn.config.tools) == ("off", WITH_COMMANDS)
    with await enabled.begin(spec(task=CompactTask()), PLAIN, {}) as turn:
        assert (turn.config.verify, turn.config.tools) == ("off", WITH_COMMANDS)


async def test_verify_always_is_for_every_turn_that_edits(enabled: Engine) -> None:
    """Contract §2: `verify`."""
    tested = {}
    for name in ("fix", "document", "simplify", "explain", "review"):
        asked = spec(task=ActionTask(name, Reference("untitled:a.py", (1, 1))))
        with await enabled.begin(asked, PLAIN.updated({"verify": "always"})[0], {}) as turn:
            tested[name] = turn.config.verify
    assert [name for name, verify in tested.items() if verify == "always"] == ["fix", "document", "simplify"]


async def test_a_turn_that_only_reads_runs_nothing_and_every_turn_closes_its_runner(enabled: Engine) -> None:
    for mode, words in (("ask", "only reads"), ("agent", "did not permit")):
        turn = await enabled.begin(spec(mode=mode), PLAIN, {})
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
    with await enabled.begin(spec(), PLAIN, {}) as first:
        assert first.commands is not None
        first.commands.granted.add(Approval(("true",)))
        session = first.session.id
    with await enabled.begin(spec(), PLAIN, {}) as other:
        assert other.commands is not None
        assert other.commands.granted == set()
    with await enabled.begin(spec(session_id=session), PLAIN, {}) as again:
        assert again.commands is not None
        assert again.commands.granted == {Approval(("true",))}
