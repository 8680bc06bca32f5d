"""Which models a compatible server has. What they can do it does not tell."""

from __future__ import annotations

from collections.abc import Mapping

from thinklsp.providers.base import Endpoint
from thinklsp.providers.capabilities import Capabilities
from thinklsp.providers.service_errors import json_object


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
    names = (item.get("id") for item in listed if isinstance(item, dict))
    return Capabilities(models=tuple(name for name in names if isinstance(name, str) and name))


def is_unknown_model(status: int, body: bytes, model_id: str) -> bool:  # noqa: ARG001 - told by the list, not by a status
    return False
