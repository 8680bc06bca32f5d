"""What a service itself tells about a model, in one form, and where that contradicts the catalogue.

Only asked for by people who look for a fault: requests are made by the catalogue, so that they never wait for this.
The adapter of a service encodes the query and parses the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thinklsp.providers.model_info import ModelInfo

FORMS = ("adaptive", "enabled", "disabled", "between_tools")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """In the service's words and our order. None where it does not say; `models`: what else it has, by id.
    `windows`: the context windows that it tells of them."""

    thinking: tuple[str, ...] | None = None
    efforts: tuple[str, ...] | None = None
    context_window: int | None = None
    max_tokens: int | None = None
    models: tuple[str, ...] | None = None
    windows: Mapping[str, int] = field(default_factory=dict)

    def window_of(self, model_id: str) -> int | None:
        return self.context_window or self.windows.get(model_id) or self.windows.get(f"{model_id}:latest")


def contradictions(model: ModelInfo, told: Capabilities) -> list[str]:
    """A sentence for each thing that service and catalogue see differently."""
    takes = (model.adaptive, model.manual, model.off == "off", model.off == "between_tools")
    forms = tuple(form for form, taken in zip(FORMS, takes, strict=True) if taken)
    said = []
    if told.thinking is not None and told.thinking != forms:
        said.append(_differs(model.id, "forms of thinking", told.thinking, forms, "thinking.mode"))
    if told.efforts is not None and told.efforts != model.efforts:
        said.append(_differs(model.id, "efforts", told.efforts, model.efforts, "effort"))
    window = told.window_of(model.id)
    if window is not None and model.context_window not in (None, window) and model.known:
        said.append(
            f"The service says that {model.id} reads {window:,} tokens; this version reckons with "
            f"{model.context_window or 0:,}. Set context_window for it under [models] in your config.toml."
        )
    if told.models is not None and model.id and not is_listed(model.id, told.models):
        some = ", ".join(told.models[:8]) or "none"
        more = f" and {len(told.models) - 8} more" if len(told.models) > 8 else ""
        said.append(
            f"The server does not list the model {model.id}; it has {some}{more}. Set thinklsp.model to one of its "
            "models, or load that one there."
        )
    return said


def is_listed(model_id: str, models: tuple[str, ...]) -> bool:
    """Servers may leave out a tag that stands for the newest."""
    return model_id in models or f"{model_id}:latest" in models


def _differs(model_id: str, what: str, told: tuple[str, ...], ours: tuple[str, ...], key: str) -> str:
    return (
        f"The service says that {model_id} takes the {what} {_listed(told)}; this version reckons with "
        f"{_listed(ours)}. Where a request is refused, set {key} to what the service takes, or update thinklsp."
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def at(value: Mapping[str, Any], *keys: str) -> Mapping[str, Any] | None:
    """The object at the end of a path of keys; None where anything else stands there."""
    for key in keys:
        inner = value.get(key)
        if not isinstance(inner, dict):
            return None
        value = inner
    return value


def count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
