"""The prices and windows of the catalogue are those of `genai-prices`, row by row, but for what is named here.

It knows no output caps; those come from the services' own pages alone.
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

OWN_WINDOW = "Google's own page says 1,048,576, and so does the service; the package has it rounded or not at all"
# (model, what) -> why ours is different. Each must be a difference.
DIFFERENT: dict[tuple[str, str], str] = {
    ("claude-sonnet-4-5", "long"): "the window of a million that these prices are for has been taken away",
    ("gpt-5.2-chat-latest", "window"): "the package keeps it with gpt-5.2; its own page says 128,000",
    ("gpt-5.1-chat-latest", "window"): "the package keeps it with gpt-5.1; its own page says 128,000",
    **{
        (model, "window"): "the package has no window for it"
        for model in ("gpt-6-cyber", "gpt-6-rosalind", "gpt-5.6-cyber", "chat-latest")
    },
    **{(model, "window"): "the package has it rounded; LiteLLM has 1,050,000" for model in ("gpt-5.5", "gpt-5.5-pro")},
    **{
        (model, "window"): "the package has it rounded; OpenAI's page says 1,047,576"
        for model in ("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano")
    },
    ("gemini-2.5-flash-image", "window"): "our sources differ, and it is not made for text",
    **{
        (model, "window"): OWN_WINDOW
        for model in list_models("google")
        if model not in ("gemini-2.5-flash", "gemini-2.5-flash-image", "gemini-4-argon")
        and model not in ("gemini-4-hydrogen", "gemini-4-carbon", "gemini-4-neon")
    },
}
# Rows that the package does not have, and what is known of their prices.
ABSENT = {
    "claude-mythos-preview": "left out there; the price is from LiteLLM's table",
    "claude-mythos-5": "left out there, being for few; it is the same model as Fable 5 at its price",
    "claude-mythos-5-1": "left out there, being for few; it is the same model as Fable 5.1 at its price",
    "gpt-6.2-astra": "too new; its price for cached input could not be read",
    "gpt-6.2-sol": "too new; the price is from OpenAI's page of the model",
    "gemini-4-neon": "too new; only its id could be read",
    "gemini-4-hydrogen": "too new; the price is from Google's list",
    "gemini-4-carbon": "too new; the price is from Google's list, Argon's that is",
}

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
    said = {"window"} if model.context_window != found.context_window else set()
    if model.price is None:
        return said | {"price"}
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
    assert (found is None) is (model in ABSENT)
    if found is not None:
        expected = {what for name, what in DIFFERENT if name == model}
        assert differences(provider, model, found, TABLE[provider]["priced"]) == expected


LATER = ["gemini-4-argon", "gemini-3.8-flash", "gemini-3.7-flash", "gemini-3.6-flash"]


@pytest.mark.parametrize("model", LATER)
def test_a_price_that_will_rise_rises_on_the_day(model: str) -> None:
    found = package_model("google", model)
    assert found is not None
    days = [TABLE["google"]["priced"] + timedelta(days=count) for count in range(120)]
    told = [differences("google", model, found, day) - {"window"} for day in days]
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
            assert soon == {what for name, what in DIFFERENT if name == model}, model
