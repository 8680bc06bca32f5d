"""What comes compressed: the same however it is cut, in small pieces, and an error where it is damaged."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.http.inflate import Inflater

PACKERS = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate, bare": lambda data: zlib.compress(data, wbits=-15),
}


def unpacked(coding: str, pieces: list[bytes]) -> list[bytes]:
    inflater = Inflater(coding)
    return [part for piece in pieces for part in inflater.feed(piece)]


@given(st.sampled_from(sorted(PACKERS)), st.binary(max_size=300), st.integers(1, 40))
def test_any_cuts_give_the_same(kind: str, data: bytes, size: int) -> None:
    packed = PACKERS[kind](data)
    pieces = [packed[start : start + size] for start in range(0, len(packed), size)]
    assert b"".join(unpacked(kind.partition(",")[0], pieces)) == data


@given(st.lists(st.binary(max_size=80), min_size=1, max_size=4), st.integers(1, 40))
def test_members_follow_each_other(texts: list[bytes], size: int) -> None:
    packed = b"".join(map(gzip.compress, texts))
    pieces = [packed[start : start + size] for start in range(0, len(packed), size)]
    assert b"".join(unpacked("gzip", pieces)) == b"".join(texts)


def test_much_comes_in_small_pieces() -> None:
    parts = unpacked("gzip", [gzip.compress(b"\n" * 5_000_000)])
    assert sum(map(len, parts)) == 5_000_000
    assert max(map(len, parts)) <= 64 * 1024


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", b"nonsense"),
        ("deflate", b"\xff\xffnonsense"),
        ("gzip", gzip.compress(b"x") + b"more"),
        ("deflate", zlib.compress(b"x") + b"more"),
    ],
    ids=["gzip", "deflate", "more after gzip", "more after deflate"],
)
def test_damage_is_an_error(coding: str, data: bytes) -> None:
    with pytest.raises(zlib.error):
        unpacked(coding, [data])
