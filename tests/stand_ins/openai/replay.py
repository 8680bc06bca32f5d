"""Checks that clients send earlier answers back unmodified and keep each reasoning item together with the next item.

Newer models do not read reasoning if the items before it have changed. The response lists the dropped reasoning items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tests.stand_ins.openai.input_items import (
    CALL,
    COMPACTION,
    OUTPUT,
    InputItem,
    OpenAiConversation,
    find_item_side,
    find_item_type,
    join_item_text,
)
from tests.stand_ins.openai.issued_items import (
    CompactionState,
    ItemIds,
    ItemPosition,
    ReasoningState,
    ResponseStore,
    decrypt,
    hash_summary,
)
from tests.stand_ins.openai.models import ResponseOptions
from tests.stand_ins.rejections import RequestRejected, reject, reject_missing
from tests.stand_ins.service_state import StateSigner, hash_json, hash_text

_COMPARED_KEYS = frozenset({"type", "text", "refusal", "image_url", "file_id", "file_data", "file_url"})
_NOT_READABLE = "Encrypted content could not be decrypted or parsed."
_OTHER_ITEM = "Encrypted content item_id did not match the target item id."
_OTHER_ORGANIZATION = "Encrypted content organization_id did not match the target organization."


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


@dataclass(frozen=True, slots=True)
class Issuer:
    """The state that is needed to issue IDs and encrypted content. `key` is a hash of the client's API key."""

    signer: StateSigner
    ids: ItemIds
    responses: ResponseStore
    key: str


class OpenAiReplayCheck:
    """A checker for the items in a request."""

    def __init__(self, conversation: OpenAiConversation, tools: Any, options: ResponseOptions, issuer: Issuer) -> None:
        self._conversation = conversation
        self._items = conversation.items
        self._options = options
        self._issuer = issuer
        self._chain = build_prefix_chain(tools, self._items)
        self._reasoning_states: dict[int, ReasoningState] = {}

    def check_items(self) -> OpenAiReplay:
        """Check all items in the request. Raises RequestRejected for the first invalid item."""
        replay = OpenAiReplay(self._chain[-1])
        for index, item in enumerate(self._items):
            if find_item_type(item) == "reasoning" and not self._issuer.responses.is_raw_item(item):
                self._check_reasoning(index, item, replay)
            elif find_item_type(item) == COMPACTION and not self._issuer.responses.is_raw_item(item):
                self._check_compaction(item)
        self._check_duplicates()
        self._check_order()
        check_call_pairs(self._items)
        return replay

    def _check_reasoning(self, index: int, item: InputItem, replay: OpenAiReplay) -> None:
        seal = self._reasoning_states[index] = self._decrypt_reasoning(index, item)
        reason = self._find_mismatch(index, seal)
        if reason is not None and not self._options.traits.binds_reasoning:
            _reject_unverified(item, _OTHER_ORGANIZATION if reason == "organization_mismatch" else _NOT_READABLE)
        if reason is None and self._is_forgotten(index):
            reason = "turn_boundary"
        if reason is None:
            replay.tokens[index] = seal.tokens
        elif self._options.traits.binds_reasoning:
            replay.dropped_items.append({"id": seal.id, "type": "reasoning", "action": "removed", "reason": reason})

    def _check_compaction(self, item: InputItem) -> None:
        seal = decrypt(item["encrypted_content"], self._issuer.signer, CompactionState)
        if seal is None or seal.model != self._options.traits.id:
            _reject_unverified(item, _NOT_READABLE)
        if item.get("id") not in (None, seal.id):
            _reject_unverified(item, _OTHER_ITEM)
        if seal.key != self._issuer.key:
            _reject_unverified(item, _OTHER_ORGANIZATION)

    def _decrypt_reasoning(self, index: int, item: InputItem) -> ReasoningState:
        encrypted = item.get("encrypted_content")
        if encrypted is None:
            if item.get("id") is None:
                reject_missing(f"input[{index}].id")
            stored = self._issuer.responses.items.get(item["id"])
            if stored is None:
                reject_unknown_item(item["id"])
            encrypted = stored.get("encrypted_content")
        seal = decrypt(encrypted, self._issuer.signer, ReasoningState)
        if seal is None or seal.summary != hash_summary(item):
            _reject_unverified(item, _NOT_READABLE)
        if item.get("id") not in (None, seal.id):
            _reject_unverified(item, _OTHER_ITEM)
        return seal

    def _find_mismatch(self, index: int, seal: ReasoningState) -> str | None:
        """Return the reason why the model cannot read a reasoning item, or None if the model can read it."""
        if seal.key != self._issuer.key:
            return "organization_mismatch"
        if seal.model != self._options.traits.id:
            return "model_mismatch"
        if not self._options.traits.binds_reasoning:
            return None
        if seal.user != self._options.end_user:
            return "end_user_mismatch"
        return None if seal.prefix in self._list_prefixes(index) else "prefix_mismatch"

    def _list_prefixes(self, index: int) -> Sequence[str]:
        """Return the hashes of all prefixes after which the answer at `index` may have started."""
        first = index
        while first > 0 and find_item_side(self._items[first - 1]) == "model":
            first -= 1
        return self._chain[first : index + 1]

    def _is_forgotten(self, index: int) -> bool:
        return not self._options.all_turns and index < self._conversation.state.start

    def _check_duplicates(self) -> None:
        seen: set[str] = set()
        for item in self._items:
            item_id = item.get("id")
            if isinstance(item_id, str):
                if item_id in seen:
                    reject_duplicate(item_id)
                seen.add(item_id)

    def _check_order(self) -> None:
        last: dict[str, int] = {}
        reasoned: dict[str, int] = {}
        for index, place in enumerate([self._find_position(index, item) for index, item in enumerate(self._items)]):
            if place is None:
                continue
            answer = place.answer
            self._check_reasoning_before(index, place, reasoned.get(answer))
            if answer in reasoned and place.number <= last[answer]:
                _reject_missing_follower(self._issuer.ids.make_reasoning_id(answer, reasoned[answer]))
            last[answer] = place.number
            if index in self._reasoning_states:
                reasoned[answer] = place.number
                self._check_next(index)

    def _find_position(self, index: int, item: InputItem) -> ItemPosition | None:
        """Return an item's position in its answer, or None if the item comes from the client or the scenario."""
        if index in self._reasoning_states:
            return self._issuer.ids.read(self._reasoning_states[index].id)
        item_id = item.get("id")
        if item_id is None or self._issuer.responses.is_raw_item(item) or not _is_issued_kind(item):
            return None
        place = self._issuer.ids.read(item_id)
        if place is None:
            reject_unknown_item(item_id)
        return place

    def _check_reasoning_before(self, index: int, place: ItemPosition, last_reasoning: int | None) -> None:
        seal = self._reasoning_states.get(index)
        expected = place.after if seal is None else seal.before
        if expected is not None and expected != last_reasoning:
            item = self._items[index]
            item_id = seal.id if seal is not None else item["id"]
            reject(
                f"Item '{item_id}' of type '{find_item_type(item)}' was provided without its required "
                f"'reasoning' item: '{self._issuer.ids.make_reasoning_id(place.answer, expected)}'.",
                "input",
            )

    def _check_next(self, index: int) -> None:
        seal = self._reasoning_states[index]
        following = self._items[index + 1] if index + 1 < len(self._items) else None
        if seal.next_mark is None or following is None or not self._is_next(index + 1, following, seal):
            _reject_missing_follower(seal.id)

    def _is_next(self, index: int, item: InputItem, seal: ReasoningState) -> bool:
        item_id = self._reasoning_states[index].id if index in self._reasoning_states else item.get("id")
        if seal.next_id is not None and item_id is not None:
            return bool(item_id == seal.next_id)
        return compute_mark(item) == seal.next_mark


