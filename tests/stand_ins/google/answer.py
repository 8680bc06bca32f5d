"""Functions that convert a scripted answer to Gemini's signed parts and stream chunks."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from tests.stand_ins.google.models import GoogleThinkingMode, GoogleTraits
from tests.stand_ins.google.payload_reader import read_message
from tests.stand_ins.google.replay import ContinuationToken, ThoughtSignature, list_answer_items
from tests.stand_ins.rejections import RequestRejected
from tests.stand_ins.service_state import (
    AnswerUsage,
    InputUsage,
    StateSigner,
    compute_usage,
    estimate_tokens,
    hash_text,
)
from thinklsp.offline.scenario import (
    RawPart,
    RedactedPart,
    ScenarioStep,
    ScriptedStopReason,
    TextPart,
    ThinkingPart,
    ToolPart,
)

_FINISH_REASONS: Mapping[ScriptedStopReason, str] = {
    "end_turn": "STOP",
    "tool_use": "STOP",
    "stop_sequence": "STOP",
    "max_tokens": "MAX_TOKENS",
    "context_window": "MAX_TOKENS",
    "pause_turn": "CONTINUATION",
    "refusal": "SAFETY",
}
TimedChunk = tuple[int, Mapping[str, Any]]
_MALFORMED_REASON = "MALFORMED_FUNCTION_CALL"


@dataclass(frozen=True, slots=True)
class GoogleAnswerContext:
    """The properties of a request that affect its answer.

    `own_parts` contains the names of parts that only the scenario defines. `contents` is a hash of the conversation,
    and `answer_count` is the number of earlier answers to the same request. A continuation token contains both values.
    """

    traits: GoogleTraits
    mode: GoogleThinkingMode
    key: str
    streams: bool
    contents: str
    answer_count: int
    own_parts: frozenset[str]
    answer_id: str = field(default_factory=lambda: secrets.token_urlsafe(16))


@dataclass(slots=True)
class GoogleChunk:
    """A stream chunk that is sent after `wait_ms` milliseconds.

    `thoughts` and `output` are token counts. `has_calls` is true if the parts are tool calls.
    """

    parts: list[dict[str, Any]] = field(default_factory=list)
    wait_ms: int = 0
    thoughts: int = 0
    output: int = 0
    has_calls: bool = False


def write_response(
    answer: ScenarioStep, context: GoogleAnswerContext, input_usage: InputUsage, signer: StateSigner
) -> tuple[TimedChunk, ...]:
    """Return the chunks of an answer. Each chunk is paired with the pause before it in milliseconds."""
    head = {"modelVersion": context.traits.id, "responseId": context.answer_id}
    if answer.stop_reason == "refusal" and not answer.parts:
        usage = _build_usage(compute_usage(input_usage, 0, 0, answer.usage), None)
        reason = {"blockReasonMessage": answer.explanation} if answer.explanation else {}
        return ((0, {"promptFeedback": {"blockReason": "SAFETY", **reason}, "usageMetadata": usage, **head}),)
    writer = _Writer(answer, context, signer)
    chunks = writer.write()
    thoughts = sum(chunk.thoughts for chunk in chunks)
    figures = compute_usage(input_usage, thoughts + sum(chunk.output for chunk in chunks), thoughts, answer.usage)
    return tuple(_iter_values(chunks, writer.build_ending(), figures, head))


def join_chunks(chunks: Sequence[TimedChunk]) -> dict[str, Any]:
    """Join the chunks of an answer into a single response."""
    last = chunks[-1][1]
    if "candidates" not in last:
        return dict(last)
    contents = [chunk["candidates"][0].get("content", {}) for _, chunk in chunks]
    parts = [part for content in contents for part in content.get("parts", ())]
    content = {"content": {"parts": parts, "role": "model"}} if parts else {}
    return {**last, "candidates": [{**last["candidates"][0], **content}]}


def _build_usage(figures: AnswerUsage, so_far: tuple[int, int] | None) -> dict[str, Any]:
    """Return the usage for a chunk, without counts that are 0.

    `so_far` contains the numbers of thinking and output tokens up to this chunk, or is None for the last chunk.
    """
    # Gemini counts thinking separately, while `AnswerUsage` includes it in the output.
    thoughts, output = figures.thinking, max(figures.output - figures.thinking, 0)
    if so_far is not None:
        thoughts, output = min(so_far[0], thoughts), min(so_far[1], output)
    cached = min(figures.cache_read, figures.input)
    return {
        "promptTokenCount": figures.input,
        **({"cachedContentTokenCount": cached} if cached else {}),
        **({"candidatesTokenCount": output} if output else {}),
        **({"thoughtsTokenCount": thoughts} if thoughts else {}),
        "totalTokenCount": figures.input + output + thoughts,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": figures.input}],
    }


def _iter_values(
    chunks: list[GoogleChunk], ending: Mapping[str, Any], figures: AnswerUsage, head: Mapping[str, Any]
) -> Iterator[TimedChunk]:
    thoughts = output = 0
    for chunk in chunks:
        last = chunk is chunks[-1]
        thoughts, output = thoughts + chunk.thoughts, output + chunk.output
        parts = {"parts": chunk.parts} if chunk.parts else {}
        candidate = {"content": {**parts, "role": "model"}, **(ending if last else {}), "index": 0}
        usage = _build_usage(figures, None if last else (thoughts, output))
        yield chunk.wait_ms, {"candidates": [candidate], "usageMetadata": usage, **head}


class _Writer:
    """A writer that builds the chunks of an answer. Call `write` before `build_ending`."""

    def __init__(self, answer: ScenarioStep, context: GoogleAnswerContext, signer: StateSigner) -> None:
        self._answer = answer
        self._context = context
        self._signer = signer
        self._chunks: list[GoogleChunk] = []
        self._next = GoogleChunk()
        self._malformed_call: str | None = None

    def write(self) -> list[GoogleChunk]:
        for part in self._answer.parts:
            if self._malformed_call is not None:
                break
            self._next.wait_ms += part.delay_ms
            match part:
                case ThinkingPart() | RedactedPart():
                    self._write_thinking(part)
                case TextPart():
                    self._write_text(part.text, is_thought=False)
                case ToolPart():
                    self._write_tool_call(part, parallel=not part.delay_ms)
                case RawPart():
                    raw = json.loads(json.dumps(part.raw, default=str))
                    self._append_chunk(raw, output=estimate_tokens(json.dumps(raw)))
                case _:
                    assert_never(part)
        self._finish_chunks()
        return self._chunks

    def build_ending(self) -> dict[str, Any]:
        """Return the fields that only the last chunk has."""
        reason = _FINISH_REASONS[self._answer.stop_reason]
        is_cut = reason == "MAX_TOKENS"
        if self._malformed_call is not None and not is_cut:
            return {
                "finishReason": _MALFORMED_REASON,
                "finishMessage": f"Malformed function call: {self._malformed_call}",
            }
        ending = {"finishReason": reason}
        if reason == "SAFETY" and self._answer.explanation:
            ending["finishMessage"] = self._answer.explanation
        if reason == "CONTINUATION":
            context = self._context
            token = ContinuationToken(context.traits.id, context.key, context.contents, context.answer_count + 1)
            ending["continuationToken"] = self._signer.sign(token)
        return ending

    def _write_thinking(self, part: ThinkingPart | RedactedPart) -> None:
        if not self._context.mode.is_on:
            return
        if self._context.mode.includes_thoughts and part.readable_text is not None:
            self._write_text(part.readable_text, is_thought=True)
        elif isinstance(part, ThinkingPart):
            # Hidden thinking takes as long as readable thinking.
            pace = self._answer.pacing
            self._next.wait_ms += pace.interval_ms * -(-len(part.thought) // pace.chunk_chars)
        follows = isinstance(part, ThinkingPart) and self._chunks and self._chunks[-1].parts[-1].get("thought")
        (self._chunks[-1] if follows else self._next).thoughts += estimate_tokens(part.thought)

    def _write_text(self, text: str, *, is_thought: bool) -> None:
        size = self._answer.pacing.chunk_chars if self._context.streams else max(len(text), 1)
        for start in range(0, len(text), size):
            piece = text[start : start + size]
            self._next.wait_ms += self._answer.pacing.interval_ms
            value: dict[str, Any] = {"text": piece, **({"thought": True} if is_thought else {})}
            self._append_chunk(value, output=0 if is_thought else estimate_tokens(piece))

    def _write_tool_call(self, part: ToolPart, *, parallel: bool) -> None:
        args = _parse_arguments(part)
        if args is None:
            self._malformed_call = f"{part.tool}({part.input_json})"
            return
        value: dict[str, Any] = {"name": part.tool, "args": args}
        if self._context.traits.requires_signatures:
            digest = hash_text(f"{self._context.answer_id} {sum(len(chunk.parts) for chunk in self._chunks)}")
            value = {"id": f"call_{digest[:16]}", **value}
        tokens = estimate_tokens(json.dumps(value)) + 4
        if parallel and self._chunks and self._chunks[-1].has_calls and not self._next.wait_ms:
            self._chunks[-1].parts.append({"functionCall": value})
            self._chunks[-1].output += tokens
        else:
            self._next.wait_ms += self._answer.pacing.interval_ms
            self._append_chunk({"functionCall": value}, output=tokens, calls=True)

    def _append_chunk(self, part: dict[str, Any], *, output: int, calls: bool = False) -> None:
        chunk, self._next = self._next, GoogleChunk()
        chunk.parts.append(part)
        chunk.output += output
        chunk.has_calls = calls
        self._chunks.append(chunk)

    def _finish_chunks(self) -> None:
        """Sign the answer. Add a last chunk unless the answer ends with tool calls."""
        calls = [part for chunk in self._chunks if chunk.has_calls for part in chunk.parts]
        paused = self._answer.stop_reason == "pause_turn"
        silent = self._answer.stop_reason == "refusal" or self._malformed_call is not None
        requires_signature = self._context.traits.requires_signatures
        target: dict[str, Any] | None = None
        if calls and (requires_signature or paused or self._context.mode.is_on):
            target = calls[0]
        elif not calls and not silent and (requires_signature or paused):
            target = self._find_last_part()
        if not self._chunks or not self._chunks[-1].has_calls or self._next.wait_ms or self._next.thoughts:
            self._chunks.append(self._next)
        if target is not None:
            self._sign(target, paused=paused)

    def _find_last_part(self) -> dict[str, Any]:
        """Return the part to sign in an answer without tool calls. In a stream, this is an additional empty part."""
        last = self._chunks[-1].parts[-1] if self._chunks else {}
        if not self._context.streams and set(last) == {"text"}:
            return last
        self._next.parts.append({"text": ""})
        return self._next.parts[-1]

    def _sign(self, target: dict[str, Any], *, paused: bool) -> None:
        target["thoughtSignature"] = ""
        parts = [part for chunk in self._chunks for part in chunk.parts]
        index = next(index for index, part in enumerate(parts) if part is target)
        answer_items = list_answer_items([self._normalize_part(part) for part in parts])
        place = next(position for position, item in enumerate(answer_items) if item.index == index)
        thoughts = sum(chunk.thoughts for chunk in self._chunks)
        traits, key = self._context.traits, self._context.key
        seal = ThoughtSignature(traits.id, key, tuple(item.mark for item in answer_items), place, paused, thoughts)
        target["thoughtSignature"] = self._signer.sign(seal, thoughts)

    def _normalize_part(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert a part to the form that it has in later requests.

        A part that is not valid in requests is returned unchanged.
        """
        try:
            return read_message(part, "Part", self._context.own_parts)
        except RequestRejected:
            return part


def _parse_arguments(part: ToolPart) -> dict[str, Any] | None:
    """Return the arguments of a tool call, or None if they are not a JSON object. Gemini sends only JSON objects."""
    try:
        text = json.dumps(part.input, default=str, allow_nan=False) if part.input_json is None else part.input_json
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
