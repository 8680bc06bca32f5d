"""The simulated Chat Completions service. This module defines routes, the order of checks and token counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn
from urllib.parse import unquote

from tests.stand_ins.chat.answer import (
    ChatAnswerContext,
    build_completion_json,
    encode_stream_error,
    stream_completion,
    write_message,
)
from tests.stand_ins.chat.chat_messages import ChatConversation, join_text, read_conversation
from tests.stand_ins.chat.flavours import (
    CHAT_ERRORS,
    COMPATIBLE_MODELS,
    GENERIC,
    ChatOptions,
    Flavour,
    build_error_value,
    build_model_info,
    check_options,
    find_flavour,
    parse_body,
)
from tests.stand_ins.chat.replay import ReasoningMemory, ReasoningOwner, check_replay
from tests.stand_ins.dialect import (
    Dialect,
    ReceivedRequest,
    SimulatedReply,
    StreamedReply,
    is_under,
    read_bearer_token,
)
from tests.stand_ins.rejections import RequestRejected, reject
from tests.stand_ins.service_state import CacheUnit, build_cache_units, estimate_tokens, hash_json, hash_text
from thinklsp.offline.script import NeutralRequest, Script

_IMAGE_TOKENS = 1200
_CACHE_MARK = "cache_control"
_COMPLETIONS = "/v1/chat/completions"
_MODELS = "/v1/models"
# A request for `/v1/models` with any of these headers is meant for another simulated service.
_KEY_HEADERS = ("authorization", "x-api-key", "anthropic-version")


@dataclass(frozen=True, slots=True)
class _AcceptedRequest:
    """A request that passed all checks."""

    body: Mapping[str, Any]
    context: ChatAnswerContext
    conversation: ChatConversation
    cache_units: tuple[CacheUnit, ...]


class ChatDialect(Dialect):
    name = "openai-compatible"
    errors = CHAT_ERRORS

    def __init__(self, script: Script, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(script, clock)
        self._reasoning_memory = ReasoningMemory()

    def can_answer(self, request: ReceivedRequest) -> bool:
        if is_under(request.path, _COMPLETIONS):
            return True
        return is_under(request.path, _MODELS) and not any(header in request.headers for header in _KEY_HEADERS)

    def reset(self) -> None:
        super().reset()
        self._reasoning_memory.clear()

    def _build_error_value(self, request: ReceivedRequest, rejection: RequestRejected) -> object:
        return {"error": build_error_value(rejection, _find_flavour(request).envelope)}

    def _route_request(self, request: ReceivedRequest) -> SimulatedReply:
        path = request.path.rstrip("/")
        if path != _COMPLETIONS and not is_under(path, _MODELS):
            raise self.errors.build_for_status(404, f"Invalid URL ({request.method} {request.path})")
        if request.method != ("POST" if path == _COMPLETIONS else "GET"):
            raise self.errors.build_for_status(405, f"Not allowed to {request.method} on {request.path}")
        if path != _COMPLETIONS:
            return self._build_json_reply(request, _list_models(path))
        body = parse_body(request.body)
        return self._build_answer(request, self._check_request(body, find_flavour(body["model"]), request.headers))

    def _check_request(self, body: Mapping[str, Any], flavour: Flavour, headers: Mapping[str, str]) -> _AcceptedRequest:
        owner = ReasoningOwner(body["model"], hash_text(_check_key(headers, flavour))[:16])
        _check_model(owner.model)
        options = check_options(body, flavour)
        conversation = read_conversation(body.get("messages"), flavour)
        check_replay(conversation, flavour, options, owner, self._signer, self._reasoning_memory)
        units = _list_cache_units(body, conversation)
        _check_window(sum(item.tokens for item in units), self._resolve_window(flavour.window), flavour, options)
        return _AcceptedRequest(body, ChatAnswerContext(owner, flavour, options), conversation, units)

    def _build_answer(self, request: ReceivedRequest, accepted: _AcceptedRequest) -> SimulatedReply:
        answer, context = self._script.answer(_build_neutral_request(accepted)), accepted.context
        if answer.http_error is not None:
            return self._build_scripted_failure(request, answer, answer.http_error)
        # The service charges for an answer and remembers it even if the stream is interrupted later.
        input_usage = self._cache.count_request(accepted.cache_units, 0, self._clock())
        message = write_message(answer, context, input_usage, self._signer)
        self._reasoning_memory.remember(context.owner, message.reasoning, message.calls)
        frames = stream_completion(message) if context.options.stream else None
        reply = self._build_answer_reply(
            request, answer, build_completion_json(message), frames, lambda error: encode_stream_error(context, error)
        )
        if isinstance(reply, StreamedReply):
            return replace(reply, ping=context.flavour.comment)
        # OpenRouter sends status 200 before the vendor reports an error.
        return replace(reply, status=200) if context.flavour.details and answer.error_event is not None else reply


def _find_flavour(request: ReceivedRequest) -> Flavour:
    """Return the kind of server that a request is for. Invalid requests are for the generic server."""
    try:
        return find_flavour(parse_body(request.body)["model"])
    except RequestRejected:
        return GENERIC


def _list_models(path: str) -> Any:
    if path == _MODELS:
        return {"object": "list", "data": [build_model_info(name) for name in COMPATIBLE_MODELS]}
    name = unquote(path.removeprefix(f"{_MODELS}/"))
    _check_model(name)
    return build_model_info(name)


def _check_model(name: str) -> None:
    # Accept all model names except those that start with `missing`, so that scenarios work with any model.
    if name.startswith("missing"):
        raise RequestRejected(404, f"model '{name}' not found", "model", "model_not_found", kind="not_found_error")


def _check_key(headers: Mapping[str, str], flavour: Flavour) -> str:
    """Return the request's API key. Any key is accepted, but hosted servers reject a request without a key."""
    token = read_bearer_token(headers)
    if flavour.hosted and not token:
        raise CHAT_ERRORS.build_for_status(401, "No auth credentials found")
    return token


