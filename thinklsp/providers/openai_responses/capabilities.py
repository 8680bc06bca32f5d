"""How the service is asked whether it has a model. It tells nothing about what the model can do."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from thinklsp.providers.base import Endpoint
from thinklsp.providers.capabilities import Capabilities, at
from thinklsp.providers.service_errors import json_object


def question(endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
    own = {name.lower(): value for name, value in endpoint.headers.items()}
    key = {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    url = f"{endpoint.base_url.rstrip('/')}/models/{quote(model_id, safe='')}"
    return url, {"accept": "application/json", **key, **own}


def read_capabilities(body: bytes) -> Capabilities | None:  # noqa: ARG001 - the form that all services share
    return None


def is_unknown_model(status: int, body: bytes, model_id: str) -> bool:
    error = at(json_object(body), "error") or {}
    return status == 404 and (error.get("code") == "model_not_found" or f"'{model_id}'" in str(error.get("message")))
