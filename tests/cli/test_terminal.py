"""What terminal commands print: nothing that would steer a terminal, and the same words with and without one."""

from __future__ import annotations

import io
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.cli.terminal import (
    create_console,
    format_usage_line,
    is_live,
    render_diff,
    sanitize_text,
    wrap_paragraph,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.text())
def test_nothing_steers_the_terminal(text: str) -> None:
    console = create_console(io.StringIO())
    whole = "\n".join(line.plain for line in wrap_paragraph(console, text))
    for shown in (sanitize_text(text), whole):
        left = {char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
        assert left <= {"\n", "\t", "\u200d"}
    assert sanitize_text("a\r\nb\tc\x1b[2J\x9b") == "a\nb\tc<U+001B>[2J<U+009B>"


MARKS = "\u202e\u2066\u200b\U000e0041\x1b\x00\x85\u2028\ufeff\x07"


def test_no_mark_reaches_the_terminal_as_it_is() -> None:
    assert sanitize_text(MARKS) == "".join(f"<U+{ord(mark):04X}>" for mark in MARKS)


def test_a_paragraph_is_wrapped_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    text = "\nseven words that are too long for it\n\nend\u202e\n"
    screen, file = create_console(Terminal()), create_console(io.StringIO())
    assert (is_live(screen), is_live(file)) == (True, False)
    wrapped = [line.plain.rstrip() for line in wrap_paragraph(screen, text, indent=4)]
    assert wrapped == ["    seven words that are too", "    long for it", "", "    end<U+202E>"]
    kept = [line.plain for line in wrap_paragraph(file, text, indent=4)]
    assert kept == ["    seven words that are too long for it", "", "    end<U+202E>"]
    monkeypatch.setenv("TERM", "dumb")
    assert not is_live(create_console(Terminal()))


def test_a_diff_has_its_colours() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\x1b\n+new\n same\n"
    shown = [(line.plain, str(line.spans[0].style) if line.spans else "") for line in render_diff(diff, indent=1)]
    heads = [(" --- a/x", "bold"), (" +++ b/x", "bold"), (" @@ -1 +1 @@", "cyan")]
    assert shown == [*heads, (" -old<U+001B>", "red"), (" +new", "green"), ("  same", "")]


NOTHING: dict[str, Any] = dict.fromkeys(("inputTokens", "cacheReadTokens", "outputTokens", "thinkingTokens", "costUsd"))


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({}, ""),
        ({"inputTokens": 1200}, "1,200 tokens in · cost unknown"),
        ({"inputTokens": 0, "cacheReadTokens": 0, "costUsd": 0.0}, "0 tokens in"),
        ({"inputTokens": 1000, "cacheReadTokens": 250}, "1,000 tokens in (25 % from the cache) · cost unknown"),
        ({"outputTokens": 5, "costUsd": 0.5}, "5 out · $0.5000"),
        ({"outputTokens": 5000, "thinkingTokens": 4000}, "5,000 out (4,000 thinking) · cost unknown"),
    ],
)
def test_usage(known: dict[str, Any], told: str) -> None:
    assert format_usage_line(NOTHING | known) == told
