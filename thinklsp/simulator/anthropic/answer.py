"""A scripted answer as an Anthropic message: its content blocks, signed, and the events that stream them.

Pure but for the sealer's secret. Whether thinking appears, and how much of it can be read, follows from the request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from thinklsp.simulator.anthropic.models import ModelTraits
from thinklsp.simulator.anthropic.replay import Issued, Replay, Seal, mark_of, signed
from thinklsp.simulator.dialect import Frame, Send, pause, pieces, send_event
from thinklsp.simulator.scenario import RawPart, RedactedPart, TextPart, ThinkingPart, ToolPart, UsageOverride
from thinklsp.simulator.script import Answer, Pace, ScriptedPart
from thinklsp.simulator.state import InputUsage, Sealer, text_digest

_STOP_REASONS = {"context_window": "model_context_window_exceeded"}
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


@dataclass(frozen=True, slots=True)
class Asked:
    """What shapes the answer, taken from the request. `counts_thinking`: thinking deltas tell an estimate of tokens.

    `first`: nothing was answered yet to this prompt.
    """

    model: str
    traits: ModelTraits
    replay: Replay
    first: bool
    max_tokens: int
    counts_thinking: bool
    answer_id: str

    @property
    def thinks(self) -> bool:
        mode = self.replay.mode
        return mode.on and (mode.interleaved or self.first)


@dataclass(frozen=True, slots=True)
class Written:
    """One finished block and how it streams: `start`, then `deltas`, each with the silence before it in ms."""

    block: Mapping[str, Any]
    start: Mapping[str, Any]
    deltas: tuple[tuple[int, Mapping[str, Any]], ...]
    delay_ms: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Message:
    """A complete answer. Usages in the service's words, as its start and its end tell them."""

    id: str
    model: str
    blocks: tuple[Written, ...]
    ending: Mapping[str, Any]
    first_usage: Mapping[str, Any]
    last_usage: Mapping[str, Any]
    issued: Issued
    transformations: tuple[Mapping[str, str], ...]

    @property
    def content(self) -> list[Mapping[str, Any]]:
        return [written.block for written in self.blocks]

    @property
    def calls(self) -> list[str]:
        return [str(block["id"]) for block in self.content if block["type"] == "tool_use"]


def write_message(answer: Answer, asked: Asked, spent: InputUsage, sealer: Sealer) -> Message:
    parts = answer.parts if asked.max_tokens else ()
    blocks = tuple(_Writer(asked, sealer, answer.pace, parts).write())
    ending: dict[str, Any] = {"stop_reason": _stop_reason(answer, asked), "stop_sequence": answer.stop_sequence}
    if answer.stop_reason == "refusal":
        refusal = answer.refusal.model_dump() if answer.refusal else {"category": None, "explanation": None}
        ending["stop_details"] = {"type": "refusal", **refusal}
    thinking = sum(w.tokens for w in blocks if w.block["type"] in ("thinking", "redacted_thinking"))
    output = sum(w.tokens for w in blocks) + 2
    first, last = _usages(spent, output, thinking, answer.usage)
    return Message(
        f"msg_{asked.answer_id}",
        asked.model,
        blocks,
        ending,
        first,
        last,
        _issued(blocks, asked, paused=answer.stop_reason == "pause_turn"),
        tuple(asked.replay.dropped) if asked.replay.mode.reports else (),
    )


def as_json(message: Message) -> dict[str, Any]:
    """The answer to a request without `stream`."""
    head = _head(message, message.content, {**message.first_usage, **message.last_usage})
    return {**head, **message.ending}


def as_frames(message: Message) -> Iterator[Frame]:
    """The answer as events, with one ping after the first block has begun."""
    yield _event("message_start", message=_head(message, [], message.first_usage))
    for index, written in enumerate(message.blocks):
        yield from pause(written.delay_ms)
        yield _event("content_block_start", index=index, content_block=written.start)
        if index == 0:
            yield Send(PING, counted=False)
        for silence, delta in written.deltas:
            yield from pause(silence)
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta=message.ending, usage=message.last_usage)
    yield _event("message_stop")


