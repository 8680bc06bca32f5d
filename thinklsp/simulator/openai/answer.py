"""A scripted answer as output items of the OpenAI service: numbered, sealed, and with the events that stream each.

Pure but for the secrets of ids and seals. Whether reasoning appears, and how much of it can be read, follows from the
request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

from thinklsp.simulator.dialect import pieces
from thinklsp.simulator.openai.items import CALLS, COMPACTION
from thinklsp.simulator.openai.options import Options
from thinklsp.simulator.openai.replay import Issuer, mark
from thinklsp.simulator.openai.seals import (
    CompactionSeal,
    Place,
    Seal,
    new_answer,
    sealed,
    sealed_compaction,
    summary_digest,
)
from thinklsp.simulator.scenario import RawPart, RedactedPart, TextPart, ThinkingPart, ToolPart
from thinklsp.simulator.script import Answer
from thinklsp.simulator.state import text_tokens

_REFUSED = "I'm sorry, but I cannot help with that."
_CUT = frozenset({"max_tokens", "context_window"})
Event = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Written:
    """One finished item and how it streams: `start`, then `events`, each behind so much silence in ms, then the item.

    `pause_ms`: silence before the end, for reasoning that cannot be read. `dictated`: as the scenario wrote it.
    """

    item: Mapping[str, Any]
    start: Mapping[str, Any]
    events: tuple[tuple[int, Event], ...]
    delay_ms: int = 0
    pause_ms: int = 0
    tokens: int = 0
    reasoning: bool = False
    dictated: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """How a response ends: its status, and why it is incomplete."""

    status: str
    reason: str | None


def ending(answer: Answer) -> Ending:
    if answer.stop_reason in _CUT:
        return Ending("incomplete", "max_output_tokens")
    if answer.stop_reason == "refusal" and not answer.parts:
        return Ending("incomplete", "content_filter")
    return Ending("completed", None)


def write_items(answer: Answer, options: Options, issuer: Issuer, prefix: str) -> tuple[Written, ...]:
    """The items in order. `prefix`: digest of the conversation that they answer."""
    writer = _Writer(answer, options, issuer)
    return _sealed(list(writer.write()), options, issuer, prefix)


def compaction(options: Options, issuer: Issuer) -> Written:
    """The item in which the service keeps for itself what it has read so far."""
    seal = CompactionSeal(issuer.ids.make("cmp", Place(new_answer(), 0, None)), options.traits.id, issuer.key)
    item = {"id": seal.id, "type": COMPACTION, "encrypted_content": sealed_compaction(seal, issuer.sealer)}
    start = {**item, "encrypted_content": ""}
    return Written(item, start, ((0, ("response.compaction.compacting", {})),))


class _Writer:
    """Writes the items of one answer; it numbers them on the way. Reasoning is sealed when all are known."""

    def __init__(self, answer: Answer, options: Options, issuer: Issuer) -> None:
        self._answer = answer
        self._options = options
        self._issuer = issuer
        self._id = new_answer()
        self._number = 0
        self._after: int | None = None

    def write(self) -> Iterator[Written]:
        parts = self._answer.parts
        for index, part in enumerate(parts):
            cut = self._answer.stop_reason in _CUT and index == len(parts) - 1
            status = "incomplete" if cut else "completed"
            match part:
                case ThinkingPart() if self._options.thinks:
                    yield self._thinking(part, status)
                case RedactedPart() if self._options.thinks:
                    yield self._reasoning((), status, part.redacted_thinking, part.delay_ms)
                case ThinkingPart() | RedactedPart():
                    continue
                case TextPart():
                    yield self._text(part, status, index)
                case ToolPart():
                    yield self._call(part, status)
                case RawPart():
                    tokens = text_tokens(json.dumps(part.raw, default=str))
                    yield Written(part.raw, part.raw, (), part.delay_ms, tokens=tokens, dictated=True)
                case _:
                    assert_never(part)
        if self._answer.stop_reason == "refusal" and parts:
            yield self._refusal()

    def _thinking(self, part: ThinkingPart, status: str) -> Written:
        shown = self._options.summary and not part.omitted
        # Paragraphs come as parts of their own.
        texts = tuple(text for text in part.readable.split("\n\n") if text) if shown else ()
        pause = 0 if shown else self._pace_ms * len(list(pieces(part.thinking, self._answer.pace.chunk_chars)))
        return replace(self._reasoning(texts, status, part.thinking, part.delay_ms), pause_ms=pause)

    def _reasoning(self, texts: tuple[str, ...], status: str, thought: str, delay_ms: int) -> Written:
        number = self._next()
        self._after = number
        item_id = self._issuer.ids.reasoning(self._id, number)
        summary = [{"type": "summary_text", "text": text} for text in texts]
        item: dict[str, Any] = {"id": item_id, "type": "reasoning", "summary": summary}
        if status == "incomplete":
            item["status"] = status
        events = tuple(event for index, text in enumerate(texts) for event in self._summary_events(index, text, status))
        tokens = text_tokens(thought)
        return Written(item, {**item, "summary": []}, events, delay_ms, tokens=tokens, reasoning=True)

    def _summary_events(self, index: int, text: str, status: str) -> Iterator[tuple[int, Event]]:
        place = {"summary_index": index}
        name = "response.reasoning_summary"
        part = {"type": "summary_text", "text": text}
        yield 0, (f"{name}_part.added", {**place, "part": {**part, "text": ""}})
        yield from self._deltas(f"{name}_text.delta", place, text)
        yield 0, (f"{name}_text.done", {**place, "text": text})
        cut = {"status": status} if status == "incomplete" else {}
        yield 0, (f"{name}_part.done", {**place, "part": part, **cut})

    def _text(self, part: TextPart, status: str, index: int) -> Written:
        content = {"type": "output_text", "annotations": [], "logprobs": [], "text": part.text}
        commentary = any(_calls(later) for later in self._answer.parts[index + 1 :])
        phase = "commentary" if commentary else "final_answer"
        return self._message(content, "text", phase, status, part.delay_ms)

    def _refusal(self) -> Written:
        refusal = self._answer.refusal
        said = (refusal.explanation if refusal else None) or _REFUSED
        return self._message({"type": "refusal", "refusal": said}, "refusal", "final_answer", "completed", 0)

    def _message(self, content: Mapping[str, Any], key: str, phase: str, status: str, delay_ms: int) -> Written:
        item: dict[str, Any] = {"id": self._item_id("msg"), "type": "message", "status": status, "role": "assistant"}
        item["content"] = [content]
        if self._options.traits.phases:
            item["phase"] = phase
        place = {"content_index": 0}
        said = str(content[key])
        name = "output_text" if key == "text" else "refusal"
        more: dict[str, Any] = {"logprobs": []} if key == "text" else {}
        events: list[tuple[int, Event]] = [
            (0, ("response.content_part.added", {**place, "part": {**content, key: ""}})),
            *self._deltas(f"response.{name}.delta", {**place, **more}, said),
            (0, (f"response.{name}.done", {**place, **more, key: said})),
            (0, ("response.content_part.done", {**place, "part": content})),
        ]
        start = {**item, "status": "in_progress", "content": []}
        return Written(item, start, tuple(events), delay_ms, tokens=text_tokens(said))

    def _call(self, part: ToolPart, status: str) -> Written:
        text = part.input_json
        if text is None:
            text = json.dumps(part.input, ensure_ascii=False, separators=(",", ":"), default=str)
        item_id = self._item_id("fc")
        call_id = f"call_{hashlib.sha256(item_id.encode('ascii')).hexdigest()[:24]}"
        head = {"id": item_id, "type": "function_call", "call_id": call_id, "name": part.tool}
        events = [
            *self._deltas("response.function_call_arguments.delta", {}, text),
            (0, ("response.function_call_arguments.done", {"arguments": text})),
        ]
        return Written(
            {**head, "status": status, "arguments": text},
            {**head, "status": "in_progress", "arguments": ""},
            tuple(events),
            part.delay_ms,
            tokens=text_tokens(part.tool + text) + 8,
        )

    def _deltas(self, name: str, place: Mapping[str, Any], text: str) -> Iterator[tuple[int, Event]]:
        for piece in pieces(text, self._answer.pace.chunk_chars):
            yield self._pace_ms, (name, {**place, "delta": piece})

    @property
    def _pace_ms(self) -> int:
        return self._answer.pace.interval_ms

    def _item_id(self, prefix: str) -> str:
        return self._issuer.ids.make(prefix, Place(self._id, self._next(), self._after))

    def _next(self) -> int:
        self._number += 1
        return self._number - 1


def _calls(part: Any) -> bool:
    return isinstance(part, ToolPart) or (isinstance(part, RawPart) and part.raw["type"] in CALLS)


def _sealed(items: list[Written], options: Options, issuer: Issuer, prefix: str) -> tuple[Written, ...]:
    """Reasoning with its encrypted content. From the end on, since a seal knows what follows it."""
    for index in reversed(range(len(items))):
        written = items[index]
        if not written.reasoning:
            continue
        following = items[index + 1].item if index + 1 < len(items) else None
        before = items[index - 1] if index else None
        seal = Seal(
            str(written.item["id"]),
            options.traits.id,
            issuer.key,
            options.end_user,
            prefix,
            summary_digest(written.item),
            str(before.item["id"]) if before is not None and before.reasoning else None,
            _text_or_none(following, "id"),
            None if following is None else mark(following),
            written.tokens,
        )
        encrypted = sealed(seal, issuer.sealer)
        items[index] = replace(
            written,
            item={**written.item, "encrypted_content": encrypted},
            # The service begins to send before all is encrypted; only the finished item has it whole.
            start={**written.start, "encrypted_content": encrypted[: len(encrypted) // 3]},
        )
    return tuple(items)


def _text_or_none(item: Mapping[str, Any] | None, key: str) -> str | None:
    value = item.get(key) if item is not None else None
    return value if isinstance(value, str) else None
