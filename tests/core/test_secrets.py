"""Secrets and their parts are removed from texts, and other words stay."""

from __future__ import annotations

import time
from base64 import b64encode
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.text_safety import HIDDEN, hide_secrets, make_excerpt, mask

_letters = st.text("ab-+", max_size=40)


@given(before=_letters, secret=st.text("ab-+", min_size=6, max_size=40), start=st.integers(0, 16), after=_letters)
def test_nothing_of_a_secret_is_left(before: str, secret: str, start: int, after: str) -> None:
    for spelled in (secret, quote(secret, safe="")):
        left = hide_secrets(f"{before}{spelled[start:]}{after}", [secret])
        assert secret not in left
        if len(secret) >= 16:
            assert not any(secret[at : at + 8] in left for at in range(len(secret) - 7))


@given(text=st.text("ab [h]", max_size=40))
def test_all_else_is_left(text: str) -> None:
    assert hide_secrets(text, ["", "short", "0123456789"]) == text
    assert hide_secrets("Is http://lm-studio.local there?", ["lm-studio-key"]) == "Is http://lm-studio.local there?"


def test_a_secret_is_hidden_once() -> None:
    assert hide_secrets("key=secret-key.", ["secret-key"]) == f"key={HIDDEN}."


@pytest.mark.timing
def test_a_long_secret_is_hidden_quickly() -> None:
    begun = time.perf_counter()
    hide_secrets("ab" * 50_000, ["ab" * 4_000])
    assert time.perf_counter() - begun < 5


SIGNATURE = "EqQBCkYICxgCKkDcan4ryQzJ1+xy/9Z=="


@pytest.mark.parametrize("between", ["\0", "\u200b", "\u2060", "\x1b"])
def test_what_nobody_sees_hides_no_secret(between: str) -> None:
    """An answer in UTF-16 that is read as UTF-8 contains such characters."""
    excerpt = make_excerpt(between.join(f"bad: {SIGNATURE} and sk-ant-api03-abcdefgh-ijkl"))
    assert excerpt == "bad: [hidden] and [hidden]"


@pytest.mark.parametrize(
    "plain",
    [
        "thinking.block_binding.prefix_mismatch_behavior",
        "claude-sonnet-4-5-20250929",
        "thinking-binding-controls-2026-08-01",
        "ANTHROPIC_BASE_URL_OF_THE_SERVICE",
        "messages.1.content.0: tool_use ids were found without tool_result blocks immediately after",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct",
        "litellm.ContextWindowExceededError: context_window_fallbacks=None",
        "java.lang.IllegalArgumentException",
    ],
)
def test_ordinary_words_are_not_masked(plain: str) -> None:
    assert mask(plain) == plain


@given(st.binary(min_size=48, max_size=90), st.sampled_from(["", "a", "claude-opus-5-5", "Qwen/Qwen3-Coder-480B"]))
def test_random_keys_are_masked_whatever_the_model_is_called(secret: bytes, model: str) -> None:
    """A key has at least 64 base64 characters without separators."""
    run = b64encode(secret).decode("ascii").replace("/", "a").rstrip("=")
    if run.isupper() or run.islower() or run.isdigit():
        return
    assert run not in mask(f"key {run} end", model)


def test_excerpts_are_short_single_printable_lines() -> None:
    assert make_excerpt("a\n\n b\x1b[31m\u202e c\x00") == "a b[31m c"
    assert len(make_excerpt("word " * 500)) == 300
    assert make_excerpt("  <html>secret</html>") == ""
