"""The dialect of OpenAI-compatible servers: routes, the order of the checks, and how an accepted request is answered.

Which server is played follows from the model id (`flavours`). The checks and forms live in the modules beside this
one; what the model says is the script's. State: seals' secret, issued reasoning, cached prefixes, bounded, in memory.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import unquote

from thinklsp.simulator.chat.answer import Asked, Message, write_message
from thinklsp.simulator.chat.chunks import as_frames, as_json, broken
from thinklsp.simulator.chat.flavours import (
    GENERIC,
    MODELS,
    Failure,
    Flavour,
    Refused,
    error_value,
    failure,
    flavour_of,
    invalid,
    is_missing,
    model_info,
    scripted,
)
from thinklsp.simulator.chat.messages import Conversation, read_conversation, text_of
from thinklsp.simulator.chat.options import Options, check_options, parse_body
from thinklsp.simulator.chat.replay import Memory, Owner, check_replay
from thinklsp.simulator.dialect import (
    Received,
    Reply,
    Streamed,
    Whole,
    is_under,
    read_bearer_token,
    send_answer,
    send_error,
    stream_answer,
)
from thinklsp.simulator.scenario import HttpError
from thinklsp.simulator.script import Answer, Course, Script
from thinklsp.simulator.state import Item, PromptCache, Sealer, chain_items, json_digest, text_digest, text_tokens

_IMAGE_TOKENS = 1200
_MARK = "cache_control"
_COMPLETIONS = "/v1/chat/completions"
_MODELS = "/v1/models"
# Who lists models with one of these asks a service that knows him.
_KEYED = ("authorization", "x-api-key", "anthropic-version")
_HEADERS = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A request that passed every check."""

    body: Mapping[str, Any]
    flavour: Flavour
    owner: Owner
    options: Options
    conversation: Conversation
    items: tuple[Item, ...]


class ChatDialect:
    """`clock` in seconds decides how long cached prefixes live."""

    def __init__(self, script: Script, clock: Callable[[], float] = time.monotonic) -> None:
        self._script = script
        self._clock = clock
        self._sealer = Sealer()
        self._memory = Memory()
        self._cache = PromptCache()

    def serves(self, request: Received) -> bool:
        if is_under(request.path, _COMPLETIONS):
            return True
        return is_under(request.path, _MODELS) and not any(header in request.headers for header in _KEYED)

    def reset(self) -> None:
        self._memory.clear()
        self._cache.clear()

    def failure(self, status: int, message: str) -> Whole:
        return _error(failure(status, message), GENERIC)

    def reply(self, request: Received) -> Reply:
        flavour = GENERIC
        try:
            path = _route(request)
            if path != _COMPLETIONS:
                return _json(_models(path))
            body = parse_body(request.body)
            flavour = flavour_of(body["model"])
            return self._answer(self._accept(body, flavour, request.headers))
        except Refused as refusal:
            return _error(refusal.failure, flavour)
        except RecursionError:
            return _error(failure(400, "The request body is nested too deeply"), flavour)

    def _accept(self, body: Mapping[str, Any], flavour: Flavour, headers: Mapping[str, str]) -> _Accepted:
        owner = Owner(body["model"], text_digest(_checked_key(headers, flavour))[:16])
        _check_model(owner.model)
        options = check_options(body, flavour)
        conversation = read_conversation(body.get("messages"), flavour)
        check_replay(conversation, flavour, options, owner, self._sealer, self._memory)
        units = _list_cache_items(body, conversation)
        window = self._script.scenario.context_window or flavour.window
        _check_window(sum(item.tokens for item in units), window, flavour, options)
        return _Accepted(body, flavour, owner, options, conversation, units)

    def _answer(self, accepted: _Accepted) -> Reply:
        answer = self._script.answer(_course(accepted), "openai-compatible")
        if answer.http_error is not None:
            return _scripted_error(answer.http_error, answer, accepted.flavour)
        message = self._write(accepted, answer)
        return _stream(message, answer) if accepted.options.stream else _whole(message, answer)

    def _write(self, accepted: _Accepted, answer: Answer) -> Message:
        """The message, remembered and accounted for. A broken stream counts too: the server has done its work."""
        spent = self._cache.charge(accepted.items, 0, self._clock())
        asked = Asked(accepted.owner, accepted.flavour, accepted.options, secrets.token_hex(12), int(time.time()))
        message = write_message(answer, asked, spent, self._sealer)
        self._memory.remember(accepted.owner, message.reasoning, message.calls)
        return message


def _route(request: Received) -> str:
    """The path that is asked for, if there is such a one. Raises Refused."""
    path = request.path.rstrip("/")
    if path != _COMPLETIONS and not is_under(path, _MODELS):
        raise Refused(failure(404, f"Invalid URL ({request.method} {request.path})"))
    if request.method != ("POST" if path == _COMPLETIONS else "GET"):
        raise Refused(failure(405, f"Not allowed to {request.method} on {request.path}"))
    return path


def _models(path: str) -> Any:
    if path == _MODELS:
        return {"object": "list", "data": [model_info(name) for name in MODELS]}
    name = unquote(path.removeprefix(f"{_MODELS}/"))
    _check_model(name)
    return model_info(name)


