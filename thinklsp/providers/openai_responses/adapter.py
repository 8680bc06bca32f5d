"""The adapter for the Responses API: our requests to its wire form. What of the conversation goes back, and how, stands
in `replay`; stream and failures have modules of their own.

Equal requests give equal bytes: no clock, no chance, keys in a fixed order; mappings keep the order they came in.
Nothing is stored at the service, so nothing is referred to: every request carries the whole conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, assert_never
from urllib.parse import quote

from thinklsp.core.errors import ProviderError
from thinklsp.core.messages import TextBlock, ToolSpec, UserMessage
from thinklsp.providers.base import Endpoint, HttpRequest, ModelRequest, StreamDecoder, Thinking
from thinklsp.providers.capabilities import Capabilities, at
from thinklsp.providers.openai_responses.errors import failure_of_answer
from thinklsp.providers.openai_responses.replay import input_items
from thinklsp.providers.openai_responses.stream import OpenAiResponsesDecoder
from thinklsp.providers.service_errors import json_object
from thinklsp.providers.written import written

_SEALED_THINKING = "reasoning.encrypted_content"
_KEY_LENGTH = 32
_STREAM_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}
_QUERY_HEADERS = {"accept": "application/json"}

_Wire = dict[str, Any]


class OpenAiResponsesAdapter:
    """Stateless; satisfies `Adapter`. The base URL includes the version, e.g. ``https://api.openai.com/v1``."""

    def encode(self, request: ModelRequest, endpoint: Endpoint) -> HttpRequest:
        body: _Wire = {"model": request.model.id, "stream": True, "store": False}
        # A model that was found not to think refuses this as well; its form is then `unset`.
        if request.model.adaptive and request.thinking.form != "unset":
            body["include"] = [_SEALED_THINKING]
        if reasoning := _reasoning(request.thinking):
            body["reasoning"] = reasoning
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        if request.compact_at is not None:
            body["context_management"] = [{"type": "compaction", "compact_threshold": request.compact_at}]
        if request.cache_hints:
            body["prompt_cache_key"] = _cache_key(request)
        if request.tools:
            body["parallel_tool_calls"] = True
            body["tools"] = [_tool(tool) for tool in request.tools]
        origin = endpoint.origin(request.model.id)
        body["input"] = [*_system(request.system), *input_items(request.conversation, origin)]
        return HttpRequest(
            f"{endpoint.base_url.rstrip('/')}/responses",
            _add_credentials(_STREAM_HEADERS, endpoint),
            written(body),
        )

    def decoder(self) -> StreamDecoder:
        return OpenAiResponsesDecoder()

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, model: str = "") -> ProviderError:
        return failure_of_answer(status, headers, body, model)

    def encode_model_query(self, endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
        url = f"{endpoint.base_url.rstrip('/')}/models/{quote(model_id, safe='')}"
        return url, _add_credentials(_QUERY_HEADERS, endpoint)

    def parse_capabilities(self, body: bytes) -> Capabilities | None:  # noqa: ARG002 - see the next line
        """Return None: the service tells whether it has a model, and nothing about the model."""
        return None

    def is_unknown_model(self, status: int, body: bytes, model_id: str) -> bool:
        error = at(json_object(body), "error") or {}
        has_code = error.get("code") == "model_not_found"
        return status == 404 and (has_code or f"'{model_id}'" in str(error.get("message")))


def _add_credentials(headers: Mapping[str, str], endpoint: Endpoint) -> dict[str, str]:
    """Add the key and the user's own headers, which come last and win."""
    headers = dict(headers)
    if endpoint.api_key:
        headers["authorization"] = f"Bearer {endpoint.api_key}"
    return headers | {name.lower(): value for name, value in endpoint.headers.items()}


def _reasoning(thinking: Thinking) -> _Wire:
    """Empty: nothing is said, and the service's own default holds."""
    match thinking.form:
        case "unset":
            return {}
        case "off" | "between_tools":
            return {"effort": "none"}
        case "adaptive" | "manual":
            effort = {} if thinking.effort is None else {"effort": thinking.effort}
            return {**effort, "summary": thinking.summary} if thinking.summarized else effort
        case _:
            assert_never(thinking.form)


def _tool(tool: ToolSpec) -> _Wire:
    """Not strict: that would make every optional argument a required one."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "strict": False,
        "parameters": tool.input_schema,
    }


def _system(text: str) -> list[_Wire]:
    """As the first item of the input. `instructions` would stand behind it on newer models, outside of what is cached
    and of what earlier thinking is bound to."""
    if not text.strip():
        return []
    return [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]}]


def _cache_key(request: ModelRequest) -> str:
    """Requests of one session share it, so that they find the same cache. It holds while the history grows."""
    opening = next((message for message in request.conversation if isinstance(message, UserMessage)), None)
    texts = [block.text for block in opening.blocks if isinstance(block, TextBlock)] if opening else []
    parts = json.dumps([request.model.id, request.system, texts])
    return sha256(parts.encode("ascii")).hexdigest()[:_KEY_LENGTH]
