"""What of a request the prompt cache already holds. Figures are estimates, but steady ones: the same text always
counts the same, so that tests can compare them; they are not the services' own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LIFETIMES = {"5m": 300.0, "1h": 3600.0}
_LOOK_BACK = 20
_MAX_ENTRIES = 8192


def text_tokens(text: str) -> int:
    """A quarter of the bytes."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


@dataclass(frozen=True, slots=True)
class Item:
    """One cacheable unit of a request, in the order tools, system, messages. `key` stands for all up to it."""

    key: str
    tokens: int
    ttl: str | None


@dataclass(frozen=True, slots=True)
class InputUsage:
    """Tokens of a request: read from the cache, written to it for five minutes or an hour, and the rest."""

    read: int
    written: Mapping[str, int]
    rest: int

    @property
    def total(self) -> int:
        return self.read + sum(self.written.values()) + self.rest


class PromptCache:
    """Prefixes written by earlier requests and how long they live. Times come from the caller, in seconds."""

    def __init__(self) -> None:
        self._expires: OrderedDict[str, float] = OrderedDict()

    def clear(self) -> None:
        self._expires.clear()

    def measure(self, request: Sequence[Item], minimum: int, now: float) -> InputUsage:
        """What a request reads and writes; nothing changes until `commit`."""
        sums = _sums(request)
        total = sums[-1] if sums else 0
        breakpoints = [i for i, item in enumerate(request) if item.ttl and sums[i] >= minimum]
        hits = [hit for point in breakpoints if (hit := self._hit(request, point, now)) is not None]
        read = max((sums[hit] for hit in hits), default=0)
        written = {"5m": 0, "1h": 0}
        done = read
        for point in breakpoints:
            if sums[point] > done:
                written[request[point].ttl or "5m"] += sums[point] - done
                done = sums[point]
        return InputUsage(read, written, total - done)

    def commit(self, request: Sequence[Item], minimum: int, now: float) -> None:
        """The request was answered: its breakpoints are kept, what it read lives on."""
        sums = _sums(request)
        for index, item in enumerate(request):
            if item.ttl is None or sums[index] < minimum:
                continue
            hit = self._hit(request, index, now)
            for key in {item.key} | ({request[hit].key} if hit is not None else set()):
                expires = now + LIFETIMES[item.ttl]
                self._expires[key] = max(expires, self._expires.pop(key, 0.0))
        while len(self._expires) > _MAX_ENTRIES:
            self._expires.popitem(last=False)

    def _hit(self, request: Sequence[Item], point: int, now: float) -> int | None:
        """The longest kept prefix within the look-back, which counts the breakpoint itself."""
        for index in range(point, max(point - _LOOK_BACK, -1), -1):
            if self._expires.get(request[index].key, 0.0) > now:
                return index
        return None


def _sums(request: Sequence[Item]) -> list[int]:
    sums: list[int] = []
    for item in request:
        sums.append((sums[-1] if sums else 0) + item.tokens)
    return sums
