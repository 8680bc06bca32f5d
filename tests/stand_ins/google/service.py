"""The stand-in for Gemini: routes, the order of checks, and streamed answers."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never
from urllib.parse import unquote

from pydantic import ValidationError

from tests.stand_ins.dialect import (
    Dialect,
    Frame,
    ReceivedRequest,
    SimulatedReply,
    WholeReply,
    parse_object,
    send_event,
)
from tests.stand_ins.google.replay import (
    ContinuationToken,
    SignatureCheck,
    ThoughtSignature,
    list_answer_items,
    verify_state,
)
from tests.stand_ins.google.requests import (
    GOOGLE_MODELS,
    GOOGLE_TYPE,
    GoogleConversation,
    GoogleThinkingMode,
    GoogleTraits,
    Part,
    build_model_info,
    check_options,
    list_cache_units,
    list_declarations,
    read_conversation,
    read_request,
)
from tests.stand_ins.rejections import ErrorTable, RequestRejected, reject
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
    HttpError,
    RawPart,
    RedactedPart,
    ScenarioStep,
    ScriptedStopReason,
    TextPart,
    ThinkingPart,
    ToolPart,
)
from thinklsp.offline.script import NeutralRequest

# Headers for the retry delay in other services. They are removed, because Gemini sends the delay in the error's body.
_DELAY_HEADERS = frozenset({"retry-after", "retry-after-ms", "x-should-retry"})
_CALL_PATH = re.compile(r"/v1(?:beta|alpha)/models/([^/:]+):streamGenerateContent")
_MODEL_PATH = re.compile(r"/v1(?:beta|alpha)/models/([^/:]+)")
# Paths that belong to the Gemini API. The path `openai/` belongs to Gemini's OpenAI-compatible API.
_OWN_PATHS = re.compile(r"/v1(beta|alpha)/(?!openai/)")
_FINISH_REASONS: Mapping[ScriptedStopReason, str] = {
    "end_turn": "STOP",
    "tool_use": "STOP",
    "max_tokens": "MAX_TOKENS",
    "context_window": "MAX_TOKENS",
    "pause_turn": "CONTINUATION",
    "refusal": "SAFETY",
}
TimedChunk = tuple[int, Mapping[str, Any]]
_MALFORMED_REASON = "MALFORMED_FUNCTION_CALL"


@dataclass(frozen=True, slots=True)
class _AcceptedRequest:
    """A request that passed all checks. `answers` is the number of answers to the request's last prompt."""

    body: Mapping[str, Any]
    context: GoogleAnswerContext
    conversation: GoogleConversation
    answers: int
    cache_units: list[CacheUnit]


