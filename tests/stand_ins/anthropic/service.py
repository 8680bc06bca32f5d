"""The stand-in for the Messages API: routes, the order of checks, token counts, and streamed answers."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.stand_ins.anthropic.replay import (
    AnthropicReplay,
    AnthropicReplayCheck,
    IssuedAnswer,
    IssuedAnswers,
    ThinkingSignature,
    compute_content_key,
    find_value_token,
)
from tests.stand_ins.anthropic.requests import (
    ANTHROPIC_MODELS,
    SIGNATURE_KEYS,
    AnthropicConversation,
    AnthropicTraits,
    CacheControl,
    MessageRequest,
    SystemText,
    build_model_info,
    check_headers,
    check_options,
    list_content_blocks,
    read_conversation,
)
from tests.stand_ins.dialect import (
    AnswerWriter,
    Dialect,
    Frame,
    ReceivedRequest,
    SimulatedReply,
    parse_object,
    send_event,
)
from tests.stand_ins.rejections import ErrorTable, RequestRejected, read_shape, reject
from tests.stand_ins.service_state import (
    AnswerUsage,
    CacheUnit,
    InputUsage,
    StateSigner,
    compute_usage,
    hash_text,
)
from thinklsp.offline.scenario import RawPart, RedactedPart, ScenarioStep, TextPart, ThinkingPart, ToolPart
from thinklsp.offline.script import NeutralRequest, Script

_MESSAGES = "/v1/messages"
_MODELS = "/v1/models"
_COUNT_THINKING_BETA = "thinking-token-count-2026-05-13"
_MAX_BREAKPOINTS = 4
_IMAGE_TOKENS = 1200
_STOP_REASONS = {"context_window": "model_context_window_exceeded"}
PING_EVENT = b'event: ping\ndata: {"type":"ping"}\n\n'


@dataclass(frozen=True, slots=True)
class _AcceptedRequest:
    """A request that passed all checks."""

    request: MessageRequest
    context: AnthropicAnswerContext
    conversation: AnthropicConversation
    cache_units: list[CacheUnit]


class AnthropicDialect(Dialect):
    name = "anthropic"
    ping = PING_EVENT
    errors = ErrorTable("anthropic", overloaded_status=529)

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._issued_answers = IssuedAnswers()

    def can_answer(self, request: ReceivedRequest) -> bool:
        return request.path.startswith((_MESSAGES, _MODELS))

    def _build_headers(self, request: ReceivedRequest) -> dict[str, str]:
        return {"request-id": request.id, "anthropic-organization-id": "thinklsp-simulator"}

    def _build_error_value(self, request: ReceivedRequest, rejection: RequestRejected) -> object:
        kind = rejection.kind or self.errors.build_for_status(rejection.status).kind
        return {"type": "error", "error": {"type": kind, "message": str(rejection)}, "request_id": request.id}

    def _route_request(self, request: ReceivedRequest) -> SimulatedReply:
        betas = check_headers(request.headers)
        match request.method, request.path:
            case "POST", "/v1/messages":
                return self._build_answer(request, self._check_request(request, betas))
            case "GET", path if path.startswith(f"{_MODELS}/"):
                name = path.removeprefix(f"{_MODELS}/")
                window = self._resolve_window(_find_traits(name).window)
                return self._build_json_reply(request, build_model_info(name, window))
            case _:
                pass
        raise RequestRejected(404, "Not found")

    def _check_request(self, received: ReceivedRequest, betas: frozenset[str]) -> _AcceptedRequest:
        body = parse_object(received.body)
        request = read_shape(MessageRequest, body, ())
        traits = _find_traits(request.model)
        mode = check_options(request, traits, betas)
        conversation = read_conversation(request.messages)
        check = AnthropicReplayCheck(body, conversation, traits, self._signer, self._issued_answers)
        replay = check.check_blocks(mode)
        if body["messages"][-1]["role"] == "assistant" and not check.is_continuation():
            reject("This model does not support assistant message prefill.")
        items = _list_cache_units(request, conversation, traits, replay)
        total, window = sum(item.tokens for item in items), self._resolve_window(traits.window)
        if total > window:
            reject(f"prompt is too long: {total} tokens > {window} maximum")
        context = AnthropicAnswerContext(
            request.model,
            traits,
            replay,
            is_first=conversation.state.answers == 0,
            counts_thinking=_COUNT_THINKING_BETA in betas,
        )
        return _AcceptedRequest(request, context, conversation, items)

    def _build_answer(self, received: ReceivedRequest, accepted: _AcceptedRequest) -> SimulatedReply:
        answer, context = self._script.answer(_build_neutral_request(accepted)), accepted.context
        if answer.http_error is not None:
            return self._build_scripted_failure(received, answer, answer.http_error)
        # The service charges for an answer and remembers it even if the stream is interrupted later.
        input_usage = self._cache.count_request(accepted.cache_units, context.traits.cache_minimum)
        message = write_message(answer, context, input_usage, self._signer)
        if message.calls or message.issued.is_paused:
            self._issued_answers.remember(message.issued, message.content)

        def encode_error(error: RequestRejected) -> bytes:
            return send_event(self._build_error_value(received, error), "error")

        return self._build_stream(received, answer, stream_message(message), encode_error)


def _find_traits(name: str) -> AnthropicTraits:
    if name not in ANTHROPIC_MODELS:
        raise RequestRejected(404, f"model: {name}")
    return ANTHROPIC_MODELS[name]


def _build_neutral_request(accepted: _AcceptedRequest) -> NeutralRequest:
    conversation, request = accepted.conversation, accepted.request
    return NeutralRequest(
        frozenset(tool["name"] for tool in request.tools or ()),
        conversation.state,
        compute_content_key([{"role": block.role, **block.value} for block in conversation.blocks]),
    )


def _list_cache_units(
    request: MessageRequest, conversation: AnthropicConversation, traits: AnthropicTraits, replay: AnthropicReplay
) -> list[CacheUnit]:
    """Divide a request into units for the prompt cache. Raises RequestRejected for invalid cache breakpoints."""
    mode = replay.mode
    units = [CacheUnit(traits.id, 0, is_marked=False)]
    for place, parts in (("tools", request.tools or ()), ("system", list_content_blocks(request.system or []))):
        units += (_build_unit(part, traits, f"{place}.{index}", place) for index, part in enumerate(parts))
    units.append(CacheUnit(f"{mode.kind} {mode.budget} {mode.effort}", 0, is_marked=False))
    for block in conversation.blocks:
        if block.kind not in SIGNATURE_KEYS:
            units.append(_build_unit(block.value, traits, block.path, block.role))
        elif block.path in replay.tokens and (traits.keeps_thinking or block.message >= conversation.state.start):
            units.append(CacheUnit(json.dumps(block.value), replay.tokens[block.path], is_marked=False))
    marks = sum(unit.is_marked for unit in units)
    if marks > _MAX_BREAKPOINTS:
        reject(f"A maximum of {_MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {marks}.")
    return units


def _build_unit(value: Any, traits: AnthropicTraits, place: str, opening: str) -> CacheUnit:
    if opening == "system":
        read_shape(SystemText, value, (place,))
    if (control := value.get("cache_control")) is not None:
        read_shape(CacheControl, control, (place, "cache_control"))
    # Preserve the order of keys, because a tool call with reordered arguments is not found in the prompt cache.
    content = json.dumps({key: item for key, item in value.items() if key != "cache_control"}, ensure_ascii=False)
    text = str(value["text"]) if value.get("type") == "text" else content
    tokens = _IMAGE_TOKENS if value.get("type") == "image" else 3 + traits.count_tokens(text)
    return CacheUnit(f"{opening} {content}", tokens, control is not None)


@dataclass(frozen=True, slots=True)
class AnthropicAnswerContext:
    """The properties of a request that affect its answer.

    `is_first` is true for the first answer to a prompt. If `counts_thinking` is true, each thinking delta includes an
    estimated token count.
    """

    model: str
    traits: AnthropicTraits
    replay: AnthropicReplay
    is_first: bool
    counts_thinking: bool
    answer_id: str = field(default_factory=lambda: secrets.token_hex(12))


@dataclass(frozen=True, slots=True)
class StreamedBlock:
    """A complete block and the events that stream it.

    `start` is the block's first event. Each entry in `deltas` is a delta and the pause before it in milliseconds.
    """

    block: Mapping[str, Any]
    start: Mapping[str, Any]
    deltas: tuple[tuple[int, Mapping[str, Any]], ...]
    delay_ms: int
    tokens: int


@dataclass(frozen=True, slots=True)
class AnthropicAnswer:
    """A complete answer. `first_usage` and `last_usage` are the usage in the first and in the last stream event."""

    id: str
    model: str
    blocks: tuple[StreamedBlock, ...]
    ending: Mapping[str, Any]
    first_usage: Mapping[str, Any]
    last_usage: Mapping[str, Any]
    issued: IssuedAnswer
    transformations: tuple[Mapping[str, str], ...]

    @property
    def content(self) -> list[Mapping[str, Any]]:
        return [entry.block for entry in self.blocks]

    @property
    def calls(self) -> list[str]:
        return [str(block["id"]) for block in self.content if block["type"] == "tool_use"]


def write_message(
    answer: ScenarioStep, context: AnthropicAnswerContext, input_usage: InputUsage, signer: StateSigner
) -> AnthropicAnswer:
    blocks = tuple(_Writer(answer, context, signer).write())
    reason = _STOP_REASONS.get(str(answer.stop_reason), answer.stop_reason)
    ending: dict[str, Any] = {"stop_reason": reason, "stop_sequence": None}
    if answer.stop_reason == "refusal":
        refusal = answer.refusal.model_dump() if answer.refusal else {"category": None, "explanation": None}
        ending["stop_details"] = {"type": "refusal", **refusal}
    thinking = sum(w.tokens for w in blocks if w.block["type"] in SIGNATURE_KEYS)
    output = sum(w.tokens for w in blocks) + 2
    first, last = _build_usages(compute_usage(input_usage, output, thinking, answer.usage))
    return AnthropicAnswer(
        f"msg_{context.answer_id}",
        context.model,
        blocks,
        ending,
        first,
        last,
        _build_issued_answer(blocks, context, is_paused=answer.stop_reason == "pause_turn"),
        tuple(context.replay.dropped_blocks) if context.replay.mode.reports_drops else (),
    )


def stream_message(message: AnthropicAnswer) -> Iterator[Frame]:
    """Yield the stream events of an answer. A ping follows the start of the first block."""
    yield _build_event("message_start", message=_build_head(message, [], message.first_usage))
    for index, entry in enumerate(message.blocks):
        yield entry.delay_ms
        yield _build_event("content_block_start", index=index, content_block=entry.start)
        if index == 0:
            yield PING_EVENT
        for silence, delta in entry.deltas:
            yield silence
            yield _build_event("content_block_delta", index=index, delta=delta)
        yield _build_event("content_block_stop", index=index)
    yield _build_event("message_delta", delta=message.ending, usage=message.last_usage)
    yield _build_event("message_stop")


class _Writer(AnswerWriter[StreamedBlock]):
    """A writer that builds the blocks of an answer."""

    def __init__(self, answer: ScenarioStep, context: AnthropicAnswerContext, signer: StateSigner) -> None:
        mode = context.replay.mode
        super().__init__(answer, thinks=mode.is_on and (mode.is_interleaved or context.is_first))
        self._context = context
        self._signer = signer
        self._signature_count = 0

    def _write_thinking(self, part: ThinkingPart | RedactedPart, number: int) -> Iterator[StreamedBlock]:
        if isinstance(part, RedactedPart):
            block = {"type": "redacted_thinking", "data": self._sign("redacted_thinking", part.thought, None)}
            yield StreamedBlock(block, block, (), part.delay_ms, self._count_tokens(part.thought))
            return
        hidden = self._context.replay.mode.display == "omitted"
        yield self._build_thinking(part.thought, None if hidden else part.readable_text, part.delay_ms)

    def _write_text(self, part: TextPart, number: int) -> Iterator[StreamedBlock]:
        calls = any(isinstance(part, ToolPart) for part in self._answer.parts)
        if calls and self._context.replay.mode.kind == "between_tools":
            # In the `between_tools` mode, text before a tool call is sent as a thinking block.
            yield self._build_thinking(part.text, part.text, part.delay_ms)
            return
        deltas = tuple((self._interval_ms, {"type": "text_delta", "text": text}) for text in self._split(part.text))
        block = {"type": "text", "text": part.text}
        yield StreamedBlock(block, {**block, "text": ""}, deltas, part.delay_ms, self._count_tokens(part.text))

    def _build_thinking(self, thought: str, readable: str | None, delay_ms: int) -> StreamedBlock:
        signature = self._sign("thinking", thought, readable)
        deltas = list(self._split_thinking(thought, readable))
        deltas.append((0, {"type": "signature_delta", "signature": signature}))
        block = {"type": "thinking", "thinking": readable or "", "signature": signature}
        start = {"type": "thinking", "thinking": "", "signature": ""}
        return StreamedBlock(block, start, tuple(deltas), delay_ms, self._count_tokens(thought))

    def _split_thinking(self, thought: str, readable: str | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the deltas of a thinking block.

        If the thinking is not readable, a single empty delta is sent. If deltas include token counts, an empty delta is
        sent for each piece of the thinking.
        """
        if readable is None and not self._context.counts_thinking:
            yield self._interval_ms * len(self._split(thought) or [""]), {"type": "thinking_delta", "thinking": ""}
            return
        for text in self._split(thought if readable is None else readable) or (
            [""] if self._context.counts_thinking else []
        ):
            delta: dict[str, Any] = {"type": "thinking_delta", "thinking": "" if readable is None else text}
            if self._context.counts_thinking:
                delta["estimated_tokens"] = self._count_tokens(text)
            yield self._interval_ms, delta

    def _write_tool_call(self, part: ToolPart, number: int) -> Iterator[StreamedBlock]:
        digest = hashlib.sha256(f"{self._context.answer_id} {number}".encode("ascii")).hexdigest()
        text = part.format_arguments() if part.input or part.input_json is not None else ""
        block = {"type": "tool_use", "id": f"toolu_{digest[:24]}", "name": part.tool, "input": part.input}
        deltas = self._split_input(text)
        yield StreamedBlock(
            block, {**block, "input": {}}, deltas, part.delay_ms, self._count_tokens(part.tool + text) + 8
        )

    def _write_raw(self, part: RawPart) -> Iterator[StreamedBlock]:
        yield StreamedBlock(
            part.raw, part.raw, (), part.delay_ms, self._count_tokens(json.dumps(part.raw, default=str))
        )

    def _split_input(self, text: str) -> tuple[tuple[int, Mapping[str, Any]], ...]:
        pieces = [(0, ""), *((self._interval_ms, piece) for piece in self._split(text))]
        return tuple((silence, {"type": "input_json_delta", "partial_json": piece}) for silence, piece in pieces)

    def _sign(self, kind: Any, thought: str, readable: str | None) -> str:
        replay = self._context.replay
        seal = ThinkingSignature(
            kind,
            self._context.traits.id,
            self._context.answer_id,
            self._signature_count,
            None if readable is None else hash_text(readable),
            replay.prefix,
            self._count_tokens(thought),
        )
        self._signature_count += 1
        return self._signer.sign(seal, seal.tokens)

    def _count_tokens(self, text: str) -> int:
        return self._context.traits.count_tokens(text)


