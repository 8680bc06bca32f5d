"""Checks that clients send reasoning back unmodified to DeepSeek and OpenRouter, which require this.

OpenRouter signs the entries in `reasoning_details`. A signature stands for the marks of all entries of its answer.
DeepSeek's reasoning is plain text, so the simulator remembers the reasoning that it sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tests.stand_ins.chat.requests import ChatConversation, ChatMessage, ChatOptions, Flavour, list_call_ids
from tests.stand_ins.rejections import RequestRejected, reject
from tests.stand_ins.service_state import StateSigner, estimate_tokens, hash_json, hash_text
from thinklsp.offline.scenario import RedactedPart, ThinkingPart

ReasoningDetail = Mapping[str, Any]
_DETAIL_TYPES = frozenset({"reasoning.text", "reasoning.summary", "reasoning.encrypted", "reasoning.server_tool_call"})
_SIGNATURE_KEYS = ("signature", "data")
_DETAIL_FORMATS = {
    "anthropic": "anthropic-claude-v1",
    "google": "google-gemini-v1",
    "openai": "openai-responses-v1",
    "x-ai": "xai-responses-v1",
}
_PROVIDER_NAMES = {"anthropic": "Anthropic", "google": "Google AI Studio", "openai": "OpenAI"}
_REASONING_REQUIRED = "The reasoning_content in the thinking mode must be passed back to the API"


@dataclass(frozen=True, slots=True)
class ReasoningOwner:
    """The model and the client that signed reasoning belongs to. `key` is a hash of the client's API key."""

    model: str
    key: str

    @property
    def vendor(self) -> str:
        return self.model.partition("/")[0]


@dataclass(frozen=True, slots=True)
class _DetailSignature:
    """What a signature stands for: the entry at `place` of an answer whose entries have the marks `order`."""

    owner: ReasoningOwner
    answer: str
    order: tuple[str, ...]
    place: int


def sign_details(
    thoughts: Sequence[ThinkingPart | RedactedPart], owner: ReasoningOwner, answer: str, signer: StateSigner
) -> list[list[ReasoningDetail]]:
    """Return the signed `reasoning_details` entries for each thinking part."""
    open_entries = list(_iter_entries(thoughts, owner.vendor))
    order = tuple(_compute_mark(entry) for entries in open_entries for entry in entries)
    places = iter(range(len(order)))

    def sign(entry: ReasoningDetail, part: ThinkingPart | RedactedPart) -> ReasoningDetail:
        seal = _DetailSignature(owner, answer, order, next(places))
        name = next((name for name in _SIGNATURE_KEYS if name in entry), None)
        return entry if name is None else {**entry, name: signer.sign(seal, estimate_tokens(part.thought))}

    return [[sign(entry, part) for entry in entries] for part, entries in zip(thoughts, open_entries, strict=True)]


def check_details(details: Any, owner: ReasoningOwner, signer: StateSigner, message: int) -> None:
    """Check that `reasoning_details` is either empty, or complete and unmodified. Raises RequestRejected otherwise."""
    place = f"messages.{message}"
    if details is None:
        return
    if not isinstance(details, list):
        reject(f"{place}: Invalid input: expected array")
    for number, entry in enumerate(details):
        if not isinstance(entry, Mapping) or str(entry.get("type")) not in _DETAIL_TYPES:
            reject(f"{place}.reasoning_details.{number}: Invalid input: no known type")
    entries = [entry for entry in details if entry["type"] != "reasoning.server_tool_call"]
    marks = [_compute_mark(entry) for entry in entries]
    begins: dict[str, int] = {}
    end = 0
    for number, entry in enumerate(entries):
        text = entry.get("data" if entry["type"] == "reasoning.encrypted" else "signature")
        if text is None:
            continue
        seal = signer.verify(text, _DetailSignature) if isinstance(text, str) else None
        if seal is None or seal.owner != owner:
            _reject_entry(owner, place, number)
        begin = begins.setdefault(seal.answer, number - seal.place)
        end = begin + len(seal.order)
        if begin != number - seal.place or begin < 0 or tuple(marks[begin:end]) != seal.order:
            _reject_entry(owner, place, number, modified=True)
    if end != len(entries):
        _reject_entry(owner, place, len(entries) - 1, modified=True)


def _iter_entries(thoughts: Sequence[ThinkingPart | RedactedPart], vendor: str) -> Iterator[list[ReasoningDetail]]:
    """Yield the unsigned `reasoning_details` entries for each thinking part."""
    index = -1
    shares = False
    for part in thoughts:
        is_encrypted = isinstance(part, RedactedPart)
        index += not (is_encrypted and shares)
        yield list(_build_entries(part, vendor, index))
        shares = not is_encrypted and vendor not in ("google", "openai")


