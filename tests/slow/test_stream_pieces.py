"""A-06: recorded streams of four services in random pieces, with any line ends, always give the same message."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from tests.slow.running import Tally
from tests.support import anthropic_samples, chat_samples, google_samples, openai_samples
from tests.support.sizes import SEED, tries
from thinklsp.core.errors import ProviderError
from thinklsp.core.stream_events import MessageAccumulator, MessageFinished
from thinklsp.http.sse import ServerSentEvent, SseDecoder
from thinklsp.providers.anthropic import AnthropicAdapter
from thinklsp.providers.chat_adapter import OpenAiChatAdapter
from thinklsp.providers.google import GoogleAdapter
from thinklsp.providers.responses_adapter import OpenAiResponsesAdapter

ENDS = (b"\n", b"\r\n", b"\r")


@dataclass(frozen=True)
class Dialect:
    samples: Any
    adapter: Callable[[str], Any]


DIALECTS = (
    Dialect(anthropic_samples, lambda _: AnthropicAdapter()),
    Dialect(openai_samples, lambda _: OpenAiResponsesAdapter()),
    Dialect(chat_samples, lambda case: OpenAiChatAdapter(chat_samples.server_of(case))),
    Dialect(google_samples, lambda _: GoogleAdapter()),
)


@dataclass(frozen=True)
class Recorded:
    dialect: Dialect
    case: str
    data: bytes


@cache
def recorded() -> tuple[Recorded, ...]:
    """Return every fixture with each kind of line end. A byte order mark stays."""
    return tuple(
        Recorded(dialect, path.stem, re.sub(rb"\r\n|\r|\n", end, path.read_bytes()))
        for dialect in DIALECTS
        for path in sorted(dialect.samples.FOLDER.glob("*.sse"))
        for end in ENDS
    )


def outcome(stream: Recorded, pieces: Iterable[bytes], sse: SseDecoder) -> object:
    dialect = stream.dialect
    decoder, accumulator = dialect.adapter(stream.case).create_decoder(), MessageAccumulator(dialect.samples.ORIGIN)
    ends: list[MessageFinished] = []

    def read_events() -> Iterator[Any]:
        for piece in (*pieces, None):
            for sent in sse.finish() if piece is None else sse.feed(piece):
                yield from decoder.feed(sent.event, sent.data)
        yield from decoder.finish()

    try:
        for event in read_events():
            accumulator.apply(event)
            if isinstance(event, MessageFinished):
                ends.append(event)
        return accumulator.build_message(), accumulator.usage, ends, accumulator.unmatched
    except ProviderError as error:
        return type(error).__name__, str(error), error.retryable


def in_pieces(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Cut by bytes, in packets, in few large parts, or within line ends, characters and escapes."""
    match rng.randrange(4):
        case 0:
            size = rng.choice((1, 2, 3, 7))
            places: Sequence[int] = range(size, len(data), size)
        case 1:
            places = sorted(rng.sample(range(len(data) + 1), min(len(data), rng.randrange(1, 60))))
        case 2:
            places = sorted(rng.sample(range(len(data) + 1), min(len(data), 2)))
        case _:
            tender = [at for at, byte in enumerate(data) if byte in b"\r\n\\" or byte >= 0x80]
            places = sorted(at + rng.randrange(2) for at in rng.sample(tender, min(len(tender), 40)))
    last = 0
    for at in (*places, len(data)):
        yield data[last:at]
        last = at


def differences(count: int, rng: random.Random, sse: Callable[[], SseDecoder] = SseDecoder) -> Iterator[str]:
    """Return the cases whose outcome depends on the cuts; each stream in turn."""
    streams = list(recorded())
    rng.shuffle(streams)
    whole = {id(stream): outcome(stream, [stream.data], SseDecoder()) for stream in streams}
    for number in range(count):
        stream = streams[number % len(streams)]
        if outcome(stream, in_pieces(stream.data, rng), sse()) != whole[id(stream)]:
            yield stream.case


def test_any_pieces_give_the_same_message(tally: Tally) -> None:
    count = tries("A-06")
    assert list(differences(count, random.Random(SEED))) == []
    tally("A-06", count)


class ForgetsCarriageReturns(SseDecoder):
    """Takes a line end that was cut in two for two."""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        self._after_cr = False
        return super().feed(chunk)


class DecodesPieces(SseDecoder):
    """Decodes each piece by itself."""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        return super().feed(chunk.decode("utf-8", "replace").encode())


class LosesBytes(SseDecoder):
    """Loses a byte at one border of three hundred."""

    borders = 0

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        LosesBytes.borders += 1
        return super().feed(chunk[1:] if LosesBytes.borders % 300 == 0 else chunk)


@pytest.mark.parametrize("faulty", [ForgetsCarriageReturns, DecodesPieces, LosesBytes])
def test_a_decoder_that_minds_the_borders_is_found(faulty: type[SseDecoder]) -> None:
    assert next(differences(3_000, random.Random(SEED), faulty), None) is not None
