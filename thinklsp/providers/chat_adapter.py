"""The adapter for the Chat Completions API and its many compatible servers.

Requests omit optional fields that some servers reject, such as fields for sampling or forced tools. Thinking is sent
back only to the server and model that issued it, and never as tags in the text. Each tool call is immediately followed
by its result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, assert_never

from thinklsp.core.images import build_data_url
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    ImageBlock,
    Origin,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.base import Adapter, Endpoint, HttpRequest, ModelRequest, StreamDecoder
from thinklsp.providers.catalogue import Capabilities
from thinklsp.providers.chat_reasoning import (
    BLOCKS_FIELD,
    DETAILS_FIELD,
    EXTRA_FIELD,
    PARTS_FIELD,
    REASONING_FIELDS,
)
from thinklsp.providers.chat_servers import ChatServer, build_thinking_fields, is_claude
from thinklsp.providers.chat_stream import ChatDecoder
from thinklsp.providers.decoding import parse_json_object, read_limit
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

# The keys under which servers list a model's context window: llama.cpp, vLLM and SGLang, LM Studio, OpenRouter and
# others, Groq, and Mistral.
_WINDOW_KEYS = (
    "n_ctx",
    "max_model_len",
    "loaded_context_length",
    "context_length",
    "context_window",
    "max_context_length",
)
ENCODED_PARTS = EncodedParts()
_ECHOED_FIELDS = (*REASONING_FIELDS, EXTRA_FIELD, PARTS_FIELD)
_MAX_ID_LENGTH = 40
_CACHE_CONTROL = {"cache_control": {"type": "ephemeral"}}
# The provider reads cached content up to the first mark and caches new content up to the second mark.
_MAX_MARKED_TURNS = 2


class OpenAiChatAdapter(Adapter):
    """An adapter for a Chat Completions server."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self.dialects = ("chat", server.name)

    def encode(self, request: ModelRequest, endpoint: Endpoint) -> HttpRequest:
        server = self._server.adapt_to_model(request.model.id)
        # A server with a single model does not need a model name.
        body: Wire = {"model": request.model.id} if request.model.id else {}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        if request.max_tokens is not None:
            body[server.output_cap] = request.max_tokens
        body |= build_thinking_fields(server, request.thinking)
        if request.tools:
            body["tools"] = [_encode_tool(tool) for tool in request.tools]
        system = [{"role": "system", "content": request.system}] if request.system else []
        messages = [*system, *_build_messages(request.conversation, endpoint.build_origin(request.model.id), server)]
        is_marked = request.cache_hints and is_claude(request.model.id)
        body["messages"] = _mark_cache_points(messages) if is_marked else messages
        return HttpRequest(
            endpoint.build_url("/chat/completions"),
            endpoint.stream_headers(),
            encode_body(body),
        )

    def create_decoder(self) -> StreamDecoder:
        return ChatDecoder(self._server)

    def encode_model_query(
        self,
        endpoint: Endpoint,
        model_id: str,  # noqa: ARG002 - the server lists all its models
    ) -> tuple[str, Mapping[str, str]]:
        return endpoint.build_url("/models"), endpoint.query_headers()

    def parse_capabilities(self, body: bytes) -> Capabilities | None:
        """Parse the list of models, including their context windows if the server reports them."""
        content = parse_json_object(body)
        listed = content.get("data")
        if listed is None and content.get("object") == "list":
            # Ollama sends a list without `data` until the user has pulled a model.
            return Capabilities(models=())
        if not isinstance(listed, list):
            return None
        items_by_id = {
            name: item for item in listed if isinstance(item, dict) and isinstance(name := item.get("id"), str) and name
        }
        windows = {name: window for name, item in items_by_id.items() if (window := _find_window(item)) is not None}
        return Capabilities(models=tuple(items_by_id), windows=windows)


@cache_encoded_tool
def _encode_tool(tool: ToolSpec) -> Wire:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _find_window(item: Mapping[str, Any]) -> int | None:
    """Return the context window that the server uses for the model, or else the model's maximum."""
    meta = item.get("meta")
    places = (meta, item) if isinstance(meta, dict) else (item,)
    windows = (read_limit(place, key) for key in _WINDOW_KEYS for place in places)
    return next((window for window in windows if window is not None), None)


