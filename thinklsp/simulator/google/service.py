"""The Google Gemini dialect: routes, the order of the checks, and how an accepted request is answered.

The checks and forms live in the other modules of this room; what the model says is the script's. State: the seals'
secret and cached prefixes, in memory and bounded.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qs, unquote

from thinklsp.simulator.dialect import (
    Frame,
    Received,
    Reply,
    Send,
    Streamed,
    Whole,
    encode_json,
    pause,
    send_answer,
    send_event,
    spoil,
)
from thinklsp.simulator.google.answer import Asked, Response, write_response
from thinklsp.simulator.google.contents import Conversation, list_cache_items, read_contents, read_conversation
from thinklsp.simulator.google.errors import (
    Detail,
    Refused,
    api_key_invalid,
    error_body,
    error_message,
    error_value,
    invalid,
    named_word,
    retry_info,
    status_here,
    status_of,
)
from thinklsp.simulator.google.models import MODELS, Mode, ModelTraits, check_options, declarations, model_info
from thinklsp.simulator.google.payload import parse_body, read
from thinklsp.simulator.google.replay import Judge, opened_token
from thinklsp.simulator.scenario import ErrorEvent, HttpError, RawPart
from thinklsp.simulator.script import Answer, Course, Script
from thinklsp.simulator.state import Item, PromptCache, Sealer, json_digest, text_digest

Form = Literal["whole", "sse", "array"]
_HEADERS = {"content-type": "application/json; charset=UTF-8", "vary": "Origin, X-Origin, Referer"}
# How long to wait stands in the body here, so the headers of other services stay away.
_DELAY_HEADERS = frozenset({"retry-after", "retry-after-ms", "x-should-retry"})
_CALL = re.compile(r"/(v1|v1beta|v1alpha)/models/([^/:]+):(\w+)")
_MODELS = re.compile(r"/(v1|v1beta|v1alpha)/models(?:/([^/:]+))?/?")
# The service's OpenAI-compatible paths lie below these too, and are another dialect's.
_OWN = re.compile(r"/v1(beta|alpha)/(?!openai/)")
_METHODS = ("streamGenerateContent", "generateContent", "countTokens")
_NO_KEY = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other "
    "form of API consumer identity to call this API."
)
_PAGE = 50


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A request that passed every check. `answers` to its last prompt; `contents` stands for the conversation."""

    body: Mapping[str, Any]
    traits: ModelTraits
    mode: Mode
    key: str
    conversation: Conversation
    answers: int
    contents: str
    played: int
    items: tuple[Item, ...]


