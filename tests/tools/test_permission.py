"""Which commands may run: rules are compared word by word, and what is shown is what runs."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.tools.command import (
    MAX_COMMAND_CHARACTERS,
    Approval,
    PermissionRules,
    build_question,
    decide,
    derive_rule,
    explain_rejection,
)
from thinklsp.tools.runners import Words, format_command, quote_command


def kind(command: str | Words, allow: str = "", deny: str = "", exact: str = "") -> str:
    """Rules stand in a text with `;` between them."""
    argv = tuple(command.split()) if isinstance(command, str) else command
    given = (tuple(tuple(rule.split()) for rule in rules.split(";") if rule) for rules in (allow, deny, exact))
    return decide(Approval(argv), PermissionRules(*given)).kind


# A rule, the commands that it allows, and some that are asked about.
ALLOWED: dict[str, tuple[list[str], list[str]]] = {
    "": ([], ["ls"]),
    "ls": (["ls", "ls src a.txt"],
           ["lsof", "ls -l", "ls /etc", "ls ../x", "ls a/../../x", "ls ~", "ls *.py", "./ls", "/bin/ls", "LS"]),
    "ls -l": (["ls -l src"], ["ls"]),
    "./check": (["./check"], ["check"]),
    "check": ([], ["./check"]),
    "python": (["python"], ["python evil.py"]),
    "python3.12": ([], ["python3.12 evil.py"]),
    "/usr/bin/env": ([], ["/usr/bin/env ls"]),
    "find": ([], ["find src"]),
    "rg": (["rg word src"], ["rg --pre=x word"]),
    "pytest": (["pytest", "pytest -q tests/test_a.py::test_b[1-x]", "pytest -k name", "pytest --maxfail=1 --tb short"],
               ["pytest -p evil", "pytest -c evil.ini", "pytest --rootdir=/", "pytest @evil", "pytest /tmp/evil.py"]),
    "python -m pytest": (["python -m pytest -x"], ["python3 -m pytest -x"]),
    "python -m": ([], ["python -m pytest"]),
    "pytest -q": (["pytest -q -x"], ["pytest -x"]),
    "python -m unittest": (["python -m unittest discover -s tests -p test_a.py"], []),
    "cargo test": (["cargo test --offline name -- --nocapture"], ["cargo test --config x"]),
    "go test": (["go test ./... -run TestA -count=1"], ["go test -exec evil ./..."]),
    "npm test": (["npm test"], ["npm test --prefix x"]),
    "npm": ([], ["npm test"]),
    "make test": (["make test"], ["make test evil", "make test SHELL=evil"]),
}  # fmt: skip


ALLOWED_ROWS = [
    (rule, command, expected)
    for rule, lists in ALLOWED.items()
    for expected, commands in zip(("allow", "ask"), lists, strict=True)
    for command in commands
]


@pytest.mark.parametrize(("rule", "command", "expected"), ALLOWED_ROWS)
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
    rules = PermissionRules(allow=(argv, argv[:1]), deny=(tuple(rule.split()),), exact=(argv,))
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
        assert decide(action, PermissionRules(), granted).kind == expected


# What can be no command, or could not be shown whole, is denied with a sentence, even where everything is allowed.
ODD: list[Words] = [
    (), ("",), ("", "x"), ("a b",), (" ls",), ("ls ",), ("ls\n",), ("l\u200bs",), ("l\u202es",), ("ls\u3164",),
    ("l\u0301s",), ("\u00a0ls",), ("ls;rm",), ("A=1", "ls"), ("-c", "x"), ("$(x)",), ("`x`",), ("a|b",), ("a&",),
    ("~/x",), ("*",), ("cd", ".git", "&&", "x"), ("export", "A=1"), ("eval", "x"), ("source", "x"), (".", "x"),
    ("ls", "\0"), ("ls", "\ud800"), ("ls\x7f",), tuple("x" * 51), ("x",) * 1_000, ("x",) * 100_000,
    ("ls", "x" * MAX_COMMAND_CHARACTERS), ("ls", "\u202e" * 400), ("ls", " " * 400),
]  # fmt: skip


@pytest.mark.parametrize("argv", ODD, ids=lambda argv: repr(argv)[:40])
def test_what_is_odd_is_denied(argv: Words) -> None:
    decision = decide(Approval(argv), PermissionRules(allow=(argv, argv[:1]), exact=(argv,)), {Approval(argv)})
    assert decision.kind == "deny"
    assert decision.reason.endswith(".")
    assert explain_rejection(Approval(argv)) == decision.reason


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
def test_always_rule_covers_a_test_runner_or_one_command(command: str, expected: object) -> None:
    assert derive_rule(tuple(command.split())) == expected


def decoded(shown: str) -> Words:
    """What a careful reader makes of a shown command: JSON texts with one space between them."""
    words, at = [], 0
    while at < len(shown):
        word, end = json.JSONDecoder().raw_decode(shown, at)
        assert shown[end : end + 1] in ("", " ")
        words.append(word)
        at = end + 1
    return tuple(words)


CHARACTERS = '\u202e\u200b\u00ad\u0430\u2019\u201c\U000e0041\x7f\r\n\t"\\a-'
TRICKS = st.sampled_from((*CHARACTERS, "\x1b[2K", "\\u0041", "' '", "; rm -rf ~", "$(id)", "&&", "  "))
WORD = st.lists(TRICKS | st.characters(codec="utf-8"), max_size=8).map("".join)


@settings(max_examples=examples(200))
@given(st.lists(WORD, min_size=1, max_size=10))
@example(["a", "b  c"])
def test_the_shown_text_maps_back_to_the_approved_argv(argv: list[str]) -> None:
    shown = quote_command(argv)
    assert decoded(shown) == tuple(argv)
    assert all(" " <= char <= "~" for char in shown)
    assert "  " not in shown
    action = Approval(tuple(argv), argv[0] or None)
    if explain_rejection(action) is None:
        assert shown in build_question(action).split("\n\n")
        assert len(shown) <= MAX_COMMAND_CHARACTERS
    told = format_command(argv)
    assert "`" not in told
    assert all(" " <= char <= "~" for char in told)


@settings(max_examples=examples(200))
@given(st.lists(WORD, min_size=1, max_size=6), st.integers(0, 5), WORD)
def test_a_changed_action_needs_a_new_approval(argv: list[str], at: int, other: str) -> None:
    approved = Approval(tuple(argv))
    changed = [*argv]
    changed[at % len(argv)] = other
    for action in (Approval(tuple(changed)), Approval((*argv, other)), Approval(tuple(argv), "sub")):
        assume(action != approved)
        assert (
            decide(action, PermissionRules(exact=(approved.argv,)), {approved}).kind != "allow"
            or action.folder is not None
        )
        assert decide(action, PermissionRules(), {approved}).kind != "allow"
