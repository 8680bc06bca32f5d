"""The state that a simulated service keeps between requests: the opaque texts that it issued, and the prompt cache.

Token counts are deterministic estimates, so that tests can compare them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Sequence
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
    """A unit for the prompt cache, such as a tool or a message. A cached prefix can end with it if it is marked."""

    content: str
    tokens: int
    is_marked: bool = True


@dataclass(frozen=True, slots=True)
class InputUsage:
    """The number of input tokens that were read from the cache, written to the cache, or not cached."""

    read: int
    written: int
    uncached: int

    @property
    def total(self) -> int:
        return self.read + self.written + self.uncached


@dataclass(frozen=True, slots=True)
class AnswerUsage:
    """The token usage of an answer. `input` includes cached tokens, and `output` includes thinking."""

    input: int
    cache_read: int
    cache_write: int
    output: int
    thinking: int


def compute_usage(
    counted: InputUsage, output: int, thinking: int, override: UsageOverride, *, step: int = 1
) -> AnswerUsage:
    """Return the usage that a service reports. Values in `override` replace the estimates.

    Cached tokens are rounded down to a multiple of `step`.
    """
    estimates = (counted.total, counted.read // step * step, counted.written, output, thinking)
    scripted = (
        override.input_tokens,
        override.cache_read_tokens,
        override.cache_write_tokens,
        override.output_tokens,
        override.thinking_tokens,
    )
    figures = zip(estimates, scripted, strict=True)
    return AnswerUsage(*(estimate if own is None else own for estimate, own in figures))


class PromptCache:
    """The simulated prompt cache: the prefixes of earlier requests."""

    def __init__(self) -> None:
        self._prefixes: BoundedDict[str, None] = BoundedDict(_MAX_ENTRIES)

    def count_request(self, units: Sequence[CacheUnit], minimum: int) -> InputUsage:
        """Count the tokens that a request reads from the cache and writes to it, and update the cache.

        Only prefixes with at least `minimum` tokens are cached. At most 20 units before a mark are searched.
        """
        prefixes = [*accumulate((unit.content for unit in units), lambda key, text: hash_text(key + text))]
        sizes = [*accumulate(unit.tokens for unit in units)]
        marks = [place for place, unit in enumerate(units) if unit.is_marked and sizes[place] >= minimum]
        near = {place for mark in marks for place in range(max(mark - _MAX_LOOK_BACK + 1, 0), mark + 1)}
        read = max((sizes[place] for place in near if prefixes[place] in self._prefixes), default=0)
        kept = max([read, *(sizes[mark] for mark in marks)])
        for mark in marks:
            self._prefixes[prefixes[mark]] = None
        return InputUsage(read, kept - read, sum(unit.tokens for unit in units) - kept)
