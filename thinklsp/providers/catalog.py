"""What each model can do and costs, read once from `models.toml`. Decisions are made in `thinking` and the adapters.

Ids that are not listed get their provider's safest modern form; nobody needs a new version of us for a new model.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from thinklsp.core.errors import SettingsError
from thinklsp.core.usage import Usage
from thinklsp.providers.base import Effort

_DATE_SUFFIX = re.compile(r"-(\d{8}|latest)$")
# The offline stand-in speaks Anthropic's protocol with Anthropic's model ids; its answers cost nothing.
_SIMULATOR, _SIMULATED = "simulator", "anthropic"


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens. Prompts longer than `long_prompt` tokens cost `long_factor` times as much."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    long_prompt: int | None = None
    long_factor: float = 1.0

    def cost(self, usage: Usage) -> float | None:
        """Dollars for one model call; None while the provider has not said how many tokens it was."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
        plain = max(0, usage.input_tokens - read - written)
        dollars = (
            plain * self.input + read * self.cache_read + written * self.cache_write + usage.output_tokens * self.output
        ) / 1_000_000
        is_long = self.long_prompt is not None and usage.input_tokens > self.long_prompt
        return dollars * self.long_factor if is_long else dollars


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model. `known` is False where the facts are a safe guess.

    `off`: how thinking is switched off, None where it cannot be. `on_when_unset`: it thinks when nothing is said.
    `efforts`: the levels it takes, lowest first, empty where it takes none; `effort_cap_when_off`: the highest with
    thinking off. `forced_tool`: whether a tool can be forced (`not_manual`: not with a manual budget).
    `interleaved`: whether a manual budget thinks between tool calls, `header` where only on request. `prefix_bound`:
    thinking is bound to everything before it. `cache_minimum`: shorter prompts are not cached; None where unknown.
    """

    provider: str
    id: str
    known: bool
    context_window: int
    output_cap: int
    adaptive: bool
    manual: bool
    on_when_unset: bool
    efforts: tuple[Effort, ...]
    default_effort: Effort | None
    forced_tool: Literal["yes", "no", "not_manual"]
    interleaved: Literal["always", "header", "never"]
    prefix_bound: bool
    off: Literal["off", "between_tools"] | None = None
    effort_cap_when_off: Effort | None = None
    cache_minimum: int | None = None
    price: Price | None = None


def lookup(provider: str, model_id: str) -> ModelInfo:
    """Never fails for an id. Raises SettingsError for a provider without a catalogue."""
    if provider == _SIMULATOR:
        return replace(lookup(_SIMULATED, model_id), provider=provider, price=None)
    models = _models(provider)
    found = models.get(model_id) or models.get(_DATE_SUFFIX.sub("", model_id))
    return found or replace(models[""], id=model_id)


def price_of(provider: str, model_id: str) -> Price | None:
    """None where it is not known, be it the model's or the whole provider's."""
    return lookup(provider, model_id).price if provider in _catalogue() else None


def default_model(provider: str) -> str:
    """The id that is used when the user names none. Raises SettingsError as `lookup` does."""
    return str(_section(_SIMULATED if provider == _SIMULATOR else provider)["default"])


def known_models(provider: str) -> tuple[str, ...]:
    """The listed ids, newest families first, dated aliases left out."""
    return tuple(_section(_SIMULATED if provider == _SIMULATOR else provider)["models"])


@lru_cache(maxsize=1)
def _catalogue() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("models.toml").read_text("utf-8"))


def _section(provider: str) -> Mapping[str, Any]:
    section = _catalogue().get(provider)
    if section is None:
        raise SettingsError("provider", f"There is no model catalogue for the provider {provider!r}.")
    return section  # type: ignore[no-any-return]  # TOML is untyped; the tests read every row of it.


@lru_cache(maxsize=8)
def _models(provider: str) -> Mapping[str, ModelInfo]:
    """By id and alias; under the empty id stands what unknown ones get."""
    section = _section(provider)
    usual = section["usual"]
    models = {"": _model(provider, "", {**usual, **section["unknown"]}, known=False)}
    for model_id, row in section["models"].items():
        model = _model(provider, model_id, {**usual, **row}, known=True)
        for name in (model_id, *row.get("aliases", ())):
            models[name] = model
    return models


def _model(provider: str, model_id: str, row: Mapping[str, Any], *, known: bool) -> ModelInfo:
    facts = {key: value for key, value in row.items() if key not in ("aliases", "efforts", "price")}
    facts["default_effort"] = row["default_effort"] or None
    price = Price(**row["price"]) if "price" in row else None
    return ModelInfo(provider, model_id, known, efforts=tuple(row["efforts"]), price=price, **facts)
