"""Which models a compatible server has, and their context windows where it tells them. What else they can do it does
not tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinklsp.providers.base import Endpoint
from thinklsp.providers.capabilities import Capabilities, count
from thinklsp.providers.service_errors import json_object

# llama.cpp; vLLM and SGLang; LM Studio; OpenRouter and others; Groq; Mistral.
_WINDOWS = (
    "n_ctx",
    "max_model_len",
    "loaded_context_length",
    "context_length",
    "context_window",
    "max_context_length",
)


def question(endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:  # noqa: ARG001 - all are listed
    own = {name.lower(): value for name, value in endpoint.headers.items()}
    key = {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    return f"{endpoint.base_url.rstrip('/')}/models", {"accept": "application/json", **key, **own}


def read_capabilities(body: bytes) -> Capabilities | None:
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
    windows = {name: window for name, item in named.items() if (window := _window(item)) is not None}
    return Capabilities(models=tuple(named), windows=windows)


def _window(item: Mapping[str, Any]) -> int | None:
    """As the server runs the model, before what the model was made for."""
    meta = item.get("meta")
    places = (meta, item) if isinstance(meta, dict) else (item,)
    told = (count(place.get(name)) for name in _WINDOWS for place in places)
    return next((window for window in told if window is not None), None)


def is_unknown_model(status: int, body: bytes, model_id: str) -> bool:  # noqa: ARG001 - told by the list, not by a status
    return False
