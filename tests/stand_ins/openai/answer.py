"""Functions that convert a scripted answer to a Responses API response, its items or its stream events."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.stand_ins.dialect import Frame, SendBytes, pause, send_event
from tests.stand_ins.openai.input_items import CALL, COMPACTION
from tests.stand_ins.openai.issued_items import CompactionState, ItemPosition, ReasoningState, encrypt, hash_summary
from tests.stand_ins.openai.models import ResponseOptions
from tests.stand_ins.openai.replay import Issuer, OpenAiReplay, compute_mark
from tests.stand_ins.openai.tools import complete_tools
from tests.stand_ins.rejections import RequestRejected
from tests.stand_ins.service_state import InputUsage, compute_usage, estimate_tokens
from tests.stand_ins.writer import AnswerWriter
from thinklsp.offline.scenario import RawPart, RedactedPart, ScenarioStep, TextPart, ThinkingPart, ToolPart

_REFUSAL_TEXT = "I'm sorry, but I cannot help with that."
# The request keys that are copied to the response.
_ECHOED_KEYS = (
    "instructions", "max_output_tokens", "max_tool_calls", "model", "previous_response_id", "prompt_cache_key",
    "safety_identifier", "user",
)  # fmt: skip
_INCOMPLETE_REASONS = frozenset({"max_tokens", "context_window"})
ResponseEvent = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class StreamedItem:
    """A complete item and the events that stream it.

    `start` is the item in its first event. Each entry in `events` is an event and the pause before it in milliseconds.
    `pause_ms` is the pause before the end of the item. If `is_raw` is true, the scenario defines the item's JSON.
    """

    item: Mapping[str, Any]
    start: Mapping[str, Any]
    events: tuple[tuple[int, ResponseEvent], ...]
    delay_ms: int = 0
    pause_ms: int = 0
    tokens: int = 0
    is_reasoning: bool = False
    is_raw: bool = False


@dataclass(frozen=True, slots=True)
class OpenAiAnswer:
    """A complete answer. `head` contains the response fields that are known from the start.

    `status` is the final status, and `reason` is the reason why a response is incomplete.
    """

    head: Mapping[str, Any]
    streamed_items: tuple[StreamedItem, ...]
    status: str
    reason: str | None
    usage: Mapping[str, Any]
    obfuscates_deltas: bool

    @property
    def output(self) -> list[Mapping[str, Any]]:
        return [entry.item for entry in self.streamed_items]


def write_response(
    answer: ScenarioStep,
    body: Mapping[str, Any],
    options: ResponseOptions,
    issuer: Issuer,
    replay: OpenAiReplay,
    input_usage: InputUsage,
) -> OpenAiAnswer:
    items = _encrypt_reasoning(list(_Writer(answer, options, issuer).write()), options, issuer, replay.prefix)
    if options.compact_at is not None and input_usage.total >= options.compact_at:
        items = [_build_compaction(options, issuer), *items]
    status, reason = "completed", None
    if answer.stop_reason in _INCOMPLETE_REASONS:
        status, reason = "incomplete", "max_output_tokens"
    elif answer.stop_reason == "refusal" and not answer.parts:
        status, reason = "incomplete", "content_filter"
    head = _build_head(body, options, replay)
    usage = _build_usage(answer, items, input_usage, options)
    return OpenAiAnswer(head, tuple(items), status, reason, usage, options.obfuscates_deltas)


def _build_compaction(options: ResponseOptions, issuer: Issuer) -> StreamedItem:
    """Build the compaction item that replaces the earlier conversation."""
    item_id = issuer.ids.make("cmp", ItemPosition(secrets.token_hex(8), 0, None))
    seal = CompactionState(item_id, options.traits.id, issuer.key)
    item = {"id": seal.id, "type": COMPACTION, "encrypted_content": encrypt(seal, issuer.signer)}
    start = {**item, "encrypted_content": ""}
    return StreamedItem(item, start, ((0, ("response.compaction.compacting", {})),))


class _Writer(AnswerWriter[StreamedItem]):
    """A writer that builds and numbers the items of an answer. Reasoning is encrypted later."""

    def __init__(self, answer: ScenarioStep, options: ResponseOptions, issuer: Issuer) -> None:
        super().__init__(answer, thinks=options.thinks)
        self._options = options
        self._issuer = issuer
        self._id = secrets.token_hex(8)
        self._number = 0
        self._last_reasoning: int | None = None

    def write(self) -> Iterator[StreamedItem]:
        yield from super().write()
        if self._answer.stop_reason == "refusal" and self._answer.parts:
            text = self._answer.explanation or _REFUSAL_TEXT
            yield self._build_message({"type": "refusal", "refusal": text}, "refusal", "final_answer", "completed", 0)

    def _write_thinking(self, part: ThinkingPart | RedactedPart, number: int) -> Iterator[StreamedItem]:
        shown = part.readable_text if self._options.summary else None
        # Each paragraph of a summary is sent as a separate part.
        texts = tuple(text for text in (shown or "").split("\n\n") if text)
        pauses = isinstance(part, ThinkingPart) and shown is None
        pause = self._interval_ms * len(self._split(part.thought)) if pauses else 0
        item = self._build_reasoning(texts, self._find_status(number), part.thought, part.delay_ms)
        yield replace(item, pause_ms=pause)

    def _write_text(self, part: TextPart, number: int) -> Iterator[StreamedItem]:
        content = {"type": "output_text", "annotations": [], "logprobs": [], "text": part.text}
        commentary = any(_is_call(later) for later in self._answer.parts[number + 1 :])
        phase = "commentary" if commentary else "final_answer"
        yield self._build_message(content, "text", phase, self._find_status(number), part.delay_ms)

    def _write_raw(self, part: RawPart) -> Iterator[StreamedItem]:
        tokens = estimate_tokens(json.dumps(part.raw, default=str))
        yield StreamedItem(part.raw, part.raw, (), part.delay_ms, tokens=tokens, is_raw=True)

    def _find_status(self, number: int) -> str:
        cut = self._answer.stop_reason in _INCOMPLETE_REASONS and number == len(self._answer.parts) - 1
        return "incomplete" if cut else "completed"

    def _build_reasoning(self, texts: tuple[str, ...], status: str, thought: str, delay_ms: int) -> StreamedItem:
        number = self._take_number()
        self._last_reasoning = number
        item_id = self._issuer.ids.make_reasoning_id(self._id, number)
        summary = [{"type": "summary_text", "text": text} for text in texts]
        item: dict[str, Any] = {"id": item_id, "type": "reasoning", "summary": summary}
        if status == "incomplete":
            item["status"] = status
        events = tuple(event for index, text in enumerate(texts) for event in self._split_summary(index, text, status))
        tokens = estimate_tokens(thought)
        return StreamedItem(item, {**item, "summary": []}, events, delay_ms, tokens=tokens, is_reasoning=True)

    def _split_summary(self, index: int, text: str, status: str) -> Iterator[tuple[int, ResponseEvent]]:
        place = {"summary_index": index}
        name = "response.reasoning_summary"
        part = {"type": "summary_text", "text": text}
        yield 0, (f"{name}_part.added", {**place, "part": {**part, "text": ""}})
        yield from self._split_deltas(f"{name}_text.delta", place, text)
        yield 0, (f"{name}_text.done", {**place, "text": text})
        cut = {"status": status} if status == "incomplete" else {}
        yield 0, (f"{name}_part.done", {**place, "part": part, **cut})

    def _build_message(
        self, content: Mapping[str, Any], key: str, phase: str, status: str, delay_ms: int
    ) -> StreamedItem:
        item: dict[str, Any] = {"id": self._make_id("msg"), "type": "message", "status": status, "role": "assistant"}
        item["content"] = [content]
        if self._options.traits.has_phases:
            item["phase"] = phase
        place = {"content_index": 0}
        text = str(content[key])
        name = "output_text" if key == "text" else "refusal"
        more: dict[str, Any] = {"logprobs": []} if key == "text" else {}
        events: list[tuple[int, ResponseEvent]] = [
            (0, ("response.content_part.added", {**place, "part": {**content, key: ""}})),
            *self._split_deltas(f"response.{name}.delta", {**place, **more}, text),
            (0, (f"response.{name}.done", {**place, **more, key: text})),
            (0, ("response.content_part.done", {**place, "part": content})),
        ]
        start = {**item, "status": "in_progress", "content": []}
        return StreamedItem(item, start, tuple(events), delay_ms, tokens=estimate_tokens(text))

    def _write_tool_call(self, part: ToolPart, number: int) -> Iterator[StreamedItem]:
        text = part.format_arguments((",", ":"))
        item_id = self._make_id("fc")
        call_id = f"call_{hashlib.sha256(item_id.encode('ascii')).hexdigest()[:24]}"
        head = {"id": item_id, "type": "function_call", "call_id": call_id, "name": part.tool}
        events = [
            *self._split_deltas("response.function_call_arguments.delta", {}, text),
            (0, ("response.function_call_arguments.done", {"arguments": text})),
        ]
        yield StreamedItem(
            {**head, "status": self._find_status(number), "arguments": text},
            {**head, "status": "in_progress", "arguments": ""},
            tuple(events),
            part.delay_ms,
            tokens=estimate_tokens(part.tool + text) + 8,
        )

    def _split_deltas(self, name: str, place: Mapping[str, Any], text: str) -> Iterator[tuple[int, ResponseEvent]]:
        for piece in self._split(text):
            yield self._interval_ms, (name, {**place, "delta": piece})

    def _make_id(self, prefix: str) -> str:
        return self._issuer.ids.make(prefix, ItemPosition(self._id, self._take_number(), self._last_reasoning))

    def _take_number(self) -> int:
        self._number += 1
        return self._number - 1


def _is_call(part: Any) -> bool:
    return isinstance(part, ToolPart) or (isinstance(part, RawPart) and part.raw["type"] == CALL)


def _encrypt_reasoning(
    items: list[StreamedItem], options: ResponseOptions, issuer: Issuer, prefix: str
) -> list[StreamedItem]:
    """Add encrypted content to the reasoning items.

    The items are encrypted in reverse order, because the encrypted content contains a hash of the next item.
    """
    for index in reversed(range(len(items))):
        entry = items[index]
        if not entry.is_reasoning:
            continue
        following = items[index + 1].item if index + 1 < len(items) else None
        following_id = following.get("id") if following is not None else None
        before = issuer.ids.read(str(items[index - 1].item["id"])) if index and items[index - 1].is_reasoning else None
        seal = ReasoningState(
            str(entry.item["id"]),
            options.traits.id,
            issuer.key,
            options.end_user,
            prefix,
            hash_summary(entry.item),
            None if before is None else before.number,
            following_id if isinstance(following_id, str) else None,
            None if following is None else compute_mark(following),
            entry.tokens,
        )
        encrypted = encrypt(seal, issuer.signer, entry.tokens)
        items[index] = replace(
            entry,
            item={**entry.item, "encrypted_content": encrypted},
            # Like the service, send only the beginning of the encrypted content in the first event of an item.
            start={**entry.start, "encrypted_content": encrypted[: len(encrypted) // 3]},
        )
    return items


def _build_usage(
    answer: ScenarioStep, items: list[StreamedItem], input_usage: InputUsage, options: ResponseOptions
) -> dict[str, Any]:
    output, thinking = sum(item.tokens for item in items) + 2, sum(item.tokens for item in items if item.is_reasoning)
    # The service caches prefixes automatically, in multiples of 128 tokens.
    usage = compute_usage(input_usage, output, thinking, answer.usage, step=128)
    reports_writes = options.traits.reports_cache_writes or answer.usage.cache_write_tokens is not None
    cache_writes = sum(usage.cache_writes.values()) if reports_writes else 0
    cache_reads = min(usage.cache_read, usage.input)
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": cache_reads, "cache_write_tokens": cache_writes},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": min(usage.thinking, usage.output)},
        "total_tokens": usage.input + usage.output,
    }


def _build_head(body: Mapping[str, Any], options: ResponseOptions, replay: OpenAiReplay) -> dict[str, Any]:
    """Return the response fields that are known before the model answers, including the effective settings."""
    reasoning = {"effort": options.effort, "summary": None, **(body.get("reasoning") or {})}
    head: dict[str, Any] = {
        **dict.fromkeys(("completed_at", "error", "incomplete_details", "usage")),
        **{key: body.get(key) for key in _ECHOED_KEYS},
        "id": f"resp_{secrets.token_hex(24)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "metadata": body.get("metadata") or {},
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "reasoning": {**reasoning, "effort": options.effort},
        "service_tier": "default",
        "store": options.store,
        "temperature": 1.0 if body.get("temperature") is None else body["temperature"],
        "text": {"format": {"type": "text"}, "verbosity": "medium", **(body.get("text") or {})},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": complete_tools(body.get("tools") or ()),
        "top_logprobs": body.get("top_logprobs") or 0,
        "top_p": 1.0 if body.get("top_p") is None else body["top_p"],
        "truncation": body.get("truncation") or "disabled",
    }
    if options.traits.binds_reasoning:
        head["input_transformations"] = list(replay.dropped_items)
    return head


def build_response_json(response: OpenAiAnswer) -> dict[str, Any]:
    """Return the complete response, which is also part of the last stream event."""
    done = {"completed_at": response.head["created_at"]} if response.status == "completed" else {}
    details = {"reason": response.reason} if response.reason else None
    changes = {"status": response.status, "incomplete_details": details, "output": response.output}
    return {**response.head, **done, **changes, "usage": response.usage}


def stream_response(response: OpenAiAnswer) -> Iterator[Frame]:
    stream = _Stream(obfuscates=response.obfuscates_deltas)
    yield stream.build_event("response.created", response=response.head)
    yield stream.build_event("response.in_progress", response=response.head)
    for index, entry in enumerate(response.streamed_items):
        yield from pause(entry.delay_ms)
        yield stream.build_event("response.output_item.added", output_index=index, item=entry.start)
        for silence, (name, payload) in entry.events:
            yield from pause(silence)
            yield stream.build_event(name, item_id=entry.item["id"], output_index=index, **payload)
        yield from pause(entry.pause_ms)
        yield stream.build_event("response.output_item.done", output_index=index, item=entry.item)
    yield stream.build_event(f"response.{response.status}", response=build_response_json(response))


def encode_error_event(error: RequestRejected, sequence_number: int) -> bytes:
    """Encode an error event for a stream. The fields of the error are at the top level of the event."""
    stream = _Stream(obfuscates=False, start=sequence_number)
    return stream.build_event("error", code=error.code or error.kind, message=str(error), param=None).data


class _Stream:
    """An encoder that numbers the events of a stream. The first number is `start`."""

    def __init__(self, *, obfuscates: bool, start: int = 0) -> None:
        self._obfuscates = obfuscates
        self._number = start

    def build_event(self, name: str, **payload: Any) -> SendBytes:
        value = {"type": name, "sequence_number": self._number, **payload}
        self._number += 1
        if self._obfuscates and name.endswith(".delta"):
            value["obfuscation"] = _create_padding(str(payload["delta"]))
        return send_event(value, name)


def _create_padding(delta: str) -> str:
    """Return random characters that extend a delta to a multiple of 16 characters."""
    return secrets.token_hex(16)[: 16 - len(delta) % 16]
