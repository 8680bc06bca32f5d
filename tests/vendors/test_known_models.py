"""The catalogue lists every model that the vendors' clients name."""

from __future__ import annotations

from typing import get_args

from anthropic.types.model import Model
from google.genai._gaos.types.interactions.model import Model as GoogleModel
from openai.types.shared.chat_model import ChatModel
from openai.types.shared.responses_model import ResponsesModel

from tests.catalogue.comparison import Accepted, Difference, compare
from tests.catalogue.sources import Facts, list_genai_prices, list_sdk_ids
from tests.providers.test_prices import TABLE
from thinklsp.providers.catalogue import Catalogue, find_model, list_models

VENDOR_IDS = get_args(get_args(Model)[0])


def test_every_id_of_the_vendors_client_is_known() -> None:
    assert VENDOR_IDS
    assert [model_id for model_id in VENDOR_IDS if not find_model("anthropic", model_id).known] == []
    assert set(list_models("anthropic")) <= set(VENDOR_IDS)


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


# Ids of OpenAI's client without a row: retired models, models for audio or images, and models without tools.
NOT_LISTED = ("gpt-3.5", "gpt-4-", "gpt-4o-audio", "gpt-4o-mini-", "chatgpt-4o", "gpt-audio", "codex-", "o1-")
NOT_LISTED_IDS = {
    *("gpt-4", "gpt-5-chat-latest"),
    *("gpt-4o-search-preview", "gpt-4o-search-preview-2025-03-11"),
}
IN_A_DOCSTRING_OF_THE_CLIENT = {"gpt-5.3-codex"}
PRICED_ELSEWHERE = {"gpt-5.4-pro", "gpt-5.2-codex", "gpt-5.1-codex-mini", "gpt-5.5-cyber", "chat-latest"}
# Models of the Responses API for research and for computer use.
NOT_FOR_CODE = ("deep-research", "computer-use", "o1-pro")


def test_openais_client_and_the_rows_name_the_same_models() -> None:
    responses = get_args(ResponsesModel)[-1]
    every = {*get_args(ChatModel), *get_args(responses)}
    named = {name for name in every if find_model("openai", name).known}
    rest = {name for name in every - named if not any(word in name for word in NOT_FOR_CODE)}
    assert {name for name in rest if not name.startswith(NOT_LISTED)} == NOT_LISTED_IDS
    assert set(list_models("openai")) - named == IN_A_DOCSTRING_OF_THE_CLIENT | PRICED_ELSEWHERE


def test_googles_client_and_the_rows_name_the_same_models() -> None:
    named = {name for name in get_args(get_args(GoogleModel)[0]) if name.startswith("gemini-")}
    makes_other_things = ("image", "tts", "transcribe", "robotics", "omni", "banana", "embedding", "live", "computer")
    text = {name for name in named if not any(word in name for word in makes_other_things)}
    assert text
    assert [name for name in text if not find_model("google", name).known] == []
    # The first has been shut down, and the second is too new.
    assert set(list_models("google")) - named == {"gemini-3-pro-preview", "gemini-4-neon"}
