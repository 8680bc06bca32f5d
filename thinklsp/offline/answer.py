"""Functions that convert a scripted answer to content blocks and stream events of the Messages API."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from thinklsp.offline.scenario import (
    Pacing,
    RawPart,
    RedactedPart,
    ScenarioPart,
    ScriptedFault,
    TextPart,
    ThinkingPart,
    ToolPart,
)
from thinklsp.offline.script import ScriptedAnswer

_STOP_REASONS = {"context_window": "model_context_window_exceeded"}
_PING = b'event: ping\ndata: {"type": "ping"}\n\n'


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a response body, and the pause before them in milliseconds."""

    data: bytes
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class OfflineResponse:
    """A response. Header names are lowercase. `pacing.delay_ms` is the pause before the headers.

    If `breaks` is true, the connection breaks after the last piece. `label` names the scenario step.
    """

    status: int
    headers: Mapping[str, str]
    pieces: tuple[Piece, ...]
    pacing: Pacing = field(default_factory=Pacing)
    breaks: bool = False
    label: str = ""

    def play(self) -> Iterator[tuple[float, bytes]]:
        """Yield each piece of the body with the pause before it in seconds. Long pauses contain pings.

        Raises ConnectionResetError after the last piece if `breaks` is true.
        """
        every = self.pacing.ping_every_ms
        for piece in self.pieces:
            wait = piece.wait_ms
            while 0 < every < wait:
                yield every / 1000, _PING
                wait -= every
            yield wait / 1000, piece.data
        if self.breaks:
            raise ConnectionResetError("The scenario breaks the connection here.")


@dataclass(frozen=True, slots=True)
class AnswerBlock:
    """A content block with the events that stream it. Each delta has the pause before it in milliseconds."""

    value: Mapping[str, Any]
    start: Mapping[str, Any]
    deltas: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    delay_ms: int = 0


class BlockWriter:
    """A writer that converts the parts of a scripted answer to content blocks.

    If `shows` is false, thinking blocks have no text. If `counts` is true, their deltas contain token counts.
    """

    def __init__(self, answer: ScriptedAnswer, sign: Callable[[str, str], str], *, shows: bool, counts: bool) -> None:
        self._answer = answer
        self._sign = sign
        self._shows = shows
        self._counts = counts

    def write(self, *, thinks: bool) -> Iterator[AnswerBlock]:
        for part in self._answer.parts:
            if isinstance(part, RawPart) and part.dialect != "anthropic":
                continue
            if thinks or not isinstance(part, ThinkingPart | RedactedPart):
                yield replace(self._write_part(part), delay_ms=part.delay_ms)

    def _write_part(self, part: ScenarioPart) -> AnswerBlock:
        match part:
            case ThinkingPart():
                return self._write_thinking(part)
            case RedactedPart():
                value = {"type": "redacted_thinking", "data": self._sign("redacted_thinking", "")}
                return AnswerBlock(value, value)
            case TextPart():
                value = {"type": "text", "text": part.text}
                return AnswerBlock(value, {**value, "text": ""}, self._split(part.text, "text_delta", "text"))
            case ToolPart():
                value = {"type": "tool_use", "id": f"toolu_{secrets.token_hex(12)}", "name": part.tool}
                text = part.format_arguments() if part.input or part.input_json is not None else ""
                deltas = self._split(text, "input_json_delta", "partial_json")
                return AnswerBlock({**value, "input": part.input}, {**value, "input": {}}, deltas)
            case RawPart():
                return AnswerBlock(part.raw, part.raw)
            case _:
                assert_never(part)

    def _write_thinking(self, part: ThinkingPart) -> AnswerBlock:
        text = (part.readable_text or "") if self._shows else ""
        signature = self._sign("thinking", text)
        deltas = []
        # Hidden thinking takes as long as readable thinking.
        for wait, delta in self._split(text or part.thought, "thinking_delta", "thinking"):
            count = {"estimated_tokens": count_tokens(delta["thinking"])} if self._counts else {}
            deltas.append((wait, {**delta, **count} if text else {**delta, "thinking": "", **count}))
        value = {"type": "thinking", "thinking": text, "signature": signature}
        end = (0, {"type": "signature_delta", "signature": signature})
        return AnswerBlock(value, {**value, "thinking": "", "signature": ""}, (*deltas, end))

    def _split(self, text: str, kind: str, key: str) -> tuple[tuple[int, dict[str, Any]], ...]:
        size, wait = self._answer.pacing.chunk_chars, self._answer.pacing.interval_ms
        return tuple((wait, {"type": kind, key: text[at : at + size]}) for at in range(0, len(text), size))