def _build_messages(conversation: Conversation, origin: Origin, server: ChatServer) -> list[Wire]:
    """Encode the conversation. Adjacent messages with the same role are merged, and no message is empty."""
    replay = _MessageEncoder(origin, server)
    messages: list[Wire] = []
    for role, group in groupby(conversation, key=lambda message: message.role):
        if role == "assistant":
            messages.append(
                replay.encode_answer([message for message in group if isinstance(message, AssistantMessage)])
            )
        else:
            messages += replay.encode_user_turn([message for message in group if isinstance(message, UserMessage)])
    return [*messages, *replay.encode_results(())]


class _MessageEncoder:
    """An encoder for the messages of a request."""

    def __init__(self, origin: Origin, server: ChatServer) -> None:
        self._origin = origin
        self._server = server
        self._names = CallNames(_MAX_ID_LENGTH)

    def encode_answer(self, messages: Sequence[AssistantMessage]) -> Wire:
        calls = [block for message in messages for block in message.blocks if isinstance(block, ToolUseBlock)]
        names = [
            self._names.claim(block.id, (ENCODED_PARTS.find_issued(block, self._origin) or {}).get("id"))
            for block in calls
        ]
        key = (self._origin, self._server.echo, self._server.demands_reasoning, tuple(names), messages[1:])
        return ENCODED_PARTS.encode(messages[0], key, lambda: self._build_answer(messages, calls, names))

    def _build_answer(self, messages: Sequence[AssistantMessage], calls: list[ToolUseBlock], names: list[str]) -> Wire:
        texts = ["".join(map(self._extract_text, message.blocks)) for message in messages]
        content = "\n\n".join(text for text in texts if text)
        if not calls and not content.strip():
            content = EMPTY_TEXT
        wire: Wire = {"role": "assistant", "content": content or None}
        reasoning = self._collect_reasoning(messages)
        if parts := reasoning.pop(PARTS_FIELD, None):
            wire["content"] = [*parts, _build_text_part(content)] if content else parts
        wire |= reasoning
        if calls:
            wire["tool_calls"] = [self._encode_call(block, name) for block, name in zip(calls, names, strict=True)]
            if self._server.demands_reasoning and not any(name in wire for name in REASONING_FIELDS):
                wire["reasoning_content"] = ""
        return wire

    def encode_user_turn(self, messages: Sequence[UserMessage]) -> list[Wire]:
        blocks = [block for message in messages for block in message.blocks]
        wire = self.encode_results([block for block in blocks if isinstance(block, ToolResultBlock)])
        text = "\n\n".join(block.text for block in blocks if isinstance(block, TextBlock) and block.text.strip())
        images = [
            ENCODED_PARTS.encode(block, None, _encode_image, block) for block in blocks if isinstance(block, ImageBlock)
        ]
        if images:
            wire.append({"role": "user", "content": [*images, *([_build_text_part(text)] if text else ())]})
        elif text or not wire:
            wire.append({"role": "user", "content": text or EMPTY_TEXT})
        return wire

    def encode_results(self, blocks: Iterable[ToolResultBlock]) -> list[Wire]:
        """Return a tool message for each tool call that does not have a result yet."""
        return [
            ENCODED_PARTS.encode(result, name, _encode_result, result, name)
            for result, name in self._names.settle(blocks)
        ]

    def _encode_call(self, block: ToolUseBlock, wire_id: str) -> Wire:
        """Encode a tool call. A call from this server stays unchanged unless its arguments are invalid."""
        raw = ENCODED_PARTS.find_issued(block, self._origin) or {}
        function = raw.get("function")
        if isinstance(function, dict):
            is_valid = block.input is not None and str(function.get("arguments")).lstrip().startswith("{")
            function = function if is_valid else {**function, "arguments": "{}"}
            name = str(function.get("name"))
            # Servers reject a name with the residue of a template, although the model wrote it there.
            function = function if sanitize_name(name) == name else {**function, "name": sanitize_name(block.name)}
        else:
            arguments = json.dumps(block.input or {}, ensure_ascii=False)
            function = {"name": sanitize_name(block.name), "arguments": arguments}
        return raw | {"id": wire_id, "type": "function", "function": function}

    def _collect_reasoning(self, messages: Sequence[AssistantMessage]) -> Wire:
        fields: Wire = {}
        for message in messages:
            for block in message.blocks:
                if isinstance(block, ThinkingBlock):
                    _merge_fields(fields, self._select_echo(block))
        return fields

    def _select_echo(self, block: ThinkingBlock) -> Wire:
        """Return the fields that send thinking back to the server, as specified by the server's `echo` setting.

        Thinking from other servers or models is not sent back.
        """
        raw = ENCODED_PARTS.find_issued(block, self._origin) or {}
        match self._server.echo:
            case "none":
                return {}
            case "auto" | "reasoning_details":
                names = _ECHOED_FIELDS if self._server.echo == "auto" else (DETAILS_FIELD, BLOCKS_FIELD)
                fields = {name: raw[name] for name in names if name in raw}
                # Sessions of earlier versions contain the text instead of the parts.
                return {name: value for name, value in fields.items() if name != PARTS_FIELD or isinstance(value, list)}
            case "reasoning" | "reasoning_content":
                return {self._server.echo: block.text} if raw and block.text else {}
            case _:
                assert_never(self._server.echo)

    def _extract_text(self, block: ContentBlock) -> str:
        """Return the text of a block. Blank text is omitted unless this server and model issued it.

        A server finds an answer in its prompt cache only if the answer is unchanged.
        """
        if not isinstance(block, TextBlock):
            return ""
        is_own = block.raw is not None and block.raw.is_issued_by(self._origin)
        return block.text if is_own or block.text.strip() else ""


