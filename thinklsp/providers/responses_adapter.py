"""The adapter for the Responses API, which encodes requests and parses non-streaming responses.

The provider does not store conversations, so every request contains the entire conversation. A complete answer is sent
back unchanged, because the provider rejects thinking that is separated from the item after it. If a part of the
answer is missing or comes from another model, the answer is rebuilt from its text and tool calls, without IDs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from typing import assert_never
from urllib.parse import quote

from thinklsp.core.images import build_data_url
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    ImageBlock,
    Origin,
    StopReason,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    UserBlock,
    UserMessage,
)
from thinklsp.providers.base import Adapter, Endpoint, HttpRequest, ModelRequest, StreamDecoder, Thinking
from thinklsp.providers.encoding import (
    EMPTY_TEXT,
    CallNames,
    EncodedParts,
    Wire,
    cache_encoded_tool,
    encode_body,
    format_result,
    sanitize_name,
)
from thinklsp.providers.responses_stream import OpenAiResponsesDecoder, is_reasoning_complete

_ENCRYPTED_THINKING = "reasoning.encrypted_content"
_KEY_LENGTH = 32
ENCODED_PARTS = EncodedParts()
_NO_OUTPUT = "(no output)"
# Stop reasons of answers that may be incomplete.
_INCOMPLETE_REASONS: frozenset[StopReason] = frozenset({"max_tokens", "context_window", "refusal", "other"})
# The types of tool calls that need a result but belong to tools that thinklsp never offers.
_UNANSWERABLE_TYPES = frozenset(
    {"custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request"}
)


class OpenAiResponsesAdapter(Adapter):
    """An adapter for the Responses API. The base URL includes the version, as in ``https://api.openai.com/v1``."""

    dialects = ("responses",)

    def encode(self, request: ModelRequest, endpoint: Endpoint) -> HttpRequest:
        body: Wire = {"model": request.model.id, "stream": True, "store": False}
        # Models without thinking reject `include`.
        if request.model.adaptive and request.thinking.form != "unset":
            body["include"] = [_ENCRYPTED_THINKING]
        if reasoning := _build_reasoning(request.thinking):
            body["reasoning"] = reasoning
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        if request.compact_at is not None:
            body["context_management"] = [{"type": "compaction", "compact_threshold": request.compact_at}]
        if request.cache_hints:
            body["prompt_cache_key"] = _compute_cache_key(request)
        if request.tools:
            body["parallel_tool_calls"] = True
            body["tools"] = [_encode_tool(tool) for tool in request.tools]
        origin = endpoint.build_origin(request.model.id)
        body["input"] = [*_build_system_items(request.system), *_build_input_items(request.conversation, origin)]
        return HttpRequest(
            endpoint.build_url("/responses"),
            endpoint.stream_headers(),
            encode_body(body),
        )

    def create_decoder(self) -> StreamDecoder:
        return OpenAiResponsesDecoder()

    def encode_model_query(self, endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
        return endpoint.build_url(f"/models/{quote(model_id, safe='')}"), endpoint.query_headers()


def _build_reasoning(thinking: Thinking) -> Wire:
    """Build the `reasoning` field. An empty dict selects the provider's default."""
    match thinking.form:
        case "unset":
            return {}
        case "off" | "between_tools":
            return {"effort": "none"}
        case "adaptive" | "manual":
            effort = {} if thinking.effort is None else {"effort": thinking.effort}
            return {**effort, "summary": thinking.summary} if thinking.summarized else effort
        case _:
            assert_never(thinking.form)


@cache_encoded_tool
def _encode_tool(tool: ToolSpec) -> Wire:
    """Encode a tool definition. `strict` is off, because strict mode makes every optional argument required."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "strict": False,
        "parameters": tool.input_schema,
    }


def _build_system_items(text: str) -> list[Wire]:
    """Encode the system prompt as the first input item.

    Newer models read the `instructions` field after all messages, so it is not part of the cached prefix.
    """
    if not text.strip():
        return []
    return [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]}]


def _compute_cache_key(request: ModelRequest) -> str:
    """Return the cache key, which is the same for all requests in a session."""
    opening = next((message for message in request.conversation if isinstance(message, UserMessage)), None)
    texts = [block.text for block in opening.blocks if isinstance(block, TextBlock)] if opening else []
    parts = json.dumps([request.model.id, request.system, texts])
    return sha256(parts.encode("ascii")).hexdigest()[:_KEY_LENGTH]


def _build_input_items(conversation: Conversation, origin: Origin) -> list[Wire]:
    """Encode the conversation. Each tool call is followed by its output, and no message is empty."""
    names = CallNames()
    items: list[Wire] = []
    for role, group in groupby(conversation, key=lambda message: message.role):
        if role == "assistant":
            answers = [message for message in group if isinstance(message, AssistantMessage)]
            items += [item for message in answers for item in _build_assistant_items(message, origin, names)]
        else:
            items += _build_user_items(group, names) or [_build_message("user", "input_text", [EMPTY_TEXT])]
    return [*items, *_build_outputs(names)]


def _build_user_items(messages: Iterable[UserMessage | AssistantMessage], names: CallNames) -> list[Wire]:
    blocks = [[*message.blocks] for message in messages]
    results = [block for group in blocks for block in group if isinstance(block, ToolResultBlock)]
    prompts = [[part for block in group if (part := _encode_prompt_part(block)) is not None] for group in blocks]
    return [
        *_build_outputs(names, results),
        *({"type": "message", "role": "user", "content": parts} for parts in prompts if parts),
    ]


def _encode_prompt_part(block: UserBlock) -> Wire | None:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text} if block.text.strip() else None
    return ENCODED_PARTS.encode(block, None, _encode_image, block) if isinstance(block, ImageBlock) else None


def _encode_image(block: ImageBlock) -> Wire:
    return {"type": "input_image", "image_url": build_data_url(block), "detail": "auto"}


def _build_outputs(names: CallNames, results: Sequence[ToolResultBlock] = ()) -> list[Wire]:
    """Return an output item for each tool call that does not have an output yet."""
    return [ENCODED_PARTS.encode(result, name, _encode_output, result, name) for result, name in names.settle(results)]


def _encode_output(result: ToolResultBlock | None, name: str) -> Wire:
    return {"type": "function_call_output", "call_id": name, "output": format_result(result, _NO_OUTPUT)}


def _build_assistant_items(message: AssistantMessage, origin: Origin, names: CallNames) -> list[Wire]:
    # Tool calls in an earlier answer that have no result get an error as their output.
    items = _build_outputs(names)
    own = _find_own_items(message, origin)
    if own is None:
        return [*items, *_rebuild_items(message, names)]
    for block, item in zip(message.blocks, own, strict=True):
        if isinstance(block, ToolUseBlock):
            issued_id = item.get("call_id")
            name = names.claim(block.id, issued_id)
            if name != issued_id:
                item = {**item, "call_id": name}
        items.append(item)
    return items


def _find_own_items(message: AssistantMessage, origin: Origin) -> list[Wire] | None:
    """Return the answer's original items, or None if the answer is incomplete or cannot be sent back."""
    if message.stop_reason in _INCOMPLETE_REASONS:
        return None
    items: list[Wire] = []
    for block in message.blocks:
        if (item := ENCODED_PARTS.find_issued(block, origin)) is None:
            return None
        items.append(item)
    return items if _can_replay(items) else None


def _can_replay(items: Sequence[Wire]) -> bool:
    """Return whether the provider accepts these items. An answer must not end with a thinking item."""
    return (not items or items[-1].get("type") != "reasoning") and all(map(_is_accepted, items))


def _is_accepted(item: Wire) -> bool:
    if item.get("status") == "incomplete":
        return False
    match item.get("type"):
        case "reasoning":
            return is_reasoning_complete(item)
        case "message":
            content = item.get("content")
            return isinstance(content, list) and bool(content) and item.get("role", "assistant") == "assistant"
        case "function_call":
            return isinstance(name := item.get("name"), str) and bool(name)
        case kind:
            return kind not in _UNANSWERABLE_TYPES


def _rebuild_items(message: AssistantMessage, names: CallNames) -> list[Wire]:
    items: list[Wire] = []
    for block in message.blocks:
        if isinstance(block, TextBlock) and block.text.strip():
            items.append(ENCODED_PARTS.encode(block, "", _build_message, "assistant", "output_text", [block.text]))
        elif isinstance(block, ToolUseBlock):
            arguments = json.dumps(block.input or {}, ensure_ascii=False)
            fields = {"call_id": names.claim(block.id, None), "name": sanitize_name(block.name), "arguments": arguments}
            items.append({"type": "function_call", **fields})
    return items


def _build_message(role: str, kind: str, texts: Sequence[str]) -> Wire:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}
