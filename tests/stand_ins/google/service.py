"""The simulated Gemini service. This module defines routes, the order of checks and replies."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import unquote

from tests.stand_ins.dialect import (
    Dialect,
    Frame,
    ReceivedRequest,
    SendBytes,
    SimulatedReply,
    WholeReply,
    encode_json,
    parse_object,
    pause,
    send_event,
)
from tests.stand_ins.google.answer import GoogleAnswerContext, TimedChunk, join_chunks, write_response
from tests.stand_ins.google.contents import GoogleConversation, list_cache_units, read_contents, read_conversation
from tests.stand_ins.google.models import (
    GOOGLE_MODELS,
    GoogleTraits,
    build_model_info,
    check_options,
    list_declarations,
)
from tests.stand_ins.google.payload_reader import GOOGLE_TYPE, read_message
from tests.stand_ins.google.replay import ContinuationToken, SignatureCheck, verify_state
from tests.stand_ins.rejections import ErrorTable, RequestRejected, reject
from tests.stand_ins.service_state import CacheUnit, hash_json, hash_text
from thinklsp.offline.scenario import HttpError, RawPart, ScenarioStep
from thinklsp.offline.script import NeutralRequest, Script

ResponseForm = Literal["whole", "sse", "array"]
# Headers for the retry delay in other services. They are removed, because Gemini sends the delay in the error's body.
_DELAY_HEADERS = frozenset({"retry-after", "retry-after-ms", "x-should-retry"})
_CALL_PATH = re.compile(r"/(v1|v1beta|v1alpha)/models/([^/:]+):(\w+)")
_MODELS_PATH = re.compile(r"/(v1|v1beta|v1alpha)/models(?:/([^/:]+))?/?")
# Paths that belong to the Gemini API. The path `openai/` belongs to Gemini's OpenAI-compatible API.
_OWN_PATHS = re.compile(r"/v1(beta|alpha)/(?!openai/)")
_METHODS = ("streamGenerateContent", "generateContent", "countTokens")
_NO_KEY = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other "
    "form of API consumer identity to call this API."
)
_DEFAULT_PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class _AcceptedRequest:
    """A request that passed all checks. `answers` is the number of answers to the request's last prompt."""

    body: Mapping[str, Any]
    context: GoogleAnswerContext
    conversation: GoogleConversation
    answers: int
    cache_units: tuple[CacheUnit, ...]


