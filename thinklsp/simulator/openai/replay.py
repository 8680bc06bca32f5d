"""Whether earlier answers come back as they were issued: reasoning with what follows it, items with their reasoning.

A `Hearing` judges one request from the ids and seals in it. On models that bind reasoning to its prefix, reasoning
that no longer fits is left out and reported; everything else that is wrong is refused in the service's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from thinklsp.simulator.openai.errors import Refused, invalid, missing
from thinklsp.simulator.openai.items import CALLS, COMPACTION, OUTPUTS, Conversation, Item, item_text, kind, side
from thinklsp.simulator.openai.options import Options
from thinklsp.simulator.openai.seals import Ids, Memory, Place, Seal, opened, opened_compaction, summary_digest
from thinklsp.simulator.state import Sealer, json_digest, text_digest

_TELLING = frozenset({"type", "text", "refusal", "image_url", "file_id", "file_data", "file_url"})
_NOT_READABLE = "Encrypted content could not be decrypted or parsed."
_OTHER_ITEM = "Encrypted content item_id did not match the target item id."
_OTHER_ORGANIZATION = "Encrypted content organization_id did not match the target organization."


@dataclass(slots=True)
class Replay:
    """The judgement on one request. `tokens`: what the reasoning that the model reads counts, by its index.

    `dropped`: reasoning that was left out, as the response reports it. `prefix`: digest of the whole conversation,
    for the seals of the answer to come.
    """

    prefix: str
    tokens: dict[int, int] = field(default_factory=dict)
    dropped: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Issuer:
    """By whom and for whom state is sealed: what a dialect owns, and whose key a request carries."""

    sealer: Sealer
    ids: Ids
    memory: Memory
    key: str


class Hearing:
    """One request before the judge."""

    def __init__(self, conversation: Conversation, tools: Any, options: Options, issuer: Issuer) -> None:
        self._conversation = conversation
        self._items = conversation.items
        self._options = options
        self._issuer = issuer
        self._chain = prefix_chain(tools, self._items)
        self._seals: dict[int, Seal] = {}

    def judge(self) -> Replay:
        """Raises Refused when something does not come back as it must."""
        replay = Replay(self._chain[-1])
        for index, item in enumerate(self._items):
            if kind(item) == "reasoning" and not self._issuer.memory.dictated(item):
                self._open(index, item, replay)
            elif kind(item) == COMPACTION and not self._issuer.memory.dictated(item):
                self._check_compaction(item)
        self._check_duplicates()
        self._check_order()
        check_pairs(self._items)
        return replay

    def _open(self, index: int, item: Item, replay: Replay) -> None:
        seal = self._seals[index] = self._seal(index, item)
        reason = self._misfit(index, seal)
        if reason is not None and not self._options.traits.bound:
            _unverified(item, _OTHER_ORGANIZATION if reason == "organization_mismatch" else _NOT_READABLE)
        if reason is None and self._forgets(index):
            reason = "turn_boundary"
        if reason is None:
            replay.tokens[index] = seal.tokens
        elif self._options.traits.bound:
            replay.dropped.append({"id": seal.id, "type": "reasoning", "action": "removed", "reason": reason})

    def _check_compaction(self, item: Item) -> None:
        seal = opened_compaction(str(item["encrypted_content"]), self._issuer.sealer)
        if seal is None or seal.model != self._options.traits.id:
            _unverified(item, _NOT_READABLE)
        if item.get("id") not in (None, seal.id):
            _unverified(item, _OTHER_ITEM)
        if seal.key != self._issuer.key:
            _unverified(item, _OTHER_ORGANIZATION)

    def _seal(self, index: int, item: Item) -> Seal:
        encrypted = item.get("encrypted_content")
        if encrypted is None:
            if item.get("id") is None:
                missing(f"input[{index}].id")
            stored = self._issuer.memory.item(item["id"])
            if stored is None:
                not_found(item["id"])
            encrypted = stored.get("encrypted_content")
        seal = opened(encrypted, self._issuer.sealer) if isinstance(encrypted, str) else None
        if seal is None or seal.summary != summary_digest(item):
            _unverified(item, _NOT_READABLE)
        if item.get("id") not in (None, seal.id):
            _unverified(item, _OTHER_ITEM)
        return seal

    def _misfit(self, index: int, seal: Seal) -> str | None:
        """Why the model cannot read this reasoning, in the words of a report."""
        if seal.key != self._issuer.key:
            return "organization_mismatch"
        if seal.model != self._options.traits.id:
            return "model_mismatch"
        if not self._options.traits.bound:
            return None
        if seal.user != self._options.end_user:
            return "end_user_mismatch"
        return None if seal.prefix in self._prefixes_around(index) else "prefix_mismatch"

    def _prefixes_around(self, index: int) -> Sequence[str]:
        """Prefixes of the answers that can be part of the run of model items around `index`."""
        first = index
        while first > 0 and side(self._items[first - 1]) == "model":
            first -= 1
        return self._chain[first : index + 1]

    def _forgets(self, index: int) -> bool:
        return not self._options.all_turns and index < self._conversation.turn_start

    def _check_duplicates(self) -> None:
        seen: set[str] = set()
        for item in self._items:
            item_id = item.get("id")
            if isinstance(item_id, str):
                if item_id in seen:
                    duplicate(item_id)
                seen.add(item_id)

    def _check_order(self) -> None:
        last: dict[str, int] = {}
        reasoned: dict[str, int] = {}
        for index, place in enumerate([self._place(index, item) for index, item in enumerate(self._items)]):
            if place is None:
                continue
            answer = place.answer
            self._check_reasoning_before(index, place, reasoned.get(answer))
            if answer in reasoned and place.number <= last[answer]:
                _without_following(self._issuer.ids.reasoning(answer, reasoned[answer]))
            last[answer] = place.number
            if index in self._seals:
                reasoned[answer] = place.number
                self._check_next(index)

    def _place(self, index: int, item: Item) -> Place | None:
        """Where an item was issued; None for items that the client made or a scenario dictated."""
        if index in self._seals:
            return self._issuer.ids.read(self._seals[index].id)
        item_id = item.get("id")
        if item_id is None or self._issuer.memory.dictated(item) or not _is_issued_kind(item):
            return None
        place = self._issuer.ids.read(item_id)
        if place is None:
            not_found(item_id)
        return place

    def _check_reasoning_before(self, index: int, place: Place, reasoned: int | None) -> None:
        seal = self._seals.get(index)
        wanted = place.after if seal is None else _number(self._issuer.ids, seal.before)
        if wanted is not None and wanted != reasoned:
            item = self._items[index]
            item_id = seal.id if seal is not None else item["id"]
            invalid(
                f"Item '{item_id}' of type '{kind(item)}' was provided without its required 'reasoning' item: "
                f"'{self._issuer.ids.reasoning(place.answer, wanted)}'.",
                "input",
            )

    def _check_next(self, index: int) -> None:
        seal = self._seals[index]
        following = self._items[index + 1] if index + 1 < len(self._items) else None
        if seal.next_mark is None or following is None or not self._is_next(index + 1, following, seal):
            _without_following(seal.id)

    def _is_next(self, index: int, item: Item, seal: Seal) -> bool:
        item_id = self._seals[index].id if index in self._seals else item.get("id")
        if seal.next_id is not None and item_id is not None:
            return bool(item_id == seal.next_id)
        return mark(item) == seal.next_mark


def prefix_chain(tools: Any, items: Sequence[Item]) -> list[str]:
    """Digests of the tools and the items before each item, and of all; reasoning and what the service numbers are
    left out."""
    chain = [json_digest("tools", tools or [])]
    for item in items:
        chain.append(chain[-1] if kind(item) == "reasoning" else json_digest(chain[-1], bare(item)))
    return chain


def bare(item: Item) -> Mapping[str, Any]:
    """An item without id, status and nulls, with text as a list of parts: the same however it is written."""
    kept = {key: value for key, value in item.items() if key not in ("id", "status", "type") and value is not None}
    if isinstance(kept.get("content"), str):
        part = "output_text" if item.get("role") == "assistant" else "input_text"
        kept["content"] = [{"type": part, "text": kept["content"]}]
    if kind(item) == "message" and isinstance(kept.get("content"), list):
        kept["content"] = [_bare_part(part) for part in kept["content"]]
    return {"type": kind(item), **kept}


def mark(item: Item) -> str:
    """What tells an item from others where its id was left away."""
    match kind(item):
        case "message":
            return text_digest(item_text(bare(item).get("content")))
        case name if name in CALLS:
            return str(item.get("call_id"))
        case _:
            return json_digest(bare(item))


def check_pairs(items: Sequence[Item]) -> None:
    """Every call has its output behind it, every output its call before it."""
    calls: dict[str, str] = {}
    done: set[str] = set()
    for item in items:
        name, call_id = kind(item), str(item.get("call_id"))
        if name in CALLS:
            if call_id in calls:
                duplicate(call_id)
            calls[call_id] = CALLS[name]
        elif name in OUTPUTS:
            what = "function call" if name == "function_call_output" else "custom tool call"
            if calls.get(call_id) != name:
                invalid(f"No tool call found for {what} output with call_id {call_id}.", "input")
            if call_id in done:
                duplicate(call_id)
            done.add(call_id)
    for call_id, output in calls.items():
        if call_id not in done:
            what = "function call" if output == "function_call_output" else "custom tool call"
            invalid(f"No tool output found for {what} {call_id}.", "input")


def not_found(item_id: str) -> NoReturn:
    raise Refused(
        404,
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. Try again with "
        "`store` set to true, or remove this item from your input.",
        param="input",
    )


def duplicate(item_id: str) -> NoReturn:
    invalid(f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again.", "input")


def _is_issued_kind(item: Item) -> bool:
    """Messages of the model and function calls carry ids that only the service gives."""
    return kind(item) == "function_call" or (kind(item) == "message" and side(item) == "model")


def _bare_part(part: Any) -> Any:
    return {key: value for key, value in part.items() if key in _TELLING} if isinstance(part, dict) else part


def _number(ids: Ids, item_id: str | None) -> int | None:
    place = ids.read(item_id) if item_id is not None else None
    return None if place is None else place.number


def _without_following(item_id: str) -> NoReturn:
    invalid(f"Item '{item_id}' of type 'reasoning' was provided without its required following item.", "input")


def _unverified(item: Item, reason: str) -> NoReturn:
    if item.get("id") is not None:
        which = f"for item {item['id']}"
    else:
        encrypted = str(item.get("encrypted_content"))
        which = f"{encrypted[:4]}...{encrypted[-4:]}"
    invalid(f"The encrypted content {which} could not be verified. Reason: {reason}", None, "invalid_encrypted_content")
