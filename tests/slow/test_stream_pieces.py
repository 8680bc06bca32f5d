"""A-06: the recorded streams of four services, cut at random into pieces, with any line ends: always the same message.

Messages are compared as values, so the sealed JSON of every block is compared byte for byte.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.support import anthropic_cases, chat_cases, google_cases, openai_cases
from tests.support.sizes import SEED, tries
from thinklsp.core.accumulator import MessageAccumulator
from thinklsp.core.errors import ProviderError
from thinklsp.core.messages import Origin
from thinklsp.core.stream import MessageFinished
from thinklsp.http.sse import ServerSentEvent, SseDecoder
from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.base import StreamDecoder
from thinklsp.providers.google.adapter import GoogleAdapter
from thinklsp.providers.openai_chat.adapter import OpenAiChatAdapter
from thinklsp.providers.openai_responses.adapter import OpenAiResponsesAdapter

ENDS = (b"\n", b"\r\n", b"\r")


@dataclass(frozen=True)
class Dialect:
    folder: Path
    origin: Origin
    decoder: Callable[[str], StreamDecoder]


DIALECTS = {
    "anthropic": Dialect(
        anthropic_cases.FOLDER, anthropic_cases.ORIGIN, lambda _: AnthropicAdapter().decoder()
    ),
    "openai": Dialect(openai_cases.FOLDER, openai_cases.ORIGIN, lambda _: OpenAiResponsesAdapter().decoder()),
    "compatible": Dialect(
        chat_cases.FOLDER, chat_cases.ORIGIN, lambda case: OpenAiChatAdapter(chat_cases.server_of(case)).decoder()
    ),
    "google": Dialect(google_cases.FOLDER, google_cases.ORIGIN, lambda _: GoogleAdapter().decoder()),
}  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    dialect: Dialect
    case: str
    data: bytes


@cache
def recorded() -> tuple[Recorded, ...]:
    """Every fixture with each kind of line end. Those that begin with a byte order mark keep it."""
    return tuple(
        Recorded(dialect, path.stem, re.sub(rb"\r\n|\r|\n", end, path.read_bytes()))
        for dialect in DIALECTS.values()
        for path in sorted(dialect.folder.glob("*.sse"))
        for end in ENDS
    )


def outcome(stream: Recorded, pieces: Iterable[bytes], sse: SseDecoder) -> object:
    """All that a caller could tell apart: message, usage and last event, or the failure."""
    decoder, accumulator = stream.dialect.decoder(stream.case), MessageAccumulator(stream.dialect.origin)
    ends: list[MessageFinished] = []

    def take(sent: Iterable[ServerSentEvent]) -> None:
        for one in sent:
            for event in decoder.feed(one.event, one.data):
                accumulator.apply(event)
                if isinstance(event, MessageFinished):
                    ends.append(event)

    try:
        for piece in pieces:
            take(sse.feed(piece))
        take(sse.finish())
        for event in decoder.finish():
            accumulator.apply(event)
            if isinstance(event, MessageFinished):
                ends.append(event)
        return accumulator.message(), accumulator.usage, ends, accumulator.unmatched
    except ProviderError as error:
        return type(error).__name__, str(error), error.retryable


def in_pieces(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """By the byte, in packets, in few large parts, or where it hurts: within line ends, characters and escapes."""
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
    """The cases whose outcome depends on how they were cut; each stream in turn, until `count` were tried."""
    streams = list(recorded())
    rng.shuffle(streams)
    whole = {id(stream): outcome(stream, [stream.data], SseDecoder()) for stream in streams}
    for number in range(count):
        stream = streams[number % len(streams)]
        if outcome(stream, in_pieces(stream.data, rng), sse()) != whole[id(stream)]:
            yield stream.case


def test_any_pieces_give_the_same_message(tally: Callable[[str, int], None]) -> None:
    count = tries("A-06")
    assert list(differences(count, random.Random(SEED))) == []
    tally("A-06", count)


class ForgetsCarriageReturns(SseDecoder):
    """Takes a line end that was cut in two for two."""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        self._after_cr = False
        return super().feed(chunk)


class DecodesPieces(SseDecoder):
    """Takes each piece for text of its own."""

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
