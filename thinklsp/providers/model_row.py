"""One row of the catalogue as it stands in a TOML file, checked: ours at the first look, the user's when it is read."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from thinklsp.core.choices import EFFORTS, Effort, SummaryLength
from thinklsp.providers.model_info import Price

_Count = Annotated[int, Field(gt=0)]
_Dollars = Annotated[float, Field(ge=0)]


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class PriceRow(_Checked):
    """The fields of `Price`."""

    input: _Dollars
    output: _Dollars
    cache_read: _Dollars | None = None
    cache_write: _Dollars | None = None
    long_prompt: _Count | None = None
    long_factor: _Dollars = 1.0
    long_output_factor: _Dollars | None = None

    def price(self) -> Price:
        return Price(**self.model_dump(include=set(PriceRow.model_fields)))


class LaterPriceRow(PriceRow):
    """The price from a day on."""

    since: date


class ModelRow(_Checked):
    """The fields of `ModelInfo` that a row can set, without defaults of their own: what is not set is left to it."""

    aliases: tuple[str, ...] = Field((), strict=False)
    context_window: _Count | None = None
    output_cap: _Count | None = None
    adaptive: bool
    manual: bool
    on_when_unset: bool
    efforts: tuple[Effort, ...] = Field(strict=False)
    default_effort: Effort | None = None
    on_by_effort: bool = False
    effort_when_off: bool = False
    effort_cap_when_off: Effort | None = None
    off: Literal["off", "between_tools"] | None = None
    budget_steers: bool = False
    budget_least: _Count = 1024
    budget_most: _Count | None = None
    display: Literal["never", "asked", "always"] = "asked"
    summaries: tuple[SummaryLength, ...] = Field(("auto",), strict=False)
    sampling: Literal["never", "thinking_off", "always"] = "never"
    forced_tool: Literal["yes", "no", "not_manual"] = "yes"
    interleaved: Literal["always", "header", "never"] = "always"
    prefix_bound: bool = False
    compacts: bool = False
    images: bool = True
    cache_minimum: _Count | None = None
    price: PriceRow | None = None
    price_later: LaterPriceRow | None = None

    @model_validator(mode="before")
    @classmethod
    def _empty_is_none(cls, row: dict[str, Any]) -> dict[str, Any]:
        return {key: None if value == "" else value for key, value in row.items()}

    @field_validator("efforts")
    @classmethod
    def _ascending(cls, efforts: tuple[Effort, ...]) -> tuple[Effort, ...]:
        return tuple(level for level in EFFORTS if level in efforts)

    @model_validator(mode="after")
    def _makes_sense(self) -> ModelRow:
        if self.budget_most is not None and self.budget_most < self.budget_least:
            raise PydanticCustomError("range", "budget_most must be at least budget_least")
        if self.budget_steers and (self.efforts or not (self.adaptive and self.manual)):
            raise PydanticCustomError("steers", "budget_steers needs adaptive and manual, and no efforts")
        return self

    def facts(self) -> dict[str, Any]:
        """Arguments for `ModelInfo`."""
        values = {name: getattr(self, name) for name in self.model_fields_set - {"aliases", "price_later"}}
        return values | ({"price": self.price.price()} if self.price is not None else {})


def mistake_in(error: ValidationError) -> tuple[str, str]:
    """The key of the first mistake and what is wrong with it, never its value."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        place = PriceRow if len(first["loc"]) > 1 else ModelRow
        return key, f"there is no such key; there are {', '.join(place.model_fields)}"
    return key, first["msg"][:1].lower() + first["msg"][1:]
