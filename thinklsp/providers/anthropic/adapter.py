"""The adapter for the Messages API: our requests to its wire form. Its stream and failures have modules of their own.

Equal requests give equal bytes: no clock, no chance, keys in a fixed order; mappings keep the order they came in,
since models read schemas and their own arguments in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, assert_never
from urllib.parse import quote

from thinklsp.core.choices import EFFORTS
from thinklsp.core.errors import ProviderError
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    Message,
    OpaqueBlock,
    Origin,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.anthropic.errors import failure_of_answer
from thinklsp.providers.anthropic.stream import AnthropicDecoder
from thinklsp.providers.base import Endpoint, HttpRequest, ModelRequest, StreamDecoder, Thinking
from thinklsp.providers.capabilities import FORMS, Capabilities, at, count
from thinklsp.providers.service_errors import json_object
from thinklsp.providers.written import WrittenParts, extended, written

_VERSION = "2023-06-01"
_OAUTH_BETA = "oauth-2025-04-20"
_INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_COUNTS_BETA = "thinking-token-count-2026-05-13"
# Gateways pass headers on to services that know other betas, or none. The stand-in knows what the service knows.
_FIRST_PARTY = "https://api.anthropic.com"
_SIMULATOR = "simulator"
_EMPTY = "(no text)"
WRITTEN = WrittenParts()
_CACHED = ("cache_control", {"type": "ephemeral"})
_CACHED_MESSAGES = 2
_MOST_COMMON_CAP = 64_000
_LONGEST_NAME = 64
_FOREIGN_ID = re.compile(r"[^a-zA-Z0-9_-]")

_Wire = dict[str, Any]


class AnthropicAdapter:
    """Stateless; satisfies `Adapter`."""

    def encode(self, request: ModelRequest, endpoint: Endpoint) -> HttpRequest:
        messages = _messages(request.conversation, endpoint.origin(request.model.id))
        thinking = _possible_thinking(request, messages)
        body: _Wire = {"model": request.model.id, "max_tokens": _max_tokens(request), "stream": True}
        body |= _thinking_fields(thinking)
        if request.system:
            body["system"] = [_cached({"type": "text", "text": request.system})]
        if request.tools:
            body["tools"] = _tools(request.tools)
        body["messages"] = _with_breakpoints(messages)
        return HttpRequest(
            f"{endpoint.base_url.rstrip('/')}/v1/messages",
            request_headers(endpoint, _betas(request, endpoint, thinking)),
            written(body),
            without_budget=thinking.form != request.thinking.form,
        )

    def decoder(self) -> StreamDecoder:
        return AnthropicDecoder()

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, model: str = "") -> ProviderError:
        return failure_of_answer(status, headers, body, model)

    def encode_model_query(self, endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
        url = f"{endpoint.base_url.rstrip('/')}/v1/models/{quote(model_id, safe='')}"
        headers = {name: value for name, value in request_headers(endpoint, ()).items() if name != "content-type"}
        return url, {**headers, "accept": "application/json"}

    def parse_capabilities(self, body: bytes) -> Capabilities | None:
        content = json_object(body)
        told = content.get("capabilities")
        if not isinstance(told, dict):
            return None
        types = at(told, "thinking", "types")
        efforts = at(told, "effort")
        return Capabilities(
            None if types is None else _select_supported(types, FORMS),
            None if efforts is None else _select_supported(efforts, EFFORTS),
            count(content.get("max_input_tokens")),
            count(content.get("max_tokens")),
        )

    def is_unknown_model(self, status: int, body: bytes, model_id: str) -> bool:
        error = at(json_object(body), "error") or {}
        return status == 404 and error.get("type") == "not_found_error" and model_id in str(error.get("message"))


def _max_tokens(request: ModelRequest) -> int:
    """This service wants a figure."""
    return request.max_tokens or request.model.output_cap or _MOST_COMMON_CAP


def request_headers(endpoint: Endpoint, betas: Sequence[str]) -> dict[str, str]:
    """The user's own headers come last and win; their beta list is joined with ours."""
    own = {name.lower(): value for name, value in endpoint.headers.items()}
    listed = [name.strip() for name in own.pop("anthropic-beta", "").split(",") if name.strip()]
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "anthropic-version": _VERSION,
    }
    if endpoint.api_key and endpoint.bearer:
        headers["authorization"] = f"Bearer {endpoint.api_key}"
    elif endpoint.api_key:
        headers["x-api-key"] = endpoint.api_key
    if beta := ",".join(dict.fromkeys((*betas, *listed))):
        headers["anthropic-beta"] = beta
    return headers | own


