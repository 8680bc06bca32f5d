"""The stand-in for compatible servers: routes, the order of checks, and streamed answers in the form of each server."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, assert_never

from tests.stand_ins.chat.replay import ReasoningDetail, ReasoningMemory, ReasoningOwner, check_replay, sign_details
from tests.stand_ins.chat.requests import (
    CHAT_ERRORS,
    COMPATIBLE_MODELS,
    GENERIC,
    ChatConversation,
    ChatOptions,
    Flavour,
    build_error_value,
    build_model_info,
    check_options,
    find_flavour,
    join_text,
    read_conversation,
)
from tests.stand_ins.dialect import (
    AnswerWriter,
    Dialect,
    Frame,
    ReceivedRequest,
    SimulatedReply,
    parse_object,
    read_bearer_token,
    send_event,
)
from tests.stand_ins.rejections import RequestRejected, reject
from tests.stand_ins.service_state import (
    AnswerUsage,
    CacheUnit,
    InputUsage,
    StateSigner,
    compute_usage,
    estimate_tokens,
    hash_json,
    hash_text,
)
from thinklsp.offline.scenario import (
    RedactedPart,
    ScenarioStep,
    ScriptedStopReason,
    TextPart,
    ThinkingPart,
    ToolPart,
)
from thinklsp.offline.script import NeutralRequest, Script

_IMAGE_TOKENS = 1200
_CACHE_MARK = "cache_control"
_COMPLETIONS = "/v1/chat/completions"
_MODELS = "/v1/models"
# A request for `/v1/models` with any of these headers is meant for another simulated service.
_KEY_HEADERS = ("authorization", "x-api-key", "anthropic-version")
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
class _AcceptedRequest:
    """A request that passed all checks."""

    body: Mapping[str, Any]
    context: ChatAnswerContext
    conversation: ChatConversation
    cache_units: list[CacheUnit]


class ChatDialect(Dialect):
    name = "openai-compatible"
    errors = CHAT_ERRORS

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._reasoning_memory = ReasoningMemory()

    def can_answer(self, request: ReceivedRequest) -> bool:
        if request.path.startswith(_COMPLETIONS):
            return True
        return request.path.startswith(_MODELS) and not any(header in request.headers for header in _KEY_HEADERS)

    def _build_error_value(self, request: ReceivedRequest, rejection: RequestRejected) -> object:
        return {"error": build_error_value(rejection, _find_flavour(request).envelope)}

    def _route_request(self, request: ReceivedRequest) -> SimulatedReply:
        match request.method, request.path:
            case "POST", "/v1/chat/completions":
                body = _parse_body(request.body)
                accepted = self._check_request(body, find_flavour(body["model"]), request.headers)
                return self._build_answer(request, accepted)
            case "GET", "/v1/models":
                models = [build_model_info(name) for name in COMPATIBLE_MODELS]
                return self._build_json_reply(request, {"object": "list", "data": models})
            case _:
                pass
        raise self.errors.build_for_status(404, f"Invalid URL ({request.method} {request.path})")

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
        input_usage = self._cache.count_request(accepted.cache_units, 0)
        message = write_message(answer, context, input_usage, self._signer)
        self._reasoning_memory.remember(context.owner, message.reasoning, message.calls)
        reply = self._build_stream(
            request, answer, stream_completion(message), lambda error: encode_stream_error(context, error)
        )
        return replace(reply, ping=context.flavour.comment)


def _parse_body(raw: bytes) -> Mapping[str, Any]:
    body = parse_object(raw)
    if not isinstance(body.get("model"), str) or not body["model"]:
        reject("you must provide a model parameter", "model")
    return body


def _find_flavour(request: ReceivedRequest) -> Flavour:
    """Return the kind of server that a request is for. Invalid requests are for the generic server."""
    try:
        return find_flavour(_parse_body(request.body)["model"])
    except RequestRejected:
        return GENERIC


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
        accepted.context.options.tools,
        conversation.state,
        hash_json(messages),
    )


def _list_cache_units(body: Mapping[str, Any], conversation: ChatConversation) -> list[CacheUnit]:
    """Divide a request into units for the prompt cache. Each tool and each message is a unit."""
    model = body["model"]
    units = [CacheUnit(model, 0), *(_build_tool_unit(tool) for tool in body.get("tools") or ())]
    for message in conversation.messages:
        parts = message["content"] if isinstance(message.get("content"), list) else []
        is_marked = "claude" not in model or any(_CACHE_MARK in part for part in parts)
        text_only = all(part["type"] == "text" for part in parts)
        content = json.dumps({**message, "content": join_text(message)} if text_only else message)
        units.append(CacheUnit(content, 3 + _count_message_tokens(message), is_marked))
    return units


def _build_tool_unit(tool: Mapping[str, Any]) -> CacheUnit:
    content = json.dumps(tool)
    return CacheUnit(content, 3 + estimate_tokens(content), is_marked=False)


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
        "stop" if lies else _FINISH_REASONS.get(answer.stop_reason or "end_turn", "stop"),
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
        self.reasoning = ""
        self.calls: list[dict[str, Any]] = []
        self.tokens = 0
        self.thinking_tokens = 0

    def write(self) -> Iterator[TimedDelta]:
        yield from super().write()
        if self._answer.stop_reason == "refusal" and (self._answer.refusal and self._answer.refusal.explanation):
            yield self._build_delta({"refusal": (self._answer.refusal and self._answer.refusal.explanation)})

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
        if shown is None:
            # Hidden thinking takes as long as readable thinking.
            yield self._interval_ms * len(self._split(thought)), None
        if self._flavour.details:
            yield from self._write_details(shown, self._details[number])
        elif shown:
            self.reasoning += shown
            for piece in self._split(shown):
                yield self._build_delta({self._flavour.reasoning: piece})

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
        for piece in self._split(part.text):
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

    def _build_delta(self, value: Mapping[str, Any]) -> TimedDelta:
        return self._interval_ms, _add_role(value, self._flavour)

    def _count_tokens(self, text: str) -> None:
        self.tokens += estimate_tokens(text)


def stream_completion(message: ChatCompletion) -> Iterator[Frame]:
    context = message.context
    flavour = context.flavour
    if flavour.details:
        yield flavour.comment
    if not flavour.named_chunks:
        content = None if flavour.opens_with_null else ""
        yield _build_chunk(context, {"role": "assistant", "content": content}, **_build_running_usage(message, 0))
    count = 0
    for silence, value in message.deltas:
        yield silence
        if value is not None:
            count += 1
            yield _build_chunk(context, value, **_build_running_usage(message, count))
    include_usage = context.options.include_usage
    closing = {"usage": message.usage} if include_usage and flavour.usage_on != "own_chunk" else {}
    last = _add_role({}, flavour) if flavour.details else {}
    yield _build_chunk(context, last, ending=_build_ending(message), **closing, **_build_timings(message))
    if include_usage and flavour.usage_on == "own_chunk":
        yield send_event({**_build_head(context), "choices": [], "usage": message.usage, **_build_timings(message)})
    yield b"data: [DONE]\n\n"


def encode_stream_error(context: ChatAnswerContext, rejection: RequestRejected) -> bytes:
    """Encode an error inside a stream in the server's format. Some servers send an empty chunk instead."""
    error = build_error_value(rejection, context.flavour.envelope)
    match context.flavour.broken:
        case "data":
            return send_event({"error": error})
        case "event":
            return send_event({"error": error}, "error")
        case "text":
            return send_event({"error": str(rejection)})
        case "choices":
            chunk_error = {**error, "metadata": {"error_type": rejection.kind}}
            ending = {"finish_reason": "error", "native_finish_reason": None}
            return _build_chunk(context, {"content": ""}, ending=ending, error=chunk_error)
        case "silence":
            return _build_chunk(context, _add_role({}, context.flavour))
        case _:
            assert_never(context.flavour.broken)


def _add_role(value: Mapping[str, Any], flavour: Flavour) -> Mapping[str, Any]:
    return {"role": "assistant", "content": "", **value} if flavour.named_chunks else value


def _build_chunk(
    context: ChatAnswerContext, delta: Mapping[str, Any], *, ending: Mapping[str, Any] | None = None, **more: Any
) -> bytes:
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
