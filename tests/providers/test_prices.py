"""Prices of cached and of long prompts, and prices that will change, are those of `genai-prices`.

`tests/catalogue` compares the plain prices and the windows, with the differences that are accepted.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from importlib.resources import files

import pytest
from genai_prices.data import providers as priced_providers
from genai_prices.types import ModelInfo as PricedModel
from genai_prices.types import TieredPrices

from thinklsp.providers.catalogue import Catalogue, Price, list_models

CATALOGUE = Catalogue()
TABLE = tomllib.loads((files("thinklsp.providers") / "models.toml").read_text("utf-8"))
VENDORS = {"anthropic": "anthropic", "openai": "openai", "google": "google", "openai-compatible": "deepseek"}
# Within DeepSeek's dear hours, whose prices we take; the others have none.
HOUR = time(2, tzinfo=UTC)

# The window of a million that these prices are for has been taken away.
WITHOUT_LONG_PROMPTS = ("claude-sonnet-4-5",)

ROWS = [(provider, model) for provider in VENDORS for model in list_models(provider)]


def package_model(provider: str, model: str) -> PricedModel | None:
    vendor = next(each for each in priced_providers if each.id == VENDORS[provider])
    return vendor.find_model(model)


def ours(price: Price) -> Iterator[tuple[str, float | None, float | None]]:
    """Field by field: plain, and where the prompt is long."""
    more = price.long_factor
    answer = more if price.long_output_factor is None else price.long_output_factor
    for name, value, factor in (
        ("input_mtok", price.input, more),
        ("output_mtok", price.output, answer),
        ("cache_read_mtok", price.cache_read, more),
        ("cache_write_mtok", price.cache_write, more),
    ):
        yield name, value, None if value is None or price.long_prompt is None else value * factor


def theirs(value: object) -> tuple[float | None, float | None, int | None]:
    """Plain, where the prompt is long, and what is long."""
    if isinstance(value, TieredPrices):
        [tier] = value.tiers
        return float(value.base), float(tier.price), tier.start
    return (None if value is None else float(str(value))), None, None


def differences(provider: str, model_id: str, found: PricedModel, day: date) -> set[str]:
    model = CATALOGUE.find_model(provider, model_id, day=day)
    if model.price is None:
        return {"price"}
    said: set[str] = set()
    prices = found.get_prices(datetime.combine(day, HOUR))
    for name, plain, when_long in ours(model.price):
        base, dear, start = theirs(getattr(prices, name, None))
        if plain != (None if base is None else pytest.approx(base)):
            said.add(name)
        if (when_long, model.price.long_prompt if dear else None) != (dear and pytest.approx(dear), start):
            said.add("long")
    return said


@pytest.mark.parametrize(("provider", "model"), ROWS)
def test_every_row_says_what_the_package_says(provider: str, model: str) -> None:
    found = package_model(provider, model)
    if found is not None:
        expected = {"long"} if model in WITHOUT_LONG_PROMPTS else set()
        assert differences(provider, model, found, TABLE[provider]["priced"]) == expected


LATER = ["gemini-4-argon", "gemini-3.8-flash", "gemini-3.7-flash", "gemini-3.6-flash"]


@pytest.mark.parametrize("model", LATER)
def test_a_price_that_will_rise_rises_on_the_day(model: str) -> None:
    found = package_model("google", model)
    assert found is not None
    days = [TABLE["google"]["priced"] + timedelta(days=count) for count in range(120)]
    told = [differences("google", model, found, day) for day in days]
    assert set().union(*told) == set()
    prices = [CATALOGUE.find_model("google", model, day=day).price for day in days]
    assert len(set(prices)) == 2
    # Without a day the dearer one counts, so that a budget holds.
    assert CATALOGUE.find_model("google", model).price == prices[-1]


def test_no_other_price_is_known_to_change() -> None:
    for provider, model in ROWS:
        found = package_model(provider, model)
        if found is not None and model not in LATER:
            soon = differences(provider, model, found, TABLE[provider]["priced"] + timedelta(days=400))
            assert soon == ({"long"} if model in WITHOUT_LONG_PROMPTS else set()), model
