"""`run_command` as a model sees it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from tests.support.shadowing import PlainRunner
from thinklsp.core.messages import ToolUseBlock
from thinklsp.sandbox.process import CommandResult
from thinklsp.tools.command import format_result
from thinklsp.tools.registry import TOOLS_WITH_COMMANDS
from thinklsp.tools.tool import ToolContext, call, describe


@dataclass
class Allowed:
    """Commands that nobody forbids."""

    runner: PlainRunner = field(default_factory=PlainRunner)

    async def is_permitted(self, argv, folder):
        return True

    async def run(self, argv, overlay, *, folder, seconds):
        return await self.runner.run(argv, overlay, folder=folder, seconds=seconds or 60)


async def run(bench, *, commands=None, **arguments):
    context = ToolContext(bench.overlay, bench._ask, commands=commands)
    return await call(ToolUseBlock("1", "run_command", arguments), TOOLS_WITH_COMMANDS, context)


WRONG = [
    {}, {"argv": []}, {"argv": "ls"}, {"argv": ["x"] * 51}, {"argv": [1]}, {"argv": ["ls"], "timeout_s": 0},
    {"argv": ["ls"], "sandbox": False}, {"argv": ["ls"], "dangerously_disable_sandbox": True},
    {"argv": ["ls"], "env": {"A": "1"}}, {"argv": ["ls"], "shell": True}, {"argv": ["ls"], "network": True},
    {"argv": ["ls"], "cwd": "x" * 501}, {"argv": ["ls"], "timeout_s": 3601},
]  # fmt: skip


@pytest.mark.parametrize("arguments", WRONG, ids=str)
async def test_wrong_arguments_run_nothing(bench, arguments):
    commands = Allowed()
    output = await run(bench.start(), commands=commands, **arguments)
    assert output.is_error
    assert commands.runner.runs == []


async def test_without_commands_it_says_so(bench):
    output = await run(bench.start(), argv=["ls"])
    assert (output.is_error, output.text) == (True, "Commands cannot be run in this turn.")


async def test_it_runs_on_a_copy_that_holds_the_edits(bench):
    bench.start({"a.txt": "old\n", "sub/b.txt": "b\n"}, {"open.txt": "unsaved\n"})
    bench.overlay.write(bench.overlay.view.resolve("a.txt"), "new\n")
    output = await run(bench, commands=Allowed(), argv=["cat", "a.txt", "open.txt"])
    assert not output.is_error
    assert "`cat a.txt open.txt` exited with status 0 after " in output.text
    assert output.text.endswith(" s.\nOutput:\nnew\nunsaved")
    output = await run(bench, commands=Allowed(), argv=["cat", "b.txt"], cwd="sub")
    assert output.text.endswith("Output:\nb")
    assert (bench.path / "a.txt").read_text() == "old\n"
    failing = await run(bench, commands=Allowed(), argv=["cat", "none"])
    assert not failing.is_error
    assert "exited with status 1" in failing.text
    missing = await run(bench, commands=Allowed(), argv=["no-such-program"])
    assert (missing.is_error, missing.text) == (True, "`no-such-program` cannot be started: No such file or directory.")


RAN = CommandResult("exit", 0, b"", 1.04)
EXITED, SILENT = "exited with status 0 after 1.0 s.", "It printed no output."
CHANGED = 'It changed these files on the copy, which is discarded: a, b c, "d\\ne".'
OUT_OF_MEMORY = "exceeded the limit of memory (`memory_mb` in `[commands]`) and was killed after 1.0 s."
TOLD = [
    (RAN, f"{EXITED}\n{SILENT}"),
    (replace(RAN, end_reason="signal", status=9), f"was killed by signal 9 after 1.0 s.\n{SILENT}"),
    (replace(RAN, end_reason="timeout"), f"exceeded the time limit and was killed after 1.0 s.\n{SILENT}"),
    (replace(RAN, end_reason="memory"), f"{OUT_OF_MEMORY}\n{SILENT}"),
    (replace(RAN, changed_paths=("a", "b c", "d\ne")), f"{EXITED}\n{CHANGED}\n{SILENT}"),
    (
        replace(RAN, output=b"\x1b[31mred\x1b[0m \xe2\x80\xae\x00\xff\n", omitted_bytes=1234),
        f"{EXITED}\nOutput:\n[1,234 bytes omitted in the middle]\nred <U+202E><U+0000>\ufffd",
    ),
]


@pytest.mark.parametrize(("ran", "expected"), TOLD)
def test_how_it_ended_is_told(ran, expected):
    assert format_result(["x", "-y"], ran) == f"`x -y` {expected}"


def test_a_long_output_keeps_its_beginning_and_its_end():
    text = format_result(
        ["x"], replace(RAN, output=b"begin" + b"\x1b" * 50_000 + b"end", changed_paths=tuple(map(str, range(99))))
    )
    assert len(text) < 50_000
    assert "Output:\nbegin<U+001B>" in text
    assert "characters omitted" in text
    assert text.endswith("end")
    assert "28, 29 and 69 more." in text


def test_the_title_shows_the_command():
    titles = ((["pytest", "-q"], "run pytest -q"), (["a b", "`"], 'run "a b" "\\u0060"'), ([], "run_command"))
    for argv, title in titles:
        assert describe(ToolUseBlock("1", "run_command", {"argv": argv}), TOOLS_WITH_COMMANDS) == title
