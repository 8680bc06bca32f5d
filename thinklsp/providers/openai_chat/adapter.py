"""The adapter for chat completions: our requests to their wire form, for one kind of server.

Equal requests give equal bytes: no clock, no chance, keys in a fixed order. Nothing is sent that some servers refuse
and none needs: no sampling, no forced tools. Stream, failures and history have modules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import ProviderError
from thinklsp.core.messages import ToolSpec
from thinklsp.providers.base import Endpoint, HttpRequest, ModelRequest, StreamDecoder
from thinklsp.providers.capabilities import Capabilities, count
from thinklsp.providers.openai_chat.cache_marks import is_claude, with_marks
from thinklsp.providers.openai_chat.errors import failure_of_answer
from thinklsp.providers.openai_chat.replay import wire_messages
from thinklsp.providers.openai_chat.servers import ChatServer, thinking_fields
from thinklsp.providers.openai_chat.stream import ChatDecoder
from thinklsp.providers.service_errors import json_object
from thinklsp.providers.written import written

_STREAM_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}
_QUERY_HEADERS = {"accept": "application/json"}

# Keys of a context window: llama.cpp; vLLM and SGLang; LM Studio; OpenRouter and others; Groq; Mistral.
_WINDOW_KEYS = (
    "n_ctx",
    "max_model_len",
    "loaded_context_length",
    "context_length",
    "context_window",
    "max_context_length",
)

_Wire = dict[str, Any]


class OpenAiChatAdapter:
    """Stateless; satisfies `Adapter`."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server

    def encode(self, request: ModelRequest, endpoint: Endpoint) -> HttpRequest:
        server = self._server.for_model(request.model.id)
        # A server that serves one model needs no name for it.
        body: _Wire = {"model": request.model.id} if request.model.id else {}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        if request.max_tokens is not None:
            body[server.output_cap] = request.max_tokens
        body |= thinking_fields(server, request.thinking)
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        system = [{"role": "system", "content": request.system}] if request.system else []
        messages = [*system, *wire_messages(request.conversation, endpoint.origin(request.model.id), server)]
        is_marked = request.cache_hints and is_claude(request.model.id)
        body["messages"] = with_marks(messages) if is_marked else messages
        return HttpRequest(
            f"{endpoint.base_url.rstrip('/')}/chat/completions",
            _add_credentials(_STREAM_HEADERS, endpoint),
            written(body),
        )

    def decoder(self) -> StreamDecoder:
        return ChatDecoder(self._server)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, model: str = "") -> ProviderError:
        return failure_of_answer(status, headers, body, model, server=self._server.name)

    def encode_model_query(
        self,
        endpoint: Endpoint,
        model_id: str,  # noqa: ARG002 - the server lists all of its models
    ) -> tuple[str, Mapping[str, str]]:
        return f"{endpoint.base_url.rstrip('/')}/models", _add_credentials(_QUERY_HEADERS, endpoint)

    def parse_capabilities(self, body: bytes) -> Capabilities | None:
        """Parse the list of models, with their context windows if the server tells them."""
        content = json_object(body)
        listed = content.get("data")
        if listed is None and content.get("object") == "list":
            # Ollama before the first model was pulled.
            return Capabilities(models=())
        if not isinstance(listed, list):
            return None
        named = {
            name: item for item in listed if isinstance(item, dict) and isinstance(name := item.get("id"), str) and name
        }
        windows = {name: window for name, item in named.items() if (window := _find_window(item)) is not None}
        return Capabilities(models=tuple(named), windows=windows)

    def is_unknown_model(self, status: int, body: bytes, model_id: str) -> bool:  # noqa: ARG002 - see the next line
        """Return False: the list of models tells it, not a status."""
        return False


def _add_credentials(headers: Mapping[str, str], endpoint: Endpoint) -> dict[str, str]:
    """Add the key and the user's own headers, which come last and win."""
    headers = dict(headers)
    if endpoint.api_key:
        headers["authorization"] = f"Bearer {endpoint.api_key}"
    return headers | {name.lower(): value for name, value in endpoint.headers.items()}


def _tool(tool: ToolSpec) -> _Wire:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _find_window(item: Mapping[str, Any]) -> int | None:
    """Return the context window that the server runs the model with, else the one that the model was made for."""
    meta = item.get("meta")
    places = (meta, item) if isinstance(meta, dict) else (item,)
    windows = (count(place.get(key)) for key in _WINDOW_KEYS for place in places)
    return next((window for window in windows if window is not None), None)
