"""The item IDs and the encrypted content that the simulator issues, and the responses that it stores.

An ID identifies the item's answer and the reasoning item before it. Encrypted content identifies the conversation for
which it was issued, and the item that must follow it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.stand_ins.service_state import StateSigner, hash_json, hash_text

_ENCRYPTED_PREFIX = "gAAAAAB"
_NO_REASONING = "ffff"
_MAC_DIGITS = 24
_ISSUED_ID = re.compile(rf"([a-z]+)_([0-9a-f]{{16}})([0-9a-f]{{4}})([0-9a-f]{{4}})([0-9a-f]{{{_MAC_DIGITS}}})")


@dataclass(frozen=True, slots=True)
class ItemPosition:
    """The position of an item that the simulator sent.

    `answer` identifies the answer, and `number` is the item's number in the answer. `after` is the number of the
    preceding reasoning item, or None.
    """

    answer: str
    number: int
    after: int | None


@dataclass(frozen=True, slots=True)
class ReasoningState:
    """The encrypted content of a reasoning item.

    `key` and `user` identify the client. `prefix` is a hash of everything before the answer except reasoning, and
    `summary` is a hash of the readable summary. `before` is the number of a directly preceding reasoning item.
    `next_id` and `next_mark` identify the item after this item, or are None if this item is the last one.
    """

    id: str
    model: str
    key: str
    user: str | None
    prefix: str
    summary: str
    before: int | None
    next_id: str | None
    next_mark: str | None
    tokens: int


class ItemIds:
    """A generator of item IDs. An ID contains the item's position and is signed with a secret."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def make(self, prefix: str, place: ItemPosition) -> str:
        after = _NO_REASONING if place.after is None else f"{place.after:04x}"
        head = f"{prefix}_{place.answer}{place.number:04x}{after}"
        return head + self._compute_mac(head)

    def read(self, item_id: str) -> ItemPosition | None:
        """Return the position in an item ID, or None if this simulator did not issue the ID."""
        match = _ISSUED_ID.fullmatch(item_id)
        if match is None or not hmac.compare_digest(self._compute_mac(item_id[:-_MAC_DIGITS]), match[5]):
            return None
        return ItemPosition(match[2], int(match[3], 16), None if match[4] == _NO_REASONING else int(match[4], 16))

    def make_reasoning_id(self, answer: str, number: int) -> str:
        """Return the ID of a reasoning item with the given answer and number."""
        return self.make("rs", ItemPosition(answer, number, None))

    def _compute_mac(self, head: str) -> str:
        return hmac.new(self._secret, head.encode("ascii"), hashlib.sha256).hexdigest()[:_MAC_DIGITS]


@dataclass(frozen=True, slots=True)
class CompactionState:
    """The encrypted content of a compaction item."""

    id: str
    model: str
    key: str


T = TypeVar("T")


def encrypt(state: ReasoningState | CompactionState, signer: StateSigner, tokens: int = 0) -> str:
    return _ENCRYPTED_PREFIX + signer.sign(state, tokens)


def decrypt(encrypted: object, signer: StateSigner, form: type[T]) -> T | None:
    """Decrypt encrypted content. Return None if this simulator did not issue it or if it was changed."""
    if not isinstance(encrypted, str) or not encrypted.startswith(_ENCRYPTED_PREFIX) or not encrypted.isascii():
        return None
    return signer.verify(encrypted.removeprefix(_ENCRYPTED_PREFIX), form)


def hash_summary(item: Mapping[str, Any]) -> str:
    return hash_text("\0".join(part["text"] for part in item["summary"]))


class ResponseStore:
    """The items and responses that are stored on the server. A response is stored together with its conversation.

    Raw items from the scenario are remembered separately and are not checked when a client sends them back.
    """

    def __init__(self) -> None:
        self.responses: dict[str, tuple[Mapping[str, Any], ...]] = {}
        self.items: dict[str, Mapping[str, Any]] = {}
        self._raw_items: dict[str, None] = {}

    def clear(self) -> None:
        """Forget all responses and items. Raw items from the scenario stay valid, as encrypted content does."""
        self.responses.clear()
        self.items.clear()

    def store(
        self, response_id: str, conversation: Sequence[Mapping[str, Any]], output: Sequence[Mapping[str, Any]]
    ) -> None:
        self.responses[response_id] = (*conversation, *output)
        for item in output:
            if isinstance(item.get("id"), str):
                self.items[item["id"]] = item

    def add_raw_item(self, item: Mapping[str, Any]) -> None:
        self._raw_items[hash_json(item)] = None

    def is_raw_item(self, item: Any) -> bool:
        return isinstance(item, dict) and hash_json(item) in self._raw_items
