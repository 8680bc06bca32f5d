"""Titles of sessions: what a prompt says first, without its marks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.sessions.session import Session
from thinklsp.sessions.titles import LENGTH, title_of

TITLES = {
    "What is in a.py?\nTell me.": "What is in a.py?",
    "\n  \n\tAfter  blank   lines\n": "After blank lines",
    "# Fix `parse()` in @src/parser.py:10-40, please": "Fix parse() in parser.py, please",
    "@src/a.py @lib/b.py:3 what differs?": "a.py b.py what differs?",
    '@"src/a b.py":1-2 what is this, and @"c\\"d"?': 'a b.py what is this, and c"d?',
    "@selection\nWhy is this slow?": "Why is this slow?",
    "Why @selection? And @diagnostics.": "Why ? And .",
    "@selection": "@selection",
    "**Why** does [this](http://x/y) return *None*?": "Why does this return None?",
    "> - [ ] 1. quoted and listed": "quoted and listed",
    "```python\nx = 1\n```\nWhat is this?": "What is this?",
    "````\n```\nx = 1\n````\nWhy?": "Why?",
    "~~~\nonly code\n~~~": "only code",
    "---\n***\nAfter a rule": "After a rule",
    "__init__.py and snake_case and 2 * 3 * 4 stay": "__init__.py and snake_case and 2 * 3 * 4 stay",
    "Mail me@example.org about #5 and -x": "Mail me@example.org about #5 and -x",
    "日本語の題名": "日本語の題名",
    "???": "???",
    "": "",
    "word " * 20: "word " * 10 + "word…",
    "x" * 80: "x" * 59 + "…",
}


@pytest.mark.parametrize("prompt", TITLES)
def test_a_title_is_the_first_line_with_words(prompt: str) -> None:
    assert title_of(prompt) == TITLES[prompt]


@given(st.text(st.sampled_from("ab @#>-*`~[](). :/1\n\t日🙂"), max_size=120))
def test_a_title_is_one_short_line_and_never_empty_where_something_was_said(prompt: str) -> None:
    title = title_of(prompt)
    assert len(title) <= LENGTH
    assert len(title.splitlines()) == bool(prompt.strip())


def test_the_first_prompt_names_a_session_and_a_fork_can_be_told() -> None:
    session = Session("a", "w").with_user("Change the selected code.", "edit a.py: Make it faster.\nMuch.")
    assert session.title == "edit a.py: Make it faster."
    assert session.with_user("Something else.").title == session.title
    long = Session("a", "w").with_user("word " * 20)
    assert long.forked("b").title.endswith("… (fork)")
    assert len(long.forked("b").title) <= LENGTH
    assert session.renamed("  # as it is\nMore. ").title == "# as it is"
