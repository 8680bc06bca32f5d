"""The Anthropic Messages dialect: routes, the order of the checks, and how an accepted request is answered.

The checks and forms live in the other modules of this package; what the model says is the script's. State: seals'
secret, recent answers, cached prefixes, all in memory and bounded.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from thinklsp.simulator.anthropic.answer import (
    PING,
    Asked,
    Message,
    as_frames,
    as_json,
    error_event,
    write_message,
)
from thinklsp.simulator.anthropic.envelope import (
    Refused,
    check_betas,
    check_key,
    check_keys,
    check_version,
    error_body,
    error_message,
    error_type,
    invalid,
    parse_body,
)
from thinklsp.simulator.anthropic.messages import Conversation, content_blocks, read_conversation
from thinklsp.simulator.anthropic.models import MODELS, ModelTraits, model_info
from thinklsp.simulator.anthropic.options import check_options
from thinklsp.simulator.anthropic.replay import Hearing, Memory, Replay, content_key
from thinklsp.simulator.anthropic.usage import list_cache_items
from thinklsp.simulator.dialect import (
    Received,
    Reply,
    Streamed,
    Whole,
    is_under,
    send_answer,
    send_error,
    stream_answer,
)
from thinklsp.simulator.scenario import HttpError
from thinklsp.simulator.script import Answer, Course, Script
from thinklsp.simulator.state import Item, PromptCache, Sealer

_MESSAGES = "/v1/messages"
_COUNT = "/v1/messages/count_tokens"
_MODELS = "/v1/models"
_COUNTS_THINKING = "thinking-token-count-2026-05-13"


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A request that passed every check."""

    body: Mapping[str, Any]
    traits: ModelTraits
    betas: frozenset[str]
    conversation: Conversation
    replay: Replay
    items: tuple[Item, ...]


class AnthropicDialect:
    """`clock` in seconds decides how long cached prefixes live."""

    def __init__(self, script: Script, clock: Callable[[], float] = time.monotonic) -> None:
        self._script = script
        self._clock = clock
        self._sealer = Sealer()
        self._memory = Memory()
        self._cache = PromptCache()

    def serves(self, request: Received) -> bool:
        return any(is_under(request.path, base) for base in (_MESSAGES, _MODELS))

    def reset(self) -> None:
        self._memory.clear()
        self._cache.clear()

    def failure(self, status: int, message: str) -> Whole:
        return _error(status, message, _request_id())

    def reply(self, request: Received) -> Reply:
        request_id = _request_id()
        try:
            return self._route(request, request_id)
        except Refused as refusal:
            return _error(refusal.status, str(refusal), request_id)
        except RecursionError:
            return _error(400, "The request body is nested too deeply", request_id)

    def _route(self, request: Received, request_id: str) -> Reply:
        path, method = request.path.rstrip("/"), request.method
        if path not in (_MESSAGES, _COUNT, _MODELS) and not path.startswith(f"{_MODELS}/"):
            raise Refused(404, "Not found")
        if method != ("POST" if path in (_MESSAGES, _COUNT) else "GET"):
            raise Refused(405, "Method Not Allowed")
        check_key(request.headers)
        check_version(request.headers)
        check_betas(request.headers)
        if path == _MODELS:
            return _json(self._list_models(request.query), request_id)
        if path.startswith(f"{_MODELS}/"):
            return _json(self._model(path.removeprefix(f"{_MODELS}/")), request_id)
        accepted = self._accept(request, counting=path == _COUNT)
        if path == _COUNT:
            return _json({"input_tokens": sum(item.tokens for item in accepted.items)}, request_id)
        return self._answer(accepted, request_id)

    def _accept(self, request: Received, *, counting: bool) -> _Accepted:
        version, betas = check_version(request.headers), check_betas(request.headers)
        body = parse_body(request.body)
        check_keys(body, version, betas, counting=counting)
        traits = _traits(body["model"])
        mode = check_options(body, traits, betas, counting=counting)
        conversation = read_conversation(body["messages"], traits, mode, version=version, betas=betas)
        hearing = Hearing(body, conversation, traits, sealer=self._sealer, memory=self._memory)
        replay = hearing.judge(mode)
        if body["messages"][-1]["role"] == "assistant" and not hearing.continues():
            _check_prefill(conversation, traits, thinks=replay.mode.on)
        accepted = _Accepted(
            body, traits, betas, conversation, replay, list_cache_items(body, conversation, traits, replay.mode, replay)
        )
        self._check_window(accepted)
        return accepted

    def _check_window(self, accepted: _Accepted) -> None:
        window = self._script.scenario.context_window or accepted.traits.window
        total = sum(item.tokens for item in accepted.items)
        if total > window:
            invalid(f"prompt is too long: {total} tokens > {window} maximum")

    def _answer(self, accepted: _Accepted, request_id: str) -> Reply:
        answer = self._script.answer(_course(accepted), "anthropic")
        if answer.http_error is not None:
            return _scripted_error(answer.http_error, answer, request_id)
        message = self._write(accepted, answer)
        streams = accepted.body.get("stream", False)
        return _stream(message, answer, request_id) if streams else _whole(message, answer, request_id)

    def _write(self, accepted: _Accepted, answer: Answer) -> Message:
        """The message, remembered and accounted for. A broken stream counts too: the service has done its work."""
        spent = self._cache.charge(accepted.items, accepted.traits.cache_minimum, self._clock())
        asked = Asked(
            str(accepted.body["model"]),
            accepted.traits,
            accepted.replay,
            first=accepted.conversation.answers == 0,
            max_tokens=accepted.body["max_tokens"],
            counts_thinking=_COUNTS_THINKING in accepted.betas,
            answer_id=secrets.token_hex(12),
        )
        message = write_message(answer, asked, spent, self._sealer)
        if message.calls or message.issued.paused:
            self._memory.remember(message.issued, message.calls, message.content)
        return message

    def _model(self, name: str) -> dict[str, Any]:
        _traits(name)
        return model_info(name, window=self._script.scenario.context_window)

    def _list_models(self, query: str) -> dict[str, Any]:
        asked = {key: values[-1] for key, values in parse_qs(query).items()}
        names = list(MODELS)
        if asked.get("after_id") in names:
            names = names[names.index(asked["after_id"]) + 1 :]
        if asked.get("before_id") in names:
            names = names[: names.index(asked["before_id"])]
        limit = asked.get("limit", "20")
        if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit) <= 1000:
            invalid("limit: Input should be between 1 and 1000")
        page = names[: int(limit)]
        ends = {"first_id": page[0] if page else None, "last_id": page[-1] if page else None}
        return {"data": [self._model(name) for name in page], "has_more": len(page) < len(names), **ends}


