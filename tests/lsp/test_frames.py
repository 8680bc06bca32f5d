"""Framing: what counts as a header, what is passed over, and that pieces make no difference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.jsonrpc.framing import MAX_BODY_BYTES, BadFrame, FrameDecoder, FramingError

BAD = "a frame that cannot be read"
NEXT = b"Content-Length: 2\r\n\r\n{}"


def decoded(*chunks: bytes) -> list[bytes | str]:
    decoder = FrameDecoder()
    return [BAD if isinstance(frame, BadFrame) else frame for chunk in chunks for frame in decoder.feed(chunk)]


GOOD: dict[str, tuple[bytes, list[bytes | str]]] = {
    "plain": (b"Content-Length: 3\r\n\r\nabc", [b"abc"]),
    "B-37 lower case": (b"content-length: 3\r\n\r\nabc", [b"abc"]),
    "B-38 no space": (b"Content-Length:3\r\n\r\nabc", [b"abc"]),
    "B-38 more space": (b"Content-Length \t : \t 3 \t\r\n\r\nabc", [b"abc"]),
    "B-39 line feeds": (b"Content-Length: 3\n\nabc", [b"abc"]),
    "two": (b"Content-Length: 3\r\n\r\nabcContent-Length: 1\r\n\r\nd", [b"abc", b"d"]),
    "line ends in the body": (
        b"Content-Length: 8\r\n\r\n\r\n\r\nContContent-Length: 1\r\n\r\nd",
        [b"\r\n\r\nCont", b"d"],
    ),
    "empty lines between": (b"\r\n\nContent-Length: 3\r\n\r\nabc\r\n" + NEXT, [b"abc", b"{}"]),
    "B-45 utf-8": (
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 3\r\n\r\nabc",
        [b"abc"],
    ),
    "B-45 utf8": (b'Content-Length: 3\r\nContent-Type: x; charset="UTF8"\r\n\r\nabc', [b"abc"]),
    "a type without charset": (b"Content-Type: x\r\nContent-Length: 3\r\n\r\nabc", [b"abc"]),
    "an unknown header": (b"X-Client: y\r\nContent-Length: 3\r\n\r\nabc", [b"abc"]),
    "the same length twice": (b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", [b"abc"]),
    "a length with zeros": (b"Content-Length: 0003\r\n\r\nabc", [b"abc"]),
    "nothing yet": (b"Content-Length: 3\r\n\r\nab", []),
}

# One error each, and the message after it is served.
BROKEN: dict[str, bytes] = {
    "B-40 a length of 10^18": b"Content-Length: 1000000000000000000\r\n\r\n",
    "B-40 one more than allowed": b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
    "B-41 a length of 3,000 digits": b"Content-Length: " + b"9" * 3000 + b"\r\n\r\n",
    "B-44 zero": b"Content-Length: 0\r\n\r\n",
    "B-44 negative": b"Content-Length: -5\r\n\r\nabcde",
    "B-44 words": b"Content-Length: abc\r\n\r\nabcde",
    "B-44 nothing": b"Content-Length:\r\n\r\n",
    "B-44 two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "no length": b"Content-Type: x\r\n\r\nabcdef",
    "rubbish": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "many headers": b"".join(b"X-%d: y\r\n" % number for number in range(17)) + b"\r\n",
    "B-45 another charset": b"Content-Type: x; charset=utf-16\r\nContent-Length: 4\r\n\r\nabcd",
}


@pytest.mark.parametrize(("data", "bodies"), GOOD.values(), ids=GOOD)
def test_frames(data: bytes, bodies: list[bytes | str]) -> None:
    assert decoded(data) == bodies


@pytest.mark.parametrize("case", BROKEN)
def test_unreadable_message_is_one_error_and_next_is_served(case: str) -> None:
    assert decoded(NEXT + BROKEN[case] + NEXT) == [b"{}", BAD, b"{}"]


def test_a_length_that_is_too_short_loses_no_message() -> None:
    # B-42: the rest of the body stands before the next header, on the same line.
    assert decoded(b"Content-Length: 3\r\n\r\nabcdef" + NEXT + NEXT) == [b"abc", BAD, b"{}", b"{}"]


def test_a_length_that_is_too_long_loses_one() -> None:
    assert decoded(b"Content-Length: 6\r\n\r\nabc" + NEXT + NEXT) == [b"abcCon", BAD, b"{}"]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.sampled_from([data for data, _ in GOOD.values()][:-1] + list(BROKEN.values())), max_size=4),
    st.lists(st.integers(1, 60), max_size=40),
)
def test_any_chunking_gives_the_same_frames(parts: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(parts)
    chunks = []
    for cut in cuts:
        chunks.append(whole[:cut])
        whole = whole[cut:]
    assert decoded(*chunks, whole) == decoded(b"".join(parts))


@given(st.binary(max_size=400), st.integers(1, 50))
def test_any_few_bytes_are_frames_or_errors(data: bytes, size: int) -> None:
    decoded(*(data[at : at + size] for at in range(0, len(data), size)))


def test_a_header_without_an_end_is_given_up() -> None:
    with pytest.raises(FramingError):
        decoded(*[b"x" * 1000] * 10)  # B-43


def test_rubbish_without_an_end_is_given_up() -> None:
    assert decoded(b"rubbish\n", *[b"x" * 65536] * 10) == [BAD]
    with pytest.raises(FramingError):
        decoded(b"rubbish\n", *[b"x" * 65536] * 20)
