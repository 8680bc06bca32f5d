"""The adapter for the Messages API, and the decoder for its event stream.

The `type` field in the data selects the event. The event's name is used only if there is no `type` field. Unknown
events and deltas are ignored, and unknown blocks are kept unchanged. The decoder also accepts a complete message as
JSON, which some servers send.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, assert_never
from urllib.parse import quote

from thinklsp.core.choices import EFFORTS
from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.images import encode_base64
from thinklsp.core.messages import (
    ContentBlock,
    Conversation,
    ImageBlock,
    Message,
    Origin,
    StopReason,
    TextBlock,
    ToolSpec,
    ToolUseBlock,
    UserBlock,
    UserMessage,
)
from thinklsp.core.stream_events import (
    BlockDelta,
    BlockKind,
    BlockStarted,
    BlockStopped,
    Delta,
    FieldsDelta,
    InputJsonDelta,
    ItemDelta,
    MessageFinished,
    SignatureDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    UnmatchedEvent,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.base import Adapter, Endpoint, HttpRequest, ModelRequest, StreamDecoder, Thinking
from thinklsp.providers.catalogue import THINKING_FORMS, Capabilities
from thinklsp.providers.decoding import (
    build_malformed_error,
    explain_unknown_ending,
    find_object,
    merge_non_null,
    parse_json_object,
    read_count,
    read_index,
    read_limit,
    read_object,
    read_text,
)
from thinklsp.providers.encoding import (
    EMPTY_TEXT,
    CallNames,
    EncodedParts,
    Wire,
    cache_encoded_tool,
    encode_body,
    extend_encoded,
    open_state,
    sanitize_name,
)
from thinklsp.providers.failures import classify_event

_KEY_HEADER = "x-api-key"
_VERSION = "2023-06-01"
_OAUTH_BETA = "oauth-2025-04-20"
_INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_COUNTS_BETA = "thinking-token-count-2026-05-13"
# The token count beta is requested only from Anthropic's own host and from the simulator. Gateways may forward beta
# headers to a provider that rejects them.
_FIRST_PARTY_HOST = "https://api.anthropic.com"
ENCODED_PARTS = EncodedParts()
_CACHE_CONTROL = ("cache_control", {"type": "ephemeral"})
_MAX_CACHED_MESSAGES = 2
_DEFAULT_MAX_TOKENS = 64_000
# The maximum length of a tool call ID. Anthropic documents no limit, but its own IDs are shorter.
_MAX_ID_LENGTH = 1_000


class AnthropicAdapter(Adapter):
    dialects = ("anthropic",)

    def encode(self, request: ModelRequest, endpoint: Endpoint) -> HttpRequest:
        messages = _build_messages(request.conversation, endpoint.build_origin(request.model.id))
        thinking = _resolve_thinking(request, messages)
        # The Messages API requires `max_tokens`.
        max_tokens = request.max_tokens or request.model.output_cap or _DEFAULT_MAX_TOKENS
        body: Wire = {"model": request.model.id, "max_tokens": max_tokens, "stream": True}
        body |= _build_thinking_fields(thinking)
        if request.system:
            body["system"] = [_mark_cached({"type": "text", "text": request.system})]
        if request.tools:
            *tools, last = map(_encode_tool, request.tools)
            body["tools"] = [*tools, extend_encoded(last, _mark_cached(last), _CACHE_CONTROL, b"}")]
        body["messages"] = _mark_breakpoints(messages)
        return HttpRequest(
            endpoint.build_url("/v1/messages"),
            _build_headers(endpoint.stream_headers(_KEY_HEADER), _list_betas(request, endpoint, thinking)),
            encode_body(body),
            budget_omitted=thinking.form != request.thinking.form,
        )

    def create_decoder(self) -> StreamDecoder:
        return AnthropicDecoder()

    def encode_model_query(self, endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
        return endpoint.build_url(f"/v1/models/{quote(model_id, safe='')}"), _build_headers(
            endpoint.query_headers(_KEY_HEADER)
        )

    def parse_capabilities(self, body: bytes) -> Capabilities | None:
        content = parse_json_object(body)
        capabilities = content.get("capabilities")
        if not isinstance(capabilities, dict):
            return None
        types = find_object(capabilities, "thinking", "types")
        efforts = find_object(capabilities, "effort")
        return Capabilities(
            None if types is None else _select_supported(types, THINKING_FORMS),
            None if efforts is None else _select_supported(efforts, EFFORTS),
            read_limit(content, "max_input_tokens"),
            read_limit(content, "max_tokens"),
        )


@cache_encoded_tool
def _encode_tool(tool: ToolSpec) -> Wire:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


def _build_headers(headers: dict[str, str], betas: Sequence[str] = ()) -> dict[str, str]:
    """Merge the given beta names into the `anthropic-beta` header from the user's configuration."""
    own = [name.strip() for name in headers.pop("anthropic-beta", "").split(",") if name.strip()]
    header_fields = {"anthropic-beta": ",".join(dict.fromkeys((*betas, *own)))} if betas or own else {}
    return {"anthropic-version": _VERSION} | headers | header_fields


