"""Every recorded stream, cut everywhere, with every line end, and with whatever a service may put in between."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from tests.slow.running import Tally
from tests.support.anthropic_samples import ORIGIN, cases, expected, neutral, stream
from tests.support.sizes import SEED, sized
from thinklsp.core.errors import ProviderError, StreamProtocolError
from thinklsp.core.stream_events import MessageAccumulator, MessageFinished
from thinklsp.http.sse import SseDecoder
from thinklsp.providers.anthropic import AnthropicAdapter

ALL = [*cases(failing=False), *cases(failing=True)]
ENDS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}
Outcome = tuple[str, Any]


def outcome(chunks: Iterable[bytes]) -> Outcome:
    sse, decoder, accumulator = SseDecoder(), AnthropicAdapter().create_decoder(), MessageAccumulator(ORIGIN)
    explanation = None
    try:
        for chunk in (*chunks, None):
            for sent in sse.finish() if chunk is None else sse.feed(chunk):
                for event in decoder.feed(sent.event, sent.data):
                    accumulator.apply(event)
                    if isinstance(event, MessageFinished):
                        explanation = event.explanation
        decoder.finish()
        return "message", neutral(accumulator.build_message(), accumulator.usage, explanation)
    except ProviderError as error:
        return type(error).__name__, (str(error), error.retryable)


def with_ends(case: str, end: str) -> bytes:
    return re.sub(rb"\r\n|\r|\n", ENDS[end], stream(case))


def as_event(**content: Any) -> bytes:
    return f"event: {content['type']}\ndata: {json.dumps(content)}\n\n".encode()


BETWEEN: dict[str, bytes] = {
    "comment": b": keep-alive\n\n",
    "ping": as_event(type="ping"),
    "unknown event": as_event(type="mood", mood={"type": "message_stop"}),
    "unknown delta": as_event(type="content_block_delta", index=77, delta={"type": "hum_delta", "text": "x"}),
    "empty event": b"event: message_stop\n\n",
}


# Of the offsets inside lines, with other line ends than LF, each so many is tried.
STRIDE = sized(commit=20, nightly=1)


def offsets(data: bytes, end: str) -> Sequence[int]:
    """Return the offsets to cut at: all of them with LF. Only what is near a line end depends on its kind."""
    every = range(len(data) + 1)
    if end == "LF":
        return every
    near = {at + by for at, byte in enumerate(data) if byte in b"\r\n" for by in range(-1, 3)}
    return [at for at in every if at in near or at % STRIDE == SEED % STRIDE]


def borders(data: bytes, end: bytes) -> list[int]:
    return [found.end() for found in re.finditer(re.escape(end * 2), data)]


def woven(data: bytes, places: Iterable[int], between: bytes) -> bytes:
    made, last = b"", 0
    for place in places:
        made += data[last:place] + between
        last = place
    return made + data[last:]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("case", ALL)
def test_two_pieces_at_every_offset(case: str, end: str) -> None:
    data = with_ends(case, end)
    whole = outcome([data])
    assert (whole[0] == "message") is ("error" not in expected(case))
    for cut in offsets(data, end):
        assert outcome([data[:cut], data[cut:]]) == whole, cut
    assert outcome(data[i : i + 1] for i in range(len(data))) == whole


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("case", ALL)
def test_what_stands_in_between_changes_nothing(case: str, end: str) -> None:
    data = with_ends(case, end)
    whole = outcome([data])
    places = borders(data, ENDS[end])
    for name, between in BETWEEN.items():
        piece = between.replace(b"\n", ENDS[end])
        for place in places:
            assert outcome([woven(data, [place], piece)]) == whole, (name, place)
    everything = woven(data, places, b"".join(BETWEEN.values()).replace(b"\n", ENDS[end]))
    assert outcome([everything]) == whole
    if end == "CRLF":
        for cut in offsets(everything, end):
            assert outcome([everything[:cut], everything[cut:]]) == whole, cut


@pytest.mark.parametrize("case", cases(failing=False))
def test_a_block_of_an_unknown_type_joins_without_disturbing(case: str) -> None:
    data = with_ends(case, "LF")
    kind, whole = outcome([data])
    terminal = next(at for at in range(len(data) + 1) if ended(data[:at]))
    opening = data.index(b"message_start")
    odd = {"type": "zz_new", "payload": [1, {"signature": "S"}]}
    block = as_event(type="content_block_start", index=77, content_block=odd) + as_event(
        type="content_block_stop", index=77
    )
    for place in (place for place in borders(data, b"\n") if opening < place < terminal - len(b"message_stop")):
        found = outcome([woven(data, [place], block)])
        blocks, kinds = [*whole["blocks"], odd], [*whole["kinds"], "opaque"]
        assert found == (kind, {**whole, "blocks": blocks, "kinds": kinds}), place


def mistaken(data: bytes, cuts: Iterable[int], last_words: bytes = b"") -> list[int]:
    """Return the offsets of these at which a cut stream is misread. `last_words` follow the cut."""
    whole = outcome([data])
    wrong = []
    for cut in cuts:
        kind, content = outcome([data[:cut], last_words])
        if kind == "message":
            right = ended(data[:cut]) and (kind, content) == whole
        else:
            # The server may retry after a break.
            right = whole[0] != "message" or (
                not ended(data[:cut]) and kind == StreamProtocolError.__name__ and content[1]
            )
        wrong += [] if right else [cut]
    return wrong


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("case", ALL)
def test_stream_cut_at_any_offset_is_not_a_success(case: str, end: str, tally: Tally) -> None:
    data = with_ends(case, end)
    cuts = offsets(data, end)[:-1]
    assert mistaken(data, cuts) == []
    tally("A-07", len(cuts))


def test_a_reader_that_ends_streams_by_itself_is_found() -> None:
    data = with_ends("thinking_then_tool", "LF")
    assert mistaken(data, range(len(data)), b"\n\n" + as_event(type="message_stop"))


def ended(data: bytes) -> bool:
    return any(content.get("type") == "message_stop" for content in _contents(data))


def _contents(data: bytes) -> Iterator[dict[str, Any]]:
    for line in re.split(rb"\r\n|\r|\n", data):
        name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        if name == b"data":
            try:
                content = json.loads(value)
            except ValueError:
                continue
            if isinstance(content, dict):
                yield content
