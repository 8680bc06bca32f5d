"""The catalogue: every model of the vendor's client is listed, and every row makes sense."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from anthropic.types.model import Model

from thinklsp.core.errors import SettingsError
from thinklsp.core.usage import Usage
from thinklsp.providers.catalog import Price, default_model, known_models, lookup, price_of
from thinklsp.providers.thinking import EFFORTS

VENDOR_IDS = get_args(get_args(Model)[0])


def test_every_id_of_the_vendors_client_is_known() -> None:
    assert VENDOR_IDS
    assert [model_id for model_id in VENDOR_IDS if not lookup("anthropic", model_id).known] == []
    assert {lookup("anthropic", model_id).id for model_id in VENDOR_IDS} == set(known_models("anthropic"))


@pytest.mark.parametrize("model_id", [*known_models("anthropic"), "claude-next-9"])
def test_rows_make_sense(model_id: str) -> None:
    model = lookup("anthropic", model_id)
    assert model.adaptive or model.manual
    assert list(model.efforts) == [effort for effort in EFFORTS if effort in model.efforts]
    assert model.default_effort in (model.efforts or (None,))
    assert model.effort_cap_when_off is None or (model.off and model.effort_cap_when_off in model.efforts)
    assert 0 < model.output_cap < model.context_window
    assert model.manual or model.interleaved == "always"
    if model.price is not None:
        price = model.price
        assert 0 < price.cache_read < price.input < price.cache_write < price.output
        # The five-minute lifetime costs a quarter more than plain input, on every model.
        assert price.cache_write == pytest.approx(price.input * 1.25)


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


def test_dates_lead_to_their_model() -> None:
    assert lookup("anthropic", "claude-haiku-4-5-20251001").id == "claude-haiku-4-5"
    assert lookup("anthropic", "claude-opus-5-5-20301231").id == "claude-opus-5-5"
    assert lookup("anthropic", "claude-opus-5-5-latest").id == "claude-opus-5-5"


@pytest.mark.parametrize("model_id", ["claude-opus-9", "qwen3:8b", "", "claude-opus-5-5-fast"])
def test_unknown_ids_get_the_safest_modern_form(model_id: str) -> None:
    model = lookup("anthropic", model_id)
    assert (model.id, model.known, model.adaptive, model.manual, model.off) == (model_id, False, True, False, None)
    assert "xhigh" not in model.efforts
    assert model.price is None
    assert model.prefix_bound


def test_defaults_and_other_providers() -> None:
    assert default_model("anthropic") == "claude-opus-5-5"
    assert lookup("anthropic", default_model("anthropic")).known
    assert lookup("simulator", default_model("simulator")).price is None
    assert price_of("nobody", "x") is None
    with pytest.raises(SettingsError, match="'nobody'"):
        lookup("nobody", "x")


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


def test_the_file_holds_nothing_but_data() -> None:
    for model_id in known_models("anthropic"):
        model = lookup("anthropic", model_id)
        assert json.dumps(model.id)
        assert hash(model) == hash(lookup("anthropic", model_id))
