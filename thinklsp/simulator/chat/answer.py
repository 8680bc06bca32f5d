"""A scripted answer as one assistant message and as the deltas that stream it, in a server's habits.

Pure but for the sealer's secret. How deltas become chunks and events stands in `chunks`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from thinklsp.simulator.chat.flavours import Flavour
from thinklsp.simulator.chat.options import Options
from thinklsp.simulator.chat.replay import Detail, Owner, Thought, seal_details
from thinklsp.simulator.dialect import pieces
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
from thinklsp.simulator.state import InputUsage, Sealer, text_tokens

_FINISH: Mapping[StopReason, str] = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "context_window": "length",
    "refusal": "content_filter",
}
_SEALED_AS = {"reasoning.text": "signature", "reasoning.encrypted": "data"}
_USD_PER_TOKEN = 2e-6


@dataclass(frozen=True, slots=True)
class Asked:
    """What shapes the answer, taken from the request. `created` in seconds since 1970."""

    owner: Owner
    flavour: Flavour
    options: Options
    answer_id: str
    created: int


@dataclass(frozen=True, slots=True)
class Delta:
    """One piece of the message and the silence before it in ms; without `value` it is only silence.

    `as_it_stands`: the scenario's own words, to which a server's habits add nothing.
    """

    value: Mapping[str, Any] | None
    wait_ms: int
    as_it_stands: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A complete answer. `reasoning`: the readable thinking as it was delivered; `finish` as the server tells it."""

    asked: Asked
    deltas: tuple[Delta, ...]
    value: Mapping[str, Any]
    finish: str
    stop_reason: StopReason
    usage: Mapping[str, Any]
    reasoning: str
    calls: tuple[str, ...]


def write_message(answer: Answer, asked: Asked, spent: InputUsage, sealer: Sealer) -> Message:
    writer = _Writer(asked, answer, sealer)
    deltas = tuple(writer.write())
    flavour = asked.flavour
    lies = flavour.lies_about_calls and answer.stop_reason == "tool_use"
    return Message(
        asked,
        deltas,
        writer.message(),
        "stop" if lies else _FINISH.get(answer.stop_reason, "stop"),
        answer.stop_reason,
        _usage(flavour, spent, writer.tokens + 2, writer.thinking_tokens, answer.usage),
        writer.reasoning,
        tuple(call["id"] for call in writer.calls),
    )


