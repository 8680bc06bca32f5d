"""The stand-in for the Responses API: routes, the order of checks, and streamed answers."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.stand_ins.chat.requests import COMPATIBLE_MODELS
from tests.stand_ins.chat.requests import build_model_info as compatible_info
from tests.stand_ins.dialect import (
    AnswerWriter,
    Dialect,
    Frame,
    ReceivedRequest,
    SimulatedReply,
    parse_object,
    read_bearer_token,
    send_event,
)
from tests.stand_ins.openai.replay import (
    CompactionState,
    IssuedItems,
    OpenAiReplay,
    OpenAiReplayCheck,
    ReasoningState,
    build_prefix_chain,
    hash_summary,
    normalize_item,
)
from tests.stand_ins.openai.requests import (
    COMPACTION,
    OPENAI_MODELS,
    OpenAiConversation,
    ResponseOptions,
    ResponseRequest,
    build_model_info,
    check_item,
    check_options,
    check_tools,
    find_item_side,
    find_last_compaction,
    read_conversation,
    resolve_traits,
)
from tests.stand_ins.rejections import ErrorTable, RequestRejected, read_openai_shape, reject, reject_missing
from tests.stand_ins.service_state import (
    CacheUnit,
    InputUsage,
    compute_usage,
    estimate_tokens,
    hash_text,
)
from thinklsp.offline.scenario import RedactedPart, ScenarioStep, TextPart, ThinkingPart, ToolPart
from thinklsp.offline.script import NeutralRequest, Script

_CACHE_MINIMUM = 1024
_IMAGE_TOKENS = 1200
_RESPONSES = "/v1/responses"
_MODELS = "/v1/models"
# A request for `/v1/models` with any of these headers is meant for another simulated service.
_FOREIGN_HEADERS = frozenset({"anthropic-version", "x-api-key", "x-goog-api-key"})
_REFUSAL_TEXT = "I'm sorry, but I cannot help with that."
_INCOMPLETE_REASONS = frozenset({"max_tokens", "context_window"})
ResponseEvent = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _AcceptedRequest:
    """A request that passed all checks."""

    body: Mapping[str, Any]
    options: ResponseOptions
    conversation: OpenAiConversation
    tools: frozenset[str]
    replay: OpenAiReplay
    cache_units: list[CacheUnit]
    key: str


class OpenAiDialect(Dialect):
    name = "openai"
    errors = ErrorTable("openai")

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._issued = IssuedItems(self._signer)

    def can_answer(self, request: ReceivedRequest) -> bool:
        if request.path.startswith(_RESPONSES):
            return True
        mine = "authorization" in request.headers and not _FOREIGN_HEADERS & request.headers.keys()
        return mine and request.method == "GET" and request.path.startswith(_MODELS)

    def _build_headers(self, request: ReceivedRequest) -> dict[str, str]:
        return {"x-request-id": request.id, "openai-organization": "thinklsp-simulator"}

    def _build_error_value(self, request: ReceivedRequest, rejection: RequestRejected) -> object:
        kind = rejection.kind or "invalid_request_error"
        return {"error": {"message": str(rejection), "type": kind, "param": rejection.param, "code": rejection.code}}

    def _route_request(self, request: ReceivedRequest) -> SimulatedReply:
        key = _check_key(request.headers)
        match request.method, request.path:
            case "POST", "/v1/responses":
                return self._build_answer(request, self._check_request(request, key))
            case "GET", "/v1/models":
                # The list includes the models of compatible servers, whose clients send the same request.
                models = [*map(build_model_info, OPENAI_MODELS), *map(compatible_info, COMPATIBLE_MODELS)]
                return self._build_json_reply(request, {"object": "list", "data": models})
            case "GET", path if path.startswith(f"{_MODELS}/"):
                return self._build_json_reply(request, build_model_info(path.removeprefix(f"{_MODELS}/")))
            case _:
                pass
        raise RequestRejected(404, f"Invalid URL ({request.method} {request.path})")

    def _check_request(self, received: ReceivedRequest, key: str) -> _AcceptedRequest:
        body = parse_object(received.body)
        request = read_openai_shape(ResponseRequest, body, ())
        options = check_options(request, resolve_traits(request.model))
        names = check_tools(request.tools or ())
        # The type of a message may be missing.
        items = [
            {"type": "message", **item} if isinstance(item, dict) and "role" in item else item for item in request.input
        ]
        for index, item in enumerate(items):
            check_item(item, ("input", index))
        if not items:
            reject_missing("input")
        conversation = read_conversation(items)
        replay = OpenAiReplayCheck(conversation, request.tools, options, self._issued, key).check_items()
        units = _list_cache_units(body, conversation, options, replay)
        if sum(unit.tokens for unit in units) > self._resolve_window(options.traits.window):
            message = "Your input exceeds the context window of this model. Please adjust your input and try again."
            reject(message, "input", "context_length_exceeded")
        return _AcceptedRequest(body, options, conversation, names, replay, units, key)

    def _build_answer(self, request: ReceivedRequest, accepted: _AcceptedRequest) -> SimulatedReply:
        answer = self._script.answer(_build_neutral_request(accepted))
        if answer.http_error is not None:
            return self._build_scripted_failure(request, answer, answer.http_error)
        # The service charges for a response and stores it even if the stream is interrupted later.
        input_usage = self._cache.count_request(accepted.cache_units, _CACHE_MINIMUM)
        items = _Writer(answer, accepted, self._issued).write_all()
        if accepted.options.compact_at is not None and input_usage.total >= accepted.options.compact_at:
            items = [_build_compaction(accepted, self._issued), *items]
        frames = tuple(_stream_response(answer, accepted, items, input_usage))
        event = answer.fault and answer.fault.error_event
        number = len(frames) if event is None else event.after_events

        def encode_error(error: RequestRejected) -> bytes:
            """Encode an error event, whose fields are at the top level."""
            fields = {"code": error.code or error.kind, "message": str(error), "param": None}
            return send_event({"type": "error", "sequence_number": number, **fields}, "error")

        return self._build_stream(request, answer, frames, encode_error)


def _check_key(headers: Mapping[str, str]) -> str:
    """Return a hash of the API key. Any key is accepted, but a missing key is rejected."""
    key = read_bearer_token(headers)
    if not key:
        raise RequestRejected(401, "You didn't provide an API key.")
    return hash_text(key)[:16]


def _build_neutral_request(accepted: _AcceptedRequest) -> NeutralRequest:
    conversation = accepted.conversation
    return NeutralRequest(
        accepted.tools,
        conversation.state,
        build_prefix_chain(None, conversation.items)[-1],
    )


def _list_cache_units(
    body: Mapping[str, Any], conversation: OpenAiConversation, options: ResponseOptions, replay: OpenAiReplay
) -> list[CacheUnit]:
    """Divide a request into units for the prompt cache, in the order in which the model reads them."""
    units = [CacheUnit(json.dumps([options.traits.id, options.effort, body.get("prompt_cache_key")]), 0)]
    instructions = [{"instructions": body["instructions"]}] if body.get("instructions") else []
    units += (CacheUnit(json.dumps(part), _count_tokens(part)) for part in [*(body.get("tools") or ()), *instructions])
    start = find_last_compaction(conversation.items)
    for index, item in enumerate(conversation.items):
        if index < start and find_item_side(item) != "frame":
            continue
        if item["type"] != "reasoning":
            units.append(CacheUnit(json.dumps(normalize_item(item)), _count_tokens(normalize_item(item))))
        elif index in replay.tokens:
            units.append(CacheUnit(item["encrypted_content"], replay.tokens[index]))
    return units


def _count_tokens(value: Mapping[str, Any]) -> int:
    content = value.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part for part in parts if part.get("type") != "input_image"]
    bare = {**value, "content": texts} if parts else value
    images = len(parts) - len(texts)
    return 3 + estimate_tokens(json.dumps(bare, ensure_ascii=False)) + _IMAGE_TOKENS * images


@dataclass(frozen=True, slots=True)
class StreamedItem:
    """A complete item and the events that stream it.

    `start` is the item in its first event. Each entry in `events` is an event and the pause before it in milliseconds.
    `pause_ms` is the pause before the end of the item.
    """

    item: Mapping[str, Any]
    start: Mapping[str, Any]
    events: tuple[tuple[int, ResponseEvent], ...]
    delay_ms: int = 0
    pause_ms: int = 0
    tokens: int = 0

    @property
    def is_reasoning(self) -> bool:
        return self.item["type"] == "reasoning"


def _build_compaction(accepted: _AcceptedRequest, issued: IssuedItems) -> StreamedItem:
    """Build the compaction item that replaces the earlier conversation."""
    item_id = _make_id("cmp")
    content = issued.encrypt(CompactionState(item_id, accepted.options.traits.id, accepted.key))
    item = {"id": item_id, "type": COMPACTION, "encrypted_content": content}
    start = {**item, "encrypted_content": ""}
    return StreamedItem(item, start, ((0, ("response.compaction.compacting", {})),))


class _Writer(AnswerWriter[StreamedItem]):
    """A writer that builds and numbers the items of an answer."""

    def __init__(self, answer: ScenarioStep, accepted: _AcceptedRequest, issued: IssuedItems) -> None:
        super().__init__(answer, thinks=accepted.options.thinks)
        self._accepted = accepted
        self._options = accepted.options
        self._issued = issued

    def write_all(self) -> list[StreamedItem]:
        items = [*self.write()]
        if self._answer.stop_reason == "refusal" and self._answer.parts:
            text = (self._answer.refusal and self._answer.refusal.explanation) or _REFUSAL_TEXT
            items.append(self._build_message({"type": "refusal", "refusal": text}, "final_answer", "completed", 0))
        items = [self._encrypt(entry) if entry.is_reasoning else entry for entry in items]
        self._issued.remember([entry.item for entry in items])
        return items

    def _encrypt(self, entry: StreamedItem) -> StreamedItem:
        state = ReasoningState(
            str(entry.item["id"]),
            self._options.traits.id,
            self._accepted.key,
            self._accepted.replay.prefix,
            hash_summary(entry.item),
            entry.tokens,
        )
        content = self._issued.encrypt(state, entry.tokens)
        # Like the service, send only the beginning of the encrypted content in the first event of an item.
        start = {**entry.start, "encrypted_content": content[: len(content) // 3]}
        return replace(entry, item={**entry.item, "encrypted_content": content}, start=start)

    def _write_thinking(self, part: ThinkingPart | RedactedPart, number: int) -> Iterator[StreamedItem]:
        shown = part.readable_text if self._options.summary else None
        # Each paragraph of a summary is sent as a separate part.
        texts = tuple(text for text in (shown or "").split("\n\n") if text)
        pauses = isinstance(part, ThinkingPart) and shown is None
        summary = [{"type": "summary_text", "text": text} for text in texts]
        item: dict[str, Any] = {"id": _make_id("rs"), "type": "reasoning", "summary": summary}
        status = self._find_status(number)
        if status == "incomplete":
            item["status"] = status
        yield StreamedItem(
            item,
            {**item, "summary": []},
            tuple(event for index, text in enumerate(texts) for event in self._split_summary(index, text)),
            part.delay_ms,
            self._interval_ms * len(self._split(part.thought)) if pauses else 0,
            estimate_tokens(part.thought),
        )

    def _split_summary(self, index: int, text: str) -> Iterator[tuple[int, ResponseEvent]]:
        place = {"summary_index": index}
        name = "response.reasoning_summary"
        part = {"type": "summary_text", "text": text}
        yield 0, (f"{name}_part.added", {**place, "part": {**part, "text": ""}})
        yield from self._split_deltas(f"{name}_text.delta", place, text)
        yield 0, (f"{name}_text.done", {**place, "text": text})
        yield 0, (f"{name}_part.done", {**place, "part": part})

    def _write_text(self, part: TextPart, number: int) -> Iterator[StreamedItem]:
        content = {"type": "output_text", "annotations": [], "logprobs": [], "text": part.text}
        calls = any(isinstance(later, ToolPart) for later in self._answer.parts[number + 1 :])
        phase = "commentary" if calls else "final_answer"
        yield self._build_message(content, phase, self._find_status(number), part.delay_ms)

    def _build_message(self, content: Mapping[str, Any], phase: str, status: str, delay_ms: int) -> StreamedItem:
        item: dict[str, Any] = {"id": _make_id("msg"), "type": "message", "status": status, "role": "assistant"}
        item["content"] = [content]
        if self._options.traits.has_phases:
            item["phase"] = phase
        key, name = ("text", "output_text") if "text" in content else ("refusal", "refusal")
        place = {"content_index": 0, **({"logprobs": []} if key == "text" else {})}
        text = str(content[key])
        events: list[tuple[int, ResponseEvent]] = [
            (0, ("response.content_part.added", {"content_index": 0, "part": {**content, key: ""}})),
            *self._split_deltas(f"response.{name}.delta", place, text),
            (0, (f"response.{name}.done", {**place, key: text})),
            (0, ("response.content_part.done", {"content_index": 0, "part": content})),
        ]
        start = {**item, "status": "in_progress", "content": []}
        return StreamedItem(item, start, tuple(events), delay_ms, tokens=estimate_tokens(text))

    def _write_tool_call(self, part: ToolPart, number: int) -> Iterator[StreamedItem]:
        text = part.format_arguments((",", ":"))
        item_id = _make_id("fc")
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
            # Random characters that extend a delta to a multiple of 16 characters.
            padding = secrets.token_hex(16)[: 16 - len(piece) % 16]
            yield self._interval_ms, (name, {**place, "delta": piece, "obfuscation": padding})

    def _find_status(self, number: int) -> str:
        cut = self._answer.stop_reason in _INCOMPLETE_REASONS and number == len(self._answer.parts) - 1
        return "incomplete" if cut else "completed"


def _make_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(24)}"


def _stream_response(
    answer: ScenarioStep, accepted: _AcceptedRequest, items: list[StreamedItem], input_usage: InputUsage
) -> Iterator[Frame]:
    number = 0

    def build_event(name: str, **payload: Any) -> bytes:
        nonlocal number
        number += 1
        return send_event({"type": name, "sequence_number": number - 1, **payload}, name)

    head = _build_head(accepted)
    yield build_event("response.created", response=head)
    yield build_event("response.in_progress", response=head)
    for index, entry in enumerate(items):
        yield entry.delay_ms
        yield build_event("response.output_item.added", output_index=index, item=entry.start)
        for silence, (name, payload) in entry.events:
            yield silence
            yield build_event(name, item_id=entry.item["id"], output_index=index, **payload)
        yield entry.pause_ms
        yield build_event("response.output_item.done", output_index=index, item=entry.item)
    reason = "max_output_tokens" if answer.stop_reason in _INCOMPLETE_REASONS else None
    if answer.stop_reason == "refusal" and not answer.parts:
        reason = "content_filter"
    status = "completed" if reason is None else "incomplete"
    details = None if reason is None else {"reason": reason}
    usage = _build_usage(answer, items, input_usage, accepted.options)
    end = {"status": status, "incomplete_details": details, "output": [entry.item for entry in items], "usage": usage}
    yield build_event(f"response.{status}", response={**head, **end})


def _build_usage(
    answer: ScenarioStep, items: list[StreamedItem], input_usage: InputUsage, options: ResponseOptions
) -> dict[str, Any]:
    output, thinking = sum(item.tokens for item in items) + 2, sum(item.tokens for item in items if item.is_reasoning)
    # The service caches prefixes automatically, in multiples of 128 tokens.
    usage = compute_usage(input_usage, output, thinking, answer.usage, step=128)
    reports_writes = options.traits.reports_cache_writes or answer.usage.cache_write_tokens is not None
    cache_writes = usage.cache_write if reports_writes else 0
    cache_reads = min(usage.cache_read, usage.input)
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": cache_reads, "cache_write_tokens": cache_writes},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": min(usage.thinking, usage.output)},
        "total_tokens": usage.input + usage.output,
    }


def _build_head(accepted: _AcceptedRequest) -> dict[str, Any]:
    """Return the response fields that are known before the model answers."""
    body, options = accepted.body, accepted.options
    head: dict[str, Any] = {
        **dict.fromkeys(("completed_at", "error", "incomplete_details", "usage", "instructions")),
        "id": f"resp_{secrets.token_hex(24)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "model": body["model"],
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "reasoning": {"summary": None, **(body.get("reasoning") or {}), "effort": options.effort},
        "store": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
    }
    if options.traits.binds_reasoning:
        head["input_transformations"] = list(accepted.replay.dropped_items)
    return head
