"""Checks that clients send earlier answers back unmodified and keep each reasoning item together with the next item.

Newer models do not read reasoning if the items before it have changed. The response lists the dropped reasoning items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tests.stand_ins.openai.requests import (
    CALL,
    COMPACTION,
    OUTPUT,
    InputItem,
    OpenAiConversation,
    ResponseOptions,
    find_item_side,
    join_item_text,
)
from tests.stand_ins.rejections import RequestRejected, reject
from tests.stand_ins.service_state import BoundedDict, StateSigner, hash_json, hash_text

_MAX_ITEMS = 1 << 15
_ENCRYPTED_PREFIX = "gAAAAAB"
_COMPARED_KEYS = frozenset({"type", "text", "refusal", "image_url"})
_NOT_READABLE = "Encrypted content could not be decrypted or parsed."
_OTHER_ITEM = "Encrypted content item_id did not match the target item id."
_OTHER_ORGANIZATION = "Encrypted content organization_id did not match the target organization."


@dataclass(frozen=True, slots=True)
class ReasoningState:
    """What encrypted content stands for: a reasoning item, its client and its conversation.

    `key` identifies the client. `prefix` is a hash of everything before the answer except reasoning, and `summary` is a
    hash of the readable summary.
    """

    id: str
    model: str
    key: str
    prefix: str
    summary: str
    tokens: int


@dataclass(frozen=True, slots=True)
class CompactionState:
    """What the encrypted content of a compaction item stands for."""

    id: str
    model: str
    key: str


class IssuedItems:
    """The items that the stand-in has sent."""

    def __init__(self, signer: StateSigner) -> None:
        self._signer = signer
        # Maps the ID of an item to all items of its answer, and to its own place among them.
        self.places: BoundedDict[str, tuple[Sequence[InputItem], int]] = BoundedDict(_MAX_ITEMS)

    def remember(self, answer: Sequence[InputItem]) -> None:
        for place, item in enumerate(answer):
            if isinstance(item.get("id"), str):
                self.places[item["id"]] = answer, place

    def encrypt(self, state: ReasoningState | CompactionState, tokens: int = 0) -> str:
        return _ENCRYPTED_PREFIX + self._signer.sign(state, tokens)

    def decrypt(self, item: InputItem, form: type[Any]) -> Any:
        """Return the state of an item. Raises RequestRejected if it is not this item's."""
        state = self._signer.verify(item["encrypted_content"].removeprefix(_ENCRYPTED_PREFIX), form)
        if state is None:
            reject_unverified(item, _NOT_READABLE)
        if item.get("id") not in (None, state.id):
            reject_unverified(item, _OTHER_ITEM)
        return state


@dataclass(slots=True)
class OpenAiReplay:
    """The result of checking the items in a request.

    `tokens` maps the index of each reasoning item that the model reads to its token count. `dropped_items` contains the
    dropped reasoning items in the format of the response. `prefix` is a hash of the entire conversation, which the next
    answer contains.
    """

    prefix: str
    tokens: dict[int, int] = field(default_factory=dict)
    dropped_items: list[dict[str, str]] = field(default_factory=list)


