"""The OpenAI Responses dialect: routes, the order of the checks, and how an accepted request is answered.

The checks and forms live in the other modules of this package; what the model says is the script's. State: secrets of
seals and ids, stored responses, cached prefixes, all in memory and bounded.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from thinklsp.simulator.chat.flavours import MODELS as COMPATIBLE
from thinklsp.simulator.chat.flavours import model_info as compatible_info
from thinklsp.simulator.dialect import (
    Received,
    Reply,
    Send,
    Streamed,
    Whole,
    encode_json,
    is_under,
    parse_json,
    read_bearer_token,
    send_answer,
    send_error,
    stream_answer,
)
from thinklsp.simulator.openai.answer import compaction, ending, write_items
from thinklsp.simulator.openai.errors import (
    INVALID,
    Refused,
    error_body,
    filled_text,
    invalid,
    missing,
    scripted_error,
    server_failure,
    status_of_type,
    unknown,
    wrong_type,
)
from thinklsp.simulator.openai.items import Conversation, Item, check_item, kind_of, read_conversation
from thinklsp.simulator.openai.models import MODELS, model_info, traits_of
from thinklsp.simulator.openai.options import Options, check_options
from thinklsp.simulator.openai.replay import Hearing, Issuer, Replay, not_found, prefix_chain
from thinklsp.simulator.openai.response import (
    CACHE_MINIMUM,
    PING,
    Response,
    as_frames,
    as_json,
    error_event,
    figures,
    list_cache_items,
    response_head,
)
from thinklsp.simulator.openai.seals import Ids, Memory
from thinklsp.simulator.openai.tools import check_choice, check_tools
from thinklsp.simulator.scenario import HttpError
from thinklsp.simulator.script import Answer, Course, Script
from thinklsp.simulator.state import Item as CacheItem
from thinklsp.simulator.state import PromptCache, Sealer, text_digest

_KNOWN = frozenset(
    {"access_programs", "background", "context_management", "conversation", "image", "include", "input"}
    | {"instructions", "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation"}
    | {"parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options"}
    | {"prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream"}
    | {"stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"}
)
# Keys of the chat endpoint that have another name here.
_MOVED = {
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
}
_RESPONSES = "/v1/responses"
_MODELS = "/v1/models"
# Headers by which another service's client asks for its models at the same path.
_FOREIGN = frozenset({"anthropic-version", "x-api-key", "x-goog-api-key"})


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A request that passed every check."""

    body: Mapping[str, Any]
    options: Options
    conversation: Conversation
    tools: frozenset[str]
    replay: Replay
    items: tuple[CacheItem, ...]
    issuer: Issuer


