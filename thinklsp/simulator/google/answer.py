"""A scripted answer as Gemini responses: its parts, signed, in the chunks that stream them.

Pure but for the sealer's secret. Whether thoughts can be read, and where signatures stand, follows from the request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from thinklsp.simulator.dialect import pieces
from thinklsp.simulator.google.errors import Refused
from thinklsp.simulator.google.models import Mode, ModelTraits
from thinklsp.simulator.google.payload import read
from thinklsp.simulator.google.replay import Seal, Token, items, signed, token
from thinklsp.simulator.scenario import (
    RawPart,
    RedactedPart,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolPart,
    UsageOverride,
)
from thinklsp.simulator.script import Answer
from thinklsp.simulator.state import InputUsage, Sealer, text_digest, text_tokens

_REASONS: Mapping[StopReason, str] = {
    "end_turn": "STOP",
    "tool_use": "STOP",
    "stop_sequence": "STOP",
    "max_tokens": "MAX_TOKENS",
    "context_window": "MAX_TOKENS",
    "pause_turn": "CONTINUATION",
    "refusal": "SAFETY",
}
_MALFORMED = "MALFORMED_FUNCTION_CALL"


@dataclass(frozen=True, slots=True)
class Asked:
    """What shapes the answer, taken from the request. `own_parts`: part names that only the scenario knows.

    `contents` and `played` are for continuation: which request it is, and how many answers it already had.
    """

    traits: ModelTraits
    mode: Mode
    key: str
    streams: bool
    answer_id: str
    contents: str
    played: int
    own_parts: frozenset[str]


@dataclass(slots=True)
class Chunk:
    """Parts that go out together after `wait` ms, and what was counted since the chunk before."""

    parts: list[dict[str, Any]] = field(default_factory=list)
    wait: int = 0
    thoughts: int = 0
    output: int = 0
    calls: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer as its chunks, each with the silence before it in ms."""

    chunks: tuple[tuple[int, Mapping[str, Any]], ...]

    @property
    def silence(self) -> int:
        return sum(wait for wait, _ in self.chunks)

    def whole(self) -> dict[str, Any]:
        """The answer in one piece."""
        *_, (_, last) = self.chunks
        if "candidates" not in last:
            return dict(last)
        parts = [
            part for _, chunk in self.chunks for part in chunk["candidates"][0].get("content", {}).get("parts", ())
        ]
        content = {"content": {"parts": parts, "role": "model"}} if parts else {}
        return {**last, "candidates": [{**last["candidates"][0], **content}]}


@dataclass(frozen=True, slots=True)
class Figures:
    """The usage of one answer. `thoughts` and `output` are what it comes to in the end; scripted figures win."""

    spent: InputUsage
    thoughts: int
    output: int
    given: UsageOverride

    def so_far(self, thoughts: int, output: int, *, last: bool) -> dict[str, Any]:
        """The figures of one chunk, cumulative; those that are nothing are left out."""
        prompt = _or(self.given.input_tokens, self.spent.total)
        cached = min(_or(self.given.cache_read_tokens, self.spent.read), prompt)
        all_thoughts = _or(self.given.thinking_tokens, self.thoughts)
        # Elsewhere output counts thinking in; here it is told apart.
        all_output = max(_or(self.given.output_tokens, self.output + all_thoughts) - all_thoughts, 0)
        thoughts = all_thoughts if last else min(thoughts, all_thoughts)
        output = all_output if last else min(output, all_output)
        return {
            "promptTokenCount": prompt,
            **({"cachedContentTokenCount": cached} if cached else {}),
            **({"candidatesTokenCount": output} if output else {}),
            **({"thoughtsTokenCount": thoughts} if thoughts else {}),
            "totalTokenCount": prompt + output + thoughts,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
        }


def write_response(answer: Answer, asked: Asked, spent: InputUsage, sealer: Sealer) -> Response:
    head = {"modelVersion": asked.traits.id, "responseId": asked.answer_id}
    if answer.stop_reason == "refusal" and not answer.parts:
        usage = Figures(spent, 0, 0, answer.usage).so_far(0, 0, last=True)
        return Response(((0, {"promptFeedback": _feedback(answer), "usageMetadata": usage, **head}),))
    writer = _Writer(answer, asked, sealer)
    chunks = writer.write()
    figures = Figures(spent, sum(c.thoughts for c in chunks), sum(c.output for c in chunks), answer.usage)
    return Response(tuple(_values(chunks, writer.ending(), figures, head)))


