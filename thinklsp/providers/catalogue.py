"""The model catalogue, which combines the rows in `models.toml` with entries in the user's `config.toml`.

A model that is not listed gets the safest modern form of thinking that its provider supports, so new models do not
require a new version of thinklsp. The catalogue contains only facts. The `thinking` module and the adapters decide how
to use them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import date
from functools import lru_cache
from importlib.resources import files
from typing import Any

from pydantic import TypeAdapter, ValidationError

from thinklsp.core.errors import SettingsError
from thinklsp.providers.model_info import ModelInfo, Price

UserEntries = Mapping[str, Mapping[str, Mapping[str, Any]]]

# Matches the version suffix of a model ID: `-20251001`, `@20251001`, `-2025-12-11`, `-0813`, `-001` or `-latest`.
_VERSION_SUFFIX = re.compile(r"(?:-preview-\d\d-(?:\d{4}|\d\d)|-\d{4}-\d\d-\d\d|[-@]\d{8}|-\d{3,4}|-latest)$")
# Matches the number of a model's generation, which the ID of its family lacks: `claude-opus-5-5`, `gpt-6.1-sol`.
_GENERATION = re.compile(r"-v?\d+(?:[.-]\d+)?(?=-|$)")
_LATEST = "-latest"
_PREFIXES = {"google": "models/"}
# The simulator uses Anthropic's API and model IDs. Its answers are free.
_SIMULATOR, _SIMULATED_PROVIDER = "simulator", "anthropic"


# The valid keys in a catalogue row, and the valid keys in its price.
_ROW_KEYS = tuple(each.name for each in fields(ModelInfo) if each.name not in ("provider", "id", "known"))
_PRICE_KEYS = tuple(each.name for each in fields(Price))
_MODEL = TypeAdapter(ModelInfo)


class Catalogue:
    """A model catalogue that combines the packaged rows with the user's entries.

    `user_entries` maps each provider to its model IDs, and each model ID to a row whose keys are all optional. An
    invalid entry raises a SettingsError that names the model and the key.
    """

    def __init__(self, user_entries: UserEntries | None = None) -> None:
        self._user_models = {
            provider: {model_id: _apply_user_entry(provider, model_id, entry) for model_id, entry in entries.items()}
            for provider, entries in (user_entries or {}).items()
        }

    def find_model(self, provider: str, model_id: str, *, day: date | None = None) -> ModelInfo:
        """Return the facts about the model with the given ID or alias.

        An unlisted ID is never an error. Raises SettingsError if the provider has no catalogue. The price is the price
        on `day`, or the latest known price if `day` is None.
        """
        if provider == _SIMULATOR:
            return replace(_PACKAGED_CATALOGUE.find_model(_SIMULATED_PROVIDER, model_id), provider=provider, price=None)
        return replace(_apply_price(self._find_entry(provider, model_id), day), id=model_id)

    def find_default_model(self, provider: str) -> str:
        """Return the ID of the provider's default model, or an empty string if only the server can list its models."""
        return str(_find_section(provider)["default"])

    def list_models(self, provider: str) -> tuple[str, ...]:
        """Return the IDs of a provider's listed models, followed by the IDs in the user's entries.

        The newest model families come first, and dated aliases are excluded.
        """
        return tuple(dict.fromkeys((*_find_section(provider)["models"], *self._user_models.get(provider, ()))))

    def _find_entry(self, provider: str, model_id: str) -> ModelInfo:
        listed, own = _build_models(provider), self._user_models.get(provider, {})
        names = tuple(_list_candidate_ids(provider, model_id))
        packaged = next(listed[name] for name in names if name in listed)
        return next((own[name] for name in (*names, packaged.id) if name in own), packaged)


_PACKAGED_CATALOGUE = Catalogue()
find_model = _PACKAGED_CATALOGUE.find_model
find_default_model = _PACKAGED_CATALOGUE.find_default_model
list_models = _PACKAGED_CATALOGUE.list_models


def find_price_date(provider: str) -> date:
    """Return the date on which the provider's prices were last checked."""
    day = _find_section(provider)["priced"]
    if not isinstance(day, date):
        raise TypeError(f"the price table of {provider} has no date")
    return day


def _list_candidate_ids(provider: str, model_id: str) -> Iterator[str]:
    """Yield the catalogue IDs that may refer to a model ID, starting with the closest match.

    The last one is the newest model of the family, or the empty ID of the row for unlisted models.
    """
    plain = model_id.removeprefix(_PREFIXES.get(provider, ""))
    yield model_id
    yield plain
    yield _VERSION_SUFFIX.sub("", plain)
    yield _find_newest(provider, plain)