class OpenAiReplayCheck:
    """A checker for the items in a request. `key` identifies the client."""

    def __init__(
        self, conversation: OpenAiConversation, tools: Any, options: ResponseOptions, issued: IssuedItems, key: str
    ) -> None:
        self._conversation = conversation
        self._items = conversation.items
        self._traits = options.traits
        self._issued = issued
        self._key = key
        self._chain = build_prefix_chain(tools, self._items)
        self._states: dict[int, ReasoningState] = {}

    def check_items(self) -> OpenAiReplay:
        """Check all items in the request. Raises RequestRejected for the first invalid item."""
        replay = OpenAiReplay(self._chain[-1])
        for index, item in enumerate(self._items):
            if item["type"] in ("reasoning", COMPACTION):
                (self._check_compaction if item["type"] == COMPACTION else self._check_reasoning)(index, item, replay)
        _check_unique([item["id"] for item in self._items if isinstance(item.get("id"), str)])
        self._check_order()
        _check_call_pairs(self._items)
        return replay

    def _check_compaction(self, _index: int, item: InputItem, _replay: OpenAiReplay) -> None:
        state = self._issued.decrypt(item, CompactionState)
        if state.model != self._traits.id:
            reject_unverified(item, _NOT_READABLE)
        if state.key != self._key:
            reject_unverified(item, _OTHER_ORGANIZATION)

    def _check_reasoning(self, index: int, item: InputItem, replay: OpenAiReplay) -> None:
        state = self._states[index] = self._issued.decrypt(item, ReasoningState)
        if state.summary != hash_summary(item):
            reject_unverified(item, _NOT_READABLE)
        reason = self._find_mismatch(index, state)
        if reason is not None and not self._traits.binds_reasoning:
            reject_unverified(item, _OTHER_ORGANIZATION if reason == "organization_mismatch" else _NOT_READABLE)
        if reason is None and not self._traits.keeps_earlier_reasoning and index < self._conversation.state.start:
            reason = "turn_boundary"
        if reason is None:
            replay.tokens[index] = state.tokens
        elif self._traits.binds_reasoning:
            replay.dropped_items.append({"id": state.id, "type": "reasoning", "action": "removed", "reason": reason})

    def _find_mismatch(self, index: int, state: ReasoningState) -> str | None:
        """Return the reason why the model cannot read a reasoning item, or None if the model can read it."""
        if state.key != self._key:
            return "organization_mismatch"
        if state.model != self._traits.id:
            return "model_mismatch"
        first = index
        while first > 0 and find_item_side(self._items[first - 1]) == "model":
            first -= 1
        # The answer may have started after any of these prefixes.
        is_bound = not self._traits.binds_reasoning or state.prefix in self._chain[first : index + 1]
        return None if is_bound else "prefix_mismatch"

    def _check_order(self) -> None:
        """Check that each reasoning item is in front of the item that followed it, and that no item lost its own."""
        for index, item in enumerate(self._items):
            answer, place = self._find_place(index, item)
            before = answer[place - 1] if place > 0 else None
            if before is not None and before["type"] == "reasoning" and not self._is_at(index - 1, before):
                item_id = self._states[index].id if index in self._states else item["id"]
                reject(
                    f"Item '{item_id}' of type '{item['type']}' was provided without its required 'reasoning' item: "
                    f"'{before['id']}'.",
                    "input",
                )
            if index in self._states and not (place + 1 < len(answer) and self._is_at(index + 1, answer[place + 1])):
                _reject_missing_follower(self._states[index].id)

    def _find_place(self, index: int, item: InputItem) -> tuple[Sequence[InputItem], int]:
        """Return an item's answer and its place in the answer. Other items are their own answer."""
        item_id = self._states[index].id if index in self._states else item.get("id")
        if item_id is None or item["type"] == COMPACTION:
            return (item,), 0
        if item_id not in self._issued.places:
            raise RequestRejected(404, f"Item with id '{item_id}' not found.", param="input")
        return self._issued.places[item_id]

    def _is_at(self, index: int, issued: InputItem) -> bool:
        """Return True if the item at an index is the issued item. Clients may omit IDs."""
        if not 0 <= index < len(self._items):
            return False
        item_id = self._states[index].id if index in self._states else self._items[index].get("id")
        if item_id is None or issued.get("id") is None:
            return _compute_mark(self._items[index]) == _compute_mark(issued)
        return bool(item_id == issued["id"])


def hash_summary(item: Mapping[str, Any]) -> str:
    return hash_text("\0".join(part["text"] for part in item["summary"]))


def build_prefix_chain(tools: Any, items: Sequence[InputItem]) -> list[str]:
    """Return a hash of the prefix before each item, followed by a hash of the entire conversation.

    A prefix consists of the tools and the preceding items, without reasoning, IDs and statuses.
    """
    chain = [hash_json("tools", tools or [])]
    for item in items:
        chain.append(chain[-1] if item["type"] == "reasoning" else hash_json(chain[-1], normalize_item(item)))
    return chain


def normalize_item(item: InputItem) -> Mapping[str, Any]:
    """Normalize an item for comparison by removing IDs and null values, and by converting text to parts."""
    fields = {key: value for key, value in item.items() if key not in ("id", "status") and value is not None}
    if item["type"] == "message":
        content = fields["content"]
        if isinstance(content, str):
            content = [{"type": "output_text" if item["role"] == "assistant" else "input_text", "text": content}]
        parts = [{key: value for key, value in part.items() if key in _COMPARED_KEYS} for part in content]
        fields["content"] = parts
    return fields


def _compute_mark(item: InputItem) -> str:
    """Return a string that identifies an item independently of its ID."""
    match item["type"]:
        case "message":
            return hash_text(join_item_text(normalize_item(item)["content"]))
        case "function_call":
            return str(item.get("call_id"))
        case _:
            return hash_json(normalize_item(item))


def _check_call_pairs(items: Sequence[InputItem]) -> None:
    """Check that each tool call has exactly one output, and that each output follows a call."""
    calls = [item["call_id"] for item in items if item["type"] == CALL]
    outputs = [item["call_id"] for item in items if item["type"] == OUTPUT]
    _check_unique(calls)
    _check_unique(outputs)
    called: set[str] = set()
    for item in items:
        if item["type"] == CALL:
            called.add(item["call_id"])
        if item["type"] == OUTPUT and item["call_id"] not in called:
            reject(f"No tool call found for function call output with call_id {item['call_id']}.", "input")
    if missing := [call_id for call_id in calls if call_id not in outputs]:
        reject(f"No tool output found for function call {missing[0]}.", "input")


def _check_unique(ids: Sequence[str]) -> None:
    for number, item_id in enumerate(ids):
        if item_id in ids[:number]:
            reject(f"Duplicate item found with id {item_id}. Remove duplicate items from your input.", "input")


def _reject_missing_follower(item_id: str) -> NoReturn:
    reject(f"Item '{item_id}' of type 'reasoning' was provided without its required following item.", "input")


def reject_unverified(item: InputItem, reason: str) -> NoReturn:
    encrypted = item["encrypted_content"]
    which = f"for item {item['id']}" if item.get("id") is not None else f"{encrypted[:4]}...{encrypted[-4:]}"
    reject(f"The encrypted content {which} could not be verified. Reason: {reason}", None, "invalid_encrypted_content")
