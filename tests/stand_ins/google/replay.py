"""Checks that clients send each thought signature back on the part on which it arrived.

A signature contains a hash of the entire answer. The number of answers in a conversation can therefore be determined
from the signatures, even if a client joins the parts of a paused answer.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from tests.stand_ins.google.requests import GoogleContent, GoogleConversation, GoogleTraits, decode_base64
from tests.stand_ins.rejections import reject
from tests.stand_ins.service_state import StateSigner, hash_json, hash_text

_DUMMY_SIGNATURES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
# Clients send dummy signatures either as plain text or in base64.
_DUMMY_BYTES = frozenset({form for text in _DUMMY_SIGNATURES for form in (text.encode("ascii"), decode_base64(text))})
_MISSING_ERROR = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
    "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call "
    "`default_api:{name}` , position {position}. Please refer to "
    "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
)
T = TypeVar("T")
_CORRUPTED_ERROR = "Corrupted thought signature."
_MISPLACED_ERROR = "Invalid thought signature."


@dataclass(frozen=True, slots=True)
class AnswerItem:
    """A piece of an answer that clients must send back unchanged.

    An item consists of consecutive unsigned texts, or of a single part of any other kind. `text` is the joined text, or
    None. `index` is the index of the item's first part. `mark` is a hash that identifies the item.
    """

    index: int
    mark: str
    text: str | None = None
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class ThoughtSignature:
    """The signed data of an answer.

    `order` contains the marks of the answer's items, and `place` is the index of the signed item. If `is_paused` is
    true, the model continues the answer in the next response.
    """

    model: str
    key: str
    order: tuple[str, ...]
    place: int
    is_paused: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class ContinuationToken:
    """The data in a continuation token, which identifies a request and contains the number of its earlier answers."""

    model: str
    key: str
    contents: str
    answer_count: int


def verify_state(text: str, signer: StateSigner, kind: type[T]) -> T | None:
    """Verify opaque state and return its data, or None if this simulator did not issue it."""
    blob = decode_base64(text)
    return None if blob is None else signer.verify(base64.b64encode(blob).decode("ascii"), kind)


def is_dummy(text: str) -> bool:
    """Return True for the dummy signatures that Google documents for tool calls from other models."""
    return decode_base64(text) in _DUMMY_BYTES


def list_answer_items(parts: Sequence[Mapping[str, Any]]) -> list[AnswerItem]:
    """Convert the parts of an answer to items. Thoughts are omitted, and consecutive unsigned texts are joined."""
    result: list[AnswerItem] = []
    for index, part in enumerate(parts):
        signature = part.get("thought_signature")
        if part.get("thought"):
            continue
        if signature is None and isinstance(part.get("text"), str):
            text = str(part["text"])
            before = result[-1] if result else None
            if before is not None and before.text is not None:
                index, text = before.index, before.text + text
                result.pop()
            if text:
                result.append(AnswerItem(index, _compute_text_mark(text), text))
        else:
            result.append(AnswerItem(index, _compute_part_mark(part), signature=signature))
    return result


def is_suffix(text: str | None, mark: str) -> bool:
    """Return True if `text` ends with the text that has the given mark."""
    if text is None or not mark.startswith("t"):
        return False
    length = int(mark[1:].partition(":")[0])
    return length <= len(text) and _compute_text_mark(text[len(text) - length :]) == mark


def _compute_text_mark(text: str) -> str:
    return f"t{len(text)}:{hash_text(text)[:12]}"


def _compute_part_mark(part: Mapping[str, Any]) -> str:
    bare = {key: value for key, value in part.items() if key != "thought_signature"}
    if "text" in bare or not bare:
        # A part that contains only a signature may have empty text or no text.
        return f"s:{hash_json(bare.get('text', ''))[:12]}"
    return f"p:{hash_json(bare)[:12]}"


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive `Content` objects from the model.

    They are checked together, because a client may send back each stream chunk as a separate object. For each item,
    `owners` contains the index of the object and the index of the item's first part in that object.
    """

    contents: tuple[GoogleContent, ...]
    items: tuple[AnswerItem, ...]
    owners: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """A checker for the signatures in a request. A signature is valid only for the same model and API key."""

    traits: GoogleTraits
    key: str
    signer: StateSigner

    def count_answers(self, conversation: GoogleConversation) -> int:
        """Check all signatures and return the number of answers to the last prompt. Raises RequestRejected."""
        count = 0
        for role, group in groupby(conversation.contents, key=lambda content: content.role):
            contents = tuple(group)
            signed = [part for content in contents for part in content.parts if "thought_signature" in part]
            if any(role == "user" or part.get("thought") for part in signed):
                reject(_MISPLACED_ERROR)
            if role == "user":
                continue
            for content in contents:
                if self.traits.requires_signatures and content.number >= conversation.turn_start:
                    _check_present(content)
            answers = self._count_run(_build_run(contents))
            count += answers if contents[0].number >= conversation.state.start else 0
        return count

    def _count_run(self, run: _Run) -> int:
        """Check the signatures in consecutive `Content` objects and return the number of answers."""
        ends: list[int] = []
        for position, item in enumerate(run.items):
            if item.signature is None:
                continue
            if is_dummy(item.signature):
                _check_dummy(run, position)
                continue
            seal = self._verify_signature(item.signature)
            _check_place(seal, run, position)
            if seal.is_paused:
                ends.append(position - seal.place + len(seal.order) - 1)
        return sum(_count_pieces(run, content.number, ends) for content in run.contents)

    def _verify_signature(self, signature: str) -> ThoughtSignature:
        seal = verify_state(signature, self.signer, ThoughtSignature)
        if seal is None or seal.model != self.traits.id or seal.key != self.key:
            reject(_CORRUPTED_ERROR)
        return seal