def _check_model(name: str) -> None:
    if is_missing(name):
        raise Refused(Failure(404, f"model '{name}' not found", "not_found_error", "model_not_found", "model"))


def _checked_key(headers: Mapping[str, str], flavour: Flavour) -> str:
    """Any key will do; only hosted services need one."""
    token = read_bearer_token(headers)
    if flavour.hosted and not token:
        raise Refused(failure(401, "No auth credentials found"))
    return token


def _course(accepted: _Accepted) -> Course:
    conversation = accepted.conversation
    told = [
        [message["role"], message.get("content"), message.get("tool_calls"), message.get("tool_call_id")]
        for message in conversation.messages
    ]
    return Course(
        accepted.owner.model,
        conversation.system,
        accepted.options.tools,
        conversation.prompts,
        conversation.answers,
        conversation.results,
        json_digest(told),
    )


def _stream(message: Message, answer: Answer) -> Streamed:
    event = answer.error_event
    error = broken(message.asked, scripted(event.type, event.message)) if event else b""
    return stream_answer(answer, as_frames(message), {}, ping=message.asked.flavour.comment, error=error)


def _whole(message: Message, answer: Answer) -> Whole:
    """Without a stream, faults take their nearest form: an error status, a dropped connection, a longer wait."""
    event, flavour = answer.error_event, message.asked.flavour
    if event is not None:
        told = scripted(event.type, event.message)
        # The router has answered 200 by the time a vendor fails.
        status = 200 if flavour.details else told.status
        return Whole(status, _HEADERS, _error_body(told, flavour), answer.pace.delay_ms, False, answer.label)
    return send_answer(answer, _HEADERS, json.dumps(as_json(message), default=str).encode("ascii"))


def _scripted_error(error: HttpError, answer: Answer, flavour: Flavour) -> Whole:
    told = scripted(error.type, error.message, error.status)
    return send_error(answer, error, told.status, _HEADERS, _error_body(told, flavour))


def _error(told: Failure, flavour: Flavour) -> Whole:
    return Whole(told.status, _HEADERS, _error_body(told, flavour))


def _error_body(told: Failure, flavour: Flavour) -> bytes:
    return json.dumps({"error": error_value(told, flavour.envelope)}).encode("ascii")


def _json(value: Any) -> Whole:
    return Whole(200, _HEADERS, json.dumps(value).encode("ascii"))


def _list_cache_items(body: Mapping[str, Any], conversation: Conversation) -> tuple[Item, ...]:
    """Return the request as cacheable units: tools, then messages."""
    model = str(body["model"])
    needs_mark = "claude" in model
    units = _units(body, conversation)
    return chain_items(
        model, ((unit, n, "5m" if is_marked or not needs_mark else None) for unit, n, is_marked in units)
    )


def _units(body: Mapping[str, Any], conversation: Conversation) -> Iterator[tuple[str, int, bool]]:
    """Yield each unit, its tokens, and whether it is marked for the cache. A mark changes nothing in the unit."""
    for tool in body.get("tools") or ():
        content = json.dumps(tool)
        yield content, 3 + text_tokens(content), _MARK in tool
    for message in conversation.messages:
        parts = message["content"] if isinstance(message.get("content"), list) else []
        is_marked = _MARK in message or any(_MARK in part for part in parts)
        text_only = all(part["type"] == "text" for part in parts)
        unit = {**message, "content": text_of(message)} if text_only else message
        yield json.dumps(unit), 3 + _message_tokens(message), is_marked


def _message_tokens(message: Mapping[str, Any]) -> int:
    """What the model reads of a message; seals cost nothing."""
    content = message.get("content")
    images = sum(part["type"] == "image_url" for part in content) if isinstance(content, list) else 0
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    texts = [text_of(message), reasoning if isinstance(reasoning, str) else ""]
    texts += [call["function"]["name"] + call["function"]["arguments"] for call in message.get("tool_calls") or ()]
    return images * _IMAGE_TOKENS + sum(map(text_tokens, texts))


def _check_window(total: int, window: int, flavour: Flavour, options: Options) -> None:
    """Raise Refused if the prompt, or the prompt with the answer that it asks for, is longer than the window."""
    if total > window:
        _too_long(total, window, flavour)
    asked = options.max_tokens
    if flavour.fits and asked is not None and total + asked > window:
        invalid(
            f"'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is "
            f"{window} tokens and your request has {total} input tokens ({asked} > {window} - {total}).",
            "max_tokens",
        )


def _too_long(total: int, window: int, flavour: Flavour) -> NoReturn:
    if flavour.envelope == "llama.cpp":
        message = (
            f"request ({total} tokens) exceeds the available context size ({window} tokens), try increasing the "
            "context size or enable context shift"
        )
        counts = {"n_prompt_tokens": total, "n_ctx": window}
        raise Refused(Failure(400, message, "exceed_context_size_error", more=counts))
    invalid(
        f"This model's maximum context length is {window} tokens. However, your messages resulted in {total} tokens. "
        "Please reduce the length of the messages.",
        "messages",
        "context_length_exceeded",
    )
