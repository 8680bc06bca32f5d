"""The catalogue lists every model that the vendors' clients name."""

from __future__ import annotations

import pytest

from tests.catalogue.comparison import Accepted, Difference, compare
from tests.catalogue.sources import PROVIDERS, Facts, list_genai_prices, list_sdk_ids
from tests.providers.test_prices import TABLE
from thinklsp.providers.catalogue import Catalogue, list_models


def list_differences() -> list[Difference]:
    day = TABLE["openai"]["priced"]
    return [*compare([*list_sdk_ids(), *list_genai_prices(day)], Catalogue(), day)]


def test_the_catalogue_differs_only_as_accepted() -> None:
    """`python -m tests.catalogue` compares another table, too, which the nightly run downloads."""
    rest, _ = Accepted.read().split(list_differences())
    assert [*map(str, rest)] == []


def test_the_comparison_sees_what_is_missing_or_differs() -> None:
    facts = [
        Facts("x", "openai", "gpt-9"),
        Facts("x", "openai", "gpt-6-sol", 1_050_000, 128_000, 2.0, 10.0, 0.2),
        Facts("x", "openai", "gpt-6-sol", 922_000),
        Facts("x", "openai", "gpt-6-sol", 1_000_000, 64_000, 2.5, 9.0, 0.3),
    ]
    found = [*compare(facts, Catalogue(), TABLE["openai"]["priced"])]
    assert [difference.what for difference in found] == [
        *("missing", "window", "output_cap", "input", "output", "cache_read")
    ]
    rest, unused = Accepted({"openai/gpt-9 missing": "too new", "google/* window": "rounded"}).split(found)
    assert (len(rest), unused) == (5, ["google/* window"])


# Listed models that the vendor's client does not name, or only in a docstring.
UNNAMED = {
    "anthropic": set[str](),
    "openai": {"gpt-5.3-codex", "gpt-5.4-pro", "gpt-5.2-codex", "gpt-5.1-codex-mini", "gpt-5.5-cyber", "chat-latest"},
    # The first has been shut down, and the second is too new.
    "google": {"gemini-3-pro-preview", "gemini-4-neon"},
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_row_is_a_model_of_the_vendors_client(provider: str) -> None:
    named = {facts.model for facts in list_sdk_ids() if facts.provider == provider}
    assert set(list_models(provider)) - named == UNNAMED[provider]
