"""Functions that convert a scripted answer to a Chat Completions message or its stream chunks."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from tests.stand_ins.chat.flavours import ChatOptions, Flavour, build_error_value
from tests.stand_ins.chat.replay import ReasoningDetail, ReasoningOwner, sign_details
from tests.stand_ins.dialect import Frame, SendBytes, encode_json, pause, send_event
from tests.stand_ins.rejections import RequestRejected
from tests.stand_ins.service_state import AnswerUsage, InputUsage, StateSigner, compute_usage, estimate_tokens
from tests.stand_ins.writer import AnswerWriter
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
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "context_window": "length",
    "refusal": "content_filter",
}
# Maps common finish reasons to each vendor's own finish reasons. OpenRouter sends both of them.
_NATIVE_FINISH_REASONS: Mapping[str, Mapping[str, str]] = {
    "anthropic": {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"},
    "google": {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"},
    "openai": {"stop": "completed", "tool_calls": "completed", "length": "max_output_tokens"},
}
_SIGNATURE_KEYS = {"reasoning.text": "signature", "reasoning.encrypted": "data"}
_USD_PER_TOKEN = 2e-6
# A pause in milliseconds and the piece of the message that follows it. The piece is None for a pause alone.
TimedDelta = tuple[int, Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class ChatAnswerContext:
    """The properties of a request that affect its answer. `created` is a Unix time in seconds."""

    owner: ReasoningOwner
    flavour: Flavour
    options: ChatOptions
    answer_id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    """A complete answer. `reasoning` is the readable thinking, and `finish_reason` is sent to the client."""

    context: ChatAnswerContext
    deltas: tuple[TimedDelta, ...]
    value: Mapping[str, Any]
    finish_reason: str
    usage: Mapping[str, Any]
    reasoning: str
    calls: tuple[str, ...]


def write_message(
    answer: ScenarioStep, context: ChatAnswerContext, input_usage: InputUsage, signer: StateSigner
) -> ChatCompletion:
    writer = _Writer(context, answer, signer)
    deltas = tuple(writer.write())
    flavour = context.flavour
    lies = flavour.lies_about_calls and answer.stop_reason == "tool_use"
    return ChatCompletion(
        context,
        deltas,
        writer.build_message(),
        "stop" if lies else _FINISH_REASONS.get(answer.stop_reason, "stop"),
        _build_usage(
            flavour, compute_usage(input_usage, writer.tokens + 2, writer.thinking_tokens, answer.usage), answer
        ),
        writer.reasoning,
        tuple(call["id"] for call in writer.calls),
    )


class _Writer(AnswerWriter[TimedDelta]):
    """A writer that builds the stream deltas of an answer, and the complete message for a request without streaming."""

    def __init__(self, context: ChatAnswerContext, answer: ScenarioStep, signer: StateSigner) -> None:
        super().__init__(answer, thinks=context.options.thinks)
        self._context = context
        self._flavour = context.flavour
        self._details = self._sign_details(signer)
        self._content = ""
        self._raws: list[Mapping[str, Any]] = []
        self.reasoning = ""
        self.calls: list[dict[str, Any]] = []
        self.tokens = 0
        self.thinking_tokens = 0

    def write(self) -> Iterator[TimedDelta]:
        yield from super().write()
        if self._answer.stop_reason == "refusal" and self._answer.explanation:
            yield self._build_delta({"refusal": self._answer.explanation})

    def build_message(self) -> Mapping[str, Any]:
        empty = "" if self._flavour.named_chunks or self._flavour.name == "deepseek" else None
        message: dict[str, Any] = {"role": "assistant", "content": self._content or empty}
        if self.reasoning:
            message[self._flavour.reasoning] = self.reasoning
        details = [entry for entries in self._details.values() for entry in entries]
        if details and self._context.options.placement == "field":
            message["reasoning_details"] = details
        if self.calls:
            message["tool_calls"] = self.calls
        if self._answer.stop_reason == "refusal":
            message["refusal"] = self._answer.explanation
        for raw in self._raws:
            _merge_delta(message, raw)
        return message

    def _sign_details(self, signer: StateSigner) -> Mapping[int, Sequence[ReasoningDetail]]:
        """Map the index of each thinking part to its signed `reasoning_details` entries."""
        if not self._flavour.details or not self._thinks:
            return {}
        parts = enumerate(self._answer.parts)
        thoughts = {number: part for number, part in parts if isinstance(part, ThinkingPart | RedactedPart)}
        details = sign_details(list(thoughts.values()), self._context.owner, self._context.answer_id, signer)
        return dict(zip(thoughts, details, strict=True))

    def _write_thinking(self, part: ThinkingPart | RedactedPart, number: int) -> Iterator[TimedDelta]:
        yield part.delay_ms, None
        thought, shown = part.thought, part.readable_text
        self._count_tokens(thought)
        self.thinking_tokens += estimate_tokens(thought)
        if shown is None or self._context.options.placement == "nowhere":
            # Hidden thinking takes as long as readable thinking.
            yield self._interval_ms * len(self._split(thought)), None
            shown = None
        if self._flavour.details:
            if self._context.options.placement == "field":
                yield from self._write_details(shown, self._details[number])
        elif shown:
            yield from self._write_readable(shown)

    def _write_readable(self, readable: str) -> Iterator[TimedDelta]:
        placement = self._context.options.placement
        if placement in ("field", "both"):
            self.reasoning += readable
            for piece in self._split(readable):
                yield self._build_delta({self._flavour.reasoning: piece})
        if placement in ("content", "both"):
            yield from self._write_content(f"<think>{readable}</think>\n\n")

    def _write_details(self, readable: str | None, details: Sequence[ReasoningDetail]) -> Iterator[TimedDelta]:
        """Yield the deltas of `reasoning_details` entries. Readable thinking is also sent in the field `reasoning`."""
        for entry in details:
            name = _SIGNATURE_KEYS.get(str(entry["type"]))
            bare = {key: value for key, value in entry.items() if key not in ("text", "summary", "signature", "data")}
            text_name = next((key for key in ("text", "summary") if key in entry), None)
            if text_name is not None and readable:
                self.reasoning += readable
                for piece in self._split(readable):
                    yield self._build_delta({"reasoning": piece, "reasoning_details": [{**bare, text_name: piece}]})
            if name is not None and name in entry:
                signature = {"reasoning": None, "reasoning_details": [{**bare, name: entry[name]}]}
                yield 0, _add_role(signature, self._flavour)

    def _write_text(self, part: TextPart, number: int) -> Iterator[TimedDelta]:
        yield part.delay_ms, None
        self._count_tokens(part.text)
        yield from self._write_content(part.text)

    def _write_content(self, text: str) -> Iterator[TimedDelta]:
        self._content += text
        for piece in self._split(text):
            yield self._build_delta({"content": piece})

    def _write_tool_call(self, part: ToolPart, number: int) -> Iterator[TimedDelta]:
        yield part.delay_ms, None
        text = part.format_arguments()
        self._count_tokens(part.tool + text)
        number = len(self.calls)
        function = {"name": part.tool, "arguments": text}
        call = {"id": self._create_call_id(number), "type": "function", "function": function}
        self.calls.append(call)
        for value in self._split_tool_call(call, number, text):
            yield self._build_delta({"tool_calls": [value]})

    def _split_tool_call(self, call: Mapping[str, Any], number: int, text: str) -> Iterator[Mapping[str, Any]]:
        name = call["function"]["name"]
        match self._flavour.calls:
            case "whole":
                yield {"index": number, **call}
            case "repeated":
                for piece in ("", *self._split(text)):
                    yield {"index": 0, **call, "function": {"name": name, "arguments": piece}}
            case "opened" | "unnumbered" as habit:
                index = {} if habit == "unnumbered" else {"index": number}
                yield {**index, **call, "function": {"name": name, "arguments": ""}}
                for piece in self._split(text):
                    yield {**index, "function": {"arguments": piece}}
            case _:
                assert_never(self._flavour.calls)

    def _create_call_id(self, number: int) -> str:
        digest = hashlib.sha256(f"{self._context.answer_id} {number}".encode("ascii")).hexdigest()
        figures = 10**8 + int(digest[:12], 16) % (9 * 10**8)
        return self._flavour.call_ids.format(number=number, digest=digest, figures=figures)

    def _write_raw(self, part: RawPart) -> Iterator[TimedDelta]:
        self._count_tokens(json.dumps(part.raw, default=str))
        self._raws.append(part.raw)
        # Send raw blocks from the scenario unchanged, without adding any fields.
        yield part.delay_ms + self._interval_ms, part.raw

    def _build_delta(self, value: Mapping[str, Any]) -> TimedDelta:
        return self._interval_ms, _add_role(value, self._flavour)

    def _count_tokens(self, text: str) -> None:
        self.tokens += estimate_tokens(text)


def build_completion_json(message: ChatCompletion) -> dict[str, Any]:
    """Return the answer's JSON for a request without streaming."""
    choice = {"index": 0, "message": message.value, "logprobs": None, **_build_ending(message)}
    head = {**_build_head(message.context), "object": "chat.completion"}
    return {**head, "choices": [choice], "usage": message.usage, **_build_timings(message)}


