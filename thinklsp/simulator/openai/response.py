"""The response object of the OpenAI service: its events, and its usage with what the prompt cache already holds.

Figures are estimates, but steady ones. The service caches whole prefixes by itself, in steps of 128 tokens once a
prompt has 1024.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thinklsp.simulator.dialect import Frame, Send, pause, send_event
from thinklsp.simulator.openai.answer import Ending, Written
from thinklsp.simulator.openai.errors import type_and_code
from thinklsp.simulator.openai.items import Conversation, kind, side, still_read
from thinklsp.simulator.openai.options import Options
from thinklsp.simulator.openai.replay import Replay, bare
from thinklsp.simulator.openai.tools import echoed_tools
from thinklsp.simulator.scenario import UsageOverride
from thinklsp.simulator.state import InputUsage, Item, chain_items, text_tokens

CACHE_MINIMUM = 1024
_STEP = 128
_IMAGE_TOKENS = 1200
# The service promises half an hour and may keep a prefix for longer.
_LIFETIME = "1h"
# The service knows no ping; a comment keeps a connection alive and is no event to anybody.
PING = b": keep-alive\n\n"


def list_cache_items(
    body: Mapping[str, Any], conversation: Conversation, options: Options, replay: Replay
) -> tuple[Item, ...]:
    """Return the request as cacheable units, in the order in which the model reads it."""
    units = _units(body, conversation, options, replay)
    return chain_items("", ((content, tokens, _LIFETIME if kept else None) for content, tokens, kept in units))


def figures(spent: InputUsage, output: int, reasoning: int, given: UsageOverride, options: Options) -> dict[str, Any]:
    """The usage of a response. Scripted figures replace estimated ones."""
    whole = spent.total if given.input_tokens is None else given.input_tokens
    cached = spent.read // _STEP * _STEP if given.cache_read_tokens is None else given.cache_read_tokens
    written = sum(spent.written.values()) if options.traits.reports_writes else 0
    written = written if given.cache_write_tokens is None else given.cache_write_tokens
    output = output if given.output_tokens is None else given.output_tokens
    reasoning = min(reasoning, output) if given.thinking_tokens is None else given.thinking_tokens
    return {
        "input_tokens": whole,
        "input_tokens_details": {"cached_tokens": min(cached, whole), "cache_write_tokens": written},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": whole + output,
    }


def _units(
    body: Mapping[str, Any], conversation: Conversation, options: Options, replay: Replay
) -> Iterator[tuple[str, int, bool]]:
    """Content, tokens, and whether the prompt may be cached up to there."""
    effort, key, form = options.effort, body.get("prompt_cache_key"), body.get("text")
    opening = json.dumps([options.traits.id, effort, key, form])
    implicit = options.caches
    for tool in body.get("tools") or ():
        yield opening + json.dumps(tool), _tokens(tool), implicit
    instructions = body.get("instructions")
    told = (f"instructions {instructions}", text_tokens(instructions) + 3) if instructions else None
    if told is not None and not options.traits.bound:
        yield opening + told[0], told[1], implicit
    begins = still_read(conversation.items)
    for index, item in enumerate(conversation.items):
        if index < begins and side(item) != "frame":
            continue
        if kind(item) == "reasoning":
            if index in replay.tokens:
                yield f"reasoning {item.get('encrypted_content') or item.get('id')}", replay.tokens[index], implicit
            continue
        yield opening + json.dumps(bare(item)), _tokens(bare(item)), implicit or _breaks(item)
    if told is not None and options.traits.bound:
        # The newest models read the instructions of a turn behind everything else.
        yield told[0], told[1], False


def _tokens(value: Mapping[str, Any]) -> int:
    content = value.get("content")
    if not isinstance(content, list):
        return 3 + text_tokens(json.dumps(value, ensure_ascii=False))
    rest = [part for part in content if not (isinstance(part, dict) and part.get("type") == "input_image")]
    counted = text_tokens(json.dumps({**value, "content": rest}, ensure_ascii=False))
    return 3 + counted + _IMAGE_TOKENS * (len(content) - len(rest))


def _breaks(item: Mapping[str, Any]) -> bool:
    content = item.get("content")
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("prompt_cache_breakpoint") for part in content
    )


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer. `head`: what the response object says from the first event on."""

    head: Mapping[str, Any]
    items: tuple[Written, ...]
    ending: Ending
    usage: Mapping[str, Any]
    obfuscates: bool

    @property
    def output(self) -> list[Mapping[str, Any]]:
        return [written.item for written in self.items]


