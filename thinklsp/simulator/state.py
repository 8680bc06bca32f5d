"""State of the services between requests: opaque texts that they issue, and prompts that they cache.

A seal carries everything that a later request is checked against, so no memory is needed to judge it. To clients it
is what the services' signatures are: long, opaque base64. The dialect decides what a seal contains.
Figures of the cache are estimates, but steady ones: the same text always counts the same, so that tests can compare
them; they are not the services' own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MAC = 32
_HEAD = _MAC + 4
_FILLER = 160
LIFETIMES = {"5m": 300.0, "1h": 3600.0}
_LOOK_BACK = 20
_MAX_ENTRIES = 8192


class Sealer:
    """Owns the secret. The same content gives the same text for the life of the process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def close(self, content: Mapping[str, Any], tokens: int) -> str:
        """`content` is JSON; `tokens`: how much thinking it stands for, which decides how long the text gets."""
        payload = json.dumps(content, separators=(",", ":")).encode("utf-8")
        # Filler of the thinking's own size makes signatures as long as the services'; a length divisible by three
        # needs no padding, whose spare bits could be changed unnoticed.
        size = _FILLER + 3 * tokens
        size += -(_HEAD + len(payload) + size) % 3
        filler = hashlib.shake_256(self._secret + payload).digest(size)
        rest = len(payload).to_bytes(4, "big") + payload + filler
        return base64.b64encode(self._mac(rest) + rest).decode("ascii")

    def open(self, text: str) -> Mapping[str, Any] | None:
        """The content, or None for anything that this process did not seal exactly so."""
        try:
            blob = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None
        if not hmac.compare_digest(blob[:_MAC], self._mac(blob[_MAC:])):
            return None
        length = int.from_bytes(blob[_MAC:_HEAD], "big")
        content: Mapping[str, Any] = json.loads(blob[_HEAD : _HEAD + length])
        return content

    def _mac(self, data: bytes) -> bytes:
        return hmac.new(self._secret, data, hashlib.sha256).digest()


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def json_digest(*values: Any) -> str:
    return text_digest(json.dumps(values, sort_keys=True, default=str))[:24]


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


def chain_items(key: str, units: Iterable[tuple[str, int, str | None]]) -> tuple[Item, ...]:
    """Return the items of a request from the content, tokens and lifetime of each. `key`: whose cache it is."""
    items: list[Item] = []
    for content, tokens, ttl in units:
        key = text_digest(f"{key}{content}")
        items.append(Item(key, tokens, ttl))
    return tuple(items)


def forget_oldest(kept: OrderedDict[Any, Any], limit: int) -> None:
    """Drop the oldest entries until at most `limit` are left."""
    while len(kept) > limit:
        kept.popitem(last=False)


class PromptCache:
    """Prefixes written by earlier requests and how long they live. Times come from the caller, in seconds."""

    def __init__(self) -> None:
        self._expires: OrderedDict[str, float] = OrderedDict()

    def clear(self) -> None:
        self._expires.clear()

    def charge(self, request: Sequence[Item], minimum: int, now: float) -> InputUsage:
        """Return what a request reads and writes. Its breakpoints are kept from now on, and what it read lives on."""
        usage = self._measure(request, minimum, now)
        self._keep(request, minimum, now)
        return usage

    def _measure(self, request: Sequence[Item], minimum: int, now: float) -> InputUsage:
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

    def _keep(self, request: Sequence[Item], minimum: int, now: float) -> None:
        sums = _sums(request)
        for index, item in enumerate(request):
            if item.ttl is None or sums[index] < minimum:
                continue
            hit = self._hit(request, index, now)
            for key in {item.key} | ({request[hit].key} if hit is not None else set()):
                expires = now + LIFETIMES[item.ttl]
                self._expires[key] = max(expires, self._expires.pop(key, 0.0))
        forget_oldest(self._expires, _MAX_ENTRIES)

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