class GoogleDialect(Dialect):
    name = "google"
    # Gemini does not send pings.
    ping = b""
    errors = ErrorTable("google")

    def can_answer(self, request: ReceivedRequest) -> bool:
        return _OWN_PATHS.match(unquote(request.path)) is not None

    def _build_headers(self, request: ReceivedRequest) -> dict[str, str]:
        return {"vary": "Origin, X-Origin, Referer"}

    def _build_error_value(self, request: ReceivedRequest, rejection: RequestRejected) -> object:
        kind = rejection.kind or self.errors.build_for_status(rejection.status).kind or ""
        fields = {"code": rejection.status, "message": str(rejection), "status": kind.upper()}
        return {"error": {**fields, **rejection.extra_fields}}

    def _build_scripted_error(self, error: HttpError) -> RequestRejected:
        refusal = super()._build_scripted_error(error)
        headers = {name.lower(): value for name, value in error.headers.items()}
        milliseconds, seconds = headers.get("retry-after-ms", ""), headers.get("retry-after", "")
        if milliseconds.isdecimal():
            seconds = f"{int(milliseconds) / 1000:g}"
        if milliseconds.isdecimal() or seconds.isdecimal():
            refusal.extra_fields = {"details": [{"@type": f"{GOOGLE_TYPE}rpc.RetryInfo", "retryDelay": f"{seconds}s"}]}
        return refusal

    def _build_scripted_failure(self, request: ReceivedRequest, answer: ScenarioStep, error: HttpError) -> WholeReply:
        whole = super()._build_scripted_failure(request, answer, error)
        headers = {name: value for name, value in whole.headers.items() if name not in _DELAY_HEADERS}
        return replace(whole, headers=headers)

    def _route_request(self, request: ReceivedRequest) -> SimulatedReply:
        path = unquote(request.path)
        key = request.headers.get("x-goog-api-key")
        if not key:
            raise RequestRejected(403, "Method doesn't allow unregistered callers. Please use API Key.")
        if request.method == "GET" and (match := _MODEL_PATH.fullmatch(path)) is not None:
            window = self._resolve_window(_find_traits(match[1]).window)
            return self._build_json_reply(request, build_model_info(match[1], window))
        call = _CALL_PATH.fullmatch(path)
        if call is None or (request.method, request.query) != ("POST", "alt=sse"):
            raise self.errors.build_for_status(404)
        accepted = self._check_request(request, _find_traits(call[1]), hash_text(key)[:16])
        answer = self._script.answer(_build_neutral_request(accepted))
        if answer.http_error is not None:
            return self._build_scripted_failure(request, answer, answer.http_error)
        # The service charges for an answer even if the stream is interrupted later.
        input_usage = self._cache.count_request(accepted.cache_units, accepted.context.traits.cache_minimum)
        chunks = _write_response(answer, accepted.context, input_usage, self._signer)

        def encode_error(error: RequestRejected) -> bytes:
            return send_event(self._build_error_value(request, error))

        return self._build_stream(request, answer, _stream(chunks), encode_error)

    def _check_request(self, request: ReceivedRequest, traits: GoogleTraits, key: str) -> _AcceptedRequest:
        body = read_request(parse_object(request.body))
        mode = check_options(body, traits)
        conversation = read_conversation(body)
        answers = SignatureCheck(traits, key, self._signer).count_answers(conversation)
        contents = hash_json(body["contents"])
        answer_count = self._count_earlier_answers(body.get("continuation_token"), traits, key, contents)
        units = list_cache_units(body, conversation.contents, f"{traits.id} {key}")
        total, window = sum(item.tokens for item in units), self._resolve_window(traits.window)
        if total > window:
            reject(f"The input token count ({total}) exceeds the maximum number of tokens allowed ({window}).")
        context = GoogleAnswerContext(traits, mode, key, contents, answer_count)
        return _AcceptedRequest(body, context, conversation, answers, units)

    def _count_earlier_answers(self, token: str | None, traits: GoogleTraits, key: str, contents: str) -> int:
        """Return the number of earlier answers to the request, which the continuation token contains."""
        if token is None:
            return 0
        state = verify_state(token, self._signer, ContinuationToken)
        if state is None or state.model != traits.id or state.key != key:
            reject("Invalid continuation token.")
        if state.contents != contents:
            reject("The continuation token was issued for another request. Please send the same contents again.")
        return state.answer_count


def _find_traits(name: str) -> GoogleTraits:
    if name not in GOOGLE_MODELS:
        message = f"models/{name} is not found for API version v1beta, or is not supported for generateContent."
        raise RequestRejected(404, message)
    return GOOGLE_MODELS[name]


def _build_neutral_request(accepted: _AcceptedRequest) -> NeutralRequest:
    body, context, talk = accepted.body, accepted.context, accepted.conversation.state
    return NeutralRequest(
        frozenset(str(declaration["name"]) for declaration in list_declarations(body)),
        replace(talk, answers=accepted.answers + context.answer_count),
        f"{context.contents} {context.answer_count}",
    )


def _stream(chunks: tuple[TimedChunk, ...]) -> Iterator[Frame]:
    for wait, chunk in chunks:
        yield wait
        yield send_event(chunk)


@dataclass(frozen=True, slots=True)
class GoogleAnswerContext:
    """The properties of a request that affect its answer.

    `contents` is a hash of the conversation, and `answer_count` is the number of earlier answers to the same request. A
    continuation token contains both values.
    """

    traits: GoogleTraits
    mode: GoogleThinkingMode
    key: str
    contents: str
    answer_count: int
    answer_id: str = field(default_factory=lambda: secrets.token_urlsafe(16))


@dataclass(slots=True)
class GoogleChunk:
    """A stream chunk that is sent after `wait_ms` milliseconds.

    `thoughts` and `output` are token counts. `has_calls` is true if the parts are tool calls.
    """

    parts: list[dict[str, Any]] = field(default_factory=list)
    wait_ms: int = 0
    thoughts: int = 0
    output: int = 0
    has_calls: bool = False