def _build_run(contents: tuple[GoogleContent, ...]) -> _Run:
    places = [(content.number, index) for content in contents for index in range(len(content.parts))]
    answer_items = list_answer_items([part for content in contents for part in content.parts])
    return _Run(contents, tuple(answer_items), tuple(places[item.index] for item in answer_items))


def _count_pieces(run: _Run, number: int, ends: Sequence[int]) -> int:
    """Return the number of answers in a `Content` object. Paused answers end at the positions in `ends`."""
    own = [position for position, (owner, _) in enumerate(run.owners) if owner == number]
    paused = [position for position in own if position in ends]
    return len(paused) + (not own or own[-1] not in paused)


def _check_present(content: GoogleContent) -> None:
    first = next((part for part in content.parts if "function_call" in part), None)
    if first is not None and "thought_signature" not in first:
        reject(_MISSING_ERROR.format(name=first["function_call"]["name"], position=content.number + 1))


def _check_dummy(run: _Run, position: int) -> None:
    """Check that a dummy signature is on the first tool call of its `Content` object."""
    number, index = run.owners[position]
    content = next(content for content in run.contents if content.number == number)
    if index != next((i for i, part in enumerate(content.parts) if "function_call" in part), None):
        reject(_MISPLACED_ERROR)


def _check_place(seal: ThoughtSignature, run: _Run, position: int) -> None:
    """Check that the client sent back the items of a signed answer unchanged and in order.

    After an interrupted stream, the last items may be missing or incomplete. Text from another answer may precede the
    items.
    """
    items_of_run = run.items
    begin, end = position - seal.place, position - seal.place + len(seal.order)
    if begin < 0:
        reject(_MISPLACED_ERROR)
    for offset, mark in enumerate(seal.order[: len(items_of_run) - begin]):
        item = items_of_run[begin + offset]
        is_last = begin + offset == len(items_of_run) - 1
        is_cut = is_last and item.text is not None and mark.startswith("t")
        follows_text = offset == 0 and is_suffix(item.text, mark)
        if item.mark != mark and not is_cut and not follows_text:
            reject(_MISPLACED_ERROR)
    if end < len(items_of_run) and not seal.is_paused and run.owners[end][0] == run.owners[end - 1][0]:
        reject(_MISPLACED_ERROR)
