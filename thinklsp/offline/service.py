"""The scenario player in the form of Anthropic's Messages API, in process or over HTTP on 127.0.0.1.

The service signs thinking blocks, and requires the client to send them back unmodified and in order. It checks nothing
else: the strict stand-ins of real services belong to the tests.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, assert_never
from urllib.parse import urlsplit

from thinklsp.core.errors import ThinkLspError
from thinklsp.offline.scenario import (
    HttpError,
    Pacing,
    RawPart,
    RedactedPart,
    Scenario,
    ScenarioPart,
    ScenarioStep,
    ScriptedFault,
    TextPart,
    ThinkingPart,
    ToolPart,
    load_scenario,
)
from thinklsp.offline.script import DialoguePart, NeutralRequest, Script, read_conversation_state

# These environment variables select the scenario of a server, and turn its pauses off.
SCENARIO_VARIABLE, PAUSES_VARIABLE = "THINKLSP_SCENARIO", "THINKLSP_SCENARIO_PAUSES"
_MESSAGES, _MODELS = "/v1/messages", "/v1/models/"
_STOP_REASONS = {"context_window": "model_context_window_exceeded"}
_PING = b'event: ping\ndata: {"type": "ping"}\n\n'
# Maps the types of signed blocks to the key that contains the signature.
_SIGNATURE_KEYS = {"thinking": "signature", "redacted_thinking": "data"}
_ERROR_TYPES = {400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}
_COUNTS_BETA = "thinking-token-count"
# The key is no secret. Signatures only reveal changes, and stay valid when a session continues in another process.
_SIGNING_KEY = b"thinklsp offline"

Json = dict[str, Any]
_Piece = tuple[int, bytes]
"""Bytes of a response body, behind the pause before them in milliseconds."""


def open_service(environment: Mapping[str, str]) -> OfflineService:
    """Return a service that plays the scenario of the environment, by default `sample`. Raises ScenarioError."""
    scenario = load_scenario(environment.get(SCENARIO_VARIABLE) or "sample")
    return OfflineService(scenario, pauses=environment.get(PAUSES_VARIABLE) != "off")


@dataclass(frozen=True, slots=True)
class OfflineResponse:
    """A response. Header names are lowercase. `pacing.delay_ms` is the pause before the headers.

    If `breaks` is true, the connection breaks after the last piece. `label` names the scenario step.
    """

    status: int
    headers: Mapping[str, str]
    pieces: tuple[_Piece, ...]
    pacing: Pacing = field(default_factory=Pacing)
    breaks: bool = False
    label: str = ""

    def play(self) -> Iterator[tuple[float, bytes]]:
        """Yield each piece of the body with the pause before it in seconds. Long pauses contain pings.

        Raises ConnectionResetError after the last piece if `breaks` is true.
        """
        every = self.pacing.ping_every_ms
        for wait, data in self.pieces:
            while 0 < every < wait:
                yield every / 1000, _PING
                wait -= every
            yield wait / 1000, data
        if self.breaks:
            raise ConnectionResetError("The scenario breaks the connection here.")


class _RequestRefused(Exception):
    """An invalid request. The message is sent to the client."""


class OfflineService:
    """The Messages API of a scenario. If `pauses` is false, the scenario is played without its pauses."""

    def __init__(self, scenario: Scenario, *, pauses: bool = True) -> None:
        self._script = Script(scenario)
        self._pauses = pauses
        # Maps each tool call ID to the signatures in the message that contains the call.
        self._issued: dict[str, tuple[str, ...]] = {}

    async def send_response(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]:
        """Return the status, the headers and the body of the response to a request from this process."""
        # Reading a long conversation takes time, and the scenario's regular expressions may take any time.
        response = await asyncio.to_thread(self.respond, method, path, headers, body)
        await asyncio.sleep(response.pacing.delay_ms / 1000)
        return response.status, response.headers, _pause_and_yield(response)

    def respond(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> OfflineResponse:
        """Return the response to a request. An invalid request gets a response with an error.

        `path` does not include the query, and header names are lowercase.
        """
        if method == "GET" and path.startswith(_MODELS):
            return _respond_json({"type": "model", "id": path[len(_MODELS) :], "display_name": "Offline model"})
        if (method, path) != ("POST", _MESSAGES):
            return _respond_error(HttpError(status=404, message=f"The offline model answers only POST {_MESSAGES}."))
        try:
            response = self._answer(_parse_request(body), counts=_COUNTS_BETA in headers.get("anthropic-beta", ""))
        except _RequestRefused as refusal:
            return _respond_error(HttpError(status=400, message=str(refusal)))
        if self._pauses:
            return response
        return replace(response, pieces=tuple((0, data) for _, data in response.pieces), pacing=Pacing())

    def _answer(self, request: Json, *, counts: bool) -> OfflineResponse:
        state = read_conversation_state(_iterate_parts(request["messages"]))
        mode = request.get("thinking") or {}
        thinks = mode.get("type") not in (None, "disabled")
        self._check_thinking(request["messages"], start=state.start if thinks else None)
        digest = hashlib.sha256(json.dumps(request["messages"], sort_keys=True).encode("ascii")).hexdigest()
        tools = frozenset(str(tool.get("name")) for tool in request.get("tools") or ())
        answer = self._script.answer(NeutralRequest(tools, state, digest))
        window, usage = self._script.scenario.context_window, _estimate_usage(request, answer)
        if window is not None and usage["total"] > window:
            raise _RequestRefused(f"prompt is too long: {usage['total']} tokens > {window} maximum")
        if answer.http_error is not None:
            return replace(_respond_error(answer.http_error), pacing=answer.pacing, label=answer.label)
        parts = [part for part in answer.parts if thinks or not isinstance(part, ThinkingPart | RedactedPart)]
        blocks = [_write_block(part, shows=mode.get("display") != "omitted") for part in parts]
        self._remember_signatures(blocks)
        message = _build_message(request["model"], blocks, answer, usage)
        if not request.get("stream"):
            return replace(_respond_json(message), pacing=answer.pacing, label=answer.label)
        events = _iterate_events(message, parts, blocks, answer.pacing, counts=counts)
        return _respond_stream(tuple(events), answer)

    def _remember_signatures(self, blocks: Sequence[Json]) -> None:
        signatures = tuple(_find_signature(block) for block in blocks if block["type"] in _SIGNATURE_KEYS)
        self._issued |= {block["id"]: signatures for block in blocks if block["type"] == "tool_use"}

    def _check_thinking(self, messages: Sequence[Json], *, start: int | None) -> None:
        """Raise _RequestRefused for a thinking block that was changed or is missing.

        Messages from the index `start` on belong to the current tool loop and must contain all their thinking blocks,
        in order. If `start` is None, blocks may be missing everywhere.
        """
        for index, message in enumerate(messages):
            blocks = _list_blocks(message)
            signed = [block for block in blocks if block.get("type") in _SIGNATURE_KEYS]
            for number, block in enumerate(signed):
                if not _is_signed(block):
                    raise _RequestRefused(
                        f"messages.{index}.content.{number}: Invalid `signature` in `{block['type']}` block"
                    )
            calls = (str(block.get("id")) for block in blocks if block.get("type") == "tool_use")
            issued = next((self._issued[call] for call in calls if call in self._issued), None)
            is_complete = issued is None or issued == tuple(map(_find_signature, signed))
            if start is not None and index >= start and not is_complete:
                raise _RequestRefused(
                    f"messages.{index}.content: thinking blocks of the latest assistant message must be sent back "
                    "unmodified and in order"
                )


def _sign(kind: str, text: str, nonce: bytes | None = None) -> str:
    nonce = nonce or secrets.token_bytes(12)
    code = hmac.digest(_SIGNING_KEY, nonce + f"{kind} {text}".encode("utf-8", "surrogatepass"), "sha256")
    return base64.b64encode(nonce + code).decode("ascii")


def _is_signed(block: Json) -> bool:
    signature = _find_signature(block)
    try:
        nonce = base64.b64decode(signature, validate=True)[:12]
    except ValueError:
        return False
    # The data of a redacted block is signed without its text, which the client does not know.
    return hmac.compare_digest(signature, _sign(block["type"], str(block.get("thinking", "")), nonce))


def _find_signature(block: Json) -> str:
    return str(block.get(_SIGNATURE_KEYS[block["type"]], ""))


def _parse_request(body: bytes) -> Json:
    """Parse a request for a message. Raises _RequestRefused if a required key is missing or has the wrong type."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise _RequestRefused("The request body is not valid JSON.") from None
    match request:
        case {"model": str(), "messages": [*messages]} if all(isinstance(message, dict) for message in messages):
            return dict(request)
    raise _RequestRefused("The request must be an object with `model` and a list of `messages`.")