def build_prefix_chain(tools: Any, items: Sequence[InputItem]) -> list[str]:
    """Return a hash of the prefix before each item, followed by a hash of the entire conversation.

    A prefix consists of the tools and the preceding items, without reasoning, IDs and statuses.
    """
    chain = [hash_json("tools", tools or [])]
    for item in items:
        chain.append(chain[-1] if find_item_type(item) == "reasoning" else hash_json(chain[-1], normalize_item(item)))
    return chain


def normalize_item(item: InputItem) -> Mapping[str, Any]:
    """Normalize an item for comparison by removing IDs and null values, and by converting text to parts."""
    fields = {key: value for key, value in item.items() if key not in ("id", "status", "type") and value is not None}
    if isinstance(fields.get("content"), str):
        part = "output_text" if item.get("role") == "assistant" else "input_text"
        fields["content"] = [{"type": part, "text": fields["content"]}]
    if find_item_type(item) == "message" and isinstance(fields.get("content"), list):
        fields["content"] = [_normalize_part(part) for part in fields["content"]]
    return {"type": find_item_type(item), **fields}


def compute_mark(item: InputItem) -> str:
    """Return a string that identifies an item independently of its ID."""
    match find_item_type(item):
        case "message":
            return hash_text(join_item_text(normalize_item(item).get("content")))
        case name if name == CALL:
            return str(item.get("call_id"))
        case _:
            return hash_json(normalize_item(item))


def check_call_pairs(items: Sequence[InputItem]) -> None:
    """Check that each tool call has exactly one output, and that each output follows a call."""
    seen: dict[str, set[str]] = {CALL: set(), OUTPUT: set()}
    for item in items:
        name, call_id = find_item_type(item), str(item.get("call_id"))
        if name not in seen:
            continue
        if name == OUTPUT and call_id not in seen[CALL]:
            reject(f"No tool call found for function call output with call_id {call_id}.", "input")
        if call_id in seen[name]:
            reject_duplicate(call_id)
        seen[name].add(call_id)
    for item in items:
        if find_item_type(item) == CALL and (call_id := str(item.get("call_id"))) not in seen[OUTPUT]:
            reject(f"No tool output found for function call {call_id}.", "input")


def reject_unknown_item(item_id: str) -> NoReturn:
    raise RequestRejected(
        404,
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. Try again with "
        "`store` set to true, or remove this item from your input.",
        param="input",
    )


def reject_duplicate(item_id: str) -> NoReturn:
    reject(f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again.", "input")


def _is_issued_kind(item: InputItem) -> bool:
    """Return True for function calls and messages from the model. Only the service issues IDs for these items."""
    return find_item_type(item) == "function_call" or (
        find_item_type(item) == "message" and find_item_side(item) == "model"
    )


def _normalize_part(part: Any) -> Any:
    return {key: value for key, value in part.items() if key in _COMPARED_KEYS} if isinstance(part, dict) else part


def _reject_missing_follower(item_id: str) -> NoReturn:
    reject(f"Item '{item_id}' of type 'reasoning' was provided without its required following item.", "input")


def _reject_unverified(item: InputItem, reason: str) -> NoReturn:
    if item.get("id") is not None:
        which = f"for item {item['id']}"
    else:
        encrypted = str(item.get("encrypted_content"))
        which = f"{encrypted[:4]}...{encrypted[-4:]}"
    reject(f"The encrypted content {which} could not be verified. Reason: {reason}", None, "invalid_encrypted_content")
