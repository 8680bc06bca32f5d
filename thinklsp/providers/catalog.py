"""What each model can do and costs, read once from `models.toml`. Decisions are made in `thinking` and the adapters.

Ids that are not listed get their provider's safest modern form; nobody needs a new version of us for a new model.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from thinklsp.core.errors import SettingsError
from thinklsp.providers.model_info import ModelInfo, Price

_DATE_SUFFIX = re.compile(r"-(\d{8}|latest)$")
# The offline stand-in speaks Anthropic's protocol with Anthropic's model ids; its answers cost nothing.
_SIMULATOR, _SIMULATED = "simulator", "anthropic"


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
