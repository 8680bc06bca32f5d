"""Bytes to events: framing rules, every cut, limits."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.core.errors import StreamProtocolError
from thinklsp.http.sse import ServerSentEvent, SseDecoder, SseLimits

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "anthropic").glob("*.sse"))

CASES = {
    "lf": (b"event: a\ndata: 1\n\ndata: 2\n\n", [("a", "1"), ("", "2")]),
    "cr": (b"event: a\rdata: 1\r\rdata: 2\r\r", [("a", "1"), ("", "2")]),
    "crlf": (b"event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", [("a", "1"), ("", "2")]),
    "mixed ends": (b"data: 1\r\ndata: 2\n\rdata: 3\n\n", [("", "1\n2"), ("", "3")]),
    "bom": (b"\xef\xbb\xbfdata: 1\n\n", [("", "1")]),
    "bom only at the very start": (b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n", [("", "1")]),
    "comments": (b": ping\n\n:\n\ndata: 1\n: in between\n\n", [("", "1")]),
    "several data lines": (b"data: a\ndata:\ndata: b\n\n", [("", "a\n\nb")]),
    "one space goes": (b"data:a\n\ndata:  b\n\n", [("", "a"), ("", " b")]),
    "field without colon": (b"data\n\nevent\ndata: 1\n\n", [("", ""), ("", "1")]),
    "unknown fields": (b"id: 7\nretry: 10\nfoo: x\ndata: 1\n\n", [("", "1")]),
    "event without data": (b"event: a\n\ndata: 1\n\n", [("", "1")]),
    "last event without blank line": (b"data: 1\n\nevent: z\ndata: 2", [("", "1"), ("z", "2")]),
    "unicode line ends are text": (
        'data: {"t":"a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1d\x1ee"}\n\n'.encode(),
        [("", '{"t":"a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1d\x1ee"}')],
    ),
    "broken utf-8": (b"data: \xff\xe2\x82\n\ndata: \xe2\x82\xac\n\n", [("", "\ufffd\ufffd"), ("", "€")]),
    "nothing": (b"", []),
}


def decode(*chunks: bytes, limits: SseLimits | None = None) -> list[ServerSentEvent]:
    decoder = SseDecoder(limits or SseLimits())
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.finish()


def check_sse(chunks: list[bytes], expected: list[ServerSentEvent]) -> None:
    assert decode(*chunks) == expected


@pytest.mark.parametrize("name", CASES)
def test_framing_however_it_is_cut(name: str) -> None:
    stream, pairs = CASES[name]
    expected = [ServerSentEvent(event, data) for event, data in pairs]
    check_sse([stream], expected)
    check_sse([stream[i : i + 1] for i in range(len(stream))], expected)
    for cut in range(len(stream) + 1):
        check_sse([stream[:cut], b"", stream[cut:]], expected)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_fixtures_cut_at_every_byte(path: Path) -> None:
    stream = path.read_bytes()
    expected = decode(stream)
    assert expected
    for cut in range(len(stream) + 1):
        check_sse([stream[:cut], stream[cut:]], expected)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.sampled_from([b"data: ", b"event: ", b"\r", b"\n", b"\r\n", b":", b" ", b"\xe2\x82\xac", b"x"])),
    st.lists(st.integers(0, 60)),
)
def test_any_chunking_gives_the_same(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    chunks = [stream[a:b] for a, b in pairwise(places)]
    check_sse(chunks, decode(stream))


def test_event_is_not_delayed_by_trailing_carriage_return() -> None:
    assert SseDecoder().feed(b"data: 1\r\r") == [ServerSentEvent("", "1")]


@pytest.mark.parametrize(
    ("limits", "stream"),
    [
        pytest.param(SseLimits(line_bytes=20), b"data: " + b"x" * 30, id="line without end"),
        pytest.param(SseLimits(line_bytes=20), b": " + b"x" * 30 + b"\n", id="comment line"),
        pytest.param(SseLimits(event_bytes=20), b"data: 123456789\n" * 3, id="event of many lines"),
        pytest.param(SseLimits(events=2), b"data: 1\n\n" * 3, id="number of events"),
        pytest.param(SseLimits(lines=3), b"\n" * 4, id="number of lines"),
    ],
)
def test_limits_end_the_stream_for_good(limits: SseLimits, stream: bytes) -> None:
    for chunks in ([stream], [stream[i : i + 1] for i in range(len(stream))]):
        with pytest.raises(StreamProtocolError, match="was discarded") as caught:
            decode(*chunks, limits=limits)
        assert not caught.value.retryable


def test_lines_far_beyond_64_kib_pass() -> None:
    data = json.dumps({"signature": "A" * 3_000_000})
    stream = f"data: {data}\n\n".encode()
    assert decode(*(stream[i : i + 65536] for i in range(0, len(stream), 65536))) == [ServerSentEvent("", data)]


@pytest.mark.timing
def test_cost_grows_with_the_bytes_and_not_with_their_square() -> None:
    def seconds(size: int) -> float:
        decoder, piece = SseDecoder(), b"x" * 64
        decoder.feed(b"data: ")
        start = time.process_time()
        for _ in range(size // 64):
            decoder.feed(piece)
        return time.process_time() - start

    small, large = min(seconds(250_000) for _ in range(3)), min(seconds(4_000_000) for _ in range(3))
    assert large < 16 * small * 4


def test_an_event_for_every_token_of_the_longest_answers_passes() -> None:
    assert len(decode(b"data: 1\n\n" * 130_000)) == 130_000
