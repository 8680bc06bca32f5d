"""`run_command` as a model sees it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest

from tests.support.plain_runner import PlainRunner
from thinklsp.core.errors import ToolFailed
from thinklsp.core.messages import ToolUseBlock
from thinklsp.tools.base import ToolContext, call, describe
from thinklsp.tools.command import RunCommand, told
from thinklsp.tools.commands import Ran
from thinklsp.tools.registry import TOOLS, WITH_COMMANDS, tool_specs, tools_for


@dataclass
class Allowed:
    """Commands that nobody forbids."""

    runner: PlainRunner = field(default_factory=PlainRunner)

    async def permitted(self, argv, folder):
        return True

    async def run(self, argv, overlay, *, folder, seconds):
        return await self.runner.run(argv, overlay, folder=folder, seconds=seconds or 60)


async def run(bench, *, commands=None, **arguments):
    context = ToolContext(bench.overlay, bench._ask, commands=commands)
    return await call(ToolUseBlock("1", "run_command", arguments), WITH_COMMANDS, context)


def test_the_tool_stands_behind_all_others_and_no_reading_turn_has_it():
    assert WITH_COMMANDS[:-1] == TOOLS
    assert [tool.name for tool in tools_for("agent", WITH_COMMANDS)][-1] == "run_command"
    for mode in ("ask", "plan"):
        assert tools_for(mode, WITH_COMMANDS) == tools_for(mode)


def test_the_schema_holds_no_switch_and_refuses_what_it_does_not_know():
    spec = tool_specs(WITH_COMMANDS)[-1]
    assert tool_specs(WITH_COMMANDS)[:-1] == tool_specs(TOOLS)
    assert json.dumps(spec.input_schema) == json.dumps(RunCommand().spec().input_schema)
    assert set(spec.input_schema["properties"]) == {"argv", "timeout_s", "cwd"}
    assert spec.input_schema["additionalProperties"] is False
    assert spec.input_schema["required"] == ["argv"]
    assert spec.input_schema["properties"]["argv"] == {
        "type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 50,
        "description": spec.input_schema["properties"]["argv"]["description"],
    }  # fmt: skip


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
    assert (output.is_error, output.text) == (True, "No command can be run in this turn.")


async def test_it_runs_on_a_copy_that_holds_the_edits(bench):
    bench.start({"a.txt": "old\n", "sub/b.txt": "b\n"}, {"open.txt": "unsaved\n"})
    bench.overlay.write(bench.overlay.view.resolve("a.txt"), "new\n")
    output = await run(bench, commands=Allowed(), argv=["cat", "a.txt", "open.txt"])
    assert not output.is_error
    assert "`cat a.txt open.txt` ended with exit status 0 after " in output.text
    assert output.text.endswith(" s.\nOutput:\nnew\nunsaved")
    output = await run(bench, commands=Allowed(), argv=["cat", "b.txt"], cwd="sub")
    assert output.text.endswith("Output:\nb")
    assert (bench.path / "a.txt").read_text() == "old\n"
    failing = await run(bench, commands=Allowed(), argv=["cat", "none"])
    assert not failing.is_error
    assert "exit status 1" in failing.text
    missing = await run(bench, commands=Allowed(), argv=["no-such-program"])
    assert (missing.is_error, missing.text) == (True, "`no-such-program` cannot be started: No such file or directory.")


async def test_what_is_raised_is_told(bench):
    class Refusing(Allowed):
        async def run(self, argv, overlay, *, folder, seconds):
            raise ToolFailed("No.")

    output = await run(bench.start(), commands=Refusing(), argv=["ls"])
    assert (output.is_error, output.text) == (True, "No.")


RAN = Ran("exit", 0, b"", 1.04)
TOLD = [
    (RAN, "`x -y` ended with exit status 0 after 1.0 s.\nIt printed nothing."),
    (replace(RAN, ended="signal", status=9), "`x -y` was ended by signal 9 after 1.0 s.\nIt printed nothing."),
    (replace(RAN, ended="timeout"), "`x -y` took too long and was ended after 1.0 s.\nIt printed nothing."),
    (
        replace(RAN, ended="memory"),
        (
            "`x -y` passed the limit of memory (`memory_mb` in `[commands]`) and was ended after 1.0 s.\n"
            "It printed nothing."
        ),
    ),
    (
        replace(RAN, changed=("a", "b c", "d\ne")),
        (
            "`x -y` ended with exit status 0 after 1.0 s.\nOn the copy, which is thrown away, it changed: a, b c, "
            '"d\\ne".\nIt printed nothing.'
        ),
    ),
    (
        replace(RAN, output=b"\x1b[31mred\x1b[0m \xe2\x80\xae\x00\xff\n", cut=1234),
        (
            "`x -y` ended with exit status 0 after 1.0 s.\nOutput:\n[1,234 bytes more were left out in the middle]\n"
            "red <U+202E><U+0000>\ufffd"
        ),
    ),
]


@pytest.mark.parametrize(("ran", "expected"), TOLD)
def test_how_it_ended_is_told(ran, expected):
    assert told(["x", "-y"], ran) == expected


def test_a_long_output_keeps_its_beginning_and_its_end():
    text = told(["x"], replace(RAN, output=b"begin" + b"\x1b" * 50_000 + b"end", changed=tuple(map(str, range(99)))))
    assert len(text) < 50_000
    assert "Output:\nbegin<U+001B>" in text
    assert "characters left out" in text
    assert text.endswith("end")
    assert "28, 29 and 69 more." in text


def test_the_title_shows_the_command():
    for argv, title in (
        (["pytest", "-q"], "run pytest -q"),
        (["a b", "`"], 'run "a b" "\\u0060"'),
        ([], "run_command"),
    ):
        assert describe(ToolUseBlock("1", "run_command", {"argv": argv}), WITH_COMMANDS) == title
