"""Ids and encrypted reasoning that the simulator issues, what they tell when they come back, and stored responses.

Ids and seals speak for themselves, so no memory is needed to judge a replay: an id says which answer it stands in and
behind which reasoning, and encrypted content says what it was made for and what has to follow it. `Memory` is bounded;
what has been forgotten is as if it had never been stored.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from thinklsp.simulator.state import Sealer, forget_oldest, json_digest, text_digest

_BEGINS = "gAAAAAB"
_NONE = "ffff"
_MAC = 24
_ISSUED = re.compile(rf"([a-z]+)_([0-9a-f]{{16}})([0-9a-f]{{4}})([0-9a-f]{{4}})([0-9a-f]{{{_MAC}}})")
_RESPONSES = 256
_ITEMS = 8192


@dataclass(frozen=True, slots=True)
class Place:
    """Where an issued item stands: in which answer, as its how manieth, behind which reasoning item of it."""

    answer: str
    number: int
    after: int | None


@dataclass(frozen=True, slots=True)
class Seal:
    """What the encrypted content of one reasoning item is about.

    `key` and `user`: who asked. `prefix`: digest of everything before the answer but reasoning. `summary`: digest of
    the readable part. `before`: id of the reasoning item right before it. `next_id`, `next_mark`: the item right
    behind it, None where the answer ended with the reasoning.
    """

    id: str
    model: str
    key: str
    user: str | None
    prefix: str
    summary: str
    before: str | None
    next_id: str | None
    next_mark: str | None
    tokens: int


class Ids:
    """Owns the secret behind the ids."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def make(self, prefix: str, place: Place) -> str:
        after = _NONE if place.after is None else f"{place.after:04x}"
        head = f"{prefix}_{place.answer}{place.number:04x}{after}"
        return head + self._mac(head)

    def read(self, item_id: str) -> Place | None:
        """None for an id that this process did not issue."""
        found = _ISSUED.fullmatch(item_id)
        if found is None or not hmac.compare_digest(self._mac(item_id[:-_MAC]), found[5]):
            return None
        return Place(found[2], int(found[3], 16), None if found[4] == _NONE else int(found[4], 16))

    def reasoning(self, answer: str, number: int) -> str:
        """The id of an answer's reasoning item; it depends on nothing else."""
        return self.make("rs", Place(answer, number, None))

    def _mac(self, head: str) -> str:
        return hmac.new(self._secret, head.encode("ascii"), hashlib.sha256).hexdigest()[:_MAC]


def new_answer() -> str:
    return secrets.token_hex(8)


def sealed(seal: Seal, sealer: Sealer) -> str:
    return _BEGINS + sealer.close(asdict(seal), seal.tokens)


def opened(encrypted: str, sealer: Sealer) -> Seal | None:
    """None for anything that this process did not seal exactly so."""
    content = _content(encrypted, sealer)
    return None if not content or "compaction" in content else Seal(**content)


@dataclass(frozen=True, slots=True)
class CompactionSeal:
    """What the encrypted content of one compaction is about."""

    id: str
    model: str
    key: str


def sealed_compaction(seal: CompactionSeal, sealer: Sealer) -> str:
    return _BEGINS + sealer.close({"compaction": asdict(seal)}, 0)


def opened_compaction(encrypted: str, sealer: Sealer) -> CompactionSeal | None:
    """None for anything that this process did not seal exactly so."""
    content = _content(encrypted, sealer)
    return CompactionSeal(**content["compaction"]) if "compaction" in content else None


def summary_digest(item: Mapping[str, Any]) -> str:
    return text_digest("\0".join(part["text"] for part in item["summary"]))


class Memory:
    def __init__(self) -> None:
        self._responses: OrderedDict[str, tuple[Mapping[str, Any], ...]] = OrderedDict()
        self._items: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._dictated: OrderedDict[str, None] = OrderedDict()

    def clear(self) -> None:
        """Forgets what was stored. Dictated items stay valid, as sealed ones do."""
        self._responses.clear()
        self._items.clear()

    def store(self, response_id: str, said: Sequence[Mapping[str, Any]], output: Sequence[Mapping[str, Any]]) -> None:
        """A response of a client that did not ask for `store: false`, with the conversation before it."""
        self._responses[response_id] = (*said, *output)
        for item in output:
            if isinstance(item.get("id"), str):
                self._items[item["id"]] = item
        forget_oldest(self._responses, _RESPONSES)
        forget_oldest(self._items, _ITEMS)

    def conversation(self, response_id: str) -> tuple[Mapping[str, Any], ...] | None:
        return self._responses.get(response_id)

    def item(self, item_id: str) -> Mapping[str, Any] | None:
        return self._items.get(item_id)

    def dictate(self, items: Iterable[Mapping[str, Any]]) -> None:
        """These went out as a scenario wrote them; nothing is asked of them when they come back."""
        for item in items:
            self._dictated[json_digest(item)] = None
        forget_oldest(self._dictated, _ITEMS)

    def dictated(self, item: Any) -> bool:
        return isinstance(item, dict) and json_digest(item) in self._dictated


def _content(encrypted: str, sealer: Sealer) -> Mapping[str, Any]:
    """Return what a seal is about; nothing for a text that this process did not seal."""
    if not encrypted.startswith(_BEGINS) or not encrypted.isascii():
        return {}
    return sealer.open(encrypted.removeprefix(_BEGINS)) or {}
