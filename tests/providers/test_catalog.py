"""The catalogue: every row makes sense, and the user can correct it."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from typing import Any

import pytest

from thinklsp.core.choices import EFFORTS
from thinklsp.core.errors import SettingsError
from thinklsp.core.usage import Usage
from thinklsp.providers.catalog import Catalogue, default_model, known_models, lookup
from thinklsp.providers.model_info import ModelInfo, Price
from thinklsp.providers.model_row import ModelRow

PROVIDERS = ("anthropic", "openai", "google", "openai-compatible")
ROWS = [(provider, model_id) for provider in PROVIDERS for model_id in (*known_models(provider), "next-9", "")]


@pytest.mark.parametrize(("provider", "model_id"), ROWS)
def test_rows_make_sense(provider: str, model_id: str) -> None:
    model = lookup(provider, model_id)
    assert (model.provider, model.id, model.known) == (provider, model_id, model_id in known_models(provider))
    assert list(model.efforts) == [effort for effort in EFFORTS if effort in model.efforts]
    assert model.default_effort in (None, *model.efforts)
    assert not model.on_by_effort or (model.efforts and model.adaptive and not model.on_when_unset)
    assert model.effort_cap_when_off is None or (model.effort_when_off and model.effort_cap_when_off in model.efforts)
    assert not model.effort_when_off or provider == "anthropic"
    if model.off is not None or model.efforts:
        assert model.adaptive or model.manual
    if model.output_cap is not None and model.context_window is not None:
        assert 0 < model.output_cap < model.context_window
    assert model.manual or model.interleaved == "always"
    assert not model.budget_steers or (model.adaptive and model.manual and not model.efforts and model.budget_most)
    assert "minimal" not in model.efforts or model.off is None
    assert json.dumps(asdict(model))
    assert hash(model) == hash(lookup(provider, model_id))


@pytest.mark.parametrize(("provider", "model_id"), ROWS)
def test_prices_make_sense(provider: str, model_id: str) -> None:
    price = lookup(provider, model_id).price
    assert price is None or model_id
    if price is None:
        return
    assert 0 < price.input < price.output
    assert price.cache_read is None or 0 < price.cache_read < price.input
    if price.cache_write is not None:
        # The shortest lifetime costs a quarter more than plain input, wherever writing costs anything.
        assert price.cache_write == pytest.approx(price.input * 1.25)
    assert (price.long_prompt is None) is (price.long_factor == 1.0)


# Which request forms the service answers with 400, by its own table: adaptive, budget, disabled, between_tools.
FORMS = {
    "claude-fable-5": "adaptive",
    "claude-mythos-5": "adaptive",
    "claude-fable-5-1": "adaptive",
    "claude-fable-5-2": "adaptive",
    "claude-mythos-5-1": "adaptive",
    "claude-mythos-5-2": "adaptive",
    "claude-mythos-preview": "adaptive manual",
    "claude-opus-5-5": "adaptive",
    "claude-opus-5": "adaptive off",
    "claude-opus-4-8": "adaptive off",
    "claude-opus-4-7": "adaptive off",
    "claude-sonnet-5-5": "adaptive between_tools",
    "claude-sonnet-5": "adaptive off",
    "claude-haiku-5-5": "adaptive off",
    "claude-opus-4-6": "adaptive manual off",
    "claude-sonnet-4-6": "adaptive manual off",
    "claude-opus-4-5": "manual off",
    "claude-sonnet-4-5": "manual off",
    "claude-haiku-4-5": "manual off",
}
PREFIX_BOUND = {
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
}
NO_FORCED_TOOL = {
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5-1",
    "claude-mythos-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
}


def test_forms_bindings_and_forced_tools_are_those_of_the_service() -> None:
    models = [lookup("anthropic", model_id) for model_id in known_models("anthropic")]
    forms = {
        model.id: " ".join(filter(None, ("adaptive" * model.adaptive, "manual" * model.manual, model.off)))
        for model in models
    }
    assert forms == FORMS
    assert {model.id for model in models if model.prefix_bound} == PREFIX_BOUND
    assert {model.id for model in models if model.forced_tool == "no"} == NO_FORCED_TOOL
    assert {model.id for model in models if not model.on_when_unset} == {
        model.id for model in models if model.id.endswith(("4-5", "4-6", "4-7", "4-8"))
    }


# Provider, form, models: which forms of thinking the other services take, by their own tables.
OTHER_FORMS = {
    "openai": {
        "adaptive off": "gpt-6-sol gpt-6-luna gpt-6.1-terra gpt-5.6-sol gpt-5.6-terra gpt-5.6-luna gpt-5.5 gpt-5.4 "
        "gpt-5.4-mini gpt-5.4-nano gpt-5.2 gpt-5.1",
        "adaptive": "gpt-6.2-astra gpt-6.2-sol gpt-6.1-sol gpt-6-astra gpt-5.5-pro gpt-5.4-pro gpt-5.2-pro gpt-5-pro "
        "gpt-5.3-chat-latest gpt-5.2-chat-latest gpt-5.1-chat-latest gpt-5 gpt-5-mini gpt-5-nano o1 o3 o3-mini "
        "o3-pro o4-mini gpt-5.3-codex gpt-5.2-codex gpt-5.1-codex-max gpt-5.1-codex gpt-5.1-codex-mini gpt-5-codex",
        "": "gpt-4.1 gpt-4.1-mini gpt-4.1-nano gpt-4o gpt-4o-mini",
    },
    "google": {
        "adaptive": "gemini-4-hydrogen gemini-4-carbon gemini-4-argon gemini-3.8-flash gemini-3.7-flash "
        "gemini-3.6-flash gemini-3.5-flash gemini-3.5-flash-lite gemini-3.1-pro-preview gemini-3.1-flash-lite "
        "gemini-3-pro-preview gemini-3-flash-preview",
        "adaptive manual": "gemini-2.5-pro",
        "adaptive manual off": "gemini-2.5-flash gemini-2.5-flash-lite",
        "": "gemini-2.5-flash-image",
    },
    "openai-compatible": {"adaptive off": "deepseek-flash deepseek-v4-pro"},
}
_UP_TO = {"high": EFFORTS[1:4], "xhigh": EFFORTS[1:5], "max": EFFORTS[1:]}
LEVELS: dict[tuple[str, ...], str] = {
    _UP_TO["max"]: "gpt-6.2-astra gpt-6.2-sol gpt-6.1-sol gpt-6.1-terra gpt-6-astra gpt-6-sol gpt-6-luna gpt-5.6-sol "
    "gpt-5.6-terra gpt-5.6-luna",
    _UP_TO["xhigh"]: "gpt-5.5 gpt-5.4 gpt-5.4-mini gpt-5.4-nano gpt-5.2 gemini-4-hydrogen "
    "gpt-5.3-codex gpt-5.2-codex gpt-5.1-codex-max",
    _UP_TO["xhigh"][1:]: "gpt-5.5-pro gpt-5.4-pro gpt-5.2-pro",
    _UP_TO["high"]: "gpt-5.1 gpt-5.1-codex gpt-5.1-codex-mini gpt-5-codex o1 o3 o3-mini o3-pro o4-mini "
    "gemini-4-carbon gemini-4-argon gemini-3.8-flash gemini-3.7-flash gemini-3.1-pro-preview",
    EFFORTS[:4]: "gpt-5 gpt-5-mini gpt-5-nano gemini-3.6-flash gemini-3.5-flash gemini-3.5-flash-lite "
    "gemini-3.1-flash-lite gemini-3-flash-preview",
    ("low", "high"): "gemini-3-pro-preview",
    ("low", "high", "max"): "deepseek-flash deepseek-v4-pro",
    ("medium",): "gpt-5.3-chat-latest gpt-5.2-chat-latest gpt-5.1-chat-latest",
    ("high",): "gpt-5-pro",
    (): "gpt-4.1 gpt-4.1-mini gpt-4.1-nano gpt-4o gpt-4o-mini gemini-2.5-pro gemini-2.5-flash gemini-2.5-flash-lite "
    "gemini-2.5-flash-image",
}


def test_forms_and_levels_of_the_other_services() -> None:
    models = [lookup(provider, model_id) for provider in OTHER_FORMS for model_id in known_models(provider)]
    for provider, forms in OTHER_FORMS.items():
        expected = {model_id: form for form, ids in forms.items() for model_id in ids.split()}
        assert expected == {
            model.id: " ".join(filter(None, ("adaptive" * model.adaptive, "manual" * model.manual, model.off)))
            for model in models
            if model.provider == provider
        }
    assert {model.id: model.efforts for model in models} == {
        model_id: levels for levels, ids in LEVELS.items() for model_id in ids.split()
    }
    opt_in = {model.id for model in models if model.on_by_effort}
    assert opt_in == {f"gpt-5.{version}" for version in (1, 2, 4)} | {"gpt-5.4-mini", "gpt-5.4-nano"}
    assert {model.id for model in models if not model.on_when_unset and model.adaptive} == {
        *opt_in,
        "gemini-2.5-flash-lite",
    }
    budgets = {model.id: (model.budget_least, model.budget_most) for model in models if model.budget_steers}
    assert budgets == {
        "gemini-2.5-pro": (128, 32_768),
        "gemini-2.5-flash": (1, 24_576),
        "gemini-2.5-flash-lite": (512, 24_576),
    }


VERSIONS = [
    # provider, id as it is asked for, the row that it leads to
    ("anthropic", "claude-haiku-4-5-20251001", "claude-haiku-4-5"),
    ("anthropic", "claude-opus-5-5-20301231", "claude-opus-5-5"),
    ("anthropic", "claude-opus-5-5-latest", "claude-opus-5-5"),
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
    assert lookup(provider, asked) == replace(lookup(provider, row), id=asked)
    assert lookup(provider, asked).known


@pytest.mark.parametrize("model_id", ["claude-opus-9", "qwen3:8b", "", "claude-opus-5-5-fast", "models/claude-opus-5"])
def test_unknown_ids_get_the_safest_modern_form(model_id: str) -> None:
    model = lookup("anthropic", model_id)
    assert (model.id, model.known, model.adaptive, model.manual, model.off) == (model_id, False, True, False, None)
    assert "xhigh" not in model.efforts
    assert model.price is None
    assert model.prefix_bound


@pytest.mark.parametrize("provider", ["openai", "google", "openai-compatible"])
def test_unknown_ids_of_the_others_promise_nothing(provider: str) -> None:
    model = lookup(provider, "next-9")
    assert (model.known, model.adaptive, model.manual, model.efforts) == (False, True, False, ("low", "medium", "high"))
    assert (model.context_window, model.output_cap, model.price, model.default_effort) == (None, None, None, None)
    assert (model.off, model.display) == (("off", "always") if provider == "openai-compatible" else (None, "asked"))


def test_defaults_and_other_providers() -> None:
    for provider in ("anthropic", "openai", "google"):
        usual = lookup(provider, default_model(provider))
        assert usual.known
        assert usual.price is not None
        assert len(usual.efforts) >= 3
    assert default_model("anthropic") == "claude-opus-5-5"
    assert default_model("openai-compatible") == ""
    assert lookup("simulator", default_model("simulator")).price is None
    assert known_models("simulator") == known_models("anthropic")
    for ask in (lambda: lookup("nobody", "x"), lambda: default_model("nobody"), lambda: known_models("nobody")):
        with pytest.raises(SettingsError, match="'nobody'"):
            ask()


def overlaid(model_id: str, provider: str = "openai-compatible", **own: Any) -> ModelInfo:
    return Catalogue({provider: {model_id: own}}).lookup(provider, model_id)


def test_the_users_entry_lies_over_the_listed_row_or_the_unknown_one() -> None:
    own = {"context_window": 131_072, "efforts": ["high", "low"], "price": {"input": 0, "output": 0.5}}
    made = overlaid("qwen3:8b", **own, off="")
    assert made == replace(
        lookup("openai-compatible", "qwen3:8b"),
        known=True,
        context_window=131_072,
        efforts=("low", "high"),
        off=None,
        price=Price(0, 0.5),
    )
    listed = overlaid("gemini-3.8-flash", "google", price={"input": 1.0, "output": 2})
    assert listed == replace(lookup("google", "gemini-3.8-flash"), price=Price(1.0, 2.0))
    catalogue = Catalogue({"google": {"gemini-2.5-pro": {"output_cap": 10}}, "anthropic": {"mine": {}}})
    for asked in ("gemini-2.5-pro", "models/gemini-2.5-pro", "gemini-2.5-pro-001"):
        assert catalogue.lookup("google", asked) == replace(lookup("google", asked), output_cap=10)
    assert catalogue.lookup("google", "gemini-2.5-flash") == lookup("google", "gemini-2.5-flash")
    assert catalogue.known_models("anthropic") == (*known_models("anthropic"), "mine")
    assert catalogue.known_models("google") == known_models("google")
    pinned = Catalogue({"anthropic": {"claude-haiku-4-5": {"output_cap": 5000}}})
    assert pinned.lookup("anthropic", "claude-haiku-4-5-20251001").output_cap == 5000
    # The offline stand-in is strict about its own models; nothing that is said of the real ones holds there.
    assert (
        pinned.lookup("simulator", "claude-haiku-4-5").output_cap == lookup("anthropic", "claude-haiku-4-5").output_cap
    )


SECRET = "sk-canary-0123456789"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"windows": SECRET}, "windows: there is no such key; there are aliases, context_window"),
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
    ({"price": {"input": 1, "output": 1, "sum": SECRET}}, "price.sum: there is no such key; there are input, output"),
    ({"price": SECRET}, "price: input should be a valid dictionary"),
    ({"budget_least": 10, "budget_most": 5}, "budget_most must be at least budget_least"),
    ({"budget_steers": True}, "budget_steers needs adaptive and manual, and no efforts"),
]


@pytest.mark.parametrize(("own", "said"), WRONG)
def test_a_mistake_in_an_entry_is_named_with_model_and_key(own: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        overlaid("my-model", **own)
    sentence = str(refused.value)
    assert sentence.startswith('Your config.toml has a mistake at models.openai-compatible."my-model"')
    assert said in sentence
    assert sentence.endswith(".")
    assert SECRET not in sentence
    assert refused.value.key in sentence


def test_a_row_can_say_everything_that_there_is_to_know() -> None:
    told_by_the_lookup = {"provider", "id", "known"}
    about_the_row = {"aliases", "price_later"}
    assert set(ModelRow.model_fields) - about_the_row == {f.name for f in fields(ModelInfo)} - told_by_the_lookup


def test_costs() -> None:
    price = Price(input=10, output=50, cache_read=1, cache_write=12.5)
    usage = Usage(input_tokens=1000, output_tokens=100, cache_read_tokens=600, cache_write_tokens=200)
    assert price.cost(usage) == pytest.approx((200 * 10 + 600 * 1 + 200 * 12.5 + 100 * 50) / 1e6)
    assert price.cost(Usage(input_tokens=5)) is None
    assert price.cost(Usage(input_tokens=0, output_tokens=0)) == 0
    haiku = lookup("anthropic", "claude-haiku-5-5").price
    assert haiku is not None
    assert haiku.cost(Usage(input_tokens=100_000, output_tokens=0)) == pytest.approx(0.01)
    assert haiku.cost(Usage(input_tokens=100_001, output_tokens=0)) == pytest.approx(0.0500005)
    plain = Price(input=10, output=50)
    assert plain.cost(usage) == pytest.approx((1000 * 10 + 100 * 50) / 1e6)
    dear = Price(input=10, output=50, long_prompt=500, long_factor=2, long_output_factor=1.5)
    assert dear.cost(usage) == pytest.approx((1000 * 20 + 100 * 75) / 1e6)
