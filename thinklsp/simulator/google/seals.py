"""What a thought signature is about, and the forms in which one comes back.

A signature holds the whole answer in short: so no memory is needed to see that its part stands where it stood.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from thinklsp.simulator.google.payload import decoded
from thinklsp.simulator.seals import Sealer, text_digest

_DUMMIES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
# Sent as text of its own, or as the base64 of that text.
_DUMMY_BYTES = frozenset({form for text in _DUMMIES for form in (text.encode("ascii"), decoded(text))})


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


def fingerprint(key: str) -> str:
    return text_digest(key)[:16]


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


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode("ascii")).hexdigest()[:24]


def _text_mark(text: str) -> str:
    return f"t{len(text)}:{text_digest(text)[:12]}"


def _part_mark(part: Mapping[str, Any]) -> str:
    bare = {key: value for key, value in part.items() if key != "thought_signature"}
    if "text" in bare or not bare:
        # A part that only carries a signature has an empty text or none.
        return f"s:{digest(bare.get('text', ''))[:12]}"
    return f"p:{digest(bare)[:12]}"


def _content(text: str, sealer: Sealer) -> Mapping[str, Any]:
    blob = decoded(text)
    content = None if blob is None else sealer.open(base64.b64encode(blob).decode("ascii"))
    return content or {}