def _betas(request: ModelRequest, endpoint: Endpoint, thinking: Thinking) -> list[str]:
    betas = [_OAUTH_BETA] if endpoint.bearer else []
    if thinking.form == "manual" and request.tools and request.model.interleaved == "header":
        betas.append(_INTERLEAVED_BETA)
    if thinking.form == "adaptive" and thinking.drop_mismatched:
        betas.append(_BINDING_BETA)
    is_first_party = endpoint.host == _FIRST_PARTY or endpoint.provider == _SIMULATOR
    if thinking.form in ("adaptive", "manual", "between_tools") and request.thinking_counts and is_first_party:
        betas.append(_COUNTS_BETA)
    return betas


def _thinking_fields(thinking: Thinking) -> _Wire:
    fields: _Wire = {}
    display = {"display": "summarized" if thinking.summarized else "omitted"}
    match thinking.form:
        case "unset":
            pass
        case "off":
            fields["thinking"] = {"type": "disabled"}
        case "between_tools":
            fields["thinking"] = {"type": "between_tools"}
        case "adaptive":
            fields["thinking"] = {"type": "adaptive", **display}
            if thinking.drop_mismatched:
                fields["thinking"]["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
        case "manual":
            fields["thinking"] = {"type": "enabled", "budget_tokens": thinking.budget_tokens, **display}
        case _:
            assert_never(thinking.form)
    if thinking.effort is not None:
        fields["output_config"] = {"effort": thinking.effort}
    return fields


def _possible_thinking(request: ModelRequest, messages: Sequence[_Wire]) -> Thinking:
    """With a manual budget the running tool loop must begin with thinking. Where it did not, or that belongs to
    another model and was left out, the loop goes on without a budget; the next message of the user has one again."""
    thinking = request.thinking
    if thinking.form != "manual":
        return thinking
    loop: list[_Wire] = []
    for message in reversed(messages):
        if message["role"] == "user" and message["content"][0]["type"] != "tool_result":
            break
        loop.append(message)
    opening = next((message for message in reversed(loop) if message["role"] == "assistant"), None)
    if opening is None or opening["content"][0].get("type") in ("thinking", "redacted_thinking"):
        return thinking
    if request.model.off is None:
        return replace(thinking, form="adaptive", budget_tokens=None)
    return Thinking("off", effort=thinking.effort)


def _tools(tools: Sequence[ToolSpec]) -> list[_Wire]:
    wire: list[_Wire] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in tools
    ]
    return [*wire[:-1], _cached(wire[-1])]


def _messages(conversation: Conversation, origin: Origin) -> list[_Wire]:
    """Roles alternate; none is empty, tool results stand first, and no answered message ends with thinking.

    A paused answer at the end goes back as it came: what the model adds to it is bound to exactly that.
    """
    messages: list[_Wire] = []
    taken: set[str] = set()
    names: dict[str, str] = {}
    for role, following in groupby(conversation, attrgetter("role")):
        run, is_user = list(following), role == "user"
        if not is_user:
            names = _name_calls(run, origin, taken)
        if len(run) > 1 or (not is_user and run[0] is conversation[-1]):
            messages.append(_joined(run, names, origin, paused=run[-1] is conversation[-1]))
        else:
            messages.append(WRITTEN.encode(run[0], (origin, *names.items()), _joined, run, names, origin))
    return messages


def _name_calls(run: Sequence[Message], origin: Origin, taken: set[str]) -> dict[str, str]:
    """Return the id on the wire for each call of these answers, and add the ids to `taken`: none stands twice."""
    names: dict[str, str] = {}
    for call in (call for message in run if isinstance(message, AssistantMessage) for call in message.tool_uses):
        is_own = call.raw is not None and call.raw.belongs_to(origin)
        stem = call.id if is_own and call.id else _wire_id(call.id)
        name, number = stem, 1
        while name in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name)
        names[call.id] = name
    return names