def _merge_fields(fields: Wire, more: Wire) -> None:
    """Merge the thinking fields of adjacent answers.

    Lists are concatenated, texts are joined with a blank line, and objects are replaced.
    """
    for name, value in more.items():
        if name not in fields:
            fields[name] = value
        elif isinstance(value, list):
            fields[name] = [*fields[name], *value]
        elif isinstance(value, dict):
            fields[name] = value
        else:
            fields[name] = f"{fields[name]}\n\n{value}"


def _encode_result(block: ToolResultBlock | None, wire_id: str) -> Wire:
    return {"role": "tool", "tool_call_id": wire_id, "content": format_result(block)}


def _mark_cache_points(messages: list[Wire]) -> list[Wire]:
    """Add cache marks to the system prompt and to the last message of the last two user turns.

    OpenRouter and LiteLLM cache a Claude prompt only up to a mark. Only content parts can have a mark. All user
    messages are sent as content parts, including messages without a mark, because a later change of their format
    invalidates Claude's signed thinking.
    """
    system = [index for index, message in enumerate(messages[:1]) if message["role"] == "system"]
    marks = {*system, *list(_find_turn_ends(messages))[-_MAX_MARKED_TURNS:]}
    return [
        {**message, "content": _build_parts(message["content"], is_marked=index in marks)}
        if _has_text(message)
        else message
        for index, message in enumerate(messages)
    ]


def _build_parts(content: str | list[Wire], *, is_marked: bool) -> list[Wire]:
    """Return content as a list of parts. Only the last part can have a mark."""
    parts = [_build_text_part(content)] if isinstance(content, str) else content
    return [*parts[:-1], {**parts[-1], **_CACHE_CONTROL}] if is_marked else parts


def _build_text_part(text: str) -> Wire:
    return {"type": "text", "text": text}


def _encode_image(block: ImageBlock) -> Wire:
    return {"type": "image_url", "image_url": {"url": build_data_url(block)}}


def _has_text(message: Wire) -> bool:
    """Return whether the message can be sent as a content part. Providers reject blank parts."""
    content = message["content"]
    return message["role"] != "assistant" and (isinstance(content, list) or bool(content.strip()))


def _find_turn_ends(messages: list[Wire]) -> Iterator[int]:
    """Yield the index of the last user message between each pair of model answers."""
    numbered = enumerate(messages)
    for is_question, run in groupby(numbered, key=lambda item: item[1]["role"] in ("user", "tool")):
        texts = [index for index, message in run if is_question and _has_text(message)]
        yield from texts[-1:]
