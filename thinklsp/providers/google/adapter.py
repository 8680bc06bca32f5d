"""The adapter for generateContent: our requests to its wire form. Contents, stream and failures have own modules.

Equal requests give equal bytes: no clock, no chance, keys in a fixed order; mappings keep the order they came in,
since models read schemas and their own arguments in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never
from urllib.parse import quote

from thinklsp.core.errors import ProviderError
from thinklsp.core.messages import ToolSpec
from thinklsp.providers.base import Endpoint, HttpRequest, ModelRequest, StreamDecoder, Thinking
from thinklsp.providers.capabilities import Capabilities, at, count
from thinklsp.providers.google.contents import contents_of, paused_at
from thinklsp.providers.google.errors import failure_of_answer
from thinklsp.providers.google.stream import GoogleDecoder
from thinklsp.providers.model_info import ModelInfo
from thinklsp.providers.service_errors import json_object
from thinklsp.providers.written import written

_STREAM_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}
_QUERY_HEADERS = {"accept": "application/json"}

_Wire = dict[str, Any]


class GoogleAdapter:
    """Stateless; satisfies `Adapter`."""

    def encode(self, request: ModelRequest, endpoint: Endpoint) -> HttpRequest:
        origin = endpoint.origin(request.model.id)
        conversation, token = paused_at(request.conversation, origin)
        body: _Wire = {}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        body["contents"] = contents_of(conversation, origin, signed_calls=_wants_signatures(request.model))
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
        if config := _generation_config(request):
            body["generationConfig"] = config
        if token is not None:
            body["continuationToken"] = token
        name = quote(request.model.id.removeprefix("models/"), safe="")
        return HttpRequest(
            f"{endpoint.base_url.rstrip('/')}/v1beta/models/{name}:streamGenerateContent?alt=sse",
            _add_credentials(_STREAM_HEADERS, endpoint),
            written(body),
        )

    def decoder(self) -> StreamDecoder:
        return GoogleDecoder()

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, model: str = "") -> ProviderError:
        return failure_of_answer(status, headers, body, model)

    def encode_model_query(self, endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
        name = quote(model_id.removeprefix("models/"), safe="")
        url = f"{endpoint.base_url.rstrip('/')}/v1beta/models/{name}"
        return url, _add_credentials(_QUERY_HEADERS, endpoint)

    def parse_capabilities(self, body: bytes) -> Capabilities | None:
        """Parse the token limits; the service tells neither effort levels nor budgets."""
        content = json_object(body)
        window, cap = count(content.get("inputTokenLimit")), count(content.get("outputTokenLimit"))
        return None if window is None and cap is None else Capabilities(context_window=window, max_tokens=cap)

    def is_unknown_model(self, status: int, body: bytes, model_id: str) -> bool:
        error = at(json_object(body), "error") or {}
        return status == 404 and model_id.removeprefix("models/") in str(error.get("message"))


def _add_credentials(headers: Mapping[str, str], endpoint: Endpoint) -> dict[str, str]:
    """Add the key and the user's own headers, which come last and win."""
    headers = dict(headers)
    if endpoint.api_key and endpoint.bearer:
        headers["authorization"] = f"Bearer {endpoint.api_key}"
    elif endpoint.api_key:
        headers["x-goog-api-key"] = endpoint.api_key
    return headers | {name.lower(): value for name, value in endpoint.headers.items()}


def _declaration(tool: ToolSpec) -> _Wire:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.input_schema}


def _generation_config(request: ModelRequest) -> _Wire:
    config: _Wire = {}
    if request.max_tokens is not None:
        config["maxOutputTokens"] = request.max_tokens
    if thinking := _thinking_config(request.thinking, request.model):
        config["thinkingConfig"] = thinking
    return config


def _thinking_config(thinking: Thinking, model: ModelInfo) -> _Wire:
    """Budget and level exclude each other: there is never more than one of them."""
    config: _Wire = {}
    match thinking.form:
        case "unset" | "between_tools":
            return {}  # No model of this service has the second.
        case "off":
            return {"thinkingBudget": 0}
        case "manual":
            if thinking.budget_tokens is not None:
                config["thinkingBudget"] = thinking.budget_tokens
        case "adaptive":
            config = _adaptive(thinking, model)
        case _:
            assert_never(thinking.form)
    return config | {"includeThoughts": True} if thinking.summarized else config


def _adaptive(thinking: Thinking, model: ModelInfo) -> _Wire:
    if model.efforts:
        return {} if thinking.effort is None else {"thinkingLevel": thinking.effort.upper()}
    # -1 leaves the amount to the model; most do that anyway.
    return {"thinkingBudget": -1} if model.manual and not model.on_when_unset else {}


def _wants_signatures(model: ModelInfo) -> bool:
    """Every family since the one that brought levels of thinking; new ones are taken to be of that kind."""
    return bool(model.efforts) or not model.known
