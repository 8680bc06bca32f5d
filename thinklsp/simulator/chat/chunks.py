"""A written answer on the wire: chunks of a stream in a server's habits, the whole object, and errors in mid-stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from thinklsp.simulator.chat.answer import Asked, Delta, Message
from thinklsp.simulator.chat.flavours import Failure, error_value
from thinklsp.simulator.dialect import Frame, Send, encode_json, pause, send_event

_DONE = b"data: [DONE]\n\n"
# What the vendors behind the router say themselves.
_NATIVE: Mapping[str, Mapping[str, str]] = {
    "anthropic": {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"},
    "google": {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"},
    "openai": {"stop": "completed", "tool_calls": "completed", "length": "max_output_tokens"},
}


def as_json(message: Message) -> dict[str, Any]:
    """The answer to a request without `stream`."""
    choice = {"index": 0, "message": message.value, "logprobs": None, **_ending(message)}
    head = {**_head(message.asked), "object": "chat.completion"}
    return {**head, "choices": [choice], "usage": message.usage, **_timings(message)}


def as_frames(message: Message) -> Iterator[Frame]:
    asked = message.asked
    flavour = asked.flavour
    if flavour.details:
        yield Send(flavour.comment, counted=False)
    if not flavour.named_chunks:
        yield _chunk(asked, {"role": "assistant", "content": flavour.first_content}, **_running(message, 0))
    for number, delta in enumerate(message.deltas):
        yield from pause(delta.wait_ms)
        if delta.value is not None:
            yield _chunk(asked, _dressed(delta, asked), **_running(message, number + 1))
    told = asked.options.include_usage
    closing = {"usage": message.usage} if told and flavour.usage_on != "own_chunk" else {}
    last = _named({}) if flavour.details else {}
    yield _chunk(asked, last, ending=_ending(message), **closing, **_timings(message))
    if told and flavour.usage_on == "own_chunk":
        yield send_event({**_head(asked), "choices": [], "usage": message.usage, **_timings(message)})
    yield Send(_DONE)


def broken(asked: Asked, told: Failure) -> bytes:
    """The bytes by which a stream that began well tells of an error, or does not."""
    error = error_value(told, asked.flavour.envelope)
    match asked.flavour.broken:
        case "data":
            return send_event({"error": error}).data
        case "event":
            return send_event({"error": error}, "error").data
        case "text":
            return send_event({"error": told.message}).data
        case "line":
            return b"error: " + encode_json(error) + b"\n\n"
        case "choices":
            told_inside = {**error, "metadata": {"error_type": told.kind}}
            ending = {"finish_reason": "error", "native_finish_reason": None}
            return _chunk(asked, {"content": ""}, ending=ending, error=told_inside).data
        case "silence":
            return _chunk(asked, _named({})).data
        case _:
            assert_never(asked.flavour.broken)


def _dressed(delta: Delta, asked: Asked) -> Mapping[str, Any]:
    value = delta.value or {}
    return _named(value) if asked.flavour.named_chunks and not delta.as_it_stands else value


def _named(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"role": "assistant", "content": "", **value}


def _chunk(asked: Asked, delta: Mapping[str, Any], *, ending: Mapping[str, Any] | None = None, **more: Any) -> Send:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **(ending or {})}
    return send_event({**_head(asked), "choices": [choice], **more})


def _head(asked: Asked) -> dict[str, Any]:
    flavour = asked.flavour
    prefix = "gen-" if flavour.details else "chatcmpl-"
    head: dict[str, Any] = {
        "id": prefix + asked.answer_id,
        "object": "chat.completion.chunk",
        "created": asked.created,
        "model": asked.owner.model,
    }
    if flavour.fingerprint is not None:
        head["system_fingerprint"] = flavour.fingerprint
    if flavour.details:
        head["provider"] = asked.owner.vendor
    return head


def _ending(message: Message) -> dict[str, Any]:
    ending: dict[str, Any] = {"finish_reason": message.finish}
    if message.asked.flavour.details:
        native = _NATIVE.get(message.asked.owner.vendor, {})
        ending["native_finish_reason"] = native.get(message.finish, message.finish)
    return ending


def _running(message: Message, pieces: int) -> dict[str, Any]:
    """Usage so far, for servers that tell it with every chunk."""
    asked = message.asked
    if asked.flavour.usage_on != "every" or not asked.options.include_usage:
        return {}
    prompt = message.usage["prompt_tokens"]
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": pieces, "total_tokens": prompt + pieces}}


def _timings(message: Message) -> dict[str, Any]:
    if message.asked.flavour.envelope != "llama.cpp":
        return {}
    prompt, predicted = message.usage["prompt_tokens"], message.usage["completion_tokens"]
    cached = message.usage["prompt_tokens_details"]["cached_tokens"]
    counts = {"cache_n": cached, "prompt_n": max(prompt - cached, 0), "predicted_n": predicted}
    return {"timings": {**counts, "prompt_ms": 1.0 + prompt, "predicted_ms": 1.0 + 10 * predicted}}