def _build_neutral_request(accepted: _AcceptedRequest) -> NeutralRequest:
    conversation = accepted.conversation
    messages = [
        [message["role"], message.get("content"), message.get("tool_calls"), message.get("tool_call_id")]
        for message in conversation.messages
    ]
    return NeutralRequest(
        accepted.context.owner.model,
        conversation.system,
        accepted.context.options.tools,
        conversation.state,
        hash_json(messages),
    )


def _list_cache_units(body: Mapping[str, Any], conversation: ChatConversation) -> tuple[CacheUnit, ...]:
    """Divide a request into units for the prompt cache. Each tool and each message is a unit."""
    model = str(body["model"])
    needs_mark = "claude" in model
    units = _iter_contents(body, conversation)
    return build_cache_units(
        model, ((unit, n, "5m" if is_marked or not needs_mark else None) for unit, n, is_marked in units)
    )


def _iter_contents(body: Mapping[str, Any], conversation: ChatConversation) -> Iterator[tuple[str, int, bool]]:
    """Yield the content and the token count of each tool and message, and whether it has a cache mark."""
    for tool in body.get("tools") or ():
        content = json.dumps(tool)
        yield content, 3 + estimate_tokens(content), _CACHE_MARK in tool
    for message in conversation.messages:
        parts = message["content"] if isinstance(message.get("content"), list) else []
        is_marked = _CACHE_MARK in message or any(_CACHE_MARK in part for part in parts)
        text_only = all(part["type"] == "text" for part in parts)
        unit = {**message, "content": join_text(message)} if text_only else message
        yield json.dumps(unit), 3 + _count_message_tokens(message), is_marked


def _count_message_tokens(message: Mapping[str, Any]) -> int:
    """Return the number of tokens in a message. Signatures are not counted."""
    content = message.get("content")
    images = sum(part["type"] == "image_url" for part in content) if isinstance(content, list) else 0
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    texts = [join_text(message), reasoning if isinstance(reasoning, str) else ""]
    texts += [call["function"]["name"] + call["function"]["arguments"] for call in message.get("tool_calls") or ()]
    return images * _IMAGE_TOKENS + sum(map(estimate_tokens, texts))


def _check_window(total: int, window: int, flavour: Flavour, options: ChatOptions) -> None:
    """Check that the prompt fits into the context window. Some servers also require space for `max_tokens`.

    Raises RequestRejected if the prompt is too long.
    """
    if total > window:
        _reject_too_long(total, window, flavour)
    limit = options.max_tokens
    if flavour.fits and limit is not None and total + limit > window:
        reject(
            f"'max_tokens' or 'max_completion_tokens' is too large: {limit}. This model's maximum context length is "
            f"{window} tokens and your request has {total} input tokens ({limit} > {window} - {total}).",
            "max_tokens",
        )


def _reject_too_long(total: int, window: int, flavour: Flavour) -> NoReturn:
    if flavour.envelope == "llama.cpp":
        message = (
            f"request ({total} tokens) exceeds the available context size ({window} tokens), try increasing the "
            "context size or enable context shift"
        )
        counts = {"n_prompt_tokens": total, "n_ctx": window}
        raise RequestRejected(400, message, kind="exceed_context_size_error", extra_fields=counts)
    reject(
        f"This model's maximum context length is {window} tokens. However, your messages resulted in {total} tokens. "
        "Please reduce the length of the messages.",
        "messages",
        "context_length_exceeded",
    )