def _list_betas(request: ModelRequest, endpoint: Endpoint, thinking: Thinking) -> list[str]:
    betas = [_OAUTH_BETA] if endpoint.bearer else []
    if thinking.form == "manual" and request.tools and request.model.interleaved == "header":
        betas.append(_INTERLEAVED_BETA)
    if thinking.form == "adaptive" and thinking.drop_mismatched:
        betas.append(_BINDING_BETA)
    is_first_party = endpoint.host == _FIRST_PARTY_HOST or endpoint.provider == "simulator"
    if thinking.form in ("adaptive", "manual", "between_tools") and request.thinking_counts and is_first_party:
        betas.append(_COUNTS_BETA)
    return betas


def _build_thinking_fields(thinking: Thinking) -> Wire:
    fields: Wire = {}
    display = {"display": "summarized" if thinking.summarized else "omitted"}
    match thinking.form:
        case "unset":
            pass
        case "off" | "between_tools":
            fields["thinking"] = {"type": "disabled" if thinking.form == "off" else thinking.form}
        case "adaptive":
            fields["thinking"] = {"type": "adaptive", **display}
            if thinking.drop_mismatched:
                fields["thinking"]["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
        case "manual":
            fields["thinking"] = {"type": "enabled", "budget_tokens": thinking.budget_tokens, **display}
        case _:
            assert_never(thinking.form)
    return fields if thinking.effort is None else {**fields, "output_config": {"effort": thinking.effort}}


def _resolve_thinking(request: ModelRequest, messages: Sequence[Wire]) -> Thinking:
    """Return the thinking settings that are valid in the current tool loop.

    A manual budget is valid only if the loop began with thinking from the same model. Otherwise, the budget is omitted
    until the user's next message.
    """
    thinking = request.thinking
    if thinking.form != "manual":
        return thinking
    loop: list[Wire] = []
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


def _build_messages(conversation: Conversation, origin: Origin) -> list[Wire]:
    """Encode the conversation as messages with alternating roles. Tool results come first in user messages.

    If a message is empty or ends with thinking, placeholder text is appended. A paused answer at the end of the
    conversation is sent back unchanged, because the model continues it.
    """
    messages: list[Wire] = []
    calls = CallNames(_MAX_ID_LENGTH)
    names: dict[str, str] = {}
    for role, following in groupby(conversation, attrgetter("role")):
        run, is_user = list(following), role == "user"
        if not is_user:
            # The ids in the conversation, and those in the request.
            names = {
                block.id: calls.claim(block.id, block.id if _is_issued(block, origin) else None)
                for message in run
                for block in message.blocks
                if isinstance(block, ToolUseBlock)
            }
        if len(run) > 1 or (not is_user and run[0] is conversation[-1]):
            messages.append(_join_messages(run, names, origin, paused=run[-1] is conversation[-1]))
        else:
            messages.append(ENCODED_PARTS.encode(run[0], (origin, *names.items()), _join_messages, run, names, origin))
    return messages


def _is_issued(block: ContentBlock, origin: Origin) -> bool:
    return block.raw is not None and block.raw.is_issued_by(origin)


def _join_messages(run: Sequence[Message], names: Mapping[str, str], origin: Origin, *, paused: bool = False) -> Wire:
    """Merge consecutive messages with the same role into a single message.

    `names` maps tool call IDs in the conversation to IDs in the request.
    """
    content: list[Wire] = []
    for message in run:
        if isinstance(message, UserMessage):
            encoded = [_encode_user_block(block, names) for block in message.blocks]
        else:
            encoded = [_encode_assistant_block(block, origin, names) for block in message.blocks]
        content += filter(None, encoded)
    if run[0].role == "user":
        content.sort(key=lambda block: block["type"] != "tool_result")
    ends_in_thinking = bool(content) and content[-1].get("type") in ("thinking", "redacted_thinking")
    if not content or (ends_in_thinking and not paused):
        content.append({"type": "text", "text": EMPTY_TEXT})
    return {"role": run[0].role, "content": content}


def _encode_user_block(block: UserBlock, names: Mapping[str, str]) -> Wire | None:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text} if block.text.strip() else None
    if isinstance(block, ImageBlock):
        source = {"type": "base64", "media_type": block.media_type, "data": encode_base64(block)}
        return {"type": "image", "source": source}
    call_id = names.get(block.tool_use_id) or sanitize_name(block.tool_use_id, _MAX_ID_LENGTH)
    result: Wire = {"type": "tool_result", "tool_use_id": call_id, "content": block.text}
    return result | {"is_error": True} if block.is_error else result