class OpenAiDialect:
    """`clock` in seconds decides how long cached prefixes live."""

    def __init__(self, script: Script, clock: Callable[[], float] = time.monotonic) -> None:
        self._script = script
        self._clock = clock
        self._sealer = Sealer()
        self._ids = Ids()
        self._memory = Memory()
        self._cache = PromptCache()

    def serves(self, request: Received) -> bool:
        if is_under(request.path, _RESPONSES):
            return True
        mine = "authorization" in request.headers and not _FOREIGN & request.headers.keys()
        return mine and request.method == "GET" and is_under(request.path, _MODELS)

    def reset(self) -> None:
        self._memory.clear()
        self._cache.clear()

    def failure(self, status: int, message: str) -> Whole:
        return Whole(status, _json_headers(), server_failure(status, message))

    def reply(self, request: Received) -> Reply:
        try:
            return self._route(request)
        except Refused as refusal:
            body = error_body(INVALID, str(refusal), param=refusal.param, code=refusal.code)
            return Whole(refusal.status, _json_headers(), body)
        except RecursionError:
            return Whole(400, _json_headers(), error_body(INVALID, "The request body is nested too deeply."))

    def _route(self, request: Received) -> Reply:
        path, method = request.path.rstrip("/"), request.method
        if path != _RESPONSES and not is_under(path, _MODELS):
            raise Refused(404, f"Invalid URL ({method} {request.path})")
        if method != ("POST" if path == _RESPONSES else "GET"):
            raise Refused(405, f"Invalid method for URL ({method} {request.path})", code="method_not_supported")
        key = _check_key(request.headers)
        if path == _MODELS:
            # Compatible servers with a key are asked at the same place.
            listed = [*(model_info(name) for name in MODELS), *(compatible_info(name) for name in COMPATIBLE)]
            return _json({"object": "list", "data": listed})
        if path != _RESPONSES:
            return _json(model_info(path.removeprefix(f"{_MODELS}/")))
        return self._answer(self._accept(request, key))

    def _accept(self, request: Received, key: str) -> _Accepted:
        body = _parse_body(request.body)
        _check_keys(body)
        options = check_options(body, traits_of(body["model"]))
        names = check_tools(body.get("tools"))
        check_choice(body.get("tool_choice"), names, any_tools=bool(body.get("tools")))
        conversation = read_conversation(self._input(body, options))
        if conversation.effort is not None:
            options = replace(options, effort=conversation.effort)
        issuer = Issuer(self._sealer, self._ids, self._memory, key)
        replay = Hearing(conversation, body.get("tools"), options, issuer).judge()
        units = list_cache_items(body, conversation, options, replay)
        self._check_window(sum(unit.tokens for unit in units), options)
        tools = frozenset((*names, *_added_tools(conversation)))
        return _Accepted(body, options, conversation, tools, replay, units, issuer)

    def _input(self, body: Mapping[str, Any], options: Options) -> list[Item]:
        """The items of the request, with those before them that it refers to."""
        before = self._stored(body)
        given = body.get("input")
        if given is None:
            missing("input")
        if isinstance(given, str):
            return [*before, {"type": "message", "role": "user", "content": filled_text(given, "input")}]
        if not isinstance(given, list):
            wrong_type("input", "one of a string or an array", given)
        result = list(before)
        for index, item in enumerate(given):
            if not self._memory.dictated(item):
                check_item(item, f"input[{index}]", options)
                if kind_of(item, f"input[{index}]") == "item_reference":
                    item = self._memory.item(item["id"]) or not_found(item["id"])
            result.append(item)
        if not result:
            missing("input")
        return result

    def _stored(self, body: Mapping[str, Any]) -> tuple[Item, ...]:
        for key, name in (("conversation", "Conversation"), ("prompt", "Prompt")):
            wanted = body.get(key)
            if wanted is not None:
                wanted = wanted.get("id") if isinstance(wanted, dict) else wanted
                raise Refused(404, f"{name} with id '{wanted}' not found.", param=key)
        response_id = body.get("previous_response_id")
        if response_id is None:
            return ()
        conversation = self._memory.conversation(response_id)
        if conversation is None:
            invalid(
                f"Previous response with id '{response_id}' not found.",
                "previous_response_id",
                "previous_response_not_found",
            )
        return conversation

    def _check_window(self, total: int, options: Options) -> None:
        window = self._script.scenario.context_window or options.traits.window
        if total > window and not options.truncates:
            invalid(
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
                "input",
                "context_length_exceeded",
            )

    def _answer(self, accepted: _Accepted) -> Reply:
        answer = self._script.answer(_course(accepted), "openai")
        if answer.http_error is not None:
            return _scripted_error(answer.http_error, answer)
        response = self._write(accepted, answer)
        return _stream(response, answer) if accepted.options.stream else _whole(response, answer)

    def _write(self, accepted: _Accepted, answer: Answer) -> Response:
        """The response, stored and accounted for. A broken stream counts too: the service has done its work."""
        options = accepted.options
        spent = self._cache.charge(accepted.items, CACHE_MINIMUM, self._clock())
        written = write_items(answer, options, accepted.issuer, accepted.replay.prefix)
        if options.compact_at is not None and spent.total >= options.compact_at:
            written = (compaction(options, accepted.issuer), *written)
        response_id = f"resp_{secrets.token_hex(24)}"
        usage = figures(
            spent,
            sum(item.tokens for item in written) + 2,
            sum(item.tokens for item in written if item.reasoning),
            answer.usage,
            options,
        )
        head = response_head(response_id, int(time.time()), accepted.body, options, accepted.replay.dropped)
        response = Response(head, written, ending(answer), usage, options.obfuscates)
        self._memory.dictate(item.item for item in written if item.dictated)
        if options.store:
            self._memory.store(response_id, accepted.conversation.items, response.output)
        return response


