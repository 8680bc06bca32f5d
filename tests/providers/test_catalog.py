"""The catalogue: every row makes sense, and the user can correct it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from thinklsp.core.choices import EFFORTS
from thinklsp.core.errors import SettingsError
from thinklsp.core.usage import Usage
from thinklsp.providers.catalogue import Catalogue, ModelInfo, Price, find_default_model, find_model, list_models

PROVIDERS = ("anthropic", "openai", "google", "openai-compatible")
ROWS = [(provider, model_id) for provider in PROVIDERS for model_id in (*list_models(provider), "next-9", "")]


@pytest.mark.parametrize(("provider", "model_id"), ROWS)
def test_rows_make_sense(provider: str, model_id: str) -> None:
    model = find_model(provider, model_id)
    assert (model.provider, model.id, model.known) == (provider, model_id, model_id in list_models(provider))
    assert list(model.efforts) == [effort for effort in EFFORTS if effort in model.efforts]
    assert model.default_effort in (None, *model.efforts)
    assert not model.on_by_effort or (model.efforts and model.adaptive and not model.on_when_unset)
    assert model.effort_cap_when_off is None or (model.effort_when_off and model.effort_cap_when_off in model.efforts)
    assert not model.effort_when_off or provider == "anthropic"
    if model.off is not None or model.efforts:
        assert model.adaptive or model.manual
    if model.output_cap is not None and model.context_window is not None:
        assert 0 < model.output_cap < model.context_window
    if model.input_limit is not None:
        assert model.context_window is not None
        assert 0 < model.input_limit < model.context_window
    assert model.manual or model.interleaved == "always"
    assert not model.budget_steers or (model.adaptive and model.manual and not model.efforts and model.budget_most)
    assert "minimal" not in model.efforts or model.off is None
    assert json.dumps(asdict(model))
    assert hash(model) == hash(find_model(provider, model_id))


TITLES = {
    ("anthropic", "claude-opus-5-5"): "Claude Opus 5.5",
    ("anthropic", "claude-fable-5"): "Claude Fable 5",
    ("anthropic", "claude-opus-4-5-20251101"): "Claude Opus 4.5 20251101",
    ("openai", "gpt-6.2-astra"): "GPT-6.2 Astra",
    ("openai", "gpt-4o-mini"): "GPT-4o Mini",
    ("openai", "o3-pro"): "o3 Pro",
    ("google", "gemini-3-pro-preview"): "Gemini 3 Pro Preview",
    ("openai-compatible", "deepseek-v4-pro"): "DeepSeek V4 Pro",
    ("openai-compatible", "qwen3:8b"): "qwen3:8b",
    ("simulator", "claude-opus-5-5"): "Claude Opus 5.5",
}


@pytest.mark.parametrize(("provider", "model_id"), TITLES)
def test_titles_are_names_for_people(provider: str, model_id: str) -> None:
    assert find_model(provider, model_id).title == TITLES[provider, model_id]


VERSIONS = [
    # provider, id as it is asked for, the row that it leads to
    ("anthropic", "claude-haiku-4-5-20251001", "claude-haiku-4-5"),
    ("anthropic", "claude-opus-5-5-20301231", "claude-opus-5-5"),
    ("anthropic", "claude-opus-5-5-latest", "claude-opus-5-5"),
    ("anthropic", "claude-opus-4-5@20251101", "claude-opus-4-5"),
    ("anthropic", "claude-opus-latest", "claude-opus-5-5"),
    ("anthropic", "claude-sonnet-latest", "claude-sonnet-5-5"),
    ("anthropic", "claude-haiku-latest", "claude-haiku-5-5"),
    ("anthropic", "claude-fable-latest", "claude-fable-5-2"),
    ("anthropic", "claude-mythos-latest", "claude-mythos-5-2"),
    ("openai", "gpt-sol-latest", "gpt-6.2-sol"),
    ("openai", "gpt-astra-latest", "gpt-6.2-astra"),
    ("openai", "gpt-terra-latest", "gpt-6.1-terra"),
    ("openai", "gpt-luna-latest", "gpt-6-luna"),
    ("openai", "gpt-mini-latest", "gpt-5.4-mini"),
    ("openai", "gpt-latest", "gpt-5.6-sol"),
    ("openai", "gpt-6-cyber-2026-11-01", "gpt-6-cyber"),
    ("openai", "gpt-chat-latest", "chat-latest"),
    ("openai", "gpt-5.1-mini", "gpt-5.1-codex-mini"),
    ("openai", "gpt-daybreak-red-latest", "gpt-5.6-cyber"),
    ("openai", "gpt-daybreak-blue-latest", "gpt-5.6-sol"),
    ("openai", "gpt-rosalind-discovery", "gpt-rosalind-research"),
    ("google", "gemini-2.5-pro-preview-06-05", "gemini-2.5-pro"),
    ("google", "gemini-3.1-flash-lite-preview", "gemini-3.1-flash-lite"),
    ("openai-compatible", "deepseek-v4-pro-0813", "deepseek-v4-pro"),
    ("openai-compatible", "deepseek-flash-latest", "deepseek-flash"),
    ("openai-compatible", "deepseek-pro-latest", "deepseek-v4-pro"),
    ("openai", "gpt-5.2-2025-12-11", "gpt-5.2"),
    ("openai", "gpt-5.2-pro-2025-12-11", "gpt-5.2-pro"),
    ("openai", "gpt-5.6", "gpt-5.6-sol"),
    ("openai", "gpt-6.2-astra-law", "gpt-6.2-astra"),
    ("openai", "o3-pro-2025-06-10", "o3-pro"),
    ("openai", "gpt-5.2-chat-latest", "gpt-5.2-chat-latest"),
    ("google", "models/gemini-2.5-pro", "gemini-2.5-pro"),
    ("google", "gemini-2.5-flash-001", "gemini-2.5-flash"),
    ("google", "models/gemini-2.5-flash-preview-09-2025", "gemini-2.5-flash"),
    ("google", "gemini-flash-latest", "gemini-3.8-flash"),
    ("openai-compatible", "deepseek-v4-flash", "deepseek-flash"),
]


@pytest.mark.parametrize(("provider", "asked", "row"), VERSIONS)
def test_versions_lead_to_their_model_and_keep_their_id(provider: str, asked: str, row: str) -> None:
    assert find_model(provider, asked) == replace(find_model(provider, row), id=asked)
    assert find_model(provider, asked).known


@pytest.mark.parametrize(
    "model_id",
    ["claude-opus-9", "qwen3:8b", "", "claude-opus-5-5-fast", "models/claude-opus-5", "claude-3-opus-latest"],
)
def test_unknown_ids_get_the_safest_modern_form(model_id: str) -> None:
    model = find_model("anthropic", model_id)
    assert (model.id, model.known, model.adaptive, model.manual, model.off) == (model_id, False, True, False, None)
    assert "xhigh" not in model.efforts
    assert model.price is None
    assert model.prefix_bound


@pytest.mark.parametrize("provider", ["openai", "google", "openai-compatible"])
def test_unknown_ids_of_the_others_promise_nothing(provider: str) -> None:
    model = find_model(provider, "next-9")
    assert (model.known, model.adaptive, model.manual, model.efforts) == (False, True, False, ("low", "medium", "high"))
    assert (model.context_window, model.output_cap, model.price, model.default_effort) == (None, None, None, None)
    assert (model.off, model.display) == (("off", "always") if provider == "openai-compatible" else (None, "asked"))


def test_defaults_and_other_providers() -> None:
    for provider in ("anthropic", "openai", "google"):
        usual = find_model(provider, find_default_model(provider))
        assert usual.known
        assert usual.price is not None
        assert len(usual.efforts) >= 3
    assert find_default_model("anthropic") == "claude-opus-5-5"
    assert find_default_model("openai-compatible") == ""
    assert find_model("simulator", find_default_model("simulator")).price == Price(0, 0)
    assert list_models("simulator") == list_models("anthropic")
    for ask in (lambda: find_model("nobody", "x"), lambda: find_default_model("nobody"), lambda: list_models("nobody")):
        with pytest.raises(SettingsError, match="'nobody'"):
            ask()


def overlaid(model_id: str, provider: str = "openai-compatible", **own: Any) -> ModelInfo:
    return Catalogue({provider: {model_id: own}}).find_model(provider, model_id)


def test_the_longest_prompt() -> None:
    table = {"gpt-5": 272_000, "gpt-6.1-sol": 922_000, "o3": 200_000, "next-9": None}
    assert {name: find_model("openai", name).input_window for name in table} == table
    assert overlaid("gpt-5", "openai", context_window=100_000).input_window == 100_000
    assert overlaid("gpt-5", "openai", input_limit="").input_window == 400_000
    assert overlaid("mine", input_limit=5_000).input_window == 5_000


def test_a_users_entry_overrides_the_row_of_its_model() -> None:
    own = {"context_window": 131_072, "efforts": ["high", "low"], "price": {"input": 0, "output": 0.5}}
    made = overlaid("qwen3:8b", **own, off="")
    assert made == replace(
        find_model("openai-compatible", "qwen3:8b"),
        known=True,
        context_window=131_072,
        efforts=("low", "high"),
        off=None,
        price=Price(0, 0.5),
    )
    listed = overlaid("gemini-3.8-flash", "google", price={"input": 1.0, "output": 2})
    assert listed == replace(find_model("google", "gemini-3.8-flash"), price=Price(1.0, 2.0))
    catalogue = Catalogue({"google": {"gemini-2.5-pro": {"output_cap": 10}}, "anthropic": {"mine": {}}})
    for asked in ("gemini-2.5-pro", "models/gemini-2.5-pro", "gemini-2.5-pro-001"):
        assert catalogue.find_model("google", asked) == replace(find_model("google", asked), output_cap=10)
    assert catalogue.find_model("google", "gemini-2.5-flash") == find_model("google", "gemini-2.5-flash")
    assert catalogue.list_models("anthropic") == (*list_models("anthropic"), "mine")
    assert catalogue.list_models("google") == list_models("google")
    pinned = Catalogue({"anthropic": {"claude-haiku-4-5": {"output_cap": 5000}}})
    assert pinned.find_model("anthropic", "claude-haiku-4-5-20251001").output_cap == 5000
    # The offline stand-in is strict about its own models; nothing that is said of the real ones holds there.
    assert (
        pinned.find_model("simulator", "claude-haiku-4-5").output_cap
        == find_model("anthropic", "claude-haiku-4-5").output_cap
    )


SECRET = "sk-canary-0123456789"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"windows": SECRET}, "windows: unknown key; use one of: aliases, context_window"),
    ({"context_window": SECRET}, "context_window: input should be a valid integer"),
    ({"context_window": 0}, "context_window: input should be greater than 0"),
    ({"context_window": True}, "context_window: input should be a valid integer"),
    ({"adaptive": SECRET}, "adaptive: input should be a valid boolean"),
    ({"efforts": ["low", SECRET]}, "efforts.1: input should be 'minimal', 'low'"),
    ({"efforts": "low"}, "efforts: input should be a valid tuple"),
    ({"off": SECRET}, "off: input should be 'off' or 'between_tools'"),
    ({"manual": ""}, "manual: input should be a valid boolean"),
    ({"price": {"input": 1.0}}, "price.output: field required"),
    ({"price": {"input": -1, "output": 1}}, "price.input: input should be greater than or equal to 0"),
    ({"price": {"input": 1, "output": 1, "sum": SECRET}}, "price.sum: unknown key; use one of: input, output"),
    ({"price": SECRET}, "price: input should be a valid dictionary"),
    ({"budget_least": 10, "budget_most": 5}, "budget_most must be at least budget_least"),
    ({"budget_steers": True}, "budget_steers requires adaptive and manual, and no efforts"),
]


@pytest.mark.parametrize(("own", "said"), WRONG)
def test_a_mistake_in_an_entry_is_named_with_model_and_key(own: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        overlaid("my-model", **own)
    sentence = str(refused.value)
    assert sentence.startswith('Your config.toml has an error at `models.openai-compatible."my-model"')
    assert said in sentence.replace("`", "")
    assert sentence.endswith(".")
    assert SECRET not in sentence
    assert refused.value.key in sentence


def test_usage_becomes_a_cost() -> None:
    price = Price(input=10, output=50, cache_read=1, cache_write=12.5)
    usage = Usage(input_tokens=1000, output_tokens=100, cache_read_tokens=600, cache_write_tokens=200)
    assert price.compute_cost(usage) == pytest.approx((200 * 10 + 600 * 1 + 200 * 12.5 + 100 * 50) / 1e6)
    assert price.compute_cost(Usage(input_tokens=5)) is None
    assert price.compute_cost(Usage(input_tokens=0, output_tokens=0)) == 0
    haiku = find_model("anthropic", "claude-haiku-5-5").price
    assert haiku is not None
    assert haiku.compute_cost(Usage(input_tokens=100_000, output_tokens=0)) == pytest.approx(0.01)
    assert haiku.compute_cost(Usage(input_tokens=100_001, output_tokens=0)) == pytest.approx(0.0500005)
    plain = Price(input=10, output=50)
    assert plain.compute_cost(usage) == pytest.approx((1000 * 10 + 100 * 50) / 1e6)
    dear = Price(input=10, output=50, long_prompt=500, long_factor=2, long_output_factor=1.5)
    assert dear.compute_cost(usage) == pytest.approx((1000 * 20 + 100 * 75) / 1e6)
