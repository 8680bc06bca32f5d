"""No secret, and no telling piece of one, is left in a text; and nothing else is taken from it."""

from __future__ import annotations

import time
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.secrets import HIDDEN, hide

_letters = st.text("ab-+", max_size=40)


@given(before=_letters, secret=st.text("ab-+", min_size=6, max_size=40), start=st.integers(0, 16), after=_letters)
def test_nothing_of_a_secret_is_left(before: str, secret: str, start: int, after: str) -> None:
    for spelled in (secret, quote(secret, safe="")):
        left = hide(f"{before}{spelled[start:]}{after}", [secret])
        assert secret not in left
        if len(secret) >= 16:
            assert not any(secret[at : at + 8] in left for at in range(len(secret) - 7))


@given(text=st.text("ab [h]", max_size=40))
def test_all_else_is_left(text: str) -> None:
    assert hide(text, ["", "short", "0123456789"]) == text
    assert hide("Is http://lm-studio.local there?", ["lm-studio-key"]) == "Is http://lm-studio.local there?"


def test_a_secret_is_hidden_once_and_quickly() -> None:
    assert hide("key=secret-key.", ["secret-key"]) == f"key={HIDDEN}."
    begun = time.perf_counter()
    hide("ab" * 50_000, ["ab" * 4_000])
    assert time.perf_counter() - begun < 5
