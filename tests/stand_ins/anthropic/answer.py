"""Functions that convert a scripted answer to the Messages API's signed content blocks and stream events."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.stand_ins.anthropic.conversation import SIGNATURE_KEYS
from tests.stand_ins.anthropic.models import AnthropicTraits
from tests.stand_ins.anthropic.replay import AnthropicReplay, IssuedAnswer, ThinkingSignature, compute_mark
from tests.stand_ins.dialect import Frame, SendBytes, pause, send_event
from tests.stand_ins.service_state import AnswerUsage, InputUsage, StateSigner, compute_usage, hash_text
from tests.stand_ins.writer import AnswerWriter
from thinklsp.offline.scenario import RawPart, RedactedPart, ScenarioStep, TextPart, ThinkingPart, ToolPart

_STOP_REASONS = {"context_window": "model_context_window_exceeded"}
PING_EVENT = b'event: ping\ndata: {"type":"ping"}\n\n'


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
    max_tokens: int
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
    parts = answer.parts if context.max_tokens else ()
    blocks = tuple(_Writer(answer.model_copy(update={"parts": parts}), context, signer).write())
    reason = _STOP_REASONS.get(answer.stop_reason, answer.stop_reason) if context.max_tokens else "max_tokens"
    ending: dict[str, Any] = {"stop_reason": reason, "stop_sequence": answer.stop_sequence}
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


def build_message_json(message: AnthropicAnswer) -> dict[str, Any]:
    """Return the answer's JSON for a request without streaming."""
    head = _build_head(message, message.content, {**message.first_usage, **message.last_usage})
    return {**head, **message.ending}


def stream_message(message: AnthropicAnswer) -> Iterator[Frame]:
    """Yield the stream events of an answer. A ping follows the start of the first block."""
    yield _build_event("message_start", message=_build_head(message, [], message.first_usage))
    for index, entry in enumerate(message.blocks):
        yield from pause(entry.delay_ms)
        yield _build_event("content_block_start", index=index, content_block=entry.start)
        if index == 0:
            yield SendBytes(PING_EVENT, is_counted=False)
        for silence, delta in entry.deltas:
            yield from pause(silence)
            yield _build_event("content_block_delta", index=index, delta=delta)
        yield _build_event("content_block_stop", index=index)
    yield _build_event("message_delta", delta=message.ending, usage=message.last_usage)
    yield _build_event("message_stop")


def encode_error_event(error: object) -> bytes:
    return send_event(error, "error").data


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
        display = self._context.replay.mode.display
        before_call = any(isinstance(later, ToolPart) for later in self._answer.parts[number + 1 : number + 2])
        hidden = display == "omitted" or (display == "updates" and not before_call)
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
        raw, start = part.raw, part.raw
        deltas: tuple[tuple[int, Mapping[str, Any]], ...] = ()
        if raw["type"] in ("server_tool_use", "mcp_tool_use") and isinstance(raw.get("input"), Mapping):
            start = {**raw, "input": {}}
            deltas = self._split_input(json.dumps(raw["input"], ensure_ascii=False, default=str))
        yield StreamedBlock(raw, start, deltas, part.delay_ms, self._count_tokens(json.dumps(raw, default=str)))

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
            tuple(replay.accepted_marks),
            self._count_tokens(thought),
        )
        self._signature_count += 1
        return self._signer.sign(seal, seal.tokens)

    def _count_tokens(self, text: str) -> int:
        return self._context.traits.count_tokens(text)


def _build_issued_answer(
    blocks: tuple[StreamedBlock, ...], context: AnthropicAnswerContext, *, is_paused: bool
) -> IssuedAnswer:
    content = [entry.block for entry in blocks]
    order = [
        compute_mark(block[SIGNATURE_KEYS[block["type"]]]) if block["type"] in SIGNATURE_KEYS else block["id"]
        for block in content
        if block["type"] in (*SIGNATURE_KEYS, "tool_use")
    ]
    return IssuedAnswer(
        context.answer_id, context.traits.id, tuple(order), context.replay.prefix, context.replay.mode.is_on, is_paused
    )


def _build_usages(figures: AnswerUsage) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the usage for the `message_start` event and the usage for the final `message_delta` event."""
    cache_writes = sum(figures.cache_writes.values())
    first: dict[str, Any] = {
        "input_tokens": max(figures.input - figures.cache_read - cache_writes, 0),
        "cache_creation_input_tokens": cache_writes,
        "cache_read_input_tokens": figures.cache_read,
        "cache_creation": {f"ephemeral_{ttl}_input_tokens": tokens for ttl, tokens in figures.cache_writes.items()},
        "output_tokens": 2,
        "service_tier": "standard",
    }
    return first, {"output_tokens": figures.output, "output_tokens_details": {"thinking_tokens": figures.thinking}}


def _build_head(message: AnthropicAnswer, content: list[Mapping[str, Any]], usage: Mapping[str, Any]) -> dict[str, Any]:
    head = {"id": message.id, "type": "message", "role": "assistant", "model": message.model, "content": content}
    transformations = {"input_transformations": message.transformations} if message.transformations else {}
    return {**head, "stop_reason": None, "stop_sequence": None, "usage": usage, **transformations}


def _build_event(name: str, **payload: Any) -> SendBytes:
    return send_event({"type": name, **payload}, name)
