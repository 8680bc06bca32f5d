"""Which lines of a prompt are slash commands: what only looks like one is text, and stays as it was written."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.core.errors import TurnRefused
from thinklsp.core.prompt_syntax import SLASH_COMMANDS, Invocation, parse_slash_commands, split_skills
from thinklsp.engine.workspace_sessions import _VALUES

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


@pytest.mark.parametrize(("prompt", "commands", "rest"), APART.values(), ids=APART)
def test_commands_are_taken_out(prompt: str, commands: list[tuple[str, str]], rest: str) -> None:
    found = parse_slash_commands(prompt)
    assert [(one.command.name, one.argument) for one in found.invocations] == commands
    assert (found.remaining_prompt, found.problems) == (rest, ())
    assert bool(found) == bool(commands)


WRONG: dict[str, tuple[str, str]] = {
    "unknown": ("/efort high\nDo it.", "There is no command `/efort`."),
    "unknown with a hyphen": ("/code-review", "There is no command `/code-review`."),
    "nothing takes no value": ("/undo the last one", "`/undo` takes no argument."),
    "two words": ("/model is it good?", "`/model` must be written as `/model [id]`."),
    "no budget": ("/think manual much", "`/think` must be written"),
    "a long name": (f"/{'x' * 500}", f"There is no command `/{'x' * 40}`."),
}


@pytest.mark.parametrize(("prompt", "sentence"), WRONG.values(), ids=WRONG)
def test_what_looks_like_a_command_and_is_none_is_said(prompt: str, sentence: str) -> None:
    found = parse_slash_commands(prompt)
    [problem] = found.problems
    assert problem.startswith(sentence)
    assert problem.endswith("To send the line as text, begin the line with a space.")
    assert found.remaining_prompt == ("Do it." if "Do it." in prompt else "")


# Prompt, skills, the prompt that is sent, and the one that is offered again if the turn cannot start.
SKILLS: dict[str, tuple[str, list[str], str, str]] = {
    "alone": ("/skill:review", ["review"], "Follow `review`.", "/skill:review"),
    "with words": ("/skill:review look at a.py", ["review"], "look at a.py", "/skill:review look at a.py"),
    "in capitals": ("/Skill:Review \t x", ["review"], "x", "/Skill:Review \t x"),
    "text around": ("One\n/skill:a two\r\nThree", ["a"], "One\ntwo\r\nThree", "One\n/skill:a two\r\nThree"),
    "several": ("/skill:a\n/skill:b\n/skill:a", ["a", "b"], "Follow `a` and `b`.", "/skill:a\n/skill:b\n/skill:a"),
    "with a command": ("/effort high\n/skill:a x", ["a"], "x", "/skill:a x"),
    "a command as words": ("/skill:a /clear", ["a"], "/clear", "/skill:a /clear"),
    "in a fence": ("```\n/skill:a\n```", [], "```\n/skill:a\n```", "```\n/skill:a\n```"),
    "not at the beginning": (" /skill:a\nuse /skill:b", [], " /skill:a\nuse /skill:b", " /skill:a\nuse /skill:b"),
    "a path": ("/skill/a", [], "/skill/a", "/skill/a"),
}


@pytest.mark.parametrize(("prompt", "skills", "sent", "unsent"), SKILLS.values(), ids=SKILLS)
def test_skills_are_taken_out_of_a_prompt(prompt: str, skills: list[str], sent: str, unsent: str) -> None:
    found = parse_slash_commands(prompt)
    assert (list(found.skills), found.remaining_prompt, found.unsent_prompt) == (skills, sent, unsent)
    assert found.problems == ()
    if not found:
        assert split_skills(prompt) == (sent, tuple(skills))


NO_SKILLS: dict[str, tuple[str, str]] = {
    "no name": ("/skill:", "`/skill:` does not name a skill."),
    "a path": ("/skill:../x", "`/skill:../x` does not name a skill."),
    "an underscore": ("/skill:a_b c", "`/skill:a_b` does not name a skill."),
    "two hyphens": ("/skill:a--b", "`/skill:a--b` does not name a skill."),
    "too long": (f"/skill:{'x' * 65}", f"`/skill:{'x' * 40}` does not name a skill."),
    "too many": ("\n".join(f"/skill:s{n}" for n in range(5)), "A prompt can follow at most 4 skills, not 5."),
}


@pytest.mark.parametrize(("prompt", "sentence"), NO_SKILLS.values(), ids=NO_SKILLS)
def test_impossible_skills_are_a_sentence(prompt: str, sentence: str) -> None:
    [problem] = parse_slash_commands(prompt).problems
    assert problem.startswith(sentence)
    with pytest.raises(TurnRefused, match=r"skill"):
        split_skills(prompt)


@pytest.mark.parametrize("line", ["/skill", "/skill review"])
def test_a_skill_without_a_colon_is_explained(line: str) -> None:
    [problem] = parse_slash_commands(line).problems
    assert problem.startswith("`/skill` must be written as `/skill:NAME [words]`.")
    assert split_skills(line) == (line, ())


MEGABYTE = 1 << 20
WORST = [
    "/help" + " " * MEGABYTE + "x", "/skill:a" + " " * MEGABYTE + "x", "/skill:" + "a-" * (MEGABYTE // 2),
    "/skill:" + "a" * MEGABYTE + "!", "/" + "a-" * (MEGABYTE // 2), "/skill:a\n" * (MEGABYTE // 9), "/x x " * 200_000,
    "\r" * MEGABYTE, "/model" + " x" * (MEGABYTE // 2),
]  # fmt: skip


@pytest.mark.timing
@pytest.mark.parametrize("prompt", WORST, ids=range(len(WORST)))
def test_a_megabyte_of_the_worst_is_parsed_at_once(prompt: str) -> None:
    begin = time.process_time()
    parse_slash_commands(prompt)
    assert time.process_time() - begin < 3


_lines = st.sampled_from(
    [
        "/effort high",
        "/clear",
        "/nope",
        "/skill:a",
        "/skill:b x",
        "/skill:?",
        "/etc/hosts",
        "words",
        "  /help",
        "```",
        "~~~",
        "",
        " ",
        "a\u2028/clear",
    ]
)
_prompts = st.lists(st.tuples(_lines, st.sampled_from(["\n", "\r\n", "\r"])), max_size=8).map(
    lambda lines: "".join(a + b for a, b in lines)
)


@settings(max_examples=examples(200), deadline=None)
@given(_prompts)
def test_prompt_without_commands_is_sent_once_unchanged(prompt: str) -> None:
    found = parse_slash_commands(prompt)
    if not found and not found.skills:
        assert found.remaining_prompt == found.unsent_prompt == prompt
    assert not found or not parse_slash_commands(found.remaining_prompt)
    assert parse_slash_commands(found.unsent_prompt).skills == found.skills
    kept = [
        line for line in found.remaining_prompt.replace("\r\n", "\n").replace("\r", "\n").split("\n") if line.strip()
    ]
    rest = iter(prompt.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    assert found.skills or all(line in rest for line in kept)


def test_completed_values_are_accepted_by_the_command() -> None:
    for command in SLASH_COMMANDS:
        for value in command.values:
            [found] = parse_slash_commands(f"/{command.name} {value}").invocations
            assert found == Invocation(command, value)
    values = {command.name: set(command.values) for command in SLASH_COMMANDS}
    assert values["effort"] == set(_VALUES["effort"])
    assert values["think"] == set(_VALUES["thinking"])