def stream_completion(message: ChatCompletion) -> Iterator[Frame]:
    context = message.context
    flavour = context.flavour
    if flavour.details:
        yield SendBytes(flavour.comment, is_counted=False)
    if not flavour.named_chunks:
        content = None if flavour.opens_with_null else ""
        yield _build_chunk(context, {"role": "assistant", "content": content}, **_build_running_usage(message, 0))
    count = 0
    for silence, value in message.deltas:
        yield from pause(silence)
        if value is not None:
            count += 1
            yield _build_chunk(context, value, **_build_running_usage(message, count))
    include_usage = context.options.include_usage
    closing = {"usage": message.usage} if include_usage and flavour.usage_on != "own_chunk" else {}
    last = _add_role({}, flavour) if flavour.details else {}
    yield _build_chunk(context, last, ending=_build_ending(message), **closing, **_build_timings(message))
    if include_usage and flavour.usage_on == "own_chunk":
        yield send_event({**_build_head(context), "choices": [], "usage": message.usage, **_build_timings(message)})
    yield SendBytes(b"data: [DONE]\n\n")


def encode_stream_error(context: ChatAnswerContext, rejection: RequestRejected) -> bytes:
    """Encode an error inside a stream in the server's format. Some servers send an empty chunk instead."""
    error = build_error_value(rejection, context.flavour.envelope)
    match context.flavour.broken:
        case "data":
            return send_event({"error": error}).data
        case "event":
            return send_event({"error": error}, "error").data
        case "text":
            return send_event({"error": str(rejection)}).data
        case "line":
            return b"error: " + encode_json(error) + b"\n\n"
        case "choices":
            chunk_error = {**error, "metadata": {"error_type": rejection.kind}}
            ending = {"finish_reason": "error", "native_finish_reason": None}
            return _build_chunk(context, {"content": ""}, ending=ending, error=chunk_error).data
        case "silence":
            return _build_chunk(context, _add_role({}, context.flavour)).data
        case _:
            assert_never(context.flavour.broken)


