"""Which commands may run: rules are compared word by word, and what is shown is what runs."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from thinklsp.tools.permission import (
    MOST_SHOWN,
    Approval,
    Rules,
    Words,
    decide,
    question,
    quoted,
    readable,
    refused,
    rememberable,
)


def kind(command: str | Words, allow: str = "", deny: str = "", exact: str = "") -> str:
    """Rules stand in a text with `;` between them."""
    argv = tuple(command.split()) if isinstance(command, str) else command
    given = (tuple(tuple(rule.split()) for rule in rules.split(";") if rule) for rules in (allow, deny, exact))
    return decide(Approval(argv), Rules(*given)).kind


# Rule, command, and what becomes of it.
ALLOWED = [
    ("", "ls", "ask"),
    ("ls", "ls", "allow"),
    ("ls", "ls src a.txt", "allow"),
    ("ls", "lsof", "ask"),
    ("ls -l", "ls", "ask"),
    ("ls -l", "ls -l src", "allow"),
    ("ls", "ls -l", "ask"),
    ("ls", "ls /etc", "ask"),
    ("ls", "ls ../x", "ask"),
    ("ls", "ls a/../../x", "ask"),
    ("ls", "ls ~", "ask"),
    ("ls", "ls *.py", "ask"),
    ("ls", "./ls", "ask"),
    ("ls", "/bin/ls", "ask"),
    ("ls", "LS", "ask"),
    ("./check", "./check", "allow"),
    ("check", "./check", "ask"),
    ("./check", "check", "ask"),
    ("python", "python", "allow"),
    ("python", "python evil.py", "ask"),
    ("python3.12", "python3.12 evil.py", "ask"),
    ("/usr/bin/env", "/usr/bin/env ls", "ask"),
    ("find", "find src", "ask"),
    ("rg", "rg word src", "allow"),
    ("rg", "rg --pre=x word", "ask"),
    ("pytest", "pytest", "allow"),
    ("pytest", "pytest -q tests/test_a.py::test_b[1-x]", "allow"),
    ("pytest", "pytest -k name", "allow"),
    ("pytest", "pytest --maxfail=1 --tb short", "allow"),
    ("pytest", "pytest -p evil", "ask"),
    ("pytest", "pytest -c evil.ini", "ask"),
    ("pytest", "pytest --rootdir=/", "ask"),
    ("pytest", "pytest @evil", "ask"),
    ("pytest", "pytest /tmp/evil.py", "ask"),
    ("python -m pytest", "python -m pytest -x", "allow"),
    ("python -m pytest", "python3 -m pytest -x", "ask"),
    ("python -m", "python -m pytest", "ask"),
    ("pytest -q", "pytest -q -x", "allow"),
    ("pytest -q", "pytest -x", "ask"),
    ("python -m unittest", "python -m unittest discover -s tests -p test_a.py", "allow"),
    ("cargo test", "cargo test --offline name -- --nocapture", "allow"),
    ("cargo test", "cargo test --config x", "ask"),
    ("go test", "go test ./... -run TestA -count=1", "allow"),
    ("go test", "go test -exec evil ./...", "ask"),
    ("npm test", "npm test", "allow"),
    ("npm test", "npm test --prefix x", "ask"),
    ("npm", "npm test", "ask"),
    ("make test", "make test", "allow"),
    ("make test", "make test evil", "ask"),
    ("make test", "make test SHELL=evil", "ask"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "command", "expected"), ALLOWED)
def test_an_allow_rule_means_its_own_words_and_plain_ones(rule: str, command: str, expected: str) -> None:
    assert kind(command, allow=rule) == expected


def test_an_exact_rule_means_nothing_more() -> None:
    assert [kind(c, exact="rm a.log") for c in ("rm a.log", "rm a.log src", "rm")] == ["allow", "ask", "ask"]


# Command, deny rule: these all are denied, whatever is allowed.
DENIED = [
    ("rm x", "rm"), ("/bin/rm x", "rm"), ("./rm", "rm"), ("RM x", "rm"), ("git push origin", "git push"),
    ("GIT Push", "git push"), ("pytest", "pytest"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "rule"), DENIED)
def test_deny_wins(command: str, rule: str) -> None:
    argv = tuple(command.split())
    rules = Rules(allow=(argv, argv[:1]), deny=(tuple(rule.split()),), exact=(argv,))
    assert decide(Approval(argv), rules, {Approval(argv)}).kind == "deny"


def test_an_approval_is_for_one_command_in_one_folder() -> None:
    granted = {Approval(("make", "x"), "sub")}
    for action, expected in (
        (Approval(("make", "x"), "sub"), "allow"),
        (Approval(("make", "x")), "ask"),
        (Approval(("make", "x"), "sub/"), "ask"),
        (Approval(("make", "x", "y"), "sub"), "ask"),
        (Approval(("make",), "sub"), "ask"),
    ):
        assert decide(action, Rules(), granted).kind == expected


# What can be no command, or could not be shown whole, is denied with a sentence, even where everything is allowed.
ODD: list[Words] = [
    (), ("",), ("", "x"), ("a b",), (" ls",), ("ls ",), ("ls\n",), ("l\u200bs",), ("l\u202es",), ("ls\u3164",),
    ("l\u0301s",), ("\u00a0ls",), ("ls;rm",), ("A=1", "ls"), ("-c", "x"), ("$(x)",), ("`x`",), ("a|b",), ("a&",),
    ("~/x",), ("*",), ("cd", ".git", "&&", "x"), ("export", "A=1"), ("eval", "x"), ("source", "x"), (".", "x"),
    ("ls", "\0"), ("ls", "\ud800"), ("ls\x7f",), tuple("x" * 51), ("x",) * 1_000, ("x",) * 100_000,
    ("ls", "x" * MOST_SHOWN), ("ls", "\u202e" * 400), ("ls", " " * 400),
]  # fmt: skip


@pytest.mark.parametrize("argv", ODD, ids=lambda argv: repr(argv)[:40])
def test_what_is_odd_is_denied(argv: Words) -> None:
    decision = decide(Approval(argv), Rules(allow=(argv, argv[:1]), exact=(argv,)), {Approval(argv)})
    assert decision.kind == "deny"
    assert decision.why.endswith(".")
    assert refused(Approval(argv)) == decision.why


def test_fifty_words_and_a_long_folder_are_the_limit() -> None:
    assert kind(("x",) * 50) == "ask"
    assert decide(Approval(("x",), "y" * MOST_SHOWN), Rules()).kind == "deny"


REMEMBERED = [
    ("pytest -q tests/test_a.py", ("allow", ("pytest",))),
    ("python3 -m pytest tests", ("allow", ("python3", "-m", "pytest"))),
    (".venv/bin/python -m pytest", ("allow", (".venv/bin/python", "-m", "pytest"))),
    ("npm test", ("allow", ("npm", "test"))),
    ("npm run test", ("allow", ("npm", "run", "test"))),
    ("go test ./...", ("allow", ("go", "test"))),
    ("pytest -p evil", ("exact", ("pytest", "-p", "evil"))),
    ("ls -l", ("exact", ("ls", "-l"))),
    ("bash -c x", ("exact", ("bash", "-c", "x"))),
    ("env pytest", ("exact", ("env", "pytest"))),
    ("./pytest", None),
    ("/opt/pytest", None),
    ("./run tests", None),
]  # fmt: skip


@pytest.mark.parametrize(("command", "expected"), REMEMBERED)
def test_an_always_is_for_a_runner_of_tests_or_for_exactly_this_command(command: str, expected: object) -> None:
    assert rememberable(tuple(command.split())) == expected


def decoded(shown: str) -> Words:
    """What a careful reader makes of a shown command: JSON texts with one space between them."""
    words, at = [], 0
    while at < len(shown):
        word, end = json.JSONDecoder().raw_decode(shown, at)
        assert shown[end : end + 1] in ("", " ")
        words.append(word)
        at = end + 1
    return tuple(words)


TRICKS = st.sampled_from(
    (
        *(
            "\u202e",
            "\u200b",
            "\u00ad",
            "\u0430",
            "\u2019",
            "\u201c",
            "\U000e0041",
            "\x7f",
            "\x1b[2K",
            "\r",
            "\n",
            "\t",
        ),
        *('"', "\\", "\\u0041", "' '", "; rm -rf ~", "$(id)", "&&", "  ", "a", "-"),
    )
)
WORD = st.lists(TRICKS | st.characters(codec="utf-8"), max_size=8).map("".join)


@settings(max_examples=200)
@given(st.lists(WORD, min_size=1, max_size=10))
@example(["a", "b  c"])
def test_the_shown_text_maps_back_to_the_approved_argv(argv: list[str]) -> None:
    shown = quoted(argv)
    assert decoded(shown) == tuple(argv)
    assert all(" " <= char <= "~" for char in shown)
    assert "  " not in shown
    action = Approval(tuple(argv), argv[0] or None)
    if refused(action) is None:
        assert shown in question(action).split("\n\n")
        assert len(shown) <= MOST_SHOWN
    told = readable(argv)
    assert "`" not in told
    assert all(" " <= char <= "~" for char in told)


@settings(max_examples=200)
@given(st.lists(WORD, min_size=1, max_size=6), st.integers(0, 5), WORD)
def test_a_changed_action_needs_a_new_approval(argv: list[str], at: int, other: str) -> None:
    approved = Approval(tuple(argv))
    changed = [*argv]
    changed[at % len(argv)] = other
    for action in (Approval(tuple(changed)), Approval((*argv, other)), Approval(tuple(argv), "sub")):
        assume(action != approved)
        assert decide(action, Rules(exact=(approved.argv,)), {approved}).kind != "allow" or action.folder is not None
        assert decide(action, Rules(), {approved}).kind != "allow"