def _write_response(
    answer: ScenarioStep, context: GoogleAnswerContext, input_usage: InputUsage, signer: StateSigner
) -> tuple[TimedChunk, ...]:
    """Return the chunks of an answer. Each chunk is paired with the pause before it in milliseconds."""
    head = {"modelVersion": context.traits.id, "responseId": context.answer_id}
    if answer.stop_reason == "refusal" and not answer.parts:
        usage = _build_usage(compute_usage(input_usage, 0, 0, answer.usage), None)
        explanation = answer.refusal and answer.refusal.explanation
        reason = {"blockReasonMessage": explanation} if explanation else {}
        return ((0, {"promptFeedback": {"blockReason": "SAFETY", **reason}, "usageMetadata": usage, **head}),)
    writer = _Writer(answer, context, signer)
    chunks = writer.write()
    thoughts = sum(chunk.thoughts for chunk in chunks)
    figures = compute_usage(input_usage, thoughts + sum(chunk.output for chunk in chunks), thoughts, answer.usage)
    return tuple(_iter_values(chunks, writer.build_ending(), figures, head))


def _build_usage(figures: AnswerUsage, so_far: tuple[int, int] | None) -> dict[str, Any]:
    """Return the usage for a chunk, without counts that are 0.

    `so_far` contains the numbers of thinking and output tokens up to this chunk, or is None for the last chunk.
    """
    # Gemini counts thinking separately, while `AnswerUsage` includes it in the output.
    thoughts, output = figures.thinking, max(figures.output - figures.thinking, 0)
    if so_far is not None:
        thoughts, output = min(so_far[0], thoughts), min(so_far[1], output)
    cached = min(figures.cache_read, figures.input)
    return {
        "promptTokenCount": figures.input,
        **({"cachedContentTokenCount": cached} if cached else {}),
        **({"candidatesTokenCount": output} if output else {}),
        **({"thoughtsTokenCount": thoughts} if thoughts else {}),
        "totalTokenCount": figures.input + output + thoughts,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": figures.input}],
    }


def _iter_values(
    chunks: list[GoogleChunk], ending: Mapping[str, Any], figures: AnswerUsage, head: Mapping[str, Any]
) -> Iterator[TimedChunk]:
    thoughts = output = 0
    for chunk in chunks:
        last = chunk is chunks[-1]
        thoughts, output = thoughts + chunk.thoughts, output + chunk.output
        parts = {"parts": chunk.parts} if chunk.parts else {}
        candidate = {"content": {**parts, "role": "model"}, **(ending if last else {}), "index": 0}
        usage = _build_usage(figures, None if last else (thoughts, output))
        yield chunk.wait_ms, {"candidates": [candidate], "usageMetadata": usage, **head}