class GoogleDialect:
    """`clock` in seconds decides how long cached prefixes live."""

    def __init__(self, script: Script, clock: Callable[[], float] = time.monotonic) -> None:
        self._script = script
        self._clock = clock
        self._sealer = Sealer()
        self._cache = PromptCache()
        blocks = [block for turn in script.scenario.turn for step in turn.step for block in step.block]
        raw = [block.raw for block in blocks if isinstance(block, RawPart) and block.dialect == "google"]
        # What the scenario lets the model say, a client must be able to say back.
        self._own_parts = frozenset(name for part in raw for name in part)

    def serves(self, request: Received) -> bool:
        path = unquote(request.path)
        if _OWN.match(path) or _CALL.fullmatch(path):
            return True
        return _MODELS.fullmatch(path) is not None and bool(_key(request))

    def reset(self) -> None:
        self._cache.clear()

    def failure(self, status: int, message: str) -> Whole:
        return _error(Refused(status, message), listed=False)

    def reply(self, request: Received) -> Reply:
        form = _form(request)
        try:
            return self._route(request, form)
        except Refused as refusal:
            return _error(refusal, listed=form == "array")
        except RecursionError:
            text = "Invalid JSON payload received. The message is nested too deeply."
            return _error(Refused(400, text), listed=form == "array")

    def _route(self, request: Received, form: Form) -> Reply:
        path = unquote(request.path)
        called, listed = _CALL.fullmatch(path), _MODELS.fullmatch(path)
        if called is None and listed is None:
            raise Refused(404, "Requested entity was not found.")
        key = _checked_key(request)
        if listed is not None:
            if request.method != "GET":
                raise Refused(405, "Method Not Allowed")
            return _json(self._model(listed[2], listed[1]) if listed[2] else self._list_models(request.query))
        version, name, method = (called or listed).groups()  # type: ignore[union-attr]  # one of the two has matched
        if request.method != "POST":
            raise Refused(405, "Method Not Allowed")
        traits = _traits(name, version, method)
        if method == "countTokens":
            return _json(self._count(request, traits))
        return self._answer(self._accept(request, traits, key), form)

    def _accept(self, request: Received, traits: ModelTraits, key: str) -> _Accepted:
        body = read(parse_body(request.body), "GenerateContentRequest", self._own_parts)
        mode = check_options(body, traits)
        conversation = read_conversation(body, self._own_parts)
        answers = Judge(traits, key, self._sealer).answers(conversation)
        contents = json_digest(body["contents"])
        played = self._played(body.get("continuation_token"), traits, key, contents)
        units = list_cache_items(body, conversation.contents, f"{traits.id} {key}")
        self._check_window(units, traits)
        return _Accepted(body, traits, mode, key, conversation, answers, contents, played, units)

    def _played(self, token: str | None, traits: ModelTraits, key: str, contents: str) -> int:
        """How many answers this very request already had."""
        if token is None:
            return 0
        opened = opened_token(token, self._sealer)
        if opened is None or opened.model != traits.id or opened.key != key:
            invalid("Invalid continuation token.")
        if opened.contents != contents:
            invalid("The continuation token was issued for another request. Please send the same contents again.")
        return opened.played

    def _check_window(self, units: tuple[Item, ...], traits: ModelTraits) -> None:
        window = self._script.scenario.context_window or traits.window
        total = sum(item.tokens for item in units)
        if total > window:
            invalid(f"The input token count ({total}) exceeds the maximum number of tokens allowed ({window}).")

    def _answer(self, accepted: _Accepted, form: Form) -> Reply:
        answer = self._script.answer(_course(accepted), "google")
        if answer.http_error is not None:
            return _scripted_error(answer.http_error, answer, form)
        # A broken stream counts too: the service has done its work.
        spent = self._cache.charge(accepted.items, accepted.traits.cache_minimum, self._clock())
        asked = Asked(
            accepted.traits,
            accepted.mode,
            accepted.key,
            streams=form != "whole",
            answer_id=secrets.token_urlsafe(16),
            contents=accepted.contents,
            played=accepted.played,
            own_parts=self._own_parts,
        )
        return _play(write_response(answer, asked, spent, self._sealer), answer, form)

    def _count(self, request: Received, traits: ModelTraits) -> dict[str, Any]:
        body = read(parse_body(request.body), "CountTokensRequest", self._own_parts)
        inner = body.get("generate_content_request")
        if inner is not None and body.get("contents"):
            invalid("Only one of contents and generate_content_request can be set.")
        counted = body if inner is None else inner
        units = list_cache_items(counted, read_contents(counted, self._own_parts), traits.id)
        total = sum(item.tokens for item in units)
        return {"totalTokens": total, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": total}]}

    def _model(self, name: str, version: str) -> dict[str, Any]:
        if name not in MODELS:
            raise Refused(404, f"Model is not found: models/{name} for api version {version}")
        return model_info(name, window=self._script.scenario.context_window)

    def _list_models(self, query: str) -> dict[str, Any]:
        asked = {key: values[-1] for key, values in parse_qs(query).items()}
        size, start = asked.get("pageSize", str(_PAGE)), asked.get("pageToken", "0")
        if not all(re.fullmatch(r"[0-9]{1,6}", figure) for figure in (size, start)):
            invalid("Invalid value for page_size or page_token.")
        names = list(MODELS)[int(start) :]
        page = names[: int(size) or _PAGE]
        more = {"nextPageToken": str(int(start) + len(page))} if len(page) < len(names) else {}
        return {"models": [self._model(name, "v1beta") for name in page], **more}


def _form(request: Received) -> Form:
    if not request.path.endswith("streamGenerateContent"):
        return "whole"
    return "sse" if parse_qs(request.query).get("alt", [""])[-1] == "sse" else "array"


def _key(request: Received) -> str:
    return request.headers.get("x-goog-api-key") or parse_qs(request.query).get("key", [""])[-1]


def _checked_key(request: Received) -> str:
    """Any key will do, none will not. What comes back stands for the key and does not tell it."""
    key = _key(request)
    if not key:
        authorized = "authorization" in request.headers
        raise Refused(401, error_message(401)) if authorized else Refused(403, _NO_KEY)
    if not key.strip():
        raise api_key_invalid()
    return text_digest(key.strip())[:16]


def _traits(name: str, version: str, method: str) -> ModelTraits:
    if name not in MODELS or method not in _METHODS:
        asked = "generateContent" if method == "streamGenerateContent" else method
        raise Refused(
            404,
            f"models/{name} is not found for API version {version}, or is not supported for {asked}. Call ListModels "
            "to see the list of available models and their supported methods.",
        )
    return MODELS[name]


def _course(accepted: _Accepted) -> Course:
    body, conversation = accepted.body, accepted.conversation
    system = body.get("system_instruction") or {}
    return Course(
        accepted.traits.id,
        "\n".join(str(part["text"]) for part in system.get("parts") or () if "text" in part),
        frozenset(str(declaration["name"]) for declaration in declarations(body)),
        conversation.prompts,
        accepted.answers + accepted.played,
        conversation.results,
        f"{accepted.contents} {accepted.played}",
    )


def _error(refusal: Refused, *, listed: bool) -> Whole:
    value = error_value(refusal.status, str(refusal), details=refusal.details)
    return Whole(refusal.status, _HEADERS, error_body(value, listed=listed))


def _json(value: Any) -> Whole:
    return Whole(200, _HEADERS, json.dumps(value).encode("ascii"))


def _play(response: Response, answer: Answer, form: Form) -> Streamed | Whole:
    """Return the reply as one JSON object, as a stream of `data:` lines, or as a JSON array that arrives in pieces."""
    if form == "whole":
        return _whole(response, answer)
    frames: tuple[Frame, ...] = tuple(_sse(response) if form == "sse" else _array(response))
    if answer.fault is not None:
        frames = spoil(frames, answer.fault, _broken(answer.error_event, form) if answer.error_event else b"")
    kind = "text/event-stream" if form == "sse" else _HEADERS["content-type"]
    # This service is silent while it thinks: it sends no pings.
    return Streamed({**_HEADERS, "content-type": kind}, frames, b"", answer.pace.delay_ms, 0, answer.label)


def _sse(response: Response) -> Iterator[Frame]:
    for wait, chunk in response.chunks:
        yield from pause(wait)
        yield send_event(chunk)


def _array(response: Response) -> Iterator[Frame]:
    for index, (wait, chunk) in enumerate(response.chunks):
        yield from pause(wait)
        yield Send((b",\r\n" if index else b"[") + encode_json(chunk))
    yield Send(b"\n]\n", counted=False)


def _broken(event: ErrorEvent, form: Form) -> bytes:
    status = status_of(event.type)
    value = error_value(status, event.message, named_word(event.type, status))
    if form == "sse":
        return send_event(value).data
    return (b",\r\n" if event.after_events else b"[") + encode_json(value) + b"\n]\n"


def _whole(response: Response, answer: Answer) -> Whole:
    """Without a stream, faults take their nearest form: an error status, a dropped connection, a longer wait."""
    event = answer.error_event
    if event is not None:
        error = HttpError(status=status_of(event.type), type=event.type, message=event.message)
        return _scripted_error(error, answer, "whole")
    return send_answer(answer, _HEADERS, encode_json(response.whole()))


def _scripted_error(error: HttpError, answer: Answer, form: Form) -> Whole:
    status = status_here(error.status)
    given = {name.lower(): value for name, value in error.headers.items()}
    headers = {**_HEADERS, **{name: value for name, value in given.items() if name not in _DELAY_HEADERS}}
    if error.body is not None:
        headers = {**headers, "content-type": "text/html; charset=UTF-8"}
        return Whole(status, headers, error.body.encode("utf-8"), answer.pace.delay_ms, False, answer.label)
    message = error.message or error_message(status)
    value = error_value(status, message, named_word(error.type, status), _details(given))
    body = error_body(value, listed=form == "array")
    return Whole(status, headers, body, answer.pace.delay_ms, False, answer.label)


def _details(headers: Mapping[str, str]) -> list[Detail]:
    milliseconds, seconds = headers.get("retry-after-ms", ""), headers.get("retry-after", "")
    if milliseconds.isdecimal():
        return [retry_info(f"{int(milliseconds) / 1000:g}")]
    return [retry_info(seconds)] if seconds.isdecimal() else []
