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
from thinklsp.providers.openai_chat.cache_marks import is_claude, with_marks
from thinklsp.providers.openai_chat.errors import failure_of_answer
from thinklsp.providers.openai_chat.replay import wire_messages
from thinklsp.providers.openai_chat.servers import ChatServer, thinking_fields
from thinklsp.providers.openai_chat.stream import ChatDecoder
from thinklsp.providers.written import written

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
            _headers(endpoint),
            written(body),
        )

    def decoder(self) -> StreamDecoder:
        return ChatDecoder(self._server)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, model: str = "") -> ProviderError:
        return failure_of_answer(status, headers, body, model, server=self._server.name)


def _headers(endpoint: Endpoint) -> dict[str, str]:
    """The user's own headers come last and win."""
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    if endpoint.api_key:
        headers["authorization"] = f"Bearer {endpoint.api_key}"
    return headers | {name.lower(): value for name, value in endpoint.headers.items()}


def _tool(tool: ToolSpec) -> _Wire:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}
