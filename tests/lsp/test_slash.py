"""Which lines of a prompt are slash commands: what only looks like one is text, and stays as it was written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thinklsp.engine.choices import _CHOICES
from thinklsp.lsp.chats.slash import SLASH_COMMANDS, Invocation, taken_apart

# Prompt, commands with their arguments, and what is left to be sent.
APART: dict[str, tuple[str, list[tuple[str, str]], str]] = {
    "alone": ("/help", [("help", "")], ""),
    "with a value": ("/effort  high \t", [("effort", "high")], ""),
    "in capitals": ("/Effort high", [("effort", "high")], ""),
    "text after": ("/effort high\n\nDo it.\n", [("effort", "high")], "Do it."),
    "text before": ("Do it.\n/effort high", [("effort", "high")], "Do it."),
    "between": ("  One\r\n/clear\r\nTwo ", [("clear", "")], "  One\r\nTwo "),
    "several": ("/clear\r/model m\rGo", [("clear", ""), ("model", "m")], "Go"),
    "words": ("/compact keep the plan", [("compact", "keep the plan")], ""),
    "a budget": ("/think manual  8000", [("think", "manual  8000")], ""),
    "a mode": ("/think ultra", [("think", "ultra")], ""),
    "a path": ("/etc/hosts is empty", [], "/etc/hosts is empty"),
    "a comment": ("//effort high", [], "//effort high"),
    "a comment of C": ("/* effort */", [], "/* effort */"),
    "a version": ("/v1 returns 500", [], "/v1 returns 500"),
    "not at the beginning": (" /effort high\nsee /help", [], " /effort high\nsee /help"),
    "a slash": ("/\n/ effort", [], "/\n/ effort"),
    "in a fence": ("```\n/effort high\n```", [], "```\n/effort high\n```"),
    "in an open fence": ("~~~ sh\n/clear", [], "~~~ sh\n/clear"),
    "behind a fence": ("```\nx\n```\n/clear", [("clear", "")], "```\nx\n```"),
    "other separators": ("a\u2028/clear\x0c/help", [], "a\u2028/clear\x0c/help"),
}


@pytest.mark.parametrize("case", APART)
def test_commands_are_taken_out(case: str) -> None:
    prompt, commands, rest = APART[case]
    found = taken_apart(prompt)
    assert [(one.command.name, one.argument) for one in found.invocations] == commands
    assert (found.rest, found.problems) == (rest, ())
    assert bool(found) == bool(commands)


WRONG: dict[str, tuple[str, str]] = {
    "unknown": ("/efort high\nDo it.", "There is no command `/efort`."),
    "unknown with a hyphen": ("/code-review", "There is no command `/code-review`."),
    "nothing takes no value": ("/undo the last one", "`/undo` takes nothing behind it."),
    "two words": ("/model is it good?", "`/model` is written `/model [id]`."),
    "no budget": ("/think manual much", "`/think` is written"),
    "a long name": (f"/{'x' * 500}", f"There is no command `/{'x' * 40}`."),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_looks_like_a_command_and_is_none_is_said(case: str) -> None:
    prompt, sentence = WRONG[case]
    found = taken_apart(prompt)
    [problem] = found.problems
    assert problem.startswith(sentence)
    assert problem.endswith("Begin the line with a space to send it as text.")
    assert found.rest == ("Do it." if "Do it." in prompt else "")


_lines = st.sampled_from(
    ["/effort high", "/clear", "/nope", "/etc/hosts", "words", "  /help", "```", "~~~", "", " ", "a\u2028/clear"]
)
_prompts = st.lists(st.tuples(_lines, st.sampled_from(["\n", "\r\n", "\r"])), max_size=8).map(
    lambda lines: "".join(a + b for a, b in lines)
)


@settings(max_examples=200, deadline=None)
@given(_prompts)
def test_a_prompt_without_commands_is_sent_as_it_is_and_nothing_is_sent_twice(prompt: str) -> None:
    found = taken_apart(prompt)
    if not found:
        assert found.rest == prompt
    assert not found or not taken_apart(found.rest)
    kept = [line for line in found.rest.replace("\r\n", "\n").replace("\r", "\n").split("\n") if line.strip()]
    rest = iter(prompt.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    assert all(line in rest for line in kept)


def test_every_value_that_completes_is_one_that_the_command_takes() -> None:
    for command in SLASH_COMMANDS:
        for value in command.values:
            [found] = taken_apart(f"/{command.name} {value}").invocations
            assert found == Invocation(command, value)
    values = {command.name: set(command.values) for command in SLASH_COMMANDS}
    assert values["effort"] == set(_CHOICES["effort"])
    assert values["think"] == set(_CHOICES["thinking"])
