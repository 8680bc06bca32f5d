"""The scenario player in the form of Anthropic's Messages API.

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
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thinklsp.offline.answer import BlockWriter, OfflineResponse, Piece, build_message, estimate_usage, stream_message
from thinklsp.offline.scenario import HttpError, Scenario, load_scenario, remove_pauses
from thinklsp.offline.script import (
    BoundedDict,
    DialoguePart,
    NeutralRequest,
    Script,
    read_conversation_state,
)

_MESSAGES, _MODELS = "/v1/messages", "/v1/models/"
_MAX_REMEMBERED_CALLS = 16_384
# Maps the types of signed blocks to the key that contains the signature.
_SIGNATURE_KEYS = {"thinking": "signature", "redacted_thinking": "data"}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_COUNTS_BETA = "thinking-token-count"
# The key is no secret. Signatures only reveal changes, and stay valid when a session continues in another process.
_SIGNING_KEY = b"thinklsp offline"


# These environment variables select the scenario of a server, and turn its pauses off.
SCENARIO_VARIABLE, PAUSES_VARIABLE = "THINKLSP_SCENARIO", "THINKLSP_SCENARIO_PAUSES"


def open_service(environment: Mapping[str, str]) -> OfflineService:
    """Return a service that plays the scenario of the environment, by default `sample`. Raises ScenarioError."""
    scenario = load_scenario(environment.get(SCENARIO_VARIABLE) or "sample")
    return OfflineService(remove_pauses(scenario) if environment.get(PAUSES_VARIABLE) == "off" else scenario)


class _RequestRefused(Exception):
    """An invalid request. The message is sent to the client."""


class OfflineService:
    """The Messages API of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self._script = Script(scenario)
        # Maps each tool call ID to the signatures in the message that contains the call.
        self._issued: BoundedDict[str, tuple[str, ...]] = BoundedDict(_MAX_REMEMBERED_CALLS)

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
            return self._answer(_parse_request(body), counts=_COUNTS_BETA in headers.get("anthropic-beta", ""))
        except _RequestRefused as refusal:
            return _respond_error(HttpError(status=400, message=str(refusal)))

    def _answer(self, request: Mapping[str, Any], *, counts: bool) -> OfflineResponse:
        state = read_conversation_state(_iterate_parts(request["messages"]))
        mode = request.get("thinking") or {}
        thinks = mode.get("type") not in (None, "disabled")
        self._check_thinking(request["messages"], start=state.start if thinks else None)
        digest = hashlib.sha256(json.dumps(request["messages"], sort_keys=True).encode("ascii")).hexdigest()
        tools = frozenset(str(tool.get("name")) for tool in request.get("tools") or ())
        system = _join_texts(request.get("system"))
        answer = self._script.answer(NeutralRequest(request["model"], system, tools, state, digest))
        window, usage = self._script.scenario.context_window, estimate_usage(request, answer)
        if window is not None and usage["total"] > window:
            raise _RequestRefused(f"prompt is too long: {usage['total']} tokens > {window} maximum")
        if answer.http_error is not None:
            return replace(_respond_error(answer.http_error), pacing=answer.pacing, label=answer.label)
        writer = BlockWriter(answer, self._sign, shows=mode.get("display") != "omitted", counts=counts)
        blocks = tuple(writer.write(thinks=thinks))
        signatures = tuple(_find_signature(block.value) for block in blocks if block.value["type"] in _SIGNATURE_KEYS)
        for block in blocks:
            if block.value["type"] == "tool_use":
                self._issued[block.value["id"]] = signatures
        message = build_message(request["model"], blocks, answer, usage)
        if request.get("stream"):
            return stream_message(message, blocks, answer)
        return replace(_respond_json(message), pacing=answer.pacing, label=answer.label)

    def _check_thinking(self, messages: Sequence[Mapping[str, Any]], *, start: int | None) -> None:
        """Raise _RequestRefused for a thinking block that was changed or is missing.

        Messages from the index `start` on belong to the current tool loop and must contain all their thinking blocks,
        in order. If `start` is None, blocks may be missing everywhere.
        """
        for index, message in enumerate(messages):
            blocks = _list_blocks(message)
            signed = [block for block in blocks if block.get("type") in _SIGNATURE_KEYS]
            for number, block in enumerate(signed):
                if not self._is_own(block):
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

    def _sign(self, kind: str, text: str, nonce: bytes | None = None) -> str:
        nonce = nonce or secrets.token_bytes(12)
        code = hmac.digest(_SIGNING_KEY, nonce + f"{kind} {text}".encode("utf-8", "surrogatepass"), "sha256")
        return base64.b64encode(nonce + code).decode("ascii")

    def _is_own(self, block: Mapping[str, Any]) -> bool:
        signature = _find_signature(block)
        try:
            nonce = base64.b64decode(signature, validate=True)[:12]
        except ValueError:
            return False
        # The data of a redacted block is signed without its text, which the client does not know.
        return hmac.compare_digest(signature, self._sign(block["type"], str(block.get("thinking", "")), nonce))


def _parse_request(body: bytes) -> dict[str, Any]:
    """Parse a request for a message. Raises _RequestRefused if a required key is missing or has the wrong type."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise _RequestRefused("The request body is not valid JSON.") from None
    match request:
        case {"model": str(), "messages": [*messages]} if all(isinstance(message, dict) for message in messages):
            return dict(request)
    raise _RequestRefused("The request must be an object with `model` and a list of `messages`.")


def _list_blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _iterate_parts(messages: Iterable[Mapping[str, Any]]) -> Iterator[DialoguePart]:
    for index, message in enumerate(messages):
        if message.get("role") == "system":
            continue
        by_model = message.get("role") == "assistant"
        for block in _list_blocks(message):
            text, result = None, None
            if block.get("type") == "text" and not by_model:
                text = str(block.get("text", ""))
            elif block.get("type") == "tool_result":
                result = _join_texts(block.get("content"))
            yield DialoguePart(index, by_model, text, result)


def _join_texts(content: object) -> str:
    """Return the text of a string or of a list of text blocks."""
    return "\n".join(str(block.get("text", "")) for block in _list_blocks({"content": content}))


def _find_signature(block: Mapping[str, Any]) -> str:
    return str(block.get(_SIGNATURE_KEYS[block["type"]], ""))


def _respond_json(value: object, status: int = 200) -> OfflineResponse:
    body = json.dumps(value, default=str).encode("ascii")
    return OfflineResponse(status, {"content-type": "application/json"}, (Piece(body),))


def _respond_error(error: HttpError) -> OfflineResponse:
    kind = error.type or _ERROR_TYPES.get(error.status, "api_error")
    value = {"type": "error", "error": {"type": kind, "message": error.message or kind.replace("_", " ").capitalize()}}
    response = _respond_json(value, error.status)
    if error.body is not None:
        response = OfflineResponse(error.status, {"content-type": "text/html"}, (Piece(error.body.encode("utf-8")),))
    own = {name.lower(): value for name, value in error.headers.items()}
    return replace(response, headers={**response.headers, **own})


async def _pause_and_yield(response: OfflineResponse) -> AsyncIterator[bytes]:
    for wait, data in response.play():
        await asyncio.sleep(wait)
        yield data