def _build_entries(part: ThinkingPart | RedactedPart, vendor: str, index: int) -> Iterable[ReasoningDetail]:
    common = {"index": index, "format": _DETAIL_FORMATS.get(vendor, "unknown"), "id": None}
    encrypted = {"type": "reasoning.encrypted", "data": "", **common}
    if isinstance(part, RedactedPart):
        yield encrypted
    elif vendor in ("google", "openai"):
        # Google and OpenAI sign only the encrypted entry, not the readable entry with the same index.
        kind, name = ("reasoning.text", "text") if vendor == "google" else ("reasoning.summary", "summary")
        if part.readable_text is not None:
            yield {"type": kind, name: part.readable_text, **common}
        yield encrypted
    else:
        yield {"type": "reasoning.text", "text": part.readable_text or "", "signature": "", **common}


def _compute_mark(entry: ReasoningDetail) -> str:
    """Return a hash of an entry without its signature. Null and empty values are ignored."""
    return hash_json(
        {key: value for key, value in entry.items() if key not in _SIGNATURE_KEYS and value not in (None, "")}
    )


def _reject_entry(owner: ReasoningOwner, place: str, number: int, *, modified: bool = False) -> NoReturn:
    """Reject a request because of a `reasoning_details` entry. OpenRouter's error contains the vendor's error."""
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
    more = {"raw": json.dumps(raw), "provider_name": _PROVIDER_NAMES.get(owner.vendor, owner.vendor), "is_byok": False}
    raise RequestRejected(400, "Provider returned error", extra_fields=more)


@dataclass(frozen=True, slots=True)
class _IssuedReasoning:
    owner: ReasoningOwner
    digest: str


class ReasoningMemory:
    """The reasoning that the simulator has sent. Hashes of the reasoning are stored by tool call ID and by model."""

    def __init__(self) -> None:
        self._calls: dict[str, _IssuedReasoning] = {}
        self._texts: dict[tuple[str, str], None] = {}

    def remember(self, owner: ReasoningOwner, reasoning: str, calls: Iterable[str]) -> None:
        digest = hash_text(reasoning)
        self._texts[owner.model, digest] = None
        for call in calls:
            self._calls[call] = _IssuedReasoning(owner, digest)

    def has_issued(self, owner: ReasoningOwner, reasoning: str) -> bool:
        return (owner.model, hash_text(reasoning)) in self._texts

    def find_digest(self, owner: ReasoningOwner, calls: Iterable[str]) -> str | None:
        """Return the hash of the reasoning that `owner` received before any of the tool calls, or None."""
        entries = (self._calls.get(call) for call in calls)
        return next((entry.digest for entry in entries if entry is not None and entry.owner == owner), None)


def check_replay(
    conversation: ChatConversation,
    flavour: Flavour,
    options: ChatOptions,
    owner: ReasoningOwner,
    signer: StateSigner,
    memory: ReasoningMemory,
) -> None:
    """Check that the client sent back reasoning as the server requires. Raises RequestRejected otherwise."""
    for number, message in conversation.iter_assistant_messages():
        if flavour.details:
            check_details(message.get("reasoning_details"), owner, signer, number)
        elif flavour.name == "deepseek":
            # DeepSeek requires reasoning only in the current turn, and only if the request enables both tools and
            # thinking.
            required = options.thinks and bool(options.tools) and number >= conversation.state.start
            _check_text(message, owner, memory, required=required and bool(message.get("tool_calls")))
        elif flavour.name == "llama.cpp" and options.thinks and number == len(conversation.messages) - 1:
            reject("Assistant response prefill is incompatible with enable_thinking.")


def _check_text(message: ChatMessage, owner: ReasoningOwner, memory: ReasoningMemory, *, required: bool) -> None:
    text = message.get("reasoning_content")
    if text is None:
        if required:
            reject(_REASONING_REQUIRED)
        return
    if not isinstance(text, str):
        reject(
            "Failed to deserialize the JSON body into the target type: reasoning_content: invalid type, expected a "
            "string"
        )
    if text and not memory.has_issued(owner, text):
        reject(_REASONING_REQUIRED)
    issued = memory.find_digest(owner, list_call_ids(message))
    if required and issued is not None and issued != hash_text(text):
        reject(_REASONING_REQUIRED)