def _list_blocks(message: Json) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _iterate_parts(messages: Iterable[Json]) -> Iterator[DialoguePart]:
    for index, message in enumerate(messages):
        by_model = message.get("role") == "assistant"
        for block in _list_blocks(message) if message.get("role") != "system" else ():
            text, result = None, None
            if block.get("type") == "text" and not by_model:
                text = str(block.get("text", ""))
            elif block.get("type") == "tool_result":
                result = _join_texts(block.get("content"))
            yield DialoguePart(index, by_model, text, result)


def _join_texts(content: object) -> str:
    """Return the text of a string or of a list of text blocks."""
    return "\n".join(str(block.get("text", "")) for block in _list_blocks({"content": content}))


def _write_block(part: ScenarioPart, *, shows: bool) -> Json:
    """Return the complete content block for a part. If `shows` is false, thinking blocks have no text."""
    match part:
        case ThinkingPart():
            text = (part.readable_text or "") if shows else ""
            return {"type": "thinking", "thinking": text, "signature": _sign("thinking", text)}
        case RedactedPart():
            return {"type": "redacted_thinking", "data": _sign("redacted_thinking", "")}
        case TextPart():
            return {"type": "text", "text": part.text}
        case ToolPart():
            call_id = f"toolu_{secrets.token_hex(12)}"
            return {"type": "tool_use", "id": call_id, "name": part.tool, "input": part.input}
        case RawPart():
            return part.raw
        case _:
            assert_never(part)