def _encode_assistant_block(block: ContentBlock, origin: Origin, names: Mapping[str, str]) -> Wire | None:
    """Encode a block of an answer.

    A block from another endpoint or model is rebuilt from its readable fields. Tool call IDs are replaced with the
    unique IDs in `names`, because providers may omit or reuse IDs.
    """
    if isinstance(block, TextBlock) and not block.text.strip():
        return None
    issued = open_state(block.raw, origin) if block.raw is not None and _is_issued(block, origin) else None
    if isinstance(block, ToolUseBlock):
        rebuilt = {"type": "tool_use", "id": "", "name": sanitize_name(block.name), "input": block.input or {}}
        return (issued or rebuilt) | {"id": names[block.id]}
    return issued or ({"type": "text", "text": block.text} if isinstance(block, TextBlock) else None)


def _mark_breakpoints(messages: Iterable[Wire]) -> list[Wire]:
    """Add cache breakpoints to the last two user messages.

    The provider reads cached content up to the first breakpoint and caches new content up to the second breakpoint.
    """
    marked = list(messages)
    users = (index for index in reversed(range(len(marked))) if marked[index]["role"] == "user")
    for index in islice(users, _MAX_CACHED_MESSAGES):
        *head, last = marked[index]["content"]
        longer = {"role": "user", "content": [*head, _mark_cached(last)]}
        # `cache_control` is the last field of the last block, so only the end of the encoded message changes.
        marked[index] = extend_encoded(marked[index], longer, _CACHE_CONTROL, b"}]}")
    return marked


def _mark_cached(block: Wire) -> Wire:
    name, value = _CACHE_CONTROL
    return {**block, name: value}