class _Writer:
    """Writes the deltas of one answer and gathers on the way what a client that needs no stream gets."""

    def __init__(self, asked: Asked, answer: Answer, sealer: Sealer) -> None:
        self._asked = asked
        self._flavour = asked.flavour
        self._answer = answer
        self._details = self._seal_all(sealer)
        self._content = ""
        self._raws: list[Mapping[str, Any]] = []
        self.reasoning = ""
        self.calls: list[dict[str, Any]] = []
        self.tokens = 0
        self.thinking_tokens = 0

    def write(self) -> Iterator[Delta]:
        for number, part in enumerate(self._answer.parts):
            if part.delay_ms:
                yield Delta(None, part.delay_ms)
            match part:
                case ThinkingPart() | RedactedPart():
                    if self._asked.options.thinks:
                        yield from self._thinking(part, self._details.get(number, ()))
                case TextPart():
                    self._count(part.text)
                    yield from self._text(part.text)
                case ToolPart():
                    yield from self._tool(part)
                case RawPart():
                    self._count(json.dumps(part.raw, default=str))
                    self._raws.append(part.raw)
                    yield Delta(part.raw, self._pause, as_it_stands=True)
                case _:
                    assert_never(part)
        if self._answer.stop_reason == "refusal" and self._explanation:
            yield Delta({"refusal": self._explanation}, self._pause)

    def message(self) -> Mapping[str, Any]:
        empty = "" if self._flavour.named_chunks or self._flavour.name == "deepseek" else None
        message: dict[str, Any] = {"role": "assistant", "content": self._content or empty}
        if self.reasoning and self._flavour.reasoning is not None:
            message[self._flavour.reasoning] = self.reasoning
        details = [entry for entries in self._details.values() for entry in entries]
        if details and self._asked.options.shown == "field":
            message["reasoning_details"] = details
        if self.calls:
            message["tool_calls"] = self.calls
        if self._answer.stop_reason == "refusal":
            message["refusal"] = self._explanation
        for raw in self._raws:
            _merge(message, raw)
        return message

    @property
    def _pause(self) -> int:
        return self._answer.pace.interval_ms

    @property
    def _explanation(self) -> str | None:
        return self._answer.refusal.explanation if self._answer.refusal else None

    def _seal_all(self, sealer: Sealer) -> Mapping[int, Sequence[Detail]]:
        """Finished entries by the place of their part; they are sealed together, so before the first one streams."""
        if not self._flavour.details or not self._asked.options.thinks:
            return {}
        numbers: list[int] = []
        thoughts: list[Thought] = []
        for number, part in enumerate(self._answer.parts):
            if isinstance(part, ThinkingPart):
                thoughts.append(Thought(part.thinking, _readable(part)))
            elif isinstance(part, RedactedPart):
                thoughts.append(Thought(part.redacted_thinking, None, encrypted=True))
            else:
                continue
            numbers.append(number)
        sealed = seal_details(thoughts, self._asked.owner, self._asked.answer_id, sealer)
        return dict(zip(numbers, sealed, strict=True))

    def _thinking(self, part: ThinkingPart | RedactedPart, details: Sequence[Detail]) -> Iterator[Delta]:
        thought = part.thinking if isinstance(part, ThinkingPart) else part.redacted_thinking
        shown = _readable(part) if isinstance(part, ThinkingPart) else None
        self._count(thought)
        self.thinking_tokens += text_tokens(thought)
        if shown is None or self._asked.options.shown == "nowhere":
            # Thinking that is not shown takes as long as if it were.
            yield Delta(None, self._pause * len(list(self._pieces(thought))))
            shown = None
        if self._flavour.details:
            if self._asked.options.shown == "field":
                yield from self._detailed(shown, details)
        elif shown:
            yield from self._readable_thinking(shown)

    def _readable_thinking(self, shown: str) -> Iterator[Delta]:
        where, field = self._asked.options.shown, self._flavour.reasoning
        if where in ("field", "both") and field is not None:
            self.reasoning += shown
            for piece in self._pieces(shown):
                yield Delta({field: piece}, self._pause)
        if where in ("content", "both"):
            yield from self._text(f"<think>{shown}</think>\n\n")

    def _detailed(self, shown: str | None, details: Sequence[Detail]) -> Iterator[Delta]:
        """Each entry as the deltas that a client must put together again, beside the plain text."""
        for entry in details:
            name = _SEALED_AS.get(str(entry["type"]))
            bare = {key: value for key, value in entry.items() if key not in ("text", "summary", "signature", "data")}
            text_name = next((key for key in ("text", "summary") if key in entry), None)
            if text_name is not None and shown:
                self.reasoning += shown
                for piece in self._pieces(shown):
                    yield Delta({"reasoning": piece, "reasoning_details": [{**bare, text_name: piece}]}, self._pause)
            if name is not None and name in entry:
                yield Delta({"reasoning": None, "reasoning_details": [{**bare, name: entry[name]}]}, 0)

    def _text(self, text: str) -> Iterator[Delta]:
        self._content += text
        for piece in self._pieces(text):
            yield Delta({"content": piece}, self._pause)

    def _tool(self, part: ToolPart) -> Iterator[Delta]:
        text = part.input_json
        if text is None:
            text = json.dumps(part.input, ensure_ascii=False, default=str)
        self._count(part.tool + text)
        number = len(self.calls)
        function = {"name": part.tool, "arguments": text}
        call = {"id": self._call_id(number), "type": "function", "function": function}
        self.calls.append(call)
        for value in self._call_deltas(call, number, text):
            yield Delta({"tool_calls": [value]}, self._pause)

    def _call_deltas(self, call: Mapping[str, Any], number: int, text: str) -> Iterator[Mapping[str, Any]]:
        name = call["function"]["name"]
        match self._flavour.calls:
            case "whole":
                yield {"index": number, **call}
            case "repeated":
                for piece in ("", *self._pieces(text)):
                    yield {"index": 0, **call, "function": {"name": name, "arguments": piece}}
            case "opened" | "unnumbered" as habit:
                index = {} if habit == "unnumbered" else {"index": number}
                yield {**index, **call, "function": {"name": name, "arguments": ""}}
                for piece in self._pieces(text):
                    yield {**index, "function": {"arguments": piece}}
            case _:
                assert_never(self._flavour.calls)

    def _call_id(self, number: int) -> str:
        digest = hashlib.sha256(f"{self._asked.answer_id} {number}".encode("ascii")).hexdigest()
        match self._flavour.call_ids:
            case "call":
                return f"call_{digest[:24]}"
            case "numbered":
                return f"call_{number:02}_{digest[:20]}"
            case "plain":
                return digest[:32]
            case "figures":
                return str(10**8 + int(digest[:12], 16) % (9 * 10**8))
            case _:
                assert_never(self._flavour.call_ids)

    def _pieces(self, text: str) -> Iterator[str]:
        return pieces(text, self._answer.pace.chunk_chars)

    def _count(self, text: str) -> None:
        self.tokens += text_tokens(text)


def _readable(part: ThinkingPart) -> str | None:
    return None if part.omitted else part.readable


def _merge(message: dict[str, Any], raw: Mapping[str, Any]) -> None:
    """A raw delta in an answer without a stream: texts and lists go on, anything else is set."""
    for key, value in raw.items():
        before = message.get(key)
        if isinstance(before, str) and isinstance(value, str) and key != "role":
            message[key] = before + value
        elif isinstance(before, list) and isinstance(value, list):
            message[key] = [*before, *value]
        else:
            message[key] = value


def _usage(flavour: Flavour, spent: InputUsage, output: int, thinking: int, given: UsageOverride) -> dict[str, Any]:
    """The figures that this server tells; scripted ones replace estimates."""
    prompt = spent.total if given.input_tokens is None else given.input_tokens
    completion = output if given.output_tokens is None else given.output_tokens
    cached = min(spent.read, prompt) if given.cache_read_tokens is None else given.cache_read_tokens
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if flavour.counts_cached:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
        if given.cache_write_tokens is not None and flavour.details:
            usage["prompt_tokens_details"]["cache_write_tokens"] = given.cache_write_tokens
    if flavour.counts_thinking:
        thinking = thinking if given.thinking_tokens is None else given.thinking_tokens
        usage["completion_tokens_details"] = {"reasoning_tokens": thinking}
    if flavour.name == "deepseek":
        usage |= {"prompt_cache_hit_tokens": cached, "prompt_cache_miss_tokens": max(prompt - cached, 0)}
    if flavour.details:
        usage["cost"] = round((prompt + completion) * _USD_PER_TOKEN, 8)
    return usage