def count_tokens(text: str) -> int:
    """Estimate the number of tokens. Four characters count as one token."""
    return (len(text) + 3) // 4


def estimate_usage(request: Mapping[str, Any], answer: ScriptedAnswer) -> dict[str, int]:
    """Estimate the usage of an answer. All messages but the last two are read from the cache.

    `total` is the number of input tokens, and `cached` the number of those that are read from the cache. The scenario's
    own figures replace the estimates.
    """
    messages = request["messages"]
    head = count_tokens(json.dumps([request.get("system"), request.get("tools"), messages[:-2]]))
    total = head + count_tokens(json.dumps(messages[-2:]))
    thinking = sum(count_tokens(p.thought) for p in answer.parts if isinstance(p, ThinkingPart | RedactedPart))
    output = thinking + sum(count_tokens(p.model_dump_json()) for p in answer.parts if not hasattr(p, "thought"))
    estimates = {"input": total, "cache_read": head if len(messages) > 1 else 0, "output": output, "thinking": thinking}
    scripted = {key: getattr(answer.usage, f"{key}_tokens") for key in estimates}
    usage = {key: value if scripted[key] is None else scripted[key] for key, value in estimates.items()}
    return {**usage, "total": total, "cache_write": answer.usage.cache_write_tokens or 0}


def build_message(
    model: str, blocks: Sequence[AnswerBlock], answer: ScriptedAnswer, usage: Mapping[str, int]
) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block.value for block in blocks],
        "stop_reason": _STOP_REASONS.get(answer.stop_reason, answer.stop_reason),
        "stop_sequence": answer.stop_sequence,
        "usage": {
            "input_tokens": max(usage["input"] - usage["cache_read"] - usage["cache_write"], 0),
            "cache_creation_input_tokens": usage["cache_write"],
            "cache_read_input_tokens": usage["cache_read"],
            "output_tokens": usage["output"],
            "output_tokens_details": {"thinking_tokens": usage["thinking"]},
        },
    }
    if answer.refusal is not None:
        message["stop_details"] = {"type": "refusal", **answer.refusal.model_dump()}
    return message


def stream_message(
    message: Mapping[str, Any], blocks: Sequence[AnswerBlock], answer: ScriptedAnswer
) -> OfflineResponse:
    pieces, fault = tuple(_iterate_events(message, blocks)), answer.fault or ScriptedFault.model_construct()
    if fault.error_event is not None:
        error = {"type": fault.error_event.type, "message": fault.error_event.message}
        pieces = (*pieces[: fault.error_event.after_events], _encode_event("error", error=error))
    elif fault.cut_after_events is not None:
        pieces = pieces[: fault.cut_after_events]
    elif fault.silence_ms is not None:
        at = min(fault.silence_after_events, len(pieces) - 1)
        silent = replace(pieces[at], wait_ms=pieces[at].wait_ms + fault.silence_ms)
        pieces = (*pieces[:at], silent, *pieces[at + 1 :])
    breaks = fault.cut_after_events is not None and not fault.cut_cleanly
    return OfflineResponse(200, {"content-type": "text/event-stream"}, pieces, answer.pacing, breaks, answer.label)


def _iterate_events(message: Mapping[str, Any], blocks: Sequence[AnswerBlock]) -> Iterator[Piece]:
    ending = {key: message[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in message}
    opening = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    opening.pop("stop_details", None)
    yield _encode_event("message_start", message={**opening, "usage": {**message["usage"], "output_tokens": 1}})
    for index, block in enumerate(blocks):
        yield _encode_event("content_block_start", block.delay_ms, index=index, content_block=block.start)
        for wait, delta in block.deltas:
            yield _encode_event("content_block_delta", wait, index=index, delta=delta)
        yield _encode_event("content_block_stop", index=index)
    yield _encode_event("message_delta", delta=ending, usage=message["usage"])
    yield _encode_event("message_stop")


def _encode_event(name: str, wait_ms: int = 0, **payload: Any) -> Piece:
    data = json.dumps({"type": name, **payload}, default=str)
    return Piece(f"event: {name}\ndata: {data}\n\n".encode("ascii"), wait_ms)
