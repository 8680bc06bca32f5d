"""The results of a decoder, which splits a byte stream into message bodies. Each framing has its own decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class FramingError(Exception):
    """The error raised when the start of the next message cannot be found. The stream is then unusable."""


@dataclass(frozen=True, slots=True)
class BadFrame:
    """An unreadable message. The client gets `reason` as an error message, and later messages are still read."""

    reason: str


class Decoder(Protocol):
    """The decoder for a connection."""

    def feed(self, data: bytes, /) -> list[bytes | BadFrame]:
        """Add `data` to the input and return all message bodies that are complete.

        Raise FramingError if the start of the next message cannot be found.
        """
        ...
