"""How the service is asked about a model, and how its answer reads: windows alone, no levels and no budgets."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from thinklsp.providers.base import Endpoint
from thinklsp.providers.capabilities import Capabilities, at, count
from thinklsp.providers.service_errors import json_object


def question(endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
    own = {name.lower(): value for name, value in endpoint.headers.items()}
    key = {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.bearer else {"x-goog-api-key": endpoint.api_key}
    name = quote(model_id.removeprefix("models/"), safe="")
    return f"{endpoint.base_url.rstrip('/')}/v1beta/models/{name}", {"accept": "application/json", **key, **own}


def read_capabilities(body: bytes) -> Capabilities | None:
    content = json_object(body)
    window, cap = count(content.get("inputTokenLimit")), count(content.get("outputTokenLimit"))
    return None if window is None and cap is None else Capabilities(context_window=window, max_tokens=cap)


def is_unknown_model(status: int, body: bytes, model_id: str) -> bool:
    error = at(json_object(body), "error") or {}
    return status == 404 and model_id.removeprefix("models/") in str(error.get("message"))