def _iterate_deltas(part: ScenarioPart, block: Json, chunk_chars: int, *, counts: bool) -> Iterator[Json]:
    """Yield the deltas that stream a block. If `counts` is true, deltas of thinking contain token counts."""

    def split(text: str) -> Iterator[str]:
        return (text[at : at + chunk_chars] for at in range(0, len(text), chunk_chars))

    match part:
        case ThinkingPart():
            # Hidden thinking takes as long as readable thinking.
            for chunk in split(block["thinking"] or part.thought):
                count = {"estimated_tokens": _count_tokens(chunk)} if counts else {}
                yield {"type": "thinking_delta", "thinking": chunk if block["thinking"] else "", **count}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case TextPart():
            yield from ({"type": "text_delta", "text": chunk} for chunk in split(part.text))
        case ToolPart() if part.input or part.input_json is not None:
            yield from ({"type": "input_json_delta", "partial_json": chunk} for chunk in split(part.format_arguments()))
        case _:
            pass


_EMPTIED: Mapping[str, Json] = {
    "thinking": {"thinking": "", "signature": ""},
    "text": {"text": ""},
    "tool_use": {"input": {}},
}


def _iterate_events(
    message: Json, parts: Sequence[ScenarioPart], blocks: Sequence[Json], pacing: Pacing, *, counts: bool
) -> Iterator[_Piece]:
    ending = {key: message[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in message}
    opening = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    opening.pop("stop_details", None)
    yield _encode_event("message_start", message={**opening, "usage": {**message["usage"], "output_tokens": 1}})
    for index, (part, block) in enumerate(zip(parts, blocks, strict=True)):
        start = block if isinstance(part, RawPart) else block | _EMPTIED.get(block["type"], {})
        yield _encode_event("content_block_start", part.delay_ms, index=index, content_block=start)
        for delta in _iterate_deltas(part, block, pacing.chunk_chars, counts=counts):
            wait = 0 if delta["type"] == "signature_delta" else pacing.interval_ms
            yield _encode_event("content_block_delta", wait, index=index, delta=delta)
        yield _encode_event("content_block_stop", index=index)
    yield _encode_event("message_delta", delta=ending, usage=message["usage"])
    yield _encode_event("message_stop")


def _encode_event(name: str, wait_ms: int = 0, **payload: Any) -> _Piece:
    data = json.dumps({"type": name, **payload}, default=str)
    return wait_ms, f"event: {name}\ndata: {data}\n\n".encode("ascii")


def _count_tokens(text: str) -> int:
    """Estimate the number of tokens. Four characters count as one token."""
    return (len(text) + 3) // 4


def _estimate_usage(request: Json, answer: ScenarioStep) -> dict[str, int]:
    """Estimate the usage of an answer. All messages but the last two are read from the cache.

    `total` is the number of input tokens. The scenario's own figures replace the estimates.
    """
    messages = request["messages"]
    head = _count_tokens(json.dumps([request.get("system"), request.get("tools"), messages[:-2]]))
    total = head + _count_tokens(json.dumps(messages[-2:]))
    thinking = sum(
        _count_tokens(part.thought) for part in answer.parts if isinstance(part, ThinkingPart | RedactedPart)
    )
    spoken = sum(_count_tokens(part.model_dump_json()) for part in answer.parts if not hasattr(part, "thought"))
    estimates = {"input": total, "cache_read": head if len(messages) > 1 else 0, "output": thinking + spoken}
    estimates |= {"thinking": thinking, "cache_write": 0, "total": total}
    scripted = answer.usage.model_dump(exclude_none=True)
    return estimates | {key.removesuffix("_tokens"): count for key, count in scripted.items()}


def _build_message(model: str, blocks: Sequence[Json], answer: ScenarioStep, usage: Mapping[str, int]) -> Json:
    message: Json = {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": _STOP_REASONS.get(str(answer.stop_reason), answer.stop_reason),
        "stop_sequence": None,
        "usage": {
            "input_tokens": max(usage["input"] - usage["cache_read"] - usage["cache_write"], 0),
            "cache_creation_input_tokens": usage["cache_write"],
            "cache_read_input_tokens": usage["cache_read"],
            "output_tokens": usage["output"],
            "output_tokens_details": {"thinking_tokens": usage["thinking"]},
        },
    }
    if answer.refusal is not None:
        message["stop_details"] = {"type": "refusal", **answer.refusal.model_dump()}
    return message


def _respond_stream(pieces: tuple[_Piece, ...], answer: ScenarioStep) -> OfflineResponse:
    fault = answer.fault or ScriptedFault.model_construct()
    if fault.error_event is not None:
        error = {"type": fault.error_event.type, "message": fault.error_event.message}
        pieces = (*pieces[: fault.error_event.after_events], _encode_event("error", error=error))
    elif fault.cut_after_events is not None:
        pieces = pieces[: fault.cut_after_events]
    breaks = fault.cut_after_events is not None and not fault.cut_cleanly
    return OfflineResponse(200, {"content-type": "text/event-stream"}, pieces, answer.pacing, breaks, answer.label)


def _respond_json(value: object, status: int = 200) -> OfflineResponse:
    body = json.dumps(value, default=str).encode("ascii")
    return OfflineResponse(status, {"content-type": "application/json"}, ((0, body),))


def _respond_error(error: HttpError) -> OfflineResponse:
    kind = error.type or _ERROR_TYPES.get(error.status, "api_error")
    value = {"type": "error", "error": {"type": kind, "message": error.message or kind.replace("_", " ").capitalize()}}
    response = _respond_json(value, error.status)
    own = {name.lower(): value for name, value in error.headers.items()}
    return replace(response, headers={**response.headers, **own})


async def _pause_and_yield(response: OfflineResponse) -> AsyncIterator[bytes]:
    for wait, data in response.play():
        await asyncio.sleep(wait)
        yield data


_HOST = "127.0.0.1"
_MAX_BODY_BYTES = 32 * 1024 * 1024


class OfflineServer(ThreadingHTTPServer):
    """An HTTP server for an offline service. `report` receives a line of text for each request.

    Raises ThinkLspError if the port is in use.
    """

    daemon_threads = True

    def __init__(self, service: OfflineService, port: int, report: Callable[[str], None]) -> None:
        try:
            super().__init__((_HOST, port), _RequestHandler)
        except OSError as error:
            raise ThinkLspError(f"The simulator cannot listen on {_HOST}:{port}: {error.strerror}.") from None
        self.service = service
        self.report = report

    @property
    def base_url(self) -> str:
        return f"http://{_HOST}:{self.server_port}"


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OfflineServer

    def _respond(self) -> None:
        length = self.headers.get("content-length", "")
        # Python refuses to convert very long numbers.
        is_fair = length.isdecimal() and len(length) < 10 and int(length) <= _MAX_BODY_BYTES
        if self.command == "POST" and not is_fair:
            self.send_error(413, f"The request needs a Content-Length of at most {_MAX_BODY_BYTES:,} bytes")
            return
        body = self.rfile.read(int(length)) if self.command == "POST" else b""
        headers = {name.lower(): value for name, value in self.headers.items()}
        response = self.server.service.respond(self.command, urlsplit(self.path).path, headers, body)
        outcome = str(response.status)
        try:
            self._send(response)
        except ConnectionError:
            outcome = "interrupted" if response.breaks else "the client disconnected"
            self.close_connection = True
        self.server.report(
            f"{self.command} {self.path}: {outcome}" + (f" ({response.label})" if response.label else "")
        )

    def _send(self, response: OfflineResponse) -> None:
        time.sleep(response.pacing.delay_ms / 1000)
        self.send_response(response.status)
        for name, value in {**response.headers, "transfer-encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        for wait, data in response.play():
            time.sleep(wait)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = _respond  # noqa: N815 - the names of `http.server`

    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""
