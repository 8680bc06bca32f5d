"""The `@` mentions in a prompt, and that each formatted mention is parsed again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.prompt_syntax import Mention, find_mentions, write_mention

MENTIONS: list[tuple[str, list[Mention]]] = [
    ("see @src/a.py.", [Mention("src/a.py", None)]),
    ("@a.py:10 and (@b.py:10-20)", [Mention("a.py", (10, 10)), Mention("b.py", (10, 20))]),
    ("@a.py:L10-L20, @a.py:L3", [Mention("a.py", (10, 20)), Mention("a.py", (3, 3))]),
    ("mail me@example.com or @@x", []),
    ("@selection @diagnostics", []),
    ("@a.py @a.py", [Mention("a.py", None)]),
    ("@", []),
    ("@späß/ü.py", [Mention("späß/ü.py", None)]),
    ('see @"a b.py", @"a\\"b\\\\.py":3 and @"un', [Mention("a b.py", None), Mention('a"b\\.py', (3, 3))]),
    ('@"selection" @"untitled:Untitled-1":1-2', [Mention("selection", None), Mention("untitled:Untitled-1", (1, 2))]),
    (f"@a.py:{'9' * 5000}", [Mention("a.py", (999_999_999, 999_999_999))]),
]


@pytest.mark.parametrize(("prompt", "found"), MENTIONS)
def test_mentions(prompt: str, found: list[Mention]) -> None:
    assert list(find_mentions(prompt)) == found


@given(path=st.text(st.sampled_from('ab @:"\\.,/-?é🙂'), min_size=1, max_size=12), first=st.integers(0, 99))
def test_what_is_mentioned_is_read_back(path: str, first: int) -> None:
    """A mention can be anywhere in a sentence."""
    for lines in (None, (first, first + 1)):
        for sentence in (
            write_mention(path, lines),
            f"({write_mention(path, lines)})",
            f"Say {write_mention(path, lines)}, then.",
        ):
            assert find_mentions(sentence) == (Mention(path, lines),), sentence
