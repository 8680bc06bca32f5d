"""Checks that clients send each thought signature back on the part on which it arrived.

A signature stands for the marks of its whole answer, in order. The signatures also tell how many answers a conversation
has, although a client joins the parts of a paused answer.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from tests.stand_ins.google.requests import GoogleContent, GoogleConversation, GoogleTraits, decode_base64
from tests.stand_ins.rejections import reject
from tests.stand_ins.service_state import StateSigner, hash_json

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
    """A part of an answer that clients must send back unchanged, or consecutive unsigned texts as one.

    `index` is the index of the item's first part, and `mark` identifies the item.
    """

    index: int
    mark: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class ThoughtSignature:
    """What a signature stands for: the item at `place` of an answer whose items have the marks `order`.

    If `is_paused` is true, the model continues the answer in the next response.
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


def list_answer_items(parts: Sequence[Mapping[str, Any]]) -> list[AnswerItem]:
    """Convert the parts of an answer to items. Thoughts are omitted, and consecutive unsigned texts are joined."""
    result: list[AnswerItem] = []
    numbered = [(index, part) for index, part in enumerate(parts) if not part.get("thought")]
    for is_text, run in groupby(numbered, key=lambda item: "thought_signature" not in item[1] and "text" in item[1]):
        found = list(run)
        if not is_text:
            result += (AnswerItem(index, _mark_part(part), part.get("thought_signature")) for index, part in found)
        elif text := "".join(str(part["text"]) for _, part in found):
            result.append(AnswerItem(found[0][0], hash_json("text", text)))
    return result


def _mark_part(part: Mapping[str, Any]) -> str:
    bare = {key: value for key, value in part.items() if key != "thought_signature"}
    # A part that contains only a signature may have empty text or no text.
    return hash_json("text", bare.get("text", "")) if "text" in bare or not bare else hash_json(bare)


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """A checker for the signatures in a request. A signature is valid only for the same model and API key."""

    traits: GoogleTraits
    key: str
    signer: StateSigner

    def count_answers(self, conversation: GoogleConversation) -> int:
        """Check all signatures and return the number of answers to the last prompt. Raises RequestRejected."""
        count = 0
        for content in conversation.contents:
            signed = [part for part in content.parts if "thought_signature" in part]
            if any(content.role == "user" or part.get("thought") for part in signed):
                reject(_MISPLACED_ERROR)
            if content.role == "user":
                continue
            if self.traits.requires_signatures and content.number >= conversation.turn_start:
                _check_present(content)
            answers = self._count_content(content)
            count += answers if content.number >= conversation.state.start else 0
        return count

    def _count_content(self, content: GoogleContent) -> int:
        """Check the signatures of a content and return the number of answers that it joins."""
        items = list_answer_items(content.parts)
        ends: dict[int, bool] = {}
        for position, item in enumerate(items):
            if item.signature is None:
                continue
            if decode_base64(item.signature) in _DUMMY_BYTES:
                if item.index != _find_first_call(content):
                    reject(_MISPLACED_ERROR)
                continue
            seal = self._verify_signature(item.signature)
            begin = position - seal.place
            if begin < 0 or tuple(found.mark for found in items[begin : begin + len(seal.order)]) != seal.order:
                reject(_MISPLACED_ERROR)
            ends[begin + len(seal.order)] = seal.is_paused
        last = max(ends, default=len(items))
        if last < len(items) and not ends[last]:
            reject(_MISPLACED_ERROR)
        pauses = sum(ends.values())
        return pauses + (not items or not ends.get(len(items), False))

    def _verify_signature(self, signature: str) -> ThoughtSignature:
        seal = verify_state(signature, self.signer, ThoughtSignature)
        if seal is None or seal.model != self.traits.id or seal.key != self.key:
            reject(_CORRUPTED_ERROR)
        return seal


def _find_first_call(content: GoogleContent) -> int | None:
    return next((index for index, part in enumerate(content.parts) if "function_call" in part), None)


def _check_present(content: GoogleContent) -> None:
    first = _find_first_call(content)
    if first is not None and "thought_signature" not in content.parts[first]:
        name = content.parts[first]["function_call"]["name"]
        reject(_MISSING_ERROR.format(name=name, position=content.number + 1))