def error_event(kind: str, message: str, request_id: str) -> bytes:
    return _event("error", error={"type": kind, "message": message}, request_id=request_id).data


class _Writer:
    """Writes the blocks of one answer; it counts the signed ones on the way."""

    def __init__(self, asked: Asked, sealer: Sealer, pace: Pace, parts: tuple[ScriptedPart, ...]) -> None:
        self._asked = asked
        self._sealer = sealer
        self._pace = pace
        self._parts = parts
        self._signed = 0

    def write(self) -> Iterator[Written]:
        calls = any(isinstance(part, ToolPart) for part in self._parts)
        for index, part in enumerate(self._parts):
            before_call = any(isinstance(later, ToolPart) for later in self._parts[index + 1 : index + 2])
            match part:
                case ThinkingPart() if self._asked.thinks:
                    shown = self._shown(part, before_call=before_call)
                    yield self._thinking(part.thinking, shown, part.delay_ms)
                case RedactedPart() if self._asked.thinks:
                    yield self._redacted(part)
                case ThinkingPart() | RedactedPart():
                    continue
                case TextPart() if self._asked.replay.mode.kind == "between_tools" and calls:
                    # With thinking switched off this way, notes between tool calls come as thinking blocks.
                    yield self._thinking(part.text, part.text, part.delay_ms)
                case TextPart():
                    yield self._text(part)
                case ToolPart():
                    yield self._tool(part, index)
                case RawPart():
                    yield self._raw(part)
                case _:
                    assert_never(part)

    def _shown(self, part: ThinkingPart, *, before_call: bool) -> str | None:
        """What can be read of the thinking, or None where the block arrives empty."""
        display = self._asked.replay.mode.display
        if part.omitted or display == "omitted" or (display == "updates" and not before_call):
            return None
        return part.readable

    def _thinking(self, thought: str, shown: str | None, delay_ms: int) -> Written:
        signature = self._seal("thinking", thought, shown)
        deltas = list(self._thinking_deltas(thought, shown))
        deltas.append((0, {"type": "signature_delta", "signature": signature}))
        block = {"type": "thinking", "thinking": shown or "", "signature": signature}
        start = {"type": "thinking", "thinking": "", "signature": ""}
        return Written(block, start, tuple(deltas), delay_ms, self._tokens(thought))

    def _thinking_deltas(self, thought: str, shown: str | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Omitted thinking takes as long as if it could be read; only with token counts is there more to tell."""
        texts = list(pieces(thought, self._pace.chunk_chars)) or [""]
        silence = self._pace.interval_ms
        if self._asked.counts_thinking:
            for text in texts if shown is None else list(pieces(shown, self._pace.chunk_chars)) or [""]:
                counted = self._asked.traits.count_tokens(text)
                visible = "" if shown is None else text
                yield silence, {"type": "thinking_delta", "thinking": visible, "estimated_tokens": counted}
        elif shown is None:
            yield silence * len(texts), {"type": "thinking_delta", "thinking": ""}
        else:
            for text in pieces(shown, self._pace.chunk_chars):
                yield silence, {"type": "thinking_delta", "thinking": text}

    def _redacted(self, part: RedactedPart) -> Written:
        block = {"type": "redacted_thinking", "data": self._seal("redacted_thinking", part.redacted_thinking, None)}
        return Written(block, block, (), part.delay_ms, self._tokens(part.redacted_thinking))

    def _text(self, part: TextPart) -> Written:
        deltas = tuple(
            (self._pace.interval_ms, {"type": "text_delta", "text": text})
            for text in pieces(part.text, self._pace.chunk_chars)
        )
        block = {"type": "text", "text": part.text}
        return Written(block, {"type": "text", "text": ""}, deltas, part.delay_ms, self._tokens(part.text))

    def _tool(self, part: ToolPart, index: int) -> Written:
        digest = hashlib.sha256(f"{self._asked.answer_id} {index}".encode("ascii")).hexdigest()
        text = part.input_json
        if text is None:
            text = json.dumps(part.input, ensure_ascii=False, default=str) if part.input else ""
        block = {"type": "tool_use", "id": f"toolu_{digest[:24]}", "name": part.tool, "input": part.input}
        deltas = self._input_deltas(text)
        return Written(block, {**block, "input": {}}, deltas, part.delay_ms, self._tokens(part.tool + text) + 8)

    def _raw(self, part: RawPart) -> Written:
        raw = part.raw
        tokens = self._tokens(json.dumps(raw, default=str))
        if raw["type"] in ("server_tool_use", "mcp_tool_use") and isinstance(raw.get("input"), Mapping):
            deltas = self._input_deltas(json.dumps(raw["input"], ensure_ascii=False, default=str))
            return Written(raw, {**raw, "input": {}}, deltas, part.delay_ms, tokens)
        return Written(raw, raw, (), part.delay_ms, tokens)

    def _input_deltas(self, text: str) -> tuple[tuple[int, Mapping[str, Any]], ...]:
        texts = ["", *pieces(text, self._pace.chunk_chars)]
        return tuple(
            (self._pace.interval_ms if piece else 0, {"type": "input_json_delta", "partial_json": piece})
            for piece in texts
        )

    def _seal(self, kind: Any, thought: str, shown: str | None) -> str:
        replay = self._asked.replay
        seal = Seal(
            kind,
            self._asked.traits.id,
            self._asked.answer_id,
            self._signed,
            None if shown is None else text_digest(shown),
            replay.prefix,
            tuple(replay.kept),
            self._tokens(thought),
        )
        self._signed += 1
        return signed(seal, self._sealer)

    def _tokens(self, text: str) -> int:
        return self._asked.traits.count_tokens(text)


def _issued(blocks: tuple[Written, ...], asked: Asked, *, paused: bool) -> Issued:
    order: list[str] = []
    for written in blocks:
        match written.block["type"]:
            case "thinking":
                order.append(mark_of(written.block["signature"]))
            case "redacted_thinking":
                order.append(mark_of(written.block["data"]))
            case "tool_use":
                order.append(written.block["id"])
            case _:
                pass
    return Issued(asked.answer_id, asked.traits.id, tuple(order), asked.replay.prefix, asked.replay.mode.on, paused)


def _stop_reason(answer: Answer, asked: Asked) -> str:
    if not asked.max_tokens:
        return "max_tokens"
    return _STOP_REASONS.get(answer.stop_reason, answer.stop_reason)


def _usages(
    spent: InputUsage, output: int, thinking: int, given: UsageOverride
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of message_start and those of the end. Scripted figures replace estimated ones."""
    read = spent.read if given.cache_read_tokens is None else given.cache_read_tokens
    written = dict(spent.written)
    if given.cache_write_tokens is not None:
        written = {"5m": given.cache_write_tokens, "1h": 0}
    whole = spent.total if given.input_tokens is None else given.input_tokens
    first: dict[str, Any] = {
        "input_tokens": max(whole - read - sum(written.values()), 0),
        "cache_creation_input_tokens": sum(written.values()),
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written["5m"],
            "ephemeral_1h_input_tokens": written["1h"],
        },
        "output_tokens": 2,
        "service_tier": "standard",
    }
    thinking = thinking if given.thinking_tokens is None else given.thinking_tokens
    output = output if given.output_tokens is None else given.output_tokens
    last = {"output_tokens": output, "output_tokens_details": {"thinking_tokens": thinking}}
    return first, last


def _head(message: Message, content: list[Mapping[str, Any]], usage: Mapping[str, Any]) -> dict[str, Any]:
    head = {"id": message.id, "type": "message", "role": "assistant", "model": message.model, "content": content}
    told = {"input_transformations": message.transformations} if message.transformations else {}
    return {**head, "stop_reason": None, "stop_sequence": None, "usage": usage, **told}


def _event(name: str, **payload: Any) -> Send:
    return send_event({"type": name, **payload}, name)
