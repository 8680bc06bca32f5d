"""The simulated Responses API service. This module defines routes, the order of checks and replies."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.stand_ins.chat.flavours import COMPATIBLE_MODELS as COMPATIBLE
from tests.stand_ins.chat.flavours import build_model_info as compatible_info
from tests.stand_ins.dialect import Dialect, ReceivedRequest, SendBytes, SimulatedReply, is_under, read_bearer_token
from tests.stand_ins.openai.answer import build_response_json, encode_error_event, stream_response, write_response
from tests.stand_ins.openai.input_items import (
    InputItem,
    OpenAiConversation,
    check_item,
    find_item_side,
    find_item_type,
    find_last_compaction,
    read_conversation,
)
from tests.stand_ins.openai.issued_items import ItemIds, ResponseStore
from tests.stand_ins.openai.models import (
    OPENAI_MODELS,
    ResponseOptions,
    ResponseRequest,
    build_model_info,
    check_options,
    parse_body,
    read_request,
    resolve_traits,
)
from tests.stand_ins.openai.replay import (
    Issuer,
    OpenAiReplay,
    OpenAiReplayCheck,
    build_prefix_chain,
    normalize_item,
    reject_unknown_item,
)
from tests.stand_ins.openai.tools import check_tool_choice, check_tools
from tests.stand_ins.rejections import ErrorTable, RequestRejected, reject, reject_empty, reject_missing, reject_type
from tests.stand_ins.service_state import CacheUnit as CacheItem
from tests.stand_ins.service_state import build_cache_units, estimate_tokens, hash_text
from thinklsp.offline.script import NeutralRequest, Script

_DEFAULT_ERROR_TYPE = "invalid_request_error"
_CACHE_MINIMUM = 1024
_IMAGE_TOKENS = 1200
# The service caches a prefix for at least 30 minutes, and possibly longer.
_LIFETIME = "1h"
_RESPONSES = "/v1/responses"
_MODELS = "/v1/models"
# A request for `/v1/models` with any of these headers is meant for another simulated service.
_FOREIGN_HEADERS = frozenset({"anthropic-version", "x-api-key", "x-goog-api-key"})


@dataclass(frozen=True, slots=True)
class _AcceptedRequest:
    """A request that passed all checks."""

    body: Mapping[str, Any]
    options: ResponseOptions
    conversation: OpenAiConversation
    tools: frozenset[str]
    replay: OpenAiReplay
    cache_units: tuple[CacheItem, ...]
    issuer: Issuer


class OpenAiDialect(Dialect):
    name = "openai"
    errors = ErrorTable("openai")

    def __init__(self, script: Script, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(script, clock)
        self._ids = ItemIds()
        self._responses = ResponseStore()

    def can_answer(self, request: ReceivedRequest) -> bool:
        if is_under(request.path, _RESPONSES):
            return True
        mine = "authorization" in request.headers and not _FOREIGN_HEADERS & request.headers.keys()
        return mine and request.method == "GET" and is_under(request.path, _MODELS)

    def reset(self) -> None:
        super().reset()
        self._responses.clear()

    def _build_headers(self, request: ReceivedRequest) -> dict[str, str]:
        return {
            "x-request-id": request.id,
            "openai-organization": "thinklsp-simulator",
            "openai-version": "2020-10-01",
        }

    def _build_error_value(self, request: ReceivedRequest, rejection: RequestRejected) -> object:
        kind = rejection.kind or _DEFAULT_ERROR_TYPE
        return {"error": {"message": str(rejection), "type": kind, "param": rejection.param, "code": rejection.code}}

    def _route_request(self, request: ReceivedRequest) -> SimulatedReply:
        path, method = request.path.rstrip("/"), request.method
        if path != _RESPONSES and not is_under(path, _MODELS):
            raise RequestRejected(404, f"Invalid URL ({method} {request.path})")
        if method != ("POST" if path == _RESPONSES else "GET"):
            raise RequestRejected(405, f"Invalid method for URL ({method} {request.path})", code="method_not_supported")
        key = _check_key(request.headers)
        if path == _MODELS:
            # The list includes the models of compatible servers, whose clients send the same request.
            models = [
                *(build_model_info(name) for name in OPENAI_MODELS),
                *(compatible_info(name) for name in COMPATIBLE),
            ]
            return self._build_json_reply(request, {"object": "list", "data": models})
        if path != _RESPONSES:
            return self._build_json_reply(request, build_model_info(path.removeprefix(f"{_MODELS}/")))
        return self._build_answer(request, self._check_request(request, key))

    def _check_request(self, received: ReceivedRequest, key: str) -> _AcceptedRequest:
        body = parse_body(received.body)
        request = read_request(body)
        options = check_options(request, resolve_traits(request.model))
        names = check_tools(request.tools or ())
        check_tool_choice(request.tool_choice, names, any_tools=bool(request.tools))
        conversation = read_conversation(self._read_input(request, options))
        if conversation.effort is not None:
            options = replace(options, effort=conversation.effort)
        issuer = Issuer(self._signer, self._ids, self._responses, key)
        replay = OpenAiReplayCheck(conversation, request.tools, options, issuer).check_items()
        units = _list_cache_units(body, conversation, options, replay)
        total = sum(unit.tokens for unit in units)
        if total > self._resolve_window(options.traits.window) and not options.truncates_input:
            reject(
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
                "input",
                "context_length_exceeded",
            )
        tools = frozenset((*names, *_list_added_tools(conversation)))
        return _AcceptedRequest(body, options, conversation, tools, replay, units, issuer)

    def _read_input(self, request: ResponseRequest, options: ResponseOptions) -> list[InputItem]:
        """Return the items in the request, including the stored items to which the request refers."""
        result = list(self._find_stored_items(request))
        value = request.input
        if isinstance(value, str):
            if not value:
                reject_empty("input", "string")
            return [*result, {"type": "message", "role": "user", "content": value}]
        if value is not None and not isinstance(value, list):
            reject_type("input", "one of a string or an array", value)
        for index, item in enumerate(value or ()):
            if not self._responses.is_raw_item(item):
                check_item(item, ("input", index), options)
                if find_item_type(item) == "item_reference":
                    item = self._responses.items.get(item["id"]) or reject_unknown_item(item["id"])
            result.append(item)
        if value is None or not result:
            reject_missing("input")
        return result

    def _find_stored_items(self, request: ResponseRequest) -> tuple[InputItem, ...]:
        for key, value in (("conversation", request.conversation), ("prompt", request.prompt)):
            if value is not None:
                value_id = value.get("id") if isinstance(value, dict) else value
                raise RequestRejected(404, f"{key.title()} with id '{value_id}' not found.", param=key)
        response_id = request.previous_response_id
        stored = () if response_id is None else self._responses.responses.get(response_id)
        if stored is None:
            reject(
                f"Previous response with id '{response_id}' not found.",
                "previous_response_id",
                "previous_response_not_found",
            )
        return stored

    def _build_answer(self, request: ReceivedRequest, accepted: _AcceptedRequest) -> SimulatedReply:
        answer, options = self._script.answer(_build_neutral_request(accepted)), accepted.options
        if answer.http_error is not None:
            return self._build_scripted_failure(request, answer, answer.http_error)
        # The service charges for a response and stores it even if the stream is interrupted later.
        input_usage = self._cache.count_request(accepted.cache_units, _CACHE_MINIMUM, self._clock())
        response = write_response(answer, accepted.body, options, accepted.issuer, accepted.replay, input_usage)
        for entry in response.streamed_items:
            if entry.is_raw:
                self._responses.add_raw_item(entry.item)
        if options.store:
            self._responses.store(response.head["id"], accepted.conversation.items, response.output)
        frames = tuple(stream_response(response))
        event = answer.error_event
        count = sum(isinstance(frame, SendBytes) for frame in frames)
        number = min(event.after_events, count) if event is not None else count
        stream = frames if options.stream else None
        return self._build_answer_reply(
            request, answer, build_response_json(response), stream, lambda error: encode_error_event(error, number)
        )


def _check_key(headers: Mapping[str, str]) -> str:
    """Return a hash of the API key. Any key is accepted, but a missing key is rejected."""
    key = read_bearer_token(headers)
    if not key:
        raise RequestRejected(
            401,
            "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer "
            "auth (i.e. Authorization: Bearer YOUR_KEY).",
        )
    return hash_text(key)[:16]


def _list_added_tools(conversation: OpenAiConversation) -> list[str]:
    added = (item for item in conversation.items if item.get("type") == "additional_tools")
    tools = (tool for item in added if isinstance(item.get("tools"), list) for tool in item["tools"])
    return [str(tool["name"]) for tool in tools if isinstance(tool, dict) and "name" in tool]


def _build_neutral_request(accepted: _AcceptedRequest) -> NeutralRequest:
    conversation, instructions = accepted.conversation, accepted.body.get("instructions")
    return NeutralRequest(
        str(accepted.body["model"]),
        "\n".join((*((instructions,) if instructions else ()), *conversation.system)),
        accepted.tools,
        conversation.state,
        build_prefix_chain(None, conversation.items)[-1],
    )


def _list_cache_units(
    body: Mapping[str, Any], conversation: OpenAiConversation, options: ResponseOptions, replay: OpenAiReplay
) -> tuple[CacheItem, ...]:
    """Divide a request into units for the prompt cache, in the order in which the model reads them."""
    units = _iter_contents(body, conversation, options, replay)
    return build_cache_units("", ((content, tokens, _LIFETIME if cache else None) for content, tokens, cache in units))


def _iter_contents(
    body: Mapping[str, Any], conversation: OpenAiConversation, options: ResponseOptions, replay: OpenAiReplay
) -> Iterator[tuple[str, int, bool]]:
    """Yield the content and the token count of each unit, and whether the prompt up to this unit can be cached."""
    effort, key, form = options.effort, body.get("prompt_cache_key"), body.get("text")
    opening = json.dumps([options.traits.id, effort, key, form])
    implicit = options.caches_implicitly
    for tool in body.get("tools") or ():
        yield opening + json.dumps(tool), _count_tokens(tool), implicit
    instructions = body.get("instructions")
    unit = (f"instructions {instructions}", estimate_tokens(instructions) + 3) if instructions else None
    if unit is not None and not options.traits.binds_reasoning:
        yield opening + unit[0], unit[1], implicit
    start = find_last_compaction(conversation.items)
    for index, item in enumerate(conversation.items):
        if index < start and find_item_side(item) != "frame":
            continue
        if find_item_type(item) == "reasoning":
            if index in replay.tokens:
                yield f"reasoning {item.get('encrypted_content') or item.get('id')}", replay.tokens[index], implicit
            continue
        yield (
            opening + json.dumps(normalize_item(item)),
            _count_tokens(normalize_item(item)),
            implicit or _has_breakpoint(item),
        )
    if unit is not None and options.traits.binds_reasoning:
        # The newest models read the instructions last.
        yield unit[0], unit[1], False


def _count_tokens(value: Mapping[str, Any]) -> int:
    content = value.get("content")
    if not isinstance(content, list):
        return 3 + estimate_tokens(json.dumps(value, ensure_ascii=False))
    rest = [part for part in content if not (isinstance(part, dict) and part.get("type") == "input_image")]
    tokens = estimate_tokens(json.dumps({**value, "content": rest}, ensure_ascii=False))
    return 3 + tokens + _IMAGE_TOKENS * (len(content) - len(rest))


def _has_breakpoint(item: Mapping[str, Any]) -> bool:
    content = item.get("content")
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("prompt_cache_breakpoint") for part in content
    )
