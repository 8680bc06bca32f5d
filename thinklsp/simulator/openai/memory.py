"""What the service keeps between requests: stored responses with their items, and items that a scenario dictated.

All in memory and bounded; what has been forgotten is as if it had never been stored.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_RESPONSES = 256
_ITEMS = 8192


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
        _shrink(self._responses, _RESPONSES)
        _shrink(self._items, _ITEMS)

    def conversation(self, response_id: str) -> tuple[Mapping[str, Any], ...] | None:
        return self._responses.get(response_id)

    def item(self, item_id: str) -> Mapping[str, Any] | None:
        return self._items.get(item_id)

    def dictate(self, items: Iterable[Mapping[str, Any]]) -> None:
        """These went out as a scenario wrote them; nothing is asked of them when they come back."""
        for item in items:
            self._dictated[digest(item)] = None
        _shrink(self._dictated, _ITEMS)

    def dictated(self, item: Any) -> bool:
        return isinstance(item, dict) and digest(item) in self._dictated


def digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode("ascii")).hexdigest()[:24]


def _shrink(kept: OrderedDict[str, Any], limit: int) -> None:
    while len(kept) > limit:
        kept.popitem(last=False)
