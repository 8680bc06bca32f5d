"""What the Messages API itself tells about a model, and where that contradicts the catalogue.

Only asked for by people who look for a fault: requests are made by the catalogue, so that they never wait for this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from thinklsp.providers.anthropic.adapter import request_headers
from thinklsp.providers.base import Endpoint
from thinklsp.providers.model_info import ModelInfo
from thinklsp.providers.service_errors import json_object
from thinklsp.providers.thinking import EFFORTS

_FORMS = ("adaptive", "enabled", "disabled", "between_tools")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """In the service's words and our order. None where it does not say."""

    thinking: tuple[str, ...] | None
    efforts: tuple[str, ...] | None
    context_window: int | None
    max_tokens: int | None


def question(endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
    """Address and headers of the GET that is answered with the model's description."""
    url = f"{endpoint.base_url.rstrip('/')}/v1/models/{quote(model_id, safe='')}"
    kept = {name: value for name, value in request_headers(endpoint, ()).items() if name != "content-type"}
    return url, {**kept, "accept": "application/json"}


def read_capabilities(body: bytes) -> Capabilities | None:
    """None where the answer describes no model, or says nothing about what it can do."""
    content = json_object(body)
    told = content.get("capabilities")
    if not isinstance(told, dict):
        return None
    types = _at(told, "thinking", "types")
    efforts = _at(told, "effort")
    return Capabilities(
        None if types is None else _supported(types, _FORMS),
        None if efforts is None else _supported(efforts, EFFORTS),
        _count(content.get("max_input_tokens")),
        _count(content.get("max_tokens")),
    )


def is_unknown_model(status: int, body: bytes, model_id: str) -> bool:
    """Whether the service says that there is no such model; other servers answer 404 because they describe none."""
    error = _at(json_object(body), "error") or {}
    return status == 404 and error.get("type") == "not_found_error" and model_id in str(error.get("message"))


def contradictions(model: ModelInfo, told: Capabilities) -> list[str]:
    """A sentence for each thing that service and catalogue see differently."""
    takes = (model.adaptive, model.manual, model.off == "off", model.off == "between_tools")
    forms = tuple(form for form, taken in zip(_FORMS, takes, strict=True) if taken)
    said = []
    if told.thinking is not None and told.thinking != forms:
        said.append(_differs(model.id, "forms of thinking", told.thinking, forms, "thinking.mode"))
    if told.efforts is not None and told.efforts != model.efforts:
        said.append(_differs(model.id, "efforts", told.efforts, model.efforts, "effort"))
    return said


def _differs(model_id: str, what: str, told: tuple[str, ...], ours: tuple[str, ...], key: str) -> str:
    return (
        f"The service says that {model_id} takes the {what} {_listed(told)}; this version reckons with "
        f"{_listed(ours)}. Where a request is refused, set {key} to what the service takes, or update thinklsp."
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _at(value: Mapping[str, Any], *keys: str) -> Mapping[str, Any] | None:
    for key in keys:
        inner = value.get(key)
        if not isinstance(inner, dict):
            return None
        value = inner
    return value


def _supported(flags: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if (flag := _at(flags, name)) is not None and flag.get("supported") is True)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
