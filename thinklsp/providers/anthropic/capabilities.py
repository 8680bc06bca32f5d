"""How the Messages API is asked about a model, and how its answer reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from thinklsp.providers.anthropic.adapter import request_headers
from thinklsp.providers.base import Endpoint
from thinklsp.providers.capabilities import FORMS, Capabilities, at, count
from thinklsp.providers.service_errors import json_object
from thinklsp.providers.thinking import EFFORTS


def question(endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
    url = f"{endpoint.base_url.rstrip('/')}/v1/models/{quote(model_id, safe='')}"
    kept = {name: value for name, value in request_headers(endpoint, ()).items() if name != "content-type"}
    return url, {**kept, "accept": "application/json"}


def read_capabilities(body: bytes) -> Capabilities | None:
    content = json_object(body)
    told = content.get("capabilities")
    if not isinstance(told, dict):
        return None
    types = at(told, "thinking", "types")
    efforts = at(told, "effort")
    return Capabilities(
        None if types is None else _supported(types, FORMS),
        None if efforts is None else _supported(efforts, EFFORTS),
        count(content.get("max_input_tokens")),
        count(content.get("max_tokens")),
    )


def is_unknown_model(status: int, body: bytes, model_id: str) -> bool:
    error = at(json_object(body), "error") or {}
    return status == 404 and error.get("type") == "not_found_error" and model_id in str(error.get("message"))


def _supported(flags: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if (flag := at(flags, name)) is not None and flag.get("supported") is True)