def _traits(name: str) -> ModelTraits:
    if name not in MODELS:
        raise Refused(404, f"model: {name}")
    return MODELS[name]


def _check_prefill(conversation: Conversation, traits: ModelTraits, *, thinks: bool) -> None:
    """An assistant message at the end asks the model to go on from there; few models still do."""
    if not traits.prefill or thinks:
        invalid("This model does not support assistant message prefill. The conversation must end with a user message.")
    last = conversation.blocks[-1]
    if last.kind == "text" and last.value["text"] != last.value["text"].rstrip():
        invalid("messages: final assistant content cannot end with trailing whitespace")


def _course(accepted: _Accepted) -> Course:
    conversation = accepted.conversation
    system = content_blocks(accepted.body.get("system") or [], "system")
    return Course(
        str(accepted.body["model"]),
        "\n".join(part["text"] for part in system),
        frozenset(tool["name"] for tool in accepted.body.get("tools") or ()),
        conversation.prompts,
        conversation.answers,
        conversation.results,
        content_key([{"role": block.role, **block.value} for block in conversation.blocks]),
    )


def _stream(message: Message, answer: Answer, request_id: str) -> Streamed:
    event = answer.error_event
    error = error_event(event.type, event.message, request_id) if event else b""
    return stream_answer(answer, as_frames(message), _headers(request_id), ping=PING, error=error)


def _whole(message: Message, answer: Answer, request_id: str) -> Whole:
    """Without a stream, faults take their nearest form: an error status, a dropped connection, a longer wait."""
    event = answer.error_event
    if event is not None:
        status = {"overloaded_error": 529, "rate_limit_error": 429}.get(event.type, 500)
        return _scripted_error(HttpError(status=status, type=event.type, message=event.message), answer, request_id)
    body = json.dumps(as_json(message), default=str).encode("ascii")
    return send_answer(answer, _json_headers(request_id), body)


def _scripted_error(error: HttpError, answer: Answer, request_id: str) -> Whole:
    kind = error.type or error_type(error.status)
    body = error_body(kind, error.message or error_message(error.status), request_id)
    return send_error(answer, error, error.status, _json_headers(request_id), body)


def _error(status: int, message: str, request_id: str) -> Whole:
    return Whole(status, _json_headers(request_id), error_body(error_type(status), message, request_id))


def _json(value: Any, request_id: str) -> Whole:
    return Whole(200, _json_headers(request_id), json.dumps(value).encode("ascii"))


def _json_headers(request_id: str) -> dict[str, str]:
    return {**_headers(request_id), "content-type": "application/json"}


def _headers(request_id: str) -> dict[str, str]:
    return {"request-id": request_id, "anthropic-organization-id": "thinklsp-simulator"}


def _request_id() -> str:
    return f"req_{secrets.token_hex(12)}"
