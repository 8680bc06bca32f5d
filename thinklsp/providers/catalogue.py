"""The model catalogue, which combines the rows in `models.toml` with entries in the user's `config.toml`.

A model that is not listed gets the safest modern form of thinking that its provider supports, so new models do not
require a new version of thinklsp. The catalogue contains only facts. The `thinking` module and the adapters decide how
to use them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from datetime import date
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from thinklsp.core.choices import EFFORTS, Effort, SummaryLength
from thinklsp.core.errors import SettingsError
from thinklsp.core.images import IMAGE_TYPES
from thinklsp.core.messages import ImageType
from thinklsp.core.usage import Usage

ThinkingForm = Literal["unset", "off", "between_tools", "adaptive", "manual"]
THINKING_FORMS = ("adaptive", "enabled", "disabled", "between_tools")

# Types that validate catalogue rows.
_STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)
_Count = Annotated[int, Strict(), Field(gt=0)]
_Dollars = Annotated[float, Strict(), Field(ge=0)]
_Flag = Annotated[bool, Strict()]
_Efforts = Annotated[tuple[Effort, ...], AfterValidator(lambda efforts: tuple(e for e in EFFORTS if e in efforts))]


# The parts of model ids that the title does not simply capitalize: `claude-opus-4-5`, `gpt-5`, `deepseek-flash`, `o3`.
_VERSION_DASH = re.compile(r"(?<=[a-z]-\d)-(?=\d(?:-|$))")
_NUMBER_AFTER_GPT = re.compile(r"^GPT (?=\d)")
_TITLE_WORDS = {"gpt": "GPT", "deepseek": "DeepSeek"}
_LOWER_CASE = re.compile(r"o\d|\d+o")


@dataclass(frozen=True, slots=True)
class Price:
    """A model's price in US dollars per million tokens.

    If `cache_read` or `cache_write` is None, cached tokens cost as much as other input. If a prompt has more than
    `long_prompt` tokens, its price is multiplied by `long_factor` and the price of its answer by `long_output_factor`.
    If `long_output_factor` is None, `long_factor` applies to the answer too.
    """

    __pydantic_config__ = _STRICT

    input: _Dollars
    output: _Dollars
    cache_read: _Dollars | None = None
    cache_write: _Dollars | None = None
    long_prompt: _Count | None = None
    long_factor: _Dollars = 1.0
    long_output_factor: _Dollars | None = None

    def compute_cost(self, usage: Usage) -> float | None:
        """Return the cost of a model call in US dollars, or None if the provider did not report the token counts."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        read_tokens, write_tokens = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
        plain_tokens = max(0, usage.input_tokens - read_tokens - write_tokens)
        cache_read = self.input if self.cache_read is None else self.cache_read
        cache_write = self.input if self.cache_write is None else self.cache_write
        input_cost = plain_tokens * self.input + read_tokens * cache_read + write_tokens * cache_write
        output_cost = usage.output_tokens * self.output
        if self.long_prompt is not None and usage.input_tokens > self.long_prompt:
            input_cost *= self.long_factor
            output_cost *= self.long_factor if self.long_output_factor is None else self.long_output_factor
        return (input_cost + output_cost) / 1_000_000


