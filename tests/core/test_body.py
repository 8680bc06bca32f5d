"""A body in pieces is the same as in one, however it is cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.json_codec import ChunkedBody


@given(st.lists(st.binary(max_size=12), max_size=12), st.integers(1, 20))
def test_parts_are_the_whole_and_few(pieces: list[bytes], most: int) -> None:
    body = ChunkedBody(pieces)
    parts = list(body.split(most))
    assert b"".join(parts) == bytes(body) == b"".join(pieces)
    assert len(body) == len(bytes(body))
    assert all(0 < len(part) <= most for part in parts)
    if all(len(piece) <= most for piece in pieces):
        assert all(len(one) + len(after) > most for one, after in pairwise(parts))