def response_head(
    response_id: str, created: int, body: Mapping[str, Any], options: Options, dropped: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """Everything that is known before the model answers; settings are told as they are in effect."""
    reasoning = {"effort": options.effort, "summary": None, **(body.get("reasoning") or {})}
    head: dict[str, Any] = {
        "id": response_id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "metadata": body.get("metadata") or {},
        "model": body["model"],
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {**reasoning, "effort": options.effort},
        "safety_identifier": body.get("safety_identifier"),
        "service_tier": "default",
        "store": options.store,
        "temperature": 1.0 if body.get("temperature") is None else body["temperature"],
        "text": {"format": {"type": "text"}, "verbosity": "medium", **(body.get("text") or {})},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": echoed_tools(body.get("tools")),
        "top_logprobs": body.get("top_logprobs") or 0,
        "top_p": 1.0 if body.get("top_p") is None else body["top_p"],
        "truncation": body.get("truncation") or "disabled",
        "usage": None,
        "user": body.get("user"),
    }
    if options.traits.bound:
        head["input_transformations"] = list(dropped)
    return head


def as_json(response: Response) -> dict[str, Any]:
    """The finished response: the answer to a request without `stream`, and what the last event carries."""
    ending = response.ending
    done = {"completed_at": response.head["created_at"]} if ending.status == "completed" else {}
    details = {"reason": ending.reason} if ending.reason else None
    changes = {"status": ending.status, "incomplete_details": details, "output": response.output}
    return {**response.head, **done, **changes, "usage": response.usage}


def as_frames(response: Response) -> Iterator[Frame]:
    stream = _Stream(obfuscates=response.obfuscates)
    yield stream.event("response.created", response=response.head)
    yield stream.event("response.in_progress", response=response.head)
    for index, written in enumerate(response.items):
        yield from pause(written.delay_ms)
        yield stream.event("response.output_item.added", output_index=index, item=written.start)
        for silence, (name, payload) in written.events:
            yield from pause(silence)
            yield stream.event(name, item_id=written.item["id"], output_index=index, **payload)
        yield from pause(written.pause_ms)
        yield stream.event("response.output_item.done", output_index=index, item=written.item)
    yield stream.event(f"response.{response.ending.status}", response=as_json(response))


def error_event(name: str, message: str, sequence_number: int) -> bytes:
    """The flat form of an error in mid-stream. `name`: a scenario's name for it."""
    kind, code = type_and_code(name)
    stream = _Stream(obfuscates=False, begins=sequence_number)
    return stream.event("error", code=code or kind, message=message, param=None).data


class _Stream:
    """Numbers the events of one stream."""

    def __init__(self, *, obfuscates: bool, begins: int = 0) -> None:
        self._obfuscates = obfuscates
        self._number = begins

    def event(self, name: str, **payload: Any) -> Send:
        value = {"type": name, "sequence_number": self._number, **payload}
        self._number += 1
        if self._obfuscates and name.endswith(".delta"):
            value["obfuscation"] = _padding(str(payload["delta"]))
        return send_event(value, name)


def _padding(delta: str) -> str:
    """Random letters that bring all deltas to a length of sixteen or its multiple."""
    return secrets.token_hex(16)[: 16 - len(delta) % 16]
