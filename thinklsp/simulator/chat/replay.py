"""Whether reasoning comes back as each server demands it: DeepSeek's rule, OpenRouter's seals, nothing elsewhere.

A seal of `reasoning_details` covers its own entry and the unsealed ones before it, and knows how many seals its answer
has; so an array is judged from itself alone: nothing changed, left out, put in another order or mixed with another
answer's. DeepSeek's reasoning is plain text without a seal, so what was issued is remembered, bounded; what has been
forgotten is not held against anybody who brings no text.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from thinklsp.simulator.chat.flavours import Failure, Flavour, Refused, invalid
from thinklsp.simulator.chat.messages import Conversation, Message, calls_of
from thinklsp.simulator.chat.options import Options
from thinklsp.simulator.state import Sealer, forget_oldest, text_digest, text_tokens

Detail = Mapping[str, Any]
_KINDS = frozenset({"reasoning.text", "reasoning.summary", "reasoning.encrypted", "reasoning.server_tool_call"})
_SEALED = ("signature", "data")
_FORMATS = {
    "anthropic": "anthropic-claude-v1",
    "google": "google-gemini-v1",
    "openai": "openai-responses-v1",
    "x-ai": "xai-responses-v1",
}
_PROVIDERS = {"anthropic": "Anthropic", "google": "Google AI Studio", "openai": "OpenAI"}
_REMEMBERED = 4096
_MUST_COME_BACK = "The reasoning_content in the thinking mode must be passed back to the API"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom sealed entries belong to: the model, and a digest of the key that asked for it."""

    model: str
    key: str

    @property
    def vendor(self) -> str:
        return self.model.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Thought:
    """One part of thinking. `shown` None: it cannot be read; `encrypted`: it never could."""

    thought: str
    shown: str | None
    encrypted: bool = False


def seal_details(thoughts: Sequence[Thought], owner: Owner, answer: str, sealer: Sealer) -> list[list[Detail]]:
    """The finished entries of each thought, sealed."""
    open_entries = list(_entries(thoughts, owner.vendor))
    count = sum(_seal_name(entry) is not None for entries in open_entries for entry in entries)
    pending: list[Detail] = []
    place = 0
    sealed: list[list[Detail]] = []
    for thought, entries in zip(thoughts, open_entries, strict=True):
        finished: list[Detail] = []
        for entry in entries:
            name = _seal_name(entry)
            pending.append(entry)
            if name is not None:
                about = {"model": owner.model, "key": owner.key, "answer": answer, "place": place, "count": count}
                text = sealer.close({**about, "digest": _digest(pending)}, text_tokens(thought.thought))
                entry = {**entry, name: text}
                pending = []
                place += 1
            finished.append(entry)
        sealed.append(finished)
    return sealed


def check_details(details: Any, owner: Owner, sealer: Sealer, message: int) -> None:
    """Raises Refused unless the array is one answer's, whole and unmodified, or empty."""
    place = f"messages.{message}"
    if details is None:
        return
    if not isinstance(details, list):
        _malformed(place, "expected array")
    _Judge(owner, sealer, place).check(details)


class _Judge:
    """Walks one array; it carries what the next entry has to fit to."""

    def __init__(self, owner: Owner, sealer: Sealer, place: str) -> None:
        self._owner = owner
        self._sealer = sealer
        self._place = place
        self._answer: str | None = None
        self._seen = 0
        self._count = 0
        self._pending: list[Detail] = []

    def check(self, details: Sequence[Any]) -> None:
        for number, entry in enumerate(details):
            if not isinstance(entry, Mapping) or str(entry.get("type")) not in _KINDS:
                _malformed(f"{self._place}.reasoning_details.{number}", "no known type")
            self._check_entry(entry, number)
        if self._pending:
            _rejected(self._owner, self._place, len(details) - 1)
        if self._seen != self._count:
            _rejected(self._owner, self._place, max(len(details) - 1, 0), modified=True)

    def _check_entry(self, entry: Detail, number: int) -> None:
        if entry["type"] == "reasoning.server_tool_call":
            return
        self._pending.append(entry)
        text = entry.get("data") if entry["type"] == "reasoning.encrypted" else entry.get("signature")
        if text is None:
            return
        seal = self._sealer.open(text) if isinstance(text, str) else None
        if seal is None or (seal.get("model"), seal.get("key")) != (self._owner.model, self._owner.key):
            _rejected(self._owner, self._place, number)
        fits = (seal["answer"], seal["place"]) == (self._answer or seal["answer"], self._seen)
        if not fits or seal["digest"] != _digest(self._pending):
            _rejected(self._owner, self._place, number, modified=True)
        self._answer, self._count = seal["answer"], seal["count"]
        self._seen += 1
        self._pending = []


def _entries(thoughts: Sequence[Thought], vendor: str) -> Iterator[list[Detail]]:
    """Entries without seals. Encrypted thinking shares the index of readable thinking right before it."""
    index = -1
    shares = False
    for thought in thoughts:
        index += not (thought.encrypted and shares)
        yield list(_entry_forms(thought, vendor, index))
        shares = not thought.encrypted and vendor not in ("google", "openai")