class GoogleDialect(Dialect):
    name = "google"
    # Gemini does not send pings.
    ping = b""
    errors = ErrorTable("google")

    def __init__(self, script: Script, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(script, clock)
        blocks = [block for turn in script.scenario.turn for step in turn.step for block in step.parts]
        raw = [block.raw for block in blocks if isinstance(block, RawPart) and block.dialect == "google"]
        # Clients send the scenario's raw parts back, so requests may contain them.
        self._own_parts = frozenset(name for part in raw for name in part)

    def can_answer(self, request: ReceivedRequest) -> bool:
        path = unquote(request.path)
        if _OWN_PATHS.match(path) or _CALL_PATH.fullmatch(path):
            return True
        return _MODELS_PATH.fullmatch(path) is not None and bool(_read_key(request))

    def _build_headers(self, request: ReceivedRequest) -> dict[str, str]:
        return {"vary": "Origin, X-Origin, Referer"}

    def _build_stream_headers(self, request: ReceivedRequest) -> Mapping[str, str]:
        kind = "text/event-stream" if _find_form(request) == "sse" else "application/json; charset=UTF-8"
        return {**self._build_headers(request), "content-type": kind}

    def _build_error_value(self, request: ReceivedRequest, rejection: RequestRejected) -> object:
        kind = rejection.kind or self.errors.build_for_status(rejection.status).kind or ""
        value = {"code": rejection.status, "message": str(rejection), "status": kind.upper(), **rejection.extra_fields}
        # In a stream that is a JSON array, the error is also an array element.
        return [{"error": value}] if _find_form(request) == "array" else {"error": value}

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
        call, models = _CALL_PATH.fullmatch(path), _MODELS_PATH.fullmatch(path)
        if call is None and models is None:
            raise self.errors.build_for_status(404)
        key = self._check_key(request)
        if request.method != ("GET" if call is None else "POST"):
            raise self.errors.build_for_status(405)
        if models is not None:
            version, name = models.groups()
            return self._build_json_reply(
                request, self._build_model(name, version) if name else self._list_models(request.parameters)
            )
        if call is None:
            raise self.errors.build_for_status(404)
        version, name, method = call.groups()
        traits = _find_traits(name, version, method)
        if method == "countTokens":
            return self._build_json_reply(request, self._count_tokens(request, traits))
        return self._build_answer(request, self._check_request(request, traits, key))

    def _check_key(self, request: ReceivedRequest) -> str:
        """Return a hash of the API key. Any key is accepted, but a missing key is rejected."""
        key = _read_key(request)
        if not key:
            raise (
                self.errors.build_for_status(401)
                if "authorization" in request.headers
                else RequestRejected(403, _NO_KEY)
            )
        if not key.strip():
            info = {"@type": f"{GOOGLE_TYPE}rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
            raise RequestRejected(
                400, "API key not valid. Please pass a valid API key.", extra_fields={"details": [info]}
            )
        return hash_text(key.strip())[:16]

    def _check_request(self, request: ReceivedRequest, traits: GoogleTraits, key: str) -> _AcceptedRequest:
        body = read_message(_read_body(request), "GenerateContentRequest", self._own_parts)
        mode = check_options(body, traits)
        conversation = read_conversation(body, self._own_parts)
        answers = SignatureCheck(traits, key, self._signer).count_answers(conversation)
        contents = hash_json(body["contents"])
        answer_count = self._count_earlier_answers(body.get("continuation_token"), traits, key, contents)
        units = list_cache_units(body, conversation.contents, f"{traits.id} {key}")
        total, window = sum(item.tokens for item in units), self._resolve_window(traits.window)
        if total > window:
            reject(f"The input token count ({total}) exceeds the maximum number of tokens allowed ({window}).")
        context = GoogleAnswerContext(
            traits, mode, key, _find_form(request) != "whole", contents, answer_count, self._own_parts
        )
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

    def _build_answer(self, request: ReceivedRequest, accepted: _AcceptedRequest) -> SimulatedReply:
        answer = self._script.answer(_build_neutral_request(accepted))
        if answer.http_error is not None:
            return self._build_scripted_failure(request, answer, answer.http_error)
        # The service charges for an answer even if the stream is interrupted later.
        input_usage = self._cache.count_request(
            accepted.cache_units, accepted.context.traits.cache_minimum, self._clock()
        )
        form = _find_form(request)
        chunks = write_response(answer, accepted.context, input_usage, self._signer)
        frames = None if form == "whole" else _stream_events(chunks) if form == "sse" else _stream_array(chunks)

        def encode_error(error: RequestRejected) -> bytes:
            if form == "sse":
                return send_event(self._build_error_value(request, error)).data
            is_first = answer.error_event is not None and not answer.error_event.after_events
            value = encode_json(self._build_error_value(request, error))
            return (b"[" if is_first else b",\r\n") + value[1:-1] + b"\n]\n"

        return self._build_answer_reply(request, answer, join_chunks(chunks), frames, encode_error)

    def _count_tokens(self, request: ReceivedRequest, traits: GoogleTraits) -> dict[str, Any]:
        body = read_message(_read_body(request), "CountTokensRequest", self._own_parts)
        inner = body.get("generate_content_request")
        if inner is not None and body.get("contents"):
            reject("Only one of contents and generate_content_request can be set.")
        prompt = body if inner is None else inner
        units = list_cache_units(prompt, read_contents(prompt, self._own_parts), traits.id)
        total = sum(item.tokens for item in units)
        return {"totalTokens": total, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": total}]}

    def _build_model(self, name: str, version: str) -> dict[str, Any]:
        if name not in GOOGLE_MODELS:
            raise RequestRejected(404, f"Model is not found: models/{name} for api version {version}")
        return build_model_info(name, window=self._script.scenario.context_window)

    def _list_models(self, query: Mapping[str, str]) -> dict[str, Any]:
        size, start = query.get("pageSize", str(_DEFAULT_PAGE_SIZE)), query.get("pageToken", "0")
        if not all(re.fullmatch(r"[0-9]{1,6}", figure) for figure in (size, start)):
            reject("Invalid value for page_size or page_token.")
        names = list(GOOGLE_MODELS)[int(start) :]
        page = names[: int(size) or _DEFAULT_PAGE_SIZE]
        more = {"nextPageToken": str(int(start) + len(page))} if len(page) < len(names) else {}
        return {"models": [self._build_model(name, "v1beta") for name in page], **more}


def _read_body(request: ReceivedRequest) -> Mapping[str, Any]:
    problem = "Invalid JSON payload received. "
    return parse_object(request.body, problem, f"{problem}Root element must be a message.")


def _find_form(request: ReceivedRequest) -> ResponseForm:
    if not request.path.endswith("streamGenerateContent"):
        return "whole"
    return "sse" if request.parameters.get("alt") == "sse" else "array"


def _read_key(request: ReceivedRequest) -> str:
    return request.headers.get("x-goog-api-key") or request.parameters.get("key", "")


def _find_traits(name: str, version: str, method: str) -> GoogleTraits:
    if name not in GOOGLE_MODELS or method not in _METHODS:
        api_method = "generateContent" if method == "streamGenerateContent" else method
        raise RequestRejected(
            404,
            f"models/{name} is not found for API version {version}, or is not supported for {api_method}. Call "
            "ListModels to see the list of available models and their supported methods.",
        )
    return GOOGLE_MODELS[name]


def _build_neutral_request(accepted: _AcceptedRequest) -> NeutralRequest:
    body, context, talk = accepted.body, accepted.context, accepted.conversation.state
    system = body.get("system_instruction") or {}
    return NeutralRequest(
        context.traits.id,
        "\n".join(str(part["text"]) for part in system.get("parts") or () if "text" in part),
        frozenset(str(declaration["name"]) for declaration in list_declarations(body)),
        replace(talk, answers=accepted.answers + context.answer_count),
        f"{context.contents} {context.answer_count}",
    )


def _stream_events(chunks: Sequence[TimedChunk]) -> Iterator[Frame]:
    for wait, chunk in chunks:
        yield from pause(wait)
        yield send_event(chunk)


def _stream_array(chunks: Sequence[TimedChunk]) -> Iterator[Frame]:
    for index, (wait, chunk) in enumerate(chunks):
        yield from pause(wait)
        yield SendBytes((b",\r\n" if index else b"[") + encode_json(chunk))
    yield SendBytes(b"\n]\n", is_counted=False)
