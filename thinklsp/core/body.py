"""The body of a request, which is as long as the conversation."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate


class Body:
    """In the pieces that it was written in. Most of them are kept for the next request anyhow, so a long conversation
    is not copied as a whole to be sent. Its value, `len`
    and `bytes` are those of the whole."""

    __slots__ = ("_ends", "_pieces")

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = tuple(pieces)
        self._ends = list(accumulate(map(len, self._pieces)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __bytes__(self) -> bytes:
        return b"".join(self._pieces)

    def __eq__(self, other: object) -> bool:
        return bytes(self) == bytes(other) if isinstance(other, Body) else NotImplemented

    def __hash__(self) -> int:
        return hash(bytes(self))

    def parts(self, most: int) -> Iterator[bytes]:
        """The whole in parts of at most so many bytes each, none of them empty."""
        first = begun = 0
        while begun < len(self):
            # As many whole pieces as there is room for, or one that is longer, cut up.
            last = max(bisect_right(self._ends, begun + most), first + 1)
            part = b"".join(self._pieces[first:last])
            yield from (part[start : start + most] for start in range(0, len(part), most))
            first, begun = last, self._ends[last - 1]