@dataclass(frozen=True, slots=True)
class LaterPrice(Price):
    """A price that applies from the date `since`."""

    _: KW_ONLY
    since: Annotated[date, Strict()]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts about a model. If `known` is false, the facts are a safe guess. Unknown numbers are None.

    Thinking: If `adaptive` is true, the model can decide how much to think, guided by the effort. If `manual` is true,
    the model accepts a token budget from `budget_least` to `budget_most`. If `budget_most` is None, the budget must be
    below `output_cap`. If `budget_steers` is true, budgets replace effort levels, and the budgets 0 (off) and -1
    (automatic) are allowed. `off` is the form that turns thinking off, or None if thinking cannot be turned off. If
    `on_when_unset` is true, thinking is enabled by default.

    Effort: `efforts` contains the accepted levels in ascending order. `default_effort` is the level that the provider
    uses by default. If `on_by_effort` is true, the model thinks only if the request contains an effort. If
    `effort_when_off` is true, levels up to `effort_cap_when_off` are also accepted while thinking is off.

    Output: `display` states when readable thinking summaries are available: never, on request or always. `summaries`
    contains the available summary lengths. `interleaved` states whether a model with a manual budget can think between
    tool calls. The value `header` means that it can if the request has a certain header.

    Input: `input_limit` is the longest prompt in tokens, if it is shorter than `context_window`. If `images` is true,
    prompts can contain images of the types in `image_types`.

    If `prefix_bound` is true, thinking is valid only after unchanged earlier messages. If `compacts` is true, the
    provider can compact the conversation. `price_later` is a price that applies from a later date.
    """

    __pydantic_config__ = _STRICT

    provider: str
    id: str
    known: bool
    _: KW_ONLY
    aliases: tuple[str, ...] = ()
    context_window: _Count | None = None
    input_limit: _Count | None = None
    output_cap: _Count | None = None
    adaptive: _Flag
    manual: _Flag
    on_when_unset: _Flag
    efforts: _Efforts
    default_effort: Effort | None = None
    on_by_effort: _Flag = False
    effort_when_off: _Flag = False
    effort_cap_when_off: Effort | None = None
    off: Literal["off", "between_tools"] | None = None
    budget_steers: _Flag = False
    budget_least: _Count = 1024
    budget_most: _Count | None = None
    display: Literal["never", "asked", "always"] = "asked"
    summaries: tuple[SummaryLength, ...] = ("auto",)
    interleaved: Literal["always", "header", "never"] = "always"
    prefix_bound: _Flag = False
    compacts: _Flag = False
    images: _Flag = True
    image_types: tuple[ImageType, ...] = IMAGE_TYPES
    price: Price | None = None
    price_later: LaterPrice | None = None

    @property
    def input_window(self) -> int | None:
        """The length of the longest prompt in tokens, or None if it is unknown."""
        return min((size for size in (self.context_window, self.input_limit) if size is not None), default=None)

    @property
    def accepted_images(self) -> tuple[ImageType, ...]:
        """The media types of the images that a prompt can contain."""
        return self.image_types if self.images else ()

    @property
    def title(self) -> str:
        """The model's name for people, such as `Claude Opus 5.5`. An unlisted model keeps its id."""
        if not self.known:
            return self.id
        words = _VERSION_DASH.sub(".", self.id).split("-")
        titled = (_TITLE_WORDS.get(word) or (word if _LOWER_CASE.fullmatch(word) else word.title()) for word in words)
        return _NUMBER_AFTER_GPT.sub("GPT-", " ".join(titled))


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The facts that a provider reports about a model. A field is None if the provider does not report it.

    `models` contains the IDs of all models that the server lists, and `windows` maps model IDs to context windows.
    """

    thinking: tuple[str, ...] | None = None
    efforts: tuple[str, ...] | None = None
    context_window: int | None = None
    max_tokens: int | None = None
    models: tuple[str, ...] | None = None
    windows: Mapping[str, int] = field(default_factory=dict)

    def find_window(self, model_id: str) -> int | None:
        """Return the context window in tokens that the provider reports for a model, or None."""
        return self.context_window or self.windows.get(model_id) or self.windows.get(f"{model_id}:latest")


def find_contradictions(model: ModelInfo, reported: Capabilities) -> list[str]:
    """Return a sentence for each difference between the provider's facts and the catalogue's facts."""
    flags = (model.adaptive, model.manual, model.off == "off", model.off == "between_tools")
    forms = tuple(form for form, is_accepted in zip(THINKING_FORMS, flags, strict=True) if is_accepted)
    sentences = []
    if reported.thinking is not None and reported.thinking != forms:
        sentences.append(_describe_difference(model.id, "forms of thinking", reported.thinking, forms, "thinking.mode"))
    if reported.efforts is not None and reported.efforts != model.efforts:
        sentences.append(_describe_difference(model.id, "efforts", reported.efforts, model.efforts, "effort"))
    window = reported.find_window(model.id)
    if window is not None and model.context_window not in (None, window) and model.known:
        sentences.append(
            f"The provider reports a context window of {window:,} tokens for {model.id}, but thinklsp uses "
            f"{model.context_window or 0:,}. Set `context_window` for it under `[models]` in your config.toml."
        )
    # Servers may omit the tag `latest` from a model ID.
    names = {model.id, f"{model.id}:latest"}
    if reported.models is not None and model.id and names.isdisjoint(reported.models):
        listed = ", ".join(reported.models[:8]) or "none"
        more = f" and {len(reported.models) - 8} more" if len(reported.models) > 8 else ""
        sentences.append(
            f"The server does not list the model {model.id}; it has {listed}{more}. Set `thinklsp.model` to one of "
            "these, or load the model on the server."
        )
    return sentences


def _describe_difference(
    model_id: str, subject: str, reported: tuple[str, ...], listed: tuple[str, ...], key: str
) -> str:
    return (
        f"The provider reports the {subject} {_join_names(reported)} for {model_id}, "
        f"but thinklsp uses {_join_names(listed)}. "
        f"If the provider rejects a request, set `{key}` to a value that it accepts, or update thinklsp."
    )


def _join_names(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def add_cost(usage: Usage, price: Price | None) -> Usage:
    """Add the cost to the usage. A cost that the provider reported has priority over the price table."""
    if price is None or usage.cost_usd is not None:
        return usage
    return replace(usage, cost_usd=price.compute_cost(usage))


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
            model = _PACKAGED_CATALOGUE.find_model(_SIMULATED_PROVIDER, model_id)
            return replace(model, provider=provider, price=Price(0.0, 0.0))
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