def _entry_forms(thought: Thought, vendor: str, index: int) -> Iterable[Detail]:
    common = {"index": index, "format": _FORMATS.get(vendor, "unknown"), "id": None}
    encrypted = {"type": "reasoning.encrypted", "data": "", **common}
    if thought.encrypted:
        yield encrypted
    elif vendor in ("google", "openai"):
        # What can be read carries no seal of its own here; the encrypted entry under the same index does.
        kind, name = ("reasoning.text", "text") if vendor == "google" else ("reasoning.summary", "summary")
        if thought.shown is not None:
            yield {"type": kind, name: thought.shown, **common}
        yield encrypted
    else:
        yield {"type": "reasoning.text", "text": thought.shown or "", "signature": "", **common}


def _seal_name(entry: Detail) -> str | None:
    return next((name for name in _SEALED if name in entry), None)


def _digest(entries: Iterable[Detail]) -> str:
    """Of what can be read; keys that are null or empty may as well be missing."""
    bare = [
        {key: value for key, value in entry.items() if key not in _SEALED and value is not None and value != ""}
        for entry in entries
    ]
    return text_digest(json.dumps(bare, sort_keys=True))[:24]


def _malformed(place: str, why: str) -> NoReturn:
    raise Refused(Failure(400, f"{place}: Invalid input: {why}", "invalid_request_error"))


def _rejected(owner: Owner, place: str, number: int, *, modified: bool = False) -> NoReturn:
    """The vendor's refusal, inside the router's."""
    match owner.vendor:
        case "google":
            error: dict[str, Any] = {"code": 400, "message": "Corrupted thought signature."}
            raw: dict[str, Any] = {"error": {**error, "status": "INVALID_ARGUMENT"}}
        case "openai":
            message = "The encrypted content could not be verified. Reason: It could not be decrypted or parsed."
            error = {"message": message, "type": "invalid_request_error", "param": None}
            raw = {"error": {**error, "code": "invalid_encrypted_content"}}
        case _:
            message = f"{place}.content.{number}: Invalid `signature` in `thinking` block"
            if modified:
                message = (
                    f"{place}.content.{number}: `thinking` or `redacted_thinking` blocks in the latest assistant "
                    "message cannot be modified. These blocks must remain as they were in the original response."
                )
            raw = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    more = {"raw": json.dumps(raw), "provider_name": _PROVIDERS.get(owner.vendor, owner.vendor), "is_byok": False}
    raise Refused(Failure(400, "Provider returned error", "invalid_request_error", more=more))


@dataclass(frozen=True, slots=True)
class _Issued:
    owner: Owner
    digest: str


class Memory:
    """Reasoning that went out: by the ids of the tool calls behind it, and as texts of a model."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, _Issued] = OrderedDict()
        self._texts: OrderedDict[tuple[str, str], None] = OrderedDict()

    def clear(self) -> None:
        """Forget conversations; texts that were issued stay known, as signed blocks do elsewhere."""
        self._calls.clear()

    def remember(self, owner: Owner, reasoning: str, calls: Iterable[str]) -> None:
        digest = text_digest(reasoning)
        self._texts[owner.model, digest] = None
        for call in calls:
            self._calls[call] = _Issued(owner, digest)
        forget_oldest(self._texts, _REMEMBERED)
        forget_oldest(self._calls, 4 * _REMEMBERED)

    def knows(self, owner: Owner, reasoning: str) -> bool:
        return (owner.model, text_digest(reasoning)) in self._texts

    def behind(self, owner: Owner, calls: Iterable[str]) -> str | None:
        """Digest of the reasoning that this owner got before one of these calls; None where it got none of them."""
        issued = (self._calls.get(call) for call in calls)
        return next((found.digest for found in issued if found is not None and found.owner == owner), None)


def check_replay(
    conversation: Conversation, flavour: Flavour, options: Options, owner: Owner, sealer: Sealer, memory: Memory
) -> None:
    """Raises Refused when reasoning does not come back as it must."""
    for number, message in conversation.assistants():
        if flavour.details:
            check_details(message.get("reasoning_details"), owner, sealer, number)
        elif flavour.name == "deepseek":
            # Without tools and with thinking off the field is not looked for; in earlier turns it may be missing.
            demanded = options.thinks and bool(options.tools) and number >= conversation.loop_start
            _check_text(message, owner, memory, demanded=demanded and bool(message.get("tool_calls")))
        elif flavour.name == "llama.cpp" and options.thinks and number == len(conversation.messages) - 1:
            invalid("Assistant response prefill is incompatible with enable_thinking.")


def _check_text(message: Message, owner: Owner, memory: Memory, *, demanded: bool) -> None:
    text = message.get("reasoning_content")
    if text is None:
        if demanded:
            invalid(_MUST_COME_BACK)
        return
    if not isinstance(text, str):
        invalid(
            "Failed to deserialize the JSON body into the target type: reasoning_content: invalid type, expected a "
            "string"
        )
    if text and not memory.knows(owner, text):
        invalid(_MUST_COME_BACK)
    issued = memory.behind(owner, calls_of(message))
    if demanded and issued is not None and issued != text_digest(text):
        invalid(_MUST_COME_BACK)
