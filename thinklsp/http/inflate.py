"""Answers that come compressed although nobody asked for it. Pure: bytes in, bytes out, never many at once.

A few bytes can stand for any number of others, so what a piece becomes is handed out bit by bit: whoever counts it can
stop in time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

_PIECE = 64 * 1024
_GZIP, _ZLIB, _RAW = 31, 15, -15
# So much tells which of them it is.
_HEADER = 2


class Inflater:
    """Lives with one response. `coding`: ``gzip``, ``deflate``, or nothing, which leaves all as it is."""

    def __init__(self, coding: str) -> None:
        self._wbits = {"gzip": _GZIP, "deflate": _ZLIB}.get(coding)
        self._state = None if self._wbits is None else zlib.decompressobj(self._wbits)
        self._begun = False
        self._held = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What the next bytes mean, in pieces of 64 KiB at most. Raises zlib.error where they are damaged.

        To be used up before more is fed.
        """
        if self._state is None:
            yield data
            return
        data, self._held = self._held + data, b""
        if not self._begun and len(data) < _HEADER:
            self._held = data
            return
        while data:
            yield self._piece(data)
            data = self._state.unconsumed_tail or self._next_member()

    def _piece(self, data: bytes) -> bytes:
        assert self._state is not None  # noqa: S101 - said by the only caller, for the type checker
        try:
            piece = self._state.decompress(data, _PIECE)
        except zlib.error:
            if self._begun or self._wbits != _ZLIB:
                raise
            # Some servers mean by `deflate` what stands inside of it.
            self._wbits, self._state = _RAW, zlib.decompressobj(_RAW)
            piece = self._state.decompress(data, _PIECE)
        self._begun = True
        return piece

    def _next_member(self) -> bytes:
        """Gzip may hold several, one behind the other; nothing else may follow an end."""
        if self._state is None or not self._state.eof:
            return b""
        rest = self._state.unused_data
        if self._wbits == _GZIP:
            self._state = zlib.decompressobj(_GZIP)
        elif rest:
            raise zlib.error("more than one answer")
        return rest