def _check_key(headers: Mapping[str, str]) -> str:
    """Return a digest of the key: any key will do, none will not."""
    key = read_bearer_token(headers)
    if not key:
        raise Refused(
            401,
            "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer "
            "auth (i.e. Authorization: Bearer YOUR_KEY).",
        )
    return text_digest(key)[:16]


def _parse_body(raw: bytes) -> Mapping[str, Any]:
    try:
        body = parse_json(raw)
    except ValueError:
        invalid(
            "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP "
            "library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)"
        )
    if not isinstance(body, dict):
        wrong_type("body", "an object", body)
    return body


def _check_keys(body: Mapping[str, Any]) -> None:
    """Refuse a body without a model, or with an unknown key."""
    for key in body:
        if key in _MOVED:
            invalid(
                f"Unsupported parameter: '{key}'. In the Responses API, this parameter has moved to '{_MOVED[key]}'. "
                "Try again with the new parameter. See the API documentation for more information: "
                "https://platform.openai.com/docs/api-reference/responses/create.",
                None,
                "unsupported_parameter",
            )
        if key not in _KNOWN:
            unknown(key)
    if body.get("model") is None:
        missing("model")
    if not isinstance(body["model"], str):
        wrong_type("model", "a string", body["model"])


def _added_tools(conversation: Conversation) -> list[str]:
    added = (item for item in conversation.items if item.get("type") == "additional_tools")
    tools = (tool for item in added if isinstance(item.get("tools"), list) for tool in item["tools"])
    return [str(tool["name"]) for tool in tools if isinstance(tool, dict) and "name" in tool]


def _course(accepted: _Accepted) -> Course:
    conversation, instructions = accepted.conversation, accepted.body.get("instructions")
    return Course(
        str(accepted.body["model"]),
        "\n".join((*((instructions,) if instructions else ()), *conversation.system)),
        accepted.tools,
        conversation.prompts,
        conversation.answers,
        conversation.results,
        prefix_chain(None, conversation.items)[-1],
    )


def _stream(response: Response, answer: Answer) -> Streamed:
    frames = tuple(as_frames(response))
    event = answer.error_event
    events = sum(isinstance(frame, Send) for frame in frames)
    error = error_event(event.type, event.message, min(event.after_events, events)) if event else b""
    return stream_answer(answer, frames, _headers(), ping=PING, error=error)


def _whole(response: Response, answer: Answer) -> Whole:
    """Without a stream, faults take their nearest form: an error status, a dropped connection, a longer wait."""
    event = answer.error_event
    if event is not None:
        error = HttpError(status=status_of_type(event.type), type=event.type, message=event.message)
        return _scripted_error(error, answer)
    return send_answer(answer, _json_headers(), encode_json(as_json(response)))


def _scripted_error(error: HttpError, answer: Answer) -> Whole:
    status, body = scripted_error(error)
    return send_error(answer, error, status, _json_headers(), body)


def _json(value: Mapping[str, Any]) -> Whole:
    return Whole(200, _json_headers(), encode_json(value))


def _json_headers() -> dict[str, str]:
    return {**_headers(), "content-type": "application/json"}


def _headers() -> dict[str, str]:
    return {
        "x-request-id": f"req_{secrets.token_hex(16)}",
        "openai-organization": "thinklsp-simulator",
        "openai-version": "2020-10-01",
    }