def _values(
    chunks: list[Chunk], ending: Mapping[str, Any], figures: Figures, head: Mapping[str, Any]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    thoughts = output = 0
    for chunk in chunks:
        last = chunk is chunks[-1]
        thoughts, output = thoughts + chunk.thoughts, output + chunk.output
        parts = {"parts": chunk.parts} if chunk.parts else {}
        candidate = {"content": {**parts, "role": "model"}, **(ending if last else {}), "index": 0}
        usage = figures.so_far(thoughts, output, last=last)
        yield chunk.wait, {"candidates": [candidate], "usageMetadata": usage, **head}


def _feedback(answer: Answer) -> dict[str, str]:
    told = answer.refusal.explanation if answer.refusal else None
    return {"blockReason": "SAFETY", **({"blockReasonMessage": told} if told else {})}


class _Writer:
    """Writes the chunks of one answer. `write` once, then `ending` may be asked."""

    def __init__(self, answer: Answer, asked: Asked, sealer: Sealer) -> None:
        self._answer = answer
        self._asked = asked
        self._sealer = sealer
        self._chunks: list[Chunk] = []
        self._next = Chunk()
        self._malformed: str | None = None

    def write(self) -> list[Chunk]:
        for part in self._answer.parts:
            if self._malformed is not None:
                break
            self._next.wait += part.delay_ms
            match part:
                case ThinkingPart():
                    self._think(part)
                case RedactedPart():
                    self._next.thoughts += text_tokens(part.redacted_thinking) if self._asked.mode.on else 0
                case TextPart():
                    self._texts(part.text, thought=False)
                case ToolPart():
                    self._call(part, parallel=not part.delay_ms)
                case RawPart():
                    raw = json.loads(json.dumps(part.raw, default=str))
                    self._send(raw, output=text_tokens(json.dumps(raw)))
                case _:
                    assert_never(part)
        self._finish()
        return self._chunks

    def ending(self) -> dict[str, Any]:
        """What the last chunk tells besides its parts."""
        reason = _REASONS[self._answer.stop_reason]
        cut = reason == "MAX_TOKENS"
        if self._malformed is not None and not cut:
            return {"finishReason": _MALFORMED, "finishMessage": f"Malformed function call: {self._malformed}"}
        ending = {"finishReason": reason}
        if reason == "SAFETY" and self._answer.refusal and self._answer.refusal.explanation:
            ending["finishMessage"] = self._answer.refusal.explanation
        if reason == "CONTINUATION":
            asked = self._asked
            ending["continuationToken"] = token(
                Token(asked.traits.id, asked.key, asked.contents, asked.played + 1), self._sealer
            )
        return ending

    def _think(self, part: ThinkingPart) -> None:
        if not self._asked.mode.on:
            return
        if self._asked.mode.shown and not part.omitted:
            self._texts(part.readable, thought=True)
        else:
            # Thinking that cannot be read takes as long as if it could.
            size = self._answer.pace.chunk_chars
            self._next.wait += self._answer.pace.interval_ms * len(list(pieces(part.thinking, size)))
        tokens = text_tokens(part.thinking)
        if self._chunks and self._chunks[-1].parts[-1].get("thought"):
            self._chunks[-1].thoughts += tokens
        else:
            self._next.thoughts += tokens

    def _texts(self, text: str, *, thought: bool) -> None:
        size = self._answer.pace.chunk_chars if self._asked.streams else max(len(text), 1)
        for piece in pieces(text, size):
            self._next.wait += self._answer.pace.interval_ms
            value: dict[str, Any] = {"text": piece, **({"thought": True} if thought else {})}
            self._send(value, output=0 if thought else text_tokens(piece))

    def _call(self, part: ToolPart, *, parallel: bool) -> None:
        args = _arguments(part)
        if args is None:
            self._malformed = f"{part.tool}({part.input_json})"
            return
        value: dict[str, Any] = {"name": part.tool, "args": args}
        if self._asked.traits.demands_signatures:
            digest = text_digest(f"{self._asked.answer_id} {sum(len(chunk.parts) for chunk in self._chunks)}")
            value = {"id": f"call_{digest[:16]}", **value}
        tokens = text_tokens(json.dumps(value)) + 4
        if parallel and self._chunks and self._chunks[-1].calls and not self._next.wait:
            self._chunks[-1].parts.append({"functionCall": value})
            self._chunks[-1].output += tokens
        else:
            self._next.wait += self._answer.pace.interval_ms
            self._send({"functionCall": value}, output=tokens, calls=True)

    def _send(self, part: dict[str, Any], *, output: int, calls: bool = False) -> None:
        chunk, self._next = self._next, Chunk()
        chunk.parts.append(part)
        chunk.output += output
        chunk.calls = calls
        self._chunks.append(chunk)

    def _finish(self) -> None:
        """Signs, and adds the chunk that ends the stream where the calls do not end it."""
        calls = [part for chunk in self._chunks if chunk.calls for part in chunk.parts]
        paused = self._answer.stop_reason == "pause_turn"
        silent = self._answer.stop_reason == "refusal" or self._malformed is not None
        demanded = self._asked.traits.demands_signatures
        target: dict[str, Any] | None = None
        if calls and (demanded or paused or self._asked.mode.on):
            target = calls[0]
        elif not calls and not silent and (demanded or paused):
            target = self._last_part()
        if not self._chunks or not self._chunks[-1].calls or self._next.wait or self._next.thoughts:
            self._chunks.append(self._next)
        if target is not None:
            self._sign(target, paused=paused)

    def _last_part(self) -> dict[str, Any]:
        """The part that carries the signature of an answer without calls: in a stream one of its own."""
        last = self._chunks[-1].parts[-1] if self._chunks else {}
        if not self._asked.streams and set(last) == {"text"}:
            return last
        self._next.parts.append({"text": ""})
        return self._next.parts[-1]

    def _sign(self, target: dict[str, Any], *, paused: bool) -> None:
        target["thoughtSignature"] = ""
        parts = [part for chunk in self._chunks for part in chunk.parts]
        index = next(index for index, part in enumerate(parts) if part is target)
        found = items([self._neutral(part) for part in parts])
        place = next(position for position, item in enumerate(found) if item.index == index)
        thoughts = sum(chunk.thoughts for chunk in self._chunks)
        traits, key = self._asked.traits, self._asked.key
        seal = Seal(traits.id, key, tuple(item.mark for item in found), place, paused, thoughts)
        target["thoughtSignature"] = signed(seal, self._sealer)

    def _neutral(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """The part as it will be read when it comes back; what cannot be read is not compared either."""
        try:
            return read(part, "Part", self._asked.own_parts)
        except Refused:
            return part


def _arguments(part: ToolPart) -> dict[str, Any] | None:
    """None for arguments that are no JSON object: this service never lets those out."""
    try:
        text = json.dumps(part.input, default=str, allow_nan=False) if part.input_json is None else part.input_json
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _or(given: int | None, estimate: int) -> int:
    return estimate if given is None else given