def _add_role(value: Mapping[str, Any], flavour: Flavour) -> Mapping[str, Any]:
    return {"role": "assistant", "content": "", **value} if flavour.named_chunks else value


def _build_chunk(
    context: ChatAnswerContext, delta: Mapping[str, Any], *, ending: Mapping[str, Any] | None = None, **more: Any
) -> SendBytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **(ending or {})}
    return send_event({**_build_head(context), "choices": [choice], **more})


def _build_head(context: ChatAnswerContext) -> dict[str, Any]:
    flavour = context.flavour
    own = {"system_fingerprint": flavour.fingerprint, "provider": context.owner.vendor if flavour.details else None}
    return {
        "id": ("gen-" if flavour.details else "chatcmpl-") + context.answer_id,
        "object": "chat.completion.chunk",
        "created": context.created,
        "model": context.owner.model,
        **{key: value for key, value in own.items() if value is not None},
    }


def _build_ending(message: ChatCompletion) -> dict[str, Any]:
    ending: dict[str, Any] = {"finish_reason": message.finish_reason}
    if message.context.flavour.details:
        native = _NATIVE_FINISH_REASONS.get(message.context.owner.vendor, {})
        ending["native_finish_reason"] = native.get(message.finish_reason, message.finish_reason)
    return ending


def _build_running_usage(message: ChatCompletion, pieces: int) -> dict[str, Any]:
    """Return the usage so far, if this kind of server sends usage with every chunk."""
    context = message.context
    if context.flavour.usage_on != "every" or not context.options.include_usage:
        return {}
    prompt = message.usage["prompt_tokens"]
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": pieces, "total_tokens": prompt + pieces}}


def _build_timings(message: ChatCompletion) -> dict[str, Any]:
    if message.context.flavour.envelope != "llama.cpp":
        return {}
    prompt, predicted = message.usage["prompt_tokens"], message.usage["completion_tokens"]
    cached = message.usage["prompt_tokens_details"]["cached_tokens"]
    counts = {"cache_n": cached, "prompt_n": max(prompt - cached, 0), "predicted_n": predicted}
    return {"timings": {**counts, "prompt_ms": 1.0 + prompt, "predicted_ms": 1.0 + 10 * predicted}}


def _merge_delta(message: dict[str, Any], raw: Mapping[str, Any]) -> None:
    """Merge a raw delta into a message. Strings and lists are appended, and other values are replaced."""
    for key, value in raw.items():
        before = message.get(key)
        if isinstance(before, str) and isinstance(value, str) and key != "role":
            message[key] = before + value
        elif isinstance(before, list) and isinstance(value, list):
            message[key] = [*before, *value]
        else:
            message[key] = value


def _build_usage(flavour: Flavour, figures: AnswerUsage, answer: ScenarioStep) -> dict[str, Any]:
    prompt, total = figures.input, figures.input + figures.output
    cached = min(figures.cache_read, prompt)
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": figures.output, "total_tokens": total}
    if flavour.counts_cached:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
        if flavour.details and answer.usage.cache_write_tokens is not None:
            usage["prompt_tokens_details"]["cache_write_tokens"] = answer.usage.cache_write_tokens
    if flavour.counts_thinking:
        usage["completion_tokens_details"] = {"reasoning_tokens": figures.thinking}
    if flavour.name == "deepseek":
        usage |= {"prompt_cache_hit_tokens": cached, "prompt_cache_miss_tokens": prompt - cached}
    if flavour.details:
        usage["cost"] = round(total * _USD_PER_TOKEN, 8)
    return usage