def _find_newest(provider: str, model_id: str) -> str:
    """Return the newest ID of the family that an ID such as `claude-opus-latest` names, or an empty string."""
    if not model_id.endswith(_LATEST):
        return ""
    family = model_id.removesuffix(_LATEST)
    ids = (name for name in _build_rows(provider) if _GENERATION.search(name))
    return next((name for name in ids if _GENERATION.sub("", name, count=1) == family), "")


@lru_cache(maxsize=1)
def _load_catalogue() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("models.toml").read_text("utf-8"))


def _find_section(provider: str) -> Mapping[str, Any]:
    section = _load_catalogue().get(_SIMULATED_PROVIDER if provider == _SIMULATOR else provider)
    if section is None:
        raise SettingsError("provider", f"The provider {provider!r} has no model catalogue.")
    return section  # type: ignore[no-any-return]  # TOML is untyped; the tests check every row.


@lru_cache(maxsize=8)
def _build_rows(provider: str) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Map each ID and alias to the model's ID and its complete row.

    The empty ID maps to the row for unlisted models.
    """
    section = _find_section(provider)
    usual = section["usual"]
    rows = {"": ("", {**usual, **section["unknown"]})}
    for model_id, row in section["models"].items():
        for name in (model_id, *row.get("aliases", ())):
            rows[name] = (model_id, {**usual, **row})
    return rows


@lru_cache(maxsize=8)
def _build_models(provider: str) -> Mapping[str, ModelInfo]:
    return {
        name: _validate_row(provider, model_id, row, known=bool(model_id))
        for name, (model_id, row) in _build_rows(provider).items()
    }


def _apply_user_entry(provider: str, model_id: str, user_entry: Mapping[str, Any]) -> ModelInfo:
    """Merge a user entry into the model's packaged row, or into the row for unlisted models."""
    rows = _build_rows(provider)
    _, row = next(rows[name] for name in _list_candidate_ids(provider, model_id) if name in rows)
    if "price" in user_entry:
        row = {key: value for key, value in row.items() if key != "price_later"}
    strange = next((key for key in user_entry if key not in _ROW_KEYS), None)
    if strange is not None:
        raise _build_error(provider, model_id, strange, _describe_unknown_key(_ROW_KEYS))
    try:
        return _validate_row(provider, model_id, {**row, **user_entry}, known=True)
    except ValidationError as error:
        raise _build_error(provider, model_id, *_describe_first_error(error)) from None
    except ValueError as error:
        raise _build_error(provider, model_id, "", str(error)) from None


def _validate_row(provider: str, model_id: str, row: Mapping[str, Any], *, known: bool) -> ModelInfo:
    """Validate a complete row. Raise ValidationError for an invalid key, or ValueError for contradictory keys."""
    facts = {key: None if value == "" else value for key, value in row.items()}
    model = _MODEL.validate_python({**facts, "provider": provider, "id": model_id, "known": known})
    if model.budget_most is not None and model.budget_most < model.budget_least:
        raise ValueError("budget_most must be at least budget_least")
    if model.budget_steers and (model.efforts or not (model.adaptive and model.manual)):
        raise ValueError("budget_steers requires adaptive and manual, and no efforts")
    return model


def _apply_price(model: ModelInfo, day: date | None) -> ModelInfo:
    later = model.price_later
    if later is None or (day is not None and day < later.since):
        return replace(model, price_later=None)
    return replace(model, price=Price(*(getattr(later, key) for key in _PRICE_KEYS)), price_later=None)


def _build_error(provider: str, model_id: str, key: str, problem: str) -> SettingsError:
    printable_id = "".join(c if c.isprintable() else "?" for c in model_id)[:80]
    place = f'models.{provider}."{printable_id}"' + (f".{key}" if key else "")
    return SettingsError(place, f"Your config.toml has an error at `{place}`: {problem}.")


def _describe_unknown_key(keys: Iterable[str]) -> str:
    return f"unknown key; use one of: {', '.join(keys)}"


def _describe_first_error(error: ValidationError) -> tuple[str, str]:
    """Return the key and message of the first validation error, without the invalid value."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "unexpected_keyword_argument":
            return key, _describe_unknown_key(_PRICE_KEYS)
        case "dataclass_type":
            return key, "input should be a valid dictionary"
        case _:
            return key, first["msg"][:1].lower() + first["msg"][1:]