def _joined(run: Sequence[Message], names: Mapping[str, str], origin: Origin, *, paused: bool = False) -> _Wire:
    """One message from those of a run. `names`: ids on the wire of the calls in it, or of those that it answers."""
    content: list[_Wire] = []
    for message in run:
        if isinstance(message, UserMessage):
            made = [_user_block(block, names) for block in message.blocks]
        else:
            made = [_assistant_block(block, origin, names) for block in message.blocks]
        content += filter(None, made)
    role = run[0].role
    return {"role": role, "content": _whole_content(role, content, paused=paused)}


def _whole_content(role: str, content: list[_Wire], *, paused: bool) -> list[_Wire]:
    if role == "user":
        content = sorted(content, key=lambda block: block["type"] != "tool_result")
    ends_in_thinking = bool(content) and content[-1].get("type") in ("thinking", "redacted_thinking")
    return content if content and (paused or not ends_in_thinking) else [*content, {"type": "text", "text": _EMPTY}]


def _user_block(block: ToolResultBlock | TextBlock, names: Mapping[str, str]) -> _Wire | None:
    match block:
        case TextBlock():
            return _text(block)
        case ToolResultBlock():
            return _result(block, names.get(block.tool_use_id) or _wire_id(block.tool_use_id))
        case _:
            assert_never(block)


def _assistant_block(block: ContentBlock, origin: Origin, names: Mapping[str, str]) -> _Wire | None:
    """What this endpoint and model issued goes back as it came; the rest is rebuilt from what anybody may read.

    A call goes back under the id of ours: a service may have given none, or the same one to several calls.
    """
    wire = _issued(block, origin) or _rebuilt(block)
    return wire | {"id": names[block.id]} if wire and isinstance(block, ToolUseBlock) else wire


def _issued(block: ContentBlock, origin: Origin) -> _Wire | None:
    if block.raw is None or not block.raw.belongs_to(origin) or _is_blank(block):
        return None
    raw: _Wire = json.loads(block.raw.open_for(origin))
    return raw


def _rebuilt(block: ContentBlock) -> _Wire | None:
    match block:
        case TextBlock():
            return _text(block)
        case ToolUseBlock():
            name = _wire_id(block.name)[:_LONGEST_NAME]
            return {"type": "tool_use", "id": block.id, "name": name, "input": block.input or {}}
        case ThinkingBlock() | RedactedThinkingBlock() | ServerToolBlock() | OpaqueBlock():
            return None
        case _:
            assert_never(block)


def _text(block: TextBlock) -> _Wire | None:
    return None if _is_blank(block) else {"type": "text", "text": block.text}


def _is_blank(block: ContentBlock) -> bool:
    return isinstance(block, TextBlock) and not block.text.strip()


def _result(block: ToolResultBlock, call_id: str) -> _Wire:
    result: _Wire = {"type": "tool_result", "tool_use_id": call_id, "content": block.text}
    return result | {"is_error": True} if block.is_error else result


def _wire_id(call_id: str) -> str:
    """Ids and names of other services may hold characters that this one refuses; its own pass unchanged."""
    return _FOREIGN_ID.sub("_", call_id) or "_"


def _with_breakpoints(messages: Iterable[_Wire]) -> list[_Wire]:
    """The prompt cache is marked at the last two user messages: one is read, one is written."""
    marked = list(messages)
    users = [index for index, message in enumerate(marked) if message["role"] == "user"]
    for index in users[-_CACHED_MESSAGES:]:
        *head, last = marked[index]["content"]
        longer = {"role": "user", "content": [*head, _cached(last)]}
        # The last block is the last thing in a message, and the mark the last thing in the block.
        marked[index] = extended(marked[index], longer, _CACHED, b"}]}")
    return marked


def _cached(block: _Wire) -> _Wire:
    name, value = _CACHED
    return {**block, name: value}


def _select_supported(flags: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names whose flag says that the model supports them."""
    return tuple(name for name in names if (flag := at(flags, name)) is not None and flag.get("supported") is True)
