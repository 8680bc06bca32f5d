"""Thought signatures: what each is about, and whether all come back on the parts that they were issued for.

A signature holds the whole answer in short, so the judgement needs nothing but the request and the sealer's secret. It
also tells how many answers of the model a conversation holds, since an answer in several pieces may come back as one
content.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from thinklsp.simulator.google.contents import Content, Conversation
from thinklsp.simulator.google.errors import invalid
from thinklsp.simulator.google.models import ModelTraits
from thinklsp.simulator.google.payload import decoded
from thinklsp.simulator.state import Sealer, json_digest, text_digest

_DUMMIES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
# Sent as text of its own, or as the base64 of that text.
_DUMMY_BYTES = frozenset({form for text in _DUMMIES for form in (text.encode("ascii"), decoded(text))})
_MISSING = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
    "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call "
    "`default_api:{name}` , position {position}. Please refer to "
    "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
)
_CORRUPTED = "Corrupted thought signature."
_MISPLACED = "Invalid thought signature."


@dataclass(frozen=True, slots=True)
class Item:
    """A stretch of an answer that must stay as it is: a run of unsigned texts, or one other part.

    `text`: the run, None for other parts. `index`: of its first part in the content. `mark` tells it apart.
    """

    index: int
    mark: str
    text: str | None = None
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Seal:
    """`order`: marks of the answer's items; the signed one is at `place`. `paused`: the answer goes on in the next."""

    model: str
    key: str
    order: tuple[str, ...]
    place: int
    paused: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class Token:
    """What a continuation token is about: the request it goes on with, and how many answers it already had."""

    model: str
    key: str
    contents: str
    played: int


def signed(seal: Seal, sealer: Sealer) -> str:
    return sealer.close({"signature": asdict(seal)}, seal.tokens)


def opened(text: str, sealer: Sealer) -> Seal | None:
    """None for anything that this process did not sign exactly so, in either alphabet."""
    content = _content(text, sealer).get("signature")
    return None if content is None else Seal(**{**content, "order": tuple(content["order"])})


def token(value: Token, sealer: Sealer) -> str:
    return sealer.close({"token": asdict(value)}, 0)


def opened_token(text: str, sealer: Sealer) -> Token | None:
    content = _content(text, sealer).get("token")
    return None if content is None else Token(**content)


def is_dummy(text: str) -> bool:
    """The documented stand-in for calls that no model of this service has made."""
    return decoded(text) in _DUMMY_BYTES