class _Writer:
    """A writer that builds the chunks of an answer. Call `write` before `build_ending`."""

    def __init__(self, answer: ScenarioStep, context: GoogleAnswerContext, signer: StateSigner) -> None:
        self._answer = answer
        self._context = context
        self._signer = signer
        self._chunks: list[GoogleChunk] = []
        self._next = GoogleChunk()
        self._malformed_call: str | None = None

    def write(self) -> list[GoogleChunk]:
        for part in self._answer.parts:
            if self._malformed_call is not None:
                break
            self._next.wait_ms += part.delay_ms
            match part:
                case ThinkingPart() | RedactedPart():
                    self._write_thinking(part)
                case TextPart():
                    self._write_text(part.text, is_thought=False)
                case ToolPart():
                    self._write_tool_call(part, parallel=not part.delay_ms)
                case RawPart():
                    raise NotImplementedError
                case _:
                    assert_never(part)
        self._finish_chunks()
        return self._chunks

    def build_ending(self) -> dict[str, Any]:
        """Return the fields that only the last chunk has."""
        reason = _FINISH_REASONS[self._answer.stop_reason or "end_turn"]
        is_cut = reason == "MAX_TOKENS"
        if self._malformed_call is not None and not is_cut:
            return {
                "finishReason": _MALFORMED_REASON,
                "finishMessage": f"Malformed function call: {self._malformed_call}",
            }
        ending = {"finishReason": reason}
        if reason == "SAFETY" and (self._answer.refusal and self._answer.refusal.explanation):
            ending["finishMessage"] = self._answer.refusal and self._answer.refusal.explanation
        if reason == "CONTINUATION":
            context = self._context
            token = ContinuationToken(context.traits.id, context.key, context.contents, context.answer_count + 1)
            ending["continuationToken"] = self._signer.sign(token)
        return ending

    def _write_thinking(self, part: ThinkingPart | RedactedPart) -> None:
        if not self._context.mode.is_on:
            return
        if self._context.mode.includes_thoughts and part.readable_text is not None:
            self._write_text(part.readable_text, is_thought=True)
        elif isinstance(part, ThinkingPart):
            # Hidden thinking takes as long as readable thinking.
            pace = self._answer.pacing
            self._next.wait_ms += pace.interval_ms * -(-len(part.thought) // pace.chunk_chars)
        follows = isinstance(part, ThinkingPart) and self._chunks and self._chunks[-1].parts[-1].get("thought")
        (self._chunks[-1] if follows else self._next).thoughts += estimate_tokens(part.thought)

    def _write_text(self, text: str, *, is_thought: bool) -> None:
        size = self._answer.pacing.chunk_chars
        for start in range(0, len(text), size):
            piece = text[start : start + size]
            self._next.wait_ms += self._answer.pacing.interval_ms
            value: dict[str, Any] = {"text": piece, **({"thought": True} if is_thought else {})}
            self._append_chunk(value, output=0 if is_thought else estimate_tokens(piece))

    def _write_tool_call(self, part: ToolPart, *, parallel: bool) -> None:
        args = _parse_arguments(part)
        if args is None:
            self._malformed_call = f"{part.tool}({part.input_json})"
            return
        value: dict[str, Any] = {"name": part.tool, "args": args}
        if self._context.traits.requires_signatures:
            digest = hash_text(f"{self._context.answer_id} {sum(len(chunk.parts) for chunk in self._chunks)}")
            value = {"id": f"call_{digest[:16]}", **value}
        tokens = estimate_tokens(json.dumps(value)) + 4
        if parallel and self._chunks and self._chunks[-1].has_calls and not self._next.wait_ms:
            self._chunks[-1].parts.append({"functionCall": value})
            self._chunks[-1].output += tokens
        else:
            self._next.wait_ms += self._answer.pacing.interval_ms
            self._append_chunk({"functionCall": value}, output=tokens, calls=True)

    def _append_chunk(self, part: dict[str, Any], *, output: int, calls: bool = False) -> None:
        chunk, self._next = self._next, GoogleChunk()
        chunk.parts.append(part)
        chunk.output += output
        chunk.has_calls = calls
        self._chunks.append(chunk)

    def _finish_chunks(self) -> None:
        """Sign the answer. Add a last chunk unless the answer ends with tool calls."""
        calls = [part for chunk in self._chunks if chunk.has_calls for part in chunk.parts]
        paused = self._answer.stop_reason == "pause_turn"
        silent = self._answer.stop_reason == "refusal" or self._malformed_call is not None
        requires_signature = self._context.traits.requires_signatures
        target: dict[str, Any] | None = None
        if calls and (requires_signature or paused or self._context.mode.is_on):
            target = calls[0]
        elif not calls and not silent and (requires_signature or paused):
            # An additional empty part carries the signature of an answer without tool calls.
            target = {"text": ""}
            self._next.parts.append(target)
        if not self._chunks or not self._chunks[-1].has_calls or self._next.wait_ms or self._next.thoughts:
            self._chunks.append(self._next)
        if target is not None:
            self._sign(target, paused=paused)

    def _sign(self, target: dict[str, Any], *, paused: bool) -> None:
        target["thoughtSignature"] = ""
        parts = [part for chunk in self._chunks for part in chunk.parts]
        index = next(index for index, part in enumerate(parts) if part is target)
        answer_items = list_answer_items([_normalize_part(part) for part in parts])
        place = next(position for position, item in enumerate(answer_items) if item.index == index)
        thoughts = sum(chunk.thoughts for chunk in self._chunks)
        traits, key = self._context.traits, self._context.key
        order = tuple(item.mark for item in answer_items)
        seal = ThoughtSignature(traits.id, key, order, place, paused, thoughts)
        target["thoughtSignature"] = self._signer.sign(seal, thoughts)


def _normalize_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a part to the form that it has in later requests; a part that is not valid there stays as it is."""
    try:
        return Part.model_validate(part).model_dump(exclude_unset=True)
    except ValidationError:
        return part


def _parse_arguments(part: ToolPart) -> dict[str, Any] | None:
    """Return the arguments of a tool call, or None if they are not a JSON object. Gemini sends only JSON objects."""
    try:
        text = json.dumps(part.input, default=str, allow_nan=False) if part.input_json is None else part.input_json
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
