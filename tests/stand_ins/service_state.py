"""The state that a simulated service keeps between requests, which consists of signed data and the prompt cache.

Signed data, such as a thinking signature, contains everything that is needed to check later requests, so the simulator
does not store it. Token counts are deterministic estimates, so that tests can compare them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, TypeVar

from thinklsp.offline.scenario import UsageOverride

_MAC_BYTES = 32
_HEAD_BYTES = _MAC_BYTES + 4
_FILLER_BYTES = 160
LIFETIME_SECONDS = {"5m": 300.0, "1h": 3600.0}
_MAX_LOOK_BACK = 20
V = TypeVar("V")


class StateSigner:
    """A signer of data that clients must send back unchanged. Each signer has its own secret.

    Signing the same data always results in the same text, so a repeated answer has the same signatures.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def sign(self, state: Any, tokens: int = 0) -> str:
        """Return the signed text for a dataclass whose values are valid JSON.

        Real signatures grow with the thinking, so the text gets four additional characters for each of the `tokens`.
        """
        payload = json.dumps([type(state).__name__, asdict(state)], separators=(",", ":")).encode("utf-8")
        # Make the length divisible by three to avoid base64 padding. With padding, a client can change unused bits in
        # the last character without being noticed.
        size = _FILLER_BYTES + 3 * tokens
        size += -(_HEAD_BYTES + len(payload) + size) % 3
        filler = hashlib.shake_256(self._secret + payload).digest(size)
        rest = len(payload).to_bytes(4, "big") + payload + filler
        return base64.b64encode(self._compute_mac(rest) + rest).decode("ascii")

    def verify(self, text: str, kind: type[V]) -> V | None:
        """Return the signed dataclass, or None if the text was changed or is not a signed `kind`."""
        try:
            blob = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None
        if not hmac.compare_digest(blob[:_MAC_BYTES], self._compute_mac(blob[_MAC_BYTES:])):
            return None
        length = int.from_bytes(blob[_MAC_BYTES:_HEAD_BYTES], "big")
        name, content = json.loads(blob[_HEAD_BYTES : _HEAD_BYTES + length])
        if name != kind.__name__:
            return None
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in content.items()})

    def _compute_mac(self, data: bytes) -> bytes:
        return hmac.new(self._secret, data, hashlib.sha256).digest()


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def hash_json(*values: Any) -> str:
    return hash_text(json.dumps(values, sort_keys=True, default=str))[:24]


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens in a text. Four bytes of UTF-8 count as one token."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


@dataclass(frozen=True, slots=True)
class CacheUnit:
    """A unit for the prompt cache, such as a tool, a system block or a message block.

    `key` identifies the request up to and including the unit. `ttl` is None if no cached prefix ends with the unit.
    """

    key: str
    tokens: int
    ttl: str | None


@dataclass(frozen=True, slots=True)
class InputUsage:
    """The number of input tokens that were read from the cache, written to the cache, or not cached.

    `written_tokens` contains the tokens for each cache lifetime, `5m` or `1h`.
    """

    read_tokens: int
    written_tokens: Mapping[str, int]
    uncached_tokens: int

    @property
    def total(self) -> int:
        return self.read_tokens + sum(self.written_tokens.values()) + self.uncached_tokens


def build_cache_units(key: str, units: Iterable[tuple[str, int, str | None]]) -> tuple[CacheUnit, ...]:
    """Build units for the prompt cache from the content, token count and lifetime of each unit.

    `key` selects the cache, for example by model. A unit's key is a hash of the previous unit's key and its own
    content.
    """
    items: list[CacheUnit] = []
    for content, tokens, ttl in units:
        key = hash_text(f"{key}{content}")
        items.append(CacheUnit(key, tokens, ttl))
    return tuple(items)


@dataclass(frozen=True, slots=True)
class AnswerUsage:
    """The token usage of an answer. `input` includes cached tokens, and `output` includes thinking."""

    input: int
    cache_read: int
    cache_writes: Mapping[str, int]
    output: int
    thinking: int


def compute_usage(
    input_usage: InputUsage, output: int, thinking: int, override: UsageOverride, *, step: int = 1
) -> AnswerUsage:
    """Return the usage that a service reports. Values in `override` replace the estimates.

    Cached tokens are rounded down to a multiple of `step`.
    """
    whole = input_usage.total if override.input_tokens is None else override.input_tokens
    read = input_usage.read_tokens // step * step if override.cache_read_tokens is None else override.cache_read_tokens
    writes = (
        input_usage.written_tokens
        if override.cache_write_tokens is None
        else {"5m": override.cache_write_tokens, "1h": 0}
    )
    output = output if override.output_tokens is None else override.output_tokens
    thinking = thinking if override.thinking_tokens is None else override.thinking_tokens
    return AnswerUsage(whole, read, writes, output, thinking)


class PromptCache:
    """The simulated prompt cache. It stores the time at which each prefix of an earlier request expires."""

    def __init__(self) -> None:
        self._expiry: dict[str, float] = {}

    def clear(self) -> None:
        self._expiry.clear()

    def count_request(self, request: Sequence[CacheUnit], minimum: int, now: float) -> InputUsage:
        """Count the tokens that a request reads from the cache and writes to it, and update the cache.

        Reading a prefix extends its lifetime. Only prefixes with at least `minimum` tokens are cached.
        """
        sums = list(accumulate(item.tokens for item in request))
        points = [index for index, item in enumerate(request) if item.ttl is not None and sums[index] >= minimum]
        hits = [self._find_hit(request, point, now) for point in points]
        done = read = max((sums[hit] for hit in hits if hit is not None), default=0)
        writes = dict.fromkeys(LIFETIME_SECONDS, 0)
        for point, hit in zip(points, hits, strict=True):
            ttl = request[point].ttl or "5m"
            writes[ttl] += max(sums[point] - done, 0)
            done = max(sums[point], done)
            for key in {request[point].key, request[point if hit is None else hit].key}:
                self._expiry[key] = max(now + LIFETIME_SECONDS[ttl], self._expiry.get(key, 0.0))
        return InputUsage(read, writes, (sums[-1] if sums else 0) - done)

    def _find_hit(self, request: Sequence[CacheUnit], point: int, now: float) -> int | None:
        """Return the index of the last unit in the longest cached prefix, or None. At most 20 units are searched."""
        for index in range(point, max(point - _MAX_LOOK_BACK, -1), -1):
            if self._expiry.get(request[index].key, 0.0) > now:
                return index
        return None