def _build_issued_answer(
    blocks: tuple[StreamedBlock, ...], context: AnthropicAnswerContext, *, is_paused: bool
) -> IssuedAnswer:
    order = [token for entry in blocks if (token := find_value_token(entry.block)) is not None]
    return IssuedAnswer(
        context.answer_id, context.traits.id, tuple(order), context.replay.prefix, context.replay.mode.is_on, is_paused
    )


def _build_usages(figures: AnswerUsage) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the usage for the `message_start` event and the usage for the final `message_delta` event."""
    first: dict[str, Any] = {
        "input_tokens": max(figures.input - figures.cache_read - figures.cache_write, 0),
        "cache_creation_input_tokens": figures.cache_write,
        "cache_read_input_tokens": figures.cache_read,
        "cache_creation": {"ephemeral_5m_input_tokens": figures.cache_write, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 2,
        "service_tier": "standard",
    }
    return first, {"output_tokens": figures.output, "output_tokens_details": {"thinking_tokens": figures.thinking}}


def _build_head(message: AnthropicAnswer, content: list[Mapping[str, Any]], usage: Mapping[str, Any]) -> dict[str, Any]:
    head = {"id": message.id, "type": "message", "role": "assistant", "model": message.model, "content": content}
    transformations = {"input_transformations": message.transformations} if message.transformations else {}
    return {**head, "stop_reason": None, "stop_sequence": None, "usage": usage, **transformations}


def _build_event(name: str, **payload: Any) -> bytes:
    return send_event({"type": name, **payload}, name)
