"""The framing by lines: what is a message, which line is too long, and what chunks cost."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.json_codec import encode_json
from thinklsp.jsonrpc.framing import MAX_LINE_BYTES, BadFrame, LineReader, build_line

TOO_LONG = BadFrame("The message is longer than 10 bytes.")

# A stream -> its messages, if a line has at most ten bytes.
STREAMS: dict[str, tuple[bytes, list[bytes | BadFrame]]] = {
    "nothing": (b"", []),
    "one": (b"{}\n", [b"{}"]),
    "two": (b"{}\n[]\n", [b"{}", b"[]"]),
    "with carriage returns": (b"{}\r\n[]\r\n", [b"{}", b"[]"]),
    "with empty lines": (b"\n\r\n{}\n\n\n[]\n", [b"{}", b"[]"]),
    "a carriage return inside": (b"{\r}\n", [b"{\r}"]),
    "incomplete": (b"{}\n[1,", [b"{}"]),
    "as long as allowed": (b"0123456789\n{}\n", [b"0123456789", b"{}"]),
    "one byte too long": (b"01234567890\n{}\n", [TOO_LONG, b"{}"]),
    "much too long": (b"0" * 95 + b"\n{}\n", [TOO_LONG, b"{}"]),
    "two that are too long": (b"0" * 11 + b"\n" + b"1" * 11 + b"\n{}\n", [TOO_LONG, TOO_LONG, b"{}"]),
    "too long without an end": (b"{}\n" + b"0" * 95, [b"{}", TOO_LONG]),
    "bytes that are not UTF-8": (b"\xff\xfe\n{}\n", [b"\xff\xfe", b"{}"]),
}


def read(chunks: Iterable[bytes], max_bytes: int = 10) -> list[bytes | BadFrame]:
    reader = LineReader(max_bytes)
    return [frame for chunk in chunks for frame in reader.feed(chunk)]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize(("data", "frames"), STREAMS.values(), ids=STREAMS)
def test_messages_of_a_stream(data: bytes, frames: list[bytes | BadFrame]) -> None:
    assert read([data]) == frames
    assert read(data[at : at + 1] for at in range(len(data))) == frames


@given(
    st.lists(st.sampled_from([b"\n", b"\r", b"{}", b"[1]", b"\xff", b"0" * 9, b"1" * 30]), max_size=30).map(b"".join),
    st.data(),
)
def test_any_cut_gives_the_same_messages(data: bytes, drawn: st.DataObject) -> None:
    places = drawn.draw(st.lists(st.integers(0, len(data)), max_size=20))
    assert read(cut(data, places)) == read([data])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.lists(JSON, max_size=5))
def test_messages_arrive_as_they_were_written(values: list[object]) -> None:
    bodies = [encode_json(value) for value in values]
    assert read([b"".join(map(build_line, bodies))], MAX_LINE_BYTES) == bodies


def read_byte_by_byte(size: int) -> float:
    """Read one line in the smallest chunks. Return the processor time of each."""
    reader = LineReader()
    began = time.process_time()
    for _ in range(size):
        assert reader.feed(b"x") == []
    seconds = time.process_time() - began
    assert reader.feed(b"\n") == [b"x" * size]
    return seconds / size


def test_a_long_line_of_the_smallest_chunks_is_whole() -> None:
    read_byte_by_byte(100_000)


@pytest.mark.timing
def test_the_worst_megabyte_costs_linear_time() -> None:
    # A search through the whole line for every chunk would cost ten times as much.
    assert read_byte_by_byte(1 << 20) < 4 * min(read_byte_by_byte(100_000) for _ in range(3))


def feed_too_long_line(reader: LineReader) -> list[bytes | BadFrame]:
    chunk = b"x" * (1 << 20)
    return [frame for _ in range(64) for frame in reader.feed(chunk)]


def test_a_line_that_is_far_too_long_is_refused_once() -> None:
    reader = LineReader()
    assert feed_too_long_line(reader) == [BadFrame("The message is longer than 8,388,608 bytes.")]
    assert reader.feed(b"x\n{}\n") == [b"{}"]


@pytest.mark.timing
def test_a_line_that_is_too_long_takes_no_memory() -> None:
    reader = LineReader()
    tracemalloc.start()
    try:
        feed_too_long_line(reader)
        current, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert current < 1 << 20
    assert peak < 3 * MAX_LINE_BYTES
