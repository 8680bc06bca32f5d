"""Commands that bypass lists of safe commands elsewhere never run without a question."""

from __future__ import annotations

import random
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Never

import pytest

from tests.slow.running import Tally, refuse_question
from tests.support.sizes import SEED, tries
from thinklsp.core.messages import ToolUseBlock
from thinklsp.tools.command import Approval, PermissionRules, decide
from thinklsp.tools.registry import TOOLS_WITH_COMMANDS
from thinklsp.tools.runners import Words, quote_command
from thinklsp.tools.tool import ToolContext, build_arguments_schema, call
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import WorkspaceView

TABLE = tomllib.loads(Path(__file__).with_name("command_bypasses.toml").read_text())
RULES = PermissionRules(allow=tuple(map(tuple, TABLE.pop("allow"))))
LINES = [(kind, line) for kind, lines in TABLE.items() for line in lines]


def forms(line: str) -> Iterator[Words]:
    yield (line,)
    words = tuple(word for word in line.split(" ") if word)
    yield words
    with suppress(ValueError):
        yield tuple(shlex.split(line))


def is_other(argv: Words, line: str) -> bool:
    """Ignore lines that become a permitted rule if they are cut at blanks."""
    return " ".join(argv) != " ".join(line.split()) or line == " ".join(line.split())


def runs_unasked(argv: Words) -> bool:
    return decide(Approval(argv), RULES).kind == "allow"


def single() -> Iterator[tuple[str, Words]]:
    for kind, line in LINES:
        for argv in forms(line):
            if argv and argv not in RULES.allow and is_other(argv, line):
                yield kind, argv


def combined() -> Iterator[Words]:
    rng = random.Random(SEED)
    tails = [
        argv for _, line in LINES for argv in forms(line) if any(set(word) & set(";|&$`<>\n\r\0(){}") for word in argv)
    ]
    for rule in RULES.allow:
        for tail in rng.sample(tails, 100):
            glued = (*rule[:-1], rule[-1] + tail[0], *tail[1:])
            yield from ((*rule, *tail), glued, (" ".join((*rule, *tail)),), (*rule, " ".join(tail)), (*tail, *rule))


def test_the_table_is_large_enough() -> None:
    assert len({line for _, line in LINES}) == len(LINES) >= 300


def test_none_runs_unasked(tally: Tally) -> None:
    tried = [*single()]
    assert {kind for kind, _ in tried} == {*TABLE}
    assert [argv for _, argv in tried if runs_unasked(argv)] == []
    tally("A-24", len(tried))


def test_none_runs_unasked_in_any_combination(tally: Tally) -> None:
    tried = [*combined()]
    assert [argv for argv in tried if runs_unasked(argv)] == []
    assert len(tried) >= tries("A-24")
    tally("A-24", len(tried))


LAX: dict[str, Callable[[Words, Words], bool]] = {
    "the line begins with the rule": lambda argv, rule: " ".join(argv).startswith(" ".join(rule)),
    "the first word is known": lambda argv, rule: argv[0] == rule[0],
    "it begins with the words of the rule": lambda argv, rule: argv[: len(rule)] == rule,
    "the first part of the line is known": lambda argv, rule: (
        tuple(re.split(r"[;&|]", " ".join(argv))[0].split()) == rule
    ),
}


@pytest.mark.parametrize("how", LAX)
def test_lax_rules_are_found(how: str) -> None:
    tried = [*(argv for _, argv in single()), *combined()]
    assert any(LAX[how](argv, rule) for argv in tried for rule in RULES.allow)


@pytest.mark.parametrize("parts", [51, 1_000, 100_000])
def test_every_cap_fails_closed(parts: int) -> None:
    for argv in (("ls",) * parts, ("echo", *(";",) * parts), (" && ".join(["ls"] * parts),), ("ls", "x" * parts * 50)):
        decision = decide(Approval(argv), PermissionRules(allow=(("ls",), argv[:1]), exact=(argv,)), {Approval(argv)})
        assert decision.kind == "deny"


def test_what_would_be_asked_is_shown_whole() -> None:
    for _, line in LINES:
        for argv in forms(line):
            if argv and decide(Approval(argv), RULES).kind == "ask":
                shown = quote_command(argv)
                assert shown.isascii()
                assert shown.isprintable()


SWITCHES = ("sandbox", "dangerouslyDisableSandbox", "env", "shell", "network", "allow", "auto_approve", "user", "stdin")


async def test_ten_thousand_arguments_hold_no_switch() -> None:
    """Arguments that a schema does not name never reach a tool."""
    rng = random.Random(SEED)
    context = ToolContext(EditOverlay(WorkspaceView()), refuse_question, commands=NoCommands())
    for number in range(10_000):
        tool = TOOLS_WITH_COMMANDS[number % len(TOOLS_WITH_COMMANDS)]
        name = rng.choice(SWITCHES) + rng.choice(["", "_", "s", "2"])
        arguments = {**SOUND.get(tool.name, {}), name: rng.choice([True, False, 1, "x", None, {}])}
        output = await call(ToolUseBlock("1", tool.name, arguments), TOOLS_WITH_COMMANDS, context)
        assert output.is_error
        assert f"has no argument `{name}`" in output.text


def test_no_schema_holds_a_switch() -> None:
    for tool in TOOLS_WITH_COMMANDS:
        schema = build_arguments_schema(tool.arguments)
        assert schema["additionalProperties"] is False
        assert not {name.lower() for name in schema["properties"]} & {name.lower() for name in SWITCHES}


# Valid arguments, so that only the switch can be refused.
SOUND: dict[str, dict[str, Any]] = {"run_command": {"argv": ["ls"], "timeout_s": 5}, "read_file": {"path": "a"}}


class NoCommands:
    async def is_permitted(self, argv: object, folder: object) -> bool:
        raise AssertionError(argv)

    async def run(self, argv: object, *_: object, **__: object) -> Never:
        raise AssertionError(argv)
