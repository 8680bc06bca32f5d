"""The state that a simulated service keeps between requests: the opaque texts that it issued, and the prompt cache.

Token counts are deterministic estimates, so that tests can compare them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

from thinklsp.offline.scenario import UsageOverride

# Without padding, of which a client could change unused bits without being noticed.
_TEXT_BYTES = 195
_MAX_STATES = 1 << 16
_MAX_LOOK_BACK = 20
_MAX_ENTRIES = 8192
K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """A dictionary that keeps only the `limit` most recently set entries."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._limit:
            self.popitem(last=False)


class StateSigner:
    """An issuer of opaque texts, each of which stands for a state, and which clients must send back unchanged.

    The same state always has the same text, so a repeated answer has the same signatures.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._states: BoundedDict[str, Any] = BoundedDict(_MAX_STATES)

    def sign(self, state: Any, tokens: int = 0) -> str:
        """Return the text of a state in base64. As real ones do, it grows with the `tokens` of thinking."""
        digest = hashlib.shake_256(self._secret + repr(state).encode("utf-8", "surrogatepass"))
        text = base64.b64encode(digest.digest(_TEXT_BYTES + 3 * tokens)).decode("ascii")
        self._states[text] = state
        return text

    def verify(self, text: str, kind: type[V]) -> V | None:
        """Return the state of a text, or None if the text was changed or does not stand for a `kind`."""
        state = self._states.get(text)
        return state if isinstance(state, kind) else None


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
    """The simulated prompt cache: the prefixes of earlier requests."""

    def __init__(self) -> None:
        self._keys: BoundedDict[str, None] = BoundedDict(_MAX_ENTRIES)

    def count_request(self, request: Sequence[CacheUnit], minimum: int) -> InputUsage:
        """Count the tokens that a request reads from the cache and writes to it, and update the cache.

        Only prefixes with at least `minimum` tokens are cached.
        """
        sums = list(accumulate(item.tokens for item in request))
        points = [index for index, item in enumerate(request) if item.ttl is not None and sums[index] >= minimum]
        hits = [self._find_hit(request, point) for point in points]
        done = read = max((sums[hit] for hit in hits if hit is not None), default=0)
        writes = {"5m": 0, "1h": 0}
        for point in points:
            writes[request[point].ttl or "5m"] += max(sums[point] - done, 0)
            done = max(sums[point], done)
            self._keys[request[point].key] = None
        return InputUsage(read, writes, (sums[-1] if sums else 0) - done)

    def _find_hit(self, request: Sequence[CacheUnit], point: int) -> int | None:
        """Return the index of the last unit in the longest cached prefix, or None. At most 20 units are searched."""
        near = range(point, max(point - _MAX_LOOK_BACK, -1), -1)
        return next((index for index in near if request[index].key in self._keys), None)
