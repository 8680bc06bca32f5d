"""What each model can do and costs: the rows of `models.toml`, and over them what the user's own file says.

Ids that are not listed get their provider's safest modern form; nobody needs a new version of us for a new model.
Decisions are made in `thinking` and the adapters.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from importlib.resources import files
from typing import Any

from pydantic import ValidationError

from thinklsp.core.errors import SettingsError
from thinklsp.providers.model_info import ModelInfo, Price
from thinklsp.providers.model_row import ModelRow, mistake_in

Own = Mapping[str, Mapping[str, Mapping[str, Any]]]

# What follows the name of a model where one version of it is meant: `-20251001`, `-2025-12-11`, `-001`, `-latest`.
_VERSION = re.compile(r"-(preview-\d\d-\d{4}|\d{4}-\d\d-\d\d|\d{8}|\d{3}|latest)$")
_PREFIXES = {"google": "models/"}
# The offline stand-in speaks Anthropic's protocol with Anthropic's model ids; its answers cost nothing.
_SIMULATOR, _SIMULATED = "simulator", "anthropic"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A model with the price of the day on which prices were read; `later` holds from its day on."""

    model: ModelInfo
    later: tuple[date, Price] | None = None

    def on(self, day: date | None) -> ModelInfo:
        if self.later is None or (day is not None and day < self.later[0]):
            return self.model
        return replace(self.model, price=self.later[1])


class Catalogue:
    """The packaged rows, and over them `own`: provider -> id -> the keys of a row, all optional.

    Raises SettingsError that names model and key where an own entry makes no sense.
    """

    def __init__(self, own: Own | None = None) -> None:
        self._own = {
            provider: {model_id: _overlaid(provider, model_id, entry) for model_id, entry in entries.items()}
            for provider, entries in (own or {}).items()
        }

    def lookup(self, provider: str, model_id: str, *, on: date | None = None) -> ModelInfo:
        """Keeps the id as it was asked for. Never fails for an id; SettingsError for a provider without a catalogue.

        `on`: the day whose price counts. None: the last one known, which is the dearer one.
        """
        if provider == _SIMULATOR:
            return replace(_PACKAGED.lookup(_SIMULATED, model_id), provider=provider, price=None)
        return replace(self._entry(provider, model_id).on(on), id=model_id)

    def default_model(self, provider: str) -> str:
        """The id that is used when the user names none; empty where the server has to be asked."""
        return str(_section(provider)["default"])

    def known_models(self, provider: str) -> tuple[str, ...]:
        """The listed ids, newest families first, dated aliases left out; then those that the user has described."""
        return tuple(dict.fromkeys((*_section(provider)["models"], *self._own.get(provider, ()))))

    def _entry(self, provider: str, model_id: str) -> _Entry:
        listed, own = _listed(provider), self._own.get(provider, {})
        names = tuple(_names(provider, model_id))
        found = next((listed[name] for name in names if name in listed), listed[""])
        return next((own[name] for name in (*names, found.model.id) if name in own), found)


_PACKAGED = Catalogue()
lookup = _PACKAGED.lookup
default_model = _PACKAGED.default_model
known_models = _PACKAGED.known_models


def priced(provider: str) -> date:
    """The day on which the provider's prices were read."""
    day = _section(provider)["priced"]
    if not isinstance(day, date):
        raise TypeError(f"the prices of {provider} have no day")
    return day


def _names(provider: str, model_id: str) -> Iterator[str]:
    """The names under which an id may be listed, the closest first."""
    plain = model_id.removeprefix(_PREFIXES.get(provider, ""))
    yield model_id
    yield plain
    yield _VERSION.sub("", plain)


@lru_cache(maxsize=1)
def _catalogue() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("models.toml").read_text("utf-8"))


def _section(provider: str) -> Mapping[str, Any]:
    section = _catalogue().get(_SIMULATED if provider == _SIMULATOR else provider)
    if section is None:
        raise SettingsError("provider", f"There is no model catalogue for the provider {provider!r}.")
    return section  # type: ignore[no-any-return]  # TOML is untyped; the tests read every row of it.


@lru_cache(maxsize=8)
def _rows(provider: str) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Id or alias -> the model's id and its whole row; under the empty id stands what unknown ones get."""
    section = _section(provider)
    usual = section["usual"]
    rows = {"": ("", {**usual, **section["unknown"]})}
    for model_id, row in section["models"].items():
        for name in (model_id, *row.get("aliases", ())):
            rows[name] = (model_id, {**usual, **row})
    return rows


@lru_cache(maxsize=8)
def _listed(provider: str) -> Mapping[str, _Entry]:
    return {
        name: _made(provider, model_id, ModelRow.model_validate(row), known=bool(model_id))
        for name, (model_id, row) in _rows(provider).items()
    }


def _overlaid(provider: str, model_id: str, own: Mapping[str, Any]) -> _Entry:
    """The user's entry on the row that is listed for its id, else on what unknown models get."""
    rows = _rows(provider)
    _, row = next((rows[name] for name in _names(provider, model_id) if name in rows), rows[""])
    if "price" in own:
        row = {key: value for key, value in row.items() if key != "price_later"}
    try:
        return _made(provider, model_id, ModelRow.model_validate({**row, **own}), known=True)
    except ValidationError as error:
        key, wrong = mistake_in(error)
        shown = "".join(c if c.isprintable() else "?" for c in model_id)[:80]
        place = f'models.{provider}."{shown}"' + (f".{key}" if key else "")
        raise SettingsError(place, f"Your config.toml has a mistake at {place}: {wrong}.") from None


def _made(provider: str, model_id: str, row: ModelRow, *, known: bool) -> _Entry:
    model = ModelInfo(provider, model_id, known, **row.facts())
    later = None if row.price_later is None else (row.price_later.since, row.price_later.price())
    return _Entry(model, later)
