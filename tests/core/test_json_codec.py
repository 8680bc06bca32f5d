"""The depth of nested JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.json_codec import is_shallow

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
