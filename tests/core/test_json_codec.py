"""Request bodies in chunks, and the depth of nested JSON."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.json_codec import ChunkedBody, is_shallow


@given(st.lists(st.binary(max_size=12), max_size=12), st.integers(1, 20))
def test_parts_are_the_whole_and_few(pieces: list[bytes], most: int) -> None:
    body = ChunkedBody(pieces)
    parts = list(body.split(most))
    assert b"".join(parts) == bytes(body) == b"".join(pieces)
    assert len(body) == len(bytes(body))
    assert all(0 < len(part) <= most for part in parts)
    if all(len(piece) <= most for piece in pieces):
        assert all(len(one) + len(after) > most for one, after in pairwise(parts))


_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)


def measure_depth(value: Any) -> int:
    """Return how many arrays and objects with content lie around the deepest value."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return 1 + max(map(measure_depth, inner)) if inner else 0


@given(_values, st.integers(0, 6))
def test_a_value_is_shallow_up_to_its_depth(value: Any, limit: int) -> None:
    assert is_shallow(value, limit) == (measure_depth(value) <= limit)


def test_a_hundred_thousand_levels_are_refused() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert not is_shallow(value, 128)