def items(parts: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Parts (in snake_case) as items: thoughts left out, neighbouring unsigned texts as one."""
    result: list[Item] = []
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
                result.append(Item(index, _text_mark(text), text))
        else:
            result.append(Item(index, _part_mark(part), signature=signature))
    return result


def ends_with(text: str | None, mark: str) -> bool:
    """Whether a run of texts ends in the one that `mark` stands for."""
    if text is None or not mark.startswith("t"):
        return False
    length = int(mark[1:].partition(":")[0])
    return length <= len(text) and _text_mark(text[len(text) - length :]) == mark


def _text_mark(text: str) -> str:
    return f"t{len(text)}:{text_digest(text)[:12]}"


def _part_mark(part: Mapping[str, Any]) -> str:
    bare = {key: value for key, value in part.items() if key != "thought_signature"}
    if "text" in bare or not bare:
        # A part that only carries a signature has an empty text or none.
        return f"s:{json_digest(bare.get('text', ''))[:12]}"
    return f"p:{json_digest(bare)[:12]}"


def _content(text: str, sealer: Sealer) -> Mapping[str, Any]:
    blob = decoded(text)
    content = None if blob is None else sealer.open(base64.b64encode(blob).decode("ascii"))
    return content or {}


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring contents of the model, read as one: a stream may come back in as many contents as it had chunks.

    `owners`: the content of each item, and the place of its first part therein.
    """

    contents: tuple[Content, ...]
    items: tuple[Item, ...]
    owners: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Judge:
    """Who asks: signatures hold for one model and one key."""

    traits: ModelTraits
    key: str
    sealer: Sealer

    def answers(self, conversation: Conversation) -> int:
        """How many answers the last prompt has. Raises Refused when a signature does not come back as it must."""
        count = 0
        for role, contents in groupby(conversation.contents, key=lambda content: content.role):
            spoken = tuple(contents)
            if role == "user":
                _check_unsigned(spoken)
                continue
            for content in spoken:
                _check_unsigned_thoughts(content)
                if self.traits.demands_signatures and content.number >= conversation.turn_start:
                    _check_present(content)
            answers = self._count(_run(spoken))
            count += answers if spoken[0].number >= conversation.loop_start else 0
        return count

    def _count(self, run: _Run) -> int:
        """The number of answers in the run: its contents, and where one holds several pieces of an answer, those."""
        ends: list[int] = []
        for position, item in enumerate(run.items):
            if item.signature is None:
                continue
            if is_dummy(item.signature):
                _check_dummy(run, position)
                continue
            seal = self._opened(item.signature)
            _check_place(seal, run, position)
            if seal.paused:
                ends.append(position - seal.place + len(seal.order) - 1)
        return sum(_pieces(run, content.number, ends) for content in run.contents)

    def _opened(self, signature: str) -> Seal:
        seal = opened(signature, self.sealer)
        if seal is None or seal.model != self.traits.id or seal.key != self.key:
            invalid(_CORRUPTED)
        return seal


def _run(contents: tuple[Content, ...]) -> _Run:
    places = [(content.number, index) for content in contents for index in range(len(content.parts))]
    found = items([part for content in contents for part in content.parts])
    return _Run(contents, tuple(found), tuple(places[item.index] for item in found))


def _pieces(run: _Run, number: int, ends: Sequence[int]) -> int:
    """The answers in one content: each that was paused ends a piece, and what follows the last is one more."""
    own = [position for position, (owner, _) in enumerate(run.owners) if owner == number]
    paused = [position for position in own if position in ends]
    return len(paused) + (not own or own[-1] not in paused)


def _check_unsigned(contents: Sequence[Content]) -> None:
    if any("thought_signature" in part for content in contents for part in content.parts):
        invalid(_MISPLACED)


def _check_unsigned_thoughts(content: Content) -> None:
    if any(part.get("thought") and "thought_signature" in part for part in content.parts):
        invalid(_MISPLACED)


def _check_present(content: Content) -> None:
    first = next((part for part in content.parts if "function_call" in part), None)
    if first is not None and "thought_signature" not in first:
        invalid(_MISSING.format(name=first["function_call"]["name"], position=content.number + 1))


def _check_dummy(run: _Run, position: int) -> None:
    """It stands in for the signature of a first call; parallel calls behind it have none to stand in for."""
    number, index = run.owners[position]
    content = next(content for content in run.contents if content.number == number)
    if index != next((i for i, part in enumerate(content.parts) if "function_call" in part), None):
        invalid(_MISPLACED)


def _check_place(seal: Seal, run: _Run, position: int) -> None:
    """Everything of the answer up to the signed part is there as it was, and nothing else comes between.

    Before it only what another answer left may stand, and behind it what a broken stream cut off may be missing.
    """
    found = run.items
    begin, end = position - seal.place, position - seal.place + len(seal.order)
    if begin < 0:
        invalid(_MISPLACED)
    for offset, mark in enumerate(seal.order[: len(found) - begin]):
        item = found[begin + offset]
        last = begin + offset == len(found) - 1
        cut = last and item.text is not None and mark.startswith("t")
        begins = offset == 0 and ends_with(item.text, mark)
        if item.mark != mark and not cut and not begins:
            invalid(_MISPLACED)
    if end < len(found) and not seal.paused and run.owners[end][0] == run.owners[end - 1][0]:
        invalid(_MISPLACED)
