"""The simulated Messages API service, including its routes, checks, token counts and prompt cache."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.stand_ins.anthropic.answer import (
    PING_EVENT,
    AnthropicAnswerContext,
    build_message_json,
    encode_error_event,
    stream_message,
    write_message,
)
from tests.stand_ins.anthropic.conversation import (
    SIGNATURE_KEYS,
    AnthropicConversation,
    list_content_blocks,
    read_conversation,
)
from tests.stand_ins.anthropic.models import ANTHROPIC_MODELS, AnthropicTraits, build_model_info
from tests.stand_ins.anthropic.replay import (
    AnthropicReplay,
    AnthropicReplayCheck,
    IssuedAnswers,
    compute_content_key,
)
from tests.stand_ins.anthropic.requests import (
    CacheControl,
    CountTokensRequest,
    MessageRequest,
    check_headers,
    check_options,
    read_request,
)
from tests.stand_ins.dialect import Dialect, ReceivedRequest, SimulatedReply, is_under, parse_object
from tests.stand_ins.rejections import ErrorTable, RequestRejected, read_shape, reject, reject_like_pydantic
from tests.stand_ins.service_state import CacheUnit, build_cache_units
from thinklsp.offline.script import NeutralRequest, Script

_MESSAGES = "/v1/messages"
_COUNT = "/v1/messages/count_tokens"
_MODELS = "/v1/models"
_COUNT_THINKING_BETA = "thinking-token-count-2026-05-13"
_MAX_BREAKPOINTS = 4
_IMAGE_TOKENS = 1200


@dataclass(frozen=True, slots=True)
class _AcceptedRequest:
    """A request that passed all checks."""

    request: CountTokensRequest | MessageRequest
    context: AnthropicAnswerContext
    conversation: AnthropicConversation
    cache_units: tuple[CacheUnit, ...]


class AnthropicDialect(Dialect):
    name = "anthropic"
    ping = PING_EVENT
    errors = ErrorTable("anthropic", overloaded_status=529)

    def __init__(self, script: Script, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(script, clock)
        self._issued_answers = IssuedAnswers()

    def can_answer(self, request: ReceivedRequest) -> bool:
        return any(is_under(request.path, base) for base in (_MESSAGES, _MODELS))

    def reset(self) -> None:
        super().reset()
        self._issued_answers.clear()

    def _build_headers(self, request: ReceivedRequest) -> dict[str, str]:
        return {"request-id": request.id, "anthropic-organization-id": "thinklsp-simulator"}

    def _build_error_value(self, request: ReceivedRequest, rejection: RequestRejected) -> object:
        kind = rejection.kind or self.errors.build_for_status(rejection.status).kind
        return {"type": "error", "error": {"type": kind, "message": str(rejection)}, "request_id": request.id}

    def _route_request(self, request: ReceivedRequest) -> SimulatedReply:
        path, method = request.path.rstrip("/"), request.method
        if path not in (_MESSAGES, _COUNT) and not is_under(path, _MODELS):
            raise RequestRejected(404, "Not found")
        if method != ("POST" if path in (_MESSAGES, _COUNT) else "GET"):
            raise RequestRejected(405, "Method Not Allowed")
        betas = check_headers(request.headers)
        if path == _MODELS:
            return self._build_json_reply(request, self._list_models(request.parameters))
        if is_under(path, _MODELS):
            return self._build_json_reply(request, self._build_model(path.removeprefix(f"{_MODELS}/")))
        accepted = self._check_request(request, betas, counting=path == _COUNT)
        if isinstance(accepted.request, MessageRequest):
            return self._build_answer(request, accepted, streams=bool(accepted.request.stream))
        return self._build_json_reply(request, {"input_tokens": sum(item.tokens for item in accepted.cache_units)})

    def _check_request(self, received: ReceivedRequest, betas: frozenset[str], *, counting: bool) -> _AcceptedRequest:
        problem = "The request body is not "
        body = parse_object(received.body, f"{problem}valid JSON: ", f"{problem}a JSON object")
        request = read_request(body, received.headers["anthropic-version"], betas, counting=counting)
        traits = _find_traits(request.model)
        mode = check_options(request, traits, betas)
        conversation = read_conversation(request.messages, traits, mode, betas)
        hearing = AnthropicReplayCheck(body, conversation, traits, self._signer, self._issued_answers)
        replay = hearing.check_blocks(mode)
        if body["messages"][-1]["role"] == "assistant" and not hearing.is_continuation():
            _check_prefill(conversation, traits, thinks=replay.mode.is_on)
        items = _list_cache_units(request, body, conversation, traits, replay)
        total, window = sum(item.tokens for item in items), self._resolve_window(traits.window)
        if total > window:
            reject(f"prompt is too long: {total} tokens > {window} maximum")
        context = AnthropicAnswerContext(
            request.model,
            traits,
            replay,
            is_first=conversation.state.answers == 0,
            max_tokens=request.max_tokens if isinstance(request, MessageRequest) else 0,
            counts_thinking=_COUNT_THINKING_BETA in betas,
        )
        return _AcceptedRequest(request, context, conversation, items)

    def _build_answer(self, received: ReceivedRequest, accepted: _AcceptedRequest, *, streams: bool) -> SimulatedReply:
        answer, context = self._script.answer(_build_neutral_request(accepted)), accepted.context
        if answer.http_error is not None:
            return self._build_scripted_failure(received, answer, answer.http_error)
        # The service charges for an answer and remembers it even if the stream is interrupted later.
        input_usage = self._cache.count_request(accepted.cache_units, context.traits.cache_minimum, self._clock())
        message = write_message(answer, context, input_usage, self._signer)
        if message.calls or message.issued.is_paused:
            self._issued_answers.remember(message.issued, message.calls, message.content)
        frames = stream_message(message) if streams else None
        return self._build_answer_reply(
            received,
            answer,
            build_message_json(message),
            frames,
            lambda error: encode_error_event(self._build_error_value(received, error)),
        )

    def _build_model(self, name: str) -> dict[str, Any]:
        return build_model_info(name, window=self._resolve_window(_find_traits(name).window))

    def _list_models(self, query: Mapping[str, str]) -> dict[str, Any]:
        names = list(ANTHROPIC_MODELS)
        if query.get("after_id") in names:
            names = names[names.index(query["after_id"]) + 1 :]
        if query.get("before_id") in names:
            names = names[: names.index(query["before_id"])]
        limit = query.get("limit", "20")
        if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit) <= 1000:
            reject("limit: Input should be between 1 and 1000")
        page = names[: int(limit)]
        ends = {"first_id": page[0] if page else None, "last_id": page[-1] if page else None}
        return {"data": [self._build_model(name) for name in page], "has_more": len(page) < len(names), **ends}


def _find_traits(name: str) -> AnthropicTraits:
    if name not in ANTHROPIC_MODELS:
        raise RequestRejected(404, f"model: {name}")
    return ANTHROPIC_MODELS[name]


def _check_prefill(conversation: AnthropicConversation, traits: AnthropicTraits, *, thinks: bool) -> None:
    """Check an assistant message at the end of the conversation, which most models do not support."""
    if not traits.prefill or thinks:
        reject("This model does not support assistant message prefill. The conversation must end with a user message.")
    last = conversation.blocks[-1]
    if last.kind == "text" and last.value["text"] != last.value["text"].rstrip():
        reject("messages: final assistant content cannot end with trailing whitespace")


def _build_neutral_request(accepted: _AcceptedRequest) -> NeutralRequest:
    conversation, request = accepted.conversation, accepted.request
    return NeutralRequest(
        request.model,
        "\n".join(part["text"] for part in list_content_blocks(request.system or [], "system")),
        frozenset(tool["name"] for tool in request.tools or ()),
        conversation.state,
        compute_content_key([{"role": block.role, **block.value} for block in conversation.blocks]),
    )


def _list_cache_units(
    request: CountTokensRequest,
    body: Mapping[str, Any],
    conversation: AnthropicConversation,
    traits: AnthropicTraits,
    replay: AnthropicReplay,
) -> tuple[CacheUnit, ...]:
    """Divide a request into units for the prompt cache. Raises RequestRejected for invalid cache breakpoints."""
    units = list(_iter_contents(request, body, conversation, traits, replay))
    marks = [unit.ttl for unit in units]
    if request.cache_control is not None:
        _mark_last(request.cache_control, units, marks)
    ttls = [ttl for ttl in marks if ttl is not None]
    if len(ttls) > _MAX_BREAKPOINTS:
        reject(f"A maximum of {_MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(ttls)}.")
    if any(before == "5m" and after == "1h" for before, after in pairwise(ttls)):
        reject(
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are "
            "processed in the following order: `tools`, `system`, `messages`."
        )
    return build_cache_units("", ((unit.content, unit.tokens, ttl) for unit, ttl in zip(units, marks, strict=True)))


@dataclass(frozen=True, slots=True)
class _CacheContent:
    """A unit for the prompt cache, such as a tool or a message block. `content` identifies the unit."""

    content: str
    tokens: int
    ttl: str | None = None
    thinking: bool = False


def _iter_contents(
    request: CountTokensRequest,
    body: Mapping[str, Any],
    conversation: AnthropicConversation,
    traits: AnthropicTraits,
    replay: AnthropicReplay,
) -> Iterator[_CacheContent]:
    opening = f"{traits.id}\n{request.speed}\n"
    for index, tool in enumerate(request.tools or ()):
        yield _build_content(tool, traits, f"tools.{index}", opening)
        opening = ""
    for index, part in enumerate(list_content_blocks(request.system or [], "system")):
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            reject(f"system.{index}: Input should be a text block")
        if not part["text"]:
            reject("system: text content blocks must be non-empty")
        yield _build_content(part, traits, f"system.{index}", opening + "system\n")
        opening = ""
    mode = replay.mode
    opening += f"{mode.kind} {mode.budget} {mode.effort} {json.dumps(body.get('tool_choice'))}\n"
    for block in conversation.blocks:
        if block.kind in SIGNATURE_KEYS:
            tokens = replay.tokens.get(block.path)
            earlier_turn = block.message < conversation.state.start
            if tokens is None or (earlier_turn and not traits.keeps_thinking):
                continue
            yield _CacheContent(f"{opening}{json.dumps(block.value)}", tokens, thinking=True)
        else:
            yield _build_content(block.value, traits, block.path, f"{opening}{block.role}\n")
        opening = ""


def _build_content(value: Mapping[str, Any], traits: AnthropicTraits, place: str, opening: str) -> _CacheContent:
    ttl = None
    if (control := value.get("cache_control")) is not None:
        ttl = read_shape(CacheControl, control, (place, "cache_control"), reject_like_pydantic).ttl or "5m"
    bare = {key: item for key, item in value.items() if key != "cache_control"}
    # Preserve the order of keys, because a tool call with reordered arguments is not found in the prompt cache.
    content = json.dumps(bare, ensure_ascii=False)
    text = str(value["text"]) if value.get("type") == "text" else content
    tokens = _IMAGE_TOKENS if value.get("type") == "image" else 3 + traits.count_tokens(text)
    return _CacheContent(f"{opening}{content}", tokens, ttl)


def _mark_last(control: CacheControl, units: Sequence[_CacheContent], marks: list[str | None]) -> None:
    """Apply a top-level `cache_control` to the last block that can have a cache breakpoint."""
    ttl = control.ttl or "5m"
    last = max((i for i, unit in enumerate(units) if not unit.thinking), default=None)
    if last is None:
        return
    if marks[last] not in (None, ttl):
        reject("cache_control: the last block already has a cache_control with a different ttl")
    marks[last] = ttl
