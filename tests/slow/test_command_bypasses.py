"""What has got past lists of safe commands elsewhere never runs here without a question: the table of
`command_bypasses.toml` in every form that a model could send it, under rules as people write them."""

from __future__ import annotations

import random
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from thinklsp.core.messages import ToolUseBlock
from thinklsp.tools.base import ToolContext, call
from thinklsp.tools.permission import Approval, Rules, Words, decide, quoted
from thinklsp.tools.registry import WITH_COMMANDS
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import WorkspaceView

TABLE = tomllib.loads(Path(__file__).with_name("command_bypasses.toml").read_text())
RULES = Rules(allow=tuple(map(tuple, TABLE.pop("allow"))))
LINES = [(kind, line) for kind, lines in TABLE.items() for line in lines]


def forms(line: str) -> Iterator[Words]:
    """The line as one word, cut at blanks, and as a shell would cut it."""
    yield (line,)
    words = tuple(word for word in line.split(" ") if word)
    yield words
    with suppress(ValueError):
        yield tuple(shlex.split(line))


def is_other(argv: Words, line: str) -> bool:
    """Blanks between words do not reach a program: cut there, some lines are what a rule allows."""
    return " ".join(argv) != " ".join(line.split()) or line == " ".join(line.split())


def check(argv: Words) -> None:
    assert decide(Approval(argv), RULES).kind != "allow", argv


def test_the_table_is_large_enough() -> None:
    assert len({line for _, line in LINES}) == len(LINES) >= 300


@pytest.mark.parametrize("kind", TABLE)
def test_none_runs_unasked(kind: str) -> None:
    for _, line in (entry for entry in LINES if entry[0] == kind):
        for argv in forms(line):
            if argv and argv not in RULES.allow and is_other(argv, line):
                check(argv)


def test_none_runs_unasked_in_any_combination() -> None:
    """Behind every rule, and glued to its words."""
    rng = random.Random(13)
    tails = [
        argv for _, line in LINES for argv in forms(line) if any(set(word) & set(";|&$`<>\n\r\0(){}") for word in argv)
    ]
    count = 0
    for rule in RULES.allow:
        for tail in rng.sample(tails, 100):
            glued = (*rule[:-1], rule[-1] + tail[0], *tail[1:])
            for argv in ((*rule, *tail), glued, (" ".join((*rule, *tail)),), (*rule, " ".join(tail)), (*tail, *rule)):
                check(argv)
                count += 1
    assert count >= 3_000


@pytest.mark.parametrize("parts", [51, 1_000, 100_000])
def test_every_cap_fails_closed(parts: int) -> None:
    for argv in (("ls",) * parts, ("echo", *(";",) * parts), (" && ".join(["ls"] * parts),), ("ls", "x" * parts * 50)):
        decision = decide(Approval(argv), Rules(allow=(("ls",), argv[:1]), exact=(argv,)), {Approval(argv)})
        assert decision.kind == "deny"


def test_what_would_be_asked_is_shown_whole() -> None:
    for _, line in LINES:
        for argv in forms(line):
            if argv and decide(Approval(argv), RULES).kind == "ask":
                shown = quoted(argv)
                assert shown.isascii()
                assert shown.isprintable()


async def test_ten_thousand_arguments_hold_no_switch() -> None:
    """Arguments that the schema does not name never reach the commands."""
    rng = random.Random(15)
    names = [
        "sandbox",
        "dangerouslyDisableSandbox",
        "env",
        "shell",
        "network",
        "allow",
        "auto_approve",
        "user",
        "stdin",
    ]
    overlay = EditOverlay(WorkspaceView())

    class Commands:
        async def permitted(self, argv: object, folder: object) -> bool:
            raise AssertionError(argv)

        async def run(self, argv: object, *_: object, **__: object) -> None:
            raise AssertionError(argv)

    for _ in range(10_000):
        arguments = {
            "argv": ["ls"],
            rng.choice(names) + rng.choice(["", "_", "s", "2"]): rng.choice([True, False, 1, "x", None, {}]),
        }
        if rng.random() < 0.5:
            arguments["timeout_s"] = 5
        block = ToolUseBlock("1", "run_command", arguments)
        output = await call(block, WITH_COMMANDS, ToolContext(overlay, _nobody, commands=Commands()))  # type: ignore[arg-type] # it never answers
        assert output.is_error
        assert "has no argument" in output.text


async def _nobody(_question: str, _options: tuple[str, ...]) -> str | None:
    raise AssertionError