def _select_supported(flags: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the features that `flags` marks as supported."""
    return tuple(
        name for name in names if (flag := find_object(flags, name)) is not None and flag.get("supported") is True
    )


_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "pause_turn": "pause_turn",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
    # The words of gateways that do not translate them.
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
}
_BLOCK_KINDS: dict[str, BlockKind] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "redacted_thinking",
    "tool_use": "tool_use",
}
_TYPE_NAME = re.compile(r"[a-z_]{1,40}")


class AnthropicDecoder(StreamDecoder):
    """A decoder for the Messages API's event stream."""

    def __init__(self) -> None:
        super().__init__()
        self._usage: dict[str, Any] = {}
        self._stop_reason: str | None = None
        self._stop_details: Mapping[str, Any] = {}
        self._message_id = ""

    @property
    def usage(self) -> Usage:
        """The answer's usage so far.

        The provider counts cached input separately, but `Usage` includes it in the input.
        """
        plain, cache_read, cache_write = (
            read_count(self._usage, key)
            for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        counted = [part for part in (plain, cache_read, cache_write) if part is not None]
        return Usage(
            input_tokens=sum(counted) if counted else None,
            output_tokens=read_count(self._usage, "output_tokens"),
            thinking_tokens=read_count(self._usage.get("output_tokens_details"), "thinking_tokens"),
            cache_read_tokens=cache_read,
            cache_write_tokens=cache_write,
        )

    def _decode(self, event: str, content: Mapping[str, Any]) -> list[StreamEvent]:
        match content.get("type", event):
            case "content_block_delta":
                return self._read_delta(read_index(content, "index"), read_object(content, "delta"))
            case "message_start":
                return self._start(read_object(content, "message"))
            case "content_block_start":
                return [_start_block(read_index(content, "index"), read_object(content, "content_block"))]
            case "content_block_stop":
                return [BlockStopped(read_index(content, "index"))]
            case "message_delta":
                self._update(content.get("delta"), content.get("usage"))
                return []
            case "message_stop":
                return [self._finish()]
            case "message":
                return self._read_whole_message(content)
            case "error":
                raise classify_event("anthropic", content)
            case _:
                # Gateways may send errors without a type.
                if content.get("error"):
                    raise classify_event("anthropic", content)
                return []

    def _start(self, message: Mapping[str, Any]) -> list[StreamEvent]:
        """Start the message. Some gateways send its start twice, with the same ID."""
        message_id = read_text(message, "id")
        if self._started and not (message_id and message_id == self._message_id):
            raise StreamProtocolError("The provider started a second message within the same answer.")
        merge_non_null(self._usage, message.get("usage"))
        self._message_id = message_id
        return self._begin(str(message.get("model") or ""), self.usage)

    def _read_delta(self, index: int, delta: Mapping[str, Any]) -> list[StreamEvent]:
        parsed = _parse_delta(delta)
        if parsed is None:
            return [UnmatchedEvent(f"a delta of type {_describe_delta(delta)}", is_unknown_kind=True)]
        return [BlockDelta(index, parsed)]

    def _update(self, delta: object, usage: object) -> None:
        """Update the stop reason and the usage, which may arrive several times.

        Token counts are totals and replace earlier counts. A missing field keeps its value.
        """
        if isinstance(delta, dict) and isinstance(delta.get("stop_reason"), str):
            self._stop_reason = delta["stop_reason"]
        if isinstance(delta, dict) and isinstance(delta.get("stop_details"), dict):
            self._stop_details = delta["stop_details"]
        merge_non_null(self._usage, usage)

    def _finish(self) -> StreamEvent:
        if not self._started:
            raise StreamProtocolError("The provider ended a message that it never started.")
        if self._stop_reason is None:
            raise StreamProtocolError(
                "The provider ended the answer without a stop reason; part of the answer is missing."
            )
        reason = _STOP_REASONS.get(self._stop_reason, "other")
        notices = (explain_unknown_ending(self._stop_reason),) if reason == "other" else ()
        self._finished = True
        return MessageFinished(reason, self.usage, _explain_stop(self._stop_details), notices)

    def _read_whole_message(self, message: Mapping[str, Any]) -> list[StreamEvent]:
        events = self._start(message)
        blocks = message.get("content")
        for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
            if not isinstance(block, dict):
                raise build_malformed_error("a block")
            events += [_start_block(index, block), BlockStopped(index)]
        self._update(message, None)
        return [*events, self._finish()]


def _start_block(index: int, block: Mapping[str, Any]) -> StreamEvent:
    """Return the start event for a block.

    A call of a tool that runs on the provider's side becomes a `server_tool` block, because its arguments are streamed.
    The tool's result arrives complete and becomes an `opaque` block.
    """
    name = block.get("type")
    if not isinstance(name, str) or not name:
        raise build_malformed_error("a block")
    kind = _BLOCK_KINDS.get(name, "opaque")
    if kind == "tool_use" and not read_text(block, "name"):
        raise build_malformed_error("a block")
    if kind == "opaque" and name.endswith("_tool_use") and "input" in block:
        kind = "server_tool"
    return BlockStarted(index, kind, block)


def _parse_delta(delta: Mapping[str, Any]) -> Delta | None:
    match delta.get("type"):
        case "text_delta":
            return TextDelta(read_text(delta, "text"))
        case "thinking_delta":
            return ThinkingDelta(read_text(delta, "thinking"), read_count(delta, "estimated_tokens"))
        case "signature_delta":
            return SignatureDelta(read_text(delta, "signature"))
        case "input_json_delta":
            return InputJsonDelta(read_text(delta, "partial_json"))
        case "citations_delta":
            return ItemDelta("citations", delta["citation"]) if delta.get("citation") else None
        case "compaction_delta":
            return FieldsDelta({key: value for key, value in delta.items() if key != "type"})
        case _:
            return None


def _describe_delta(delta: Mapping[str, Any]) -> str:
    """Return the delta's type, or `unknown` if the type does not look like an identifier."""
    name = delta.get("type")
    return name if isinstance(name, str) and _TYPE_NAME.fullmatch(name) else "unknown"


def _explain_stop(details: Mapping[str, Any]) -> str | None:
    explanation, category = details.get("explanation"), details.get("category")
    if isinstance(explanation, str) and explanation:
        return explanation
    return f"The provider stopped the answer (category {category})." if isinstance(category, str) else None
