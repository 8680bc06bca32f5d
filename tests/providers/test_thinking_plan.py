"""Every model × mode × effort: the plan is always something that the model takes; then the single rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any, get_args

import pytest

from thinklsp.providers.base import ThinkingForm
from thinklsp.providers.catalog import ModelInfo, known_models, lookup
from thinklsp.providers.model_info import Effort
from thinklsp.providers.thinking import EFFORTS, ThinkingDisplay, ThinkingMode, ThinkingPlan, plan_thinking

MODELS = [*known_models("anthropic"), "claude-next-9"]
WISHES: dict[str, Any] = {
    "mode": "auto",
    "budget_tokens": 10_000,
    "budget_explicit": False,
    "effort": None,
    "display": "status",
    "max_tokens": None,
}


def plan(model: str, **wishes: Any) -> ThinkingPlan:
    return plan_thinking(lookup("anthropic", model), **{**WISHES, **wishes})


def check_accepted(model: ModelInfo, result: ThinkingPlan) -> None:
    """What the service would answer with 400 must not be in any plan."""
    thinking = result.thinking
    takes: dict[ThinkingForm, bool] = {
        "unset": True,
        "adaptive": model.adaptive,
        "manual": model.manual,
        "off": model.off == "off",
        "between_tools": model.off == "between_tools",
    }
    assert takes[thinking.form]
    assert 0 < result.max_tokens <= model.output_cap
    assert (thinking.budget_tokens is not None) is (thinking.form == "manual")
    if thinking.budget_tokens is not None:
        assert 1024 <= thinking.budget_tokens < result.max_tokens
    assert thinking.effort is None or thinking.effort in model.efforts
    if thinking.form in ("off", "between_tools"):
        assert not thinking.summarized
        cap = model.effort_cap_when_off
        assert thinking.effort is None or cap is None or EFFORTS.index(thinking.effort) <= EFFORTS.index(cap)


@pytest.mark.parametrize("model_id", MODELS)
def test_every_wish_becomes_something_the_model_takes(model_id: str) -> None:
    model = lookup("anthropic", model_id)
    wishes = product(
        get_args(ThinkingMode),
        (None, *get_args(Effort)),
        get_args(ThinkingDisplay),
        (None, 1, 1024, 1025, 8000, 10_000_000),
        ((10_000, False), (10_000, True), (0, True), (1024, True), (63_999, True), (500_000, True)),
    )
    for mode, effort, display, max_tokens, (budget, explicit) in wishes:
        result = plan(
            model_id,
            mode=mode,
            effort=effort,
            display=display,
            max_tokens=max_tokens,
            budget_tokens=budget,
            budget_explicit=explicit,
        )
        check_accepted(model, result)
        assert len(set(result.notices)) == len(result.notices)
        if max_tokens is not None:
            assert result.max_tokens <= max_tokens
        if mode == "auto" and effort in (None, *model.efforts) and max_tokens is None and budget == 10_000:
            assert result.notices == ()


@dataclass(frozen=True)
class Case:
    id: str
    model: str
    wishes: dict[str, Any]
    form: ThinkingForm
    effort: Effort | None = None
    budget: int | None = None
    max_tokens: int = 32_000
    notices: tuple[str, ...] = field(default=())


CASES = [
    Case("auto on a new model", "claude-opus-5-5", {}, "adaptive"),
    Case("auto on an old model", "claude-haiku-4-5", {}, "manual", None, 10_000),
    Case("auto where both are possible", "claude-opus-4-6", {}, "adaptive"),
    Case("auto, unknown model", "claude-next-9", {}, "adaptive"),
    Case("off", "claude-opus-4-8", {"mode": "off"}, "off"),
    Case("off, unset is off already", "claude-haiku-4-5", {"mode": "off"}, "off"),
    Case("off on Sonnet 5.5", "claude-sonnet-5-5", {"mode": "off"}, "between_tools"),
    Case(
        "off on Sonnet 5.5 with max",
        "claude-sonnet-5-5",
        {"mode": "off", "effort": "max"},
        "between_tools",
        "high",
        notices=("no effort above high",),
    ),
    Case(
        "off on Opus 5 with xhigh",
        "claude-opus-5",
        {"mode": "off", "effort": "xhigh"},
        "off",
        "high",
        notices=("no effort above high",),
    ),
    Case("off on Opus 4.8 with max", "claude-opus-4-8", {"mode": "off", "effort": "max"}, "off", "max", None, 64_000),
    Case("off, always on", "claude-opus-5-5", {"mode": "off"}, "adaptive", "low", notices=("cannot stop thinking",)),
    Case(
        "off beats effort where thinking cannot stop",
        "claude-fable-5",
        {"mode": "off", "effort": "max"},
        "adaptive",
        "low",
        notices=("cannot stop thinking",),
    ),
    Case(
        "off, always on, no levels",
        "claude-mythos-preview",
        {"mode": "off", "budget_tokens": 20_000, "budget_explicit": True},
        "manual",
        None,
        1024,
        notices=("cannot stop thinking",),
    ),
    Case("off, unknown model", "claude-next-9", {"mode": "off"}, "adaptive", "low", notices=("cannot stop",)),
    Case("manual", "claude-opus-4-6", {"mode": "manual"}, "manual", None, 10_000),
    Case("manual is gone", "claude-opus-5-5", {"mode": "manual"}, "adaptive", notices=("takes no thinking budget",)),
    Case(
        "adaptive is not there yet",
        "claude-opus-4-5",
        {"mode": "adaptive"},
        "manual",
        None,
        10_000,
        notices=("no adaptive",),
    ),
    Case("effort as it is", "claude-opus-5-5", {"effort": "medium"}, "adaptive", "medium"),
    Case("great effort, more room", "claude-opus-5-5", {"effort": "max"}, "adaptive", "max", None, 64_000),
    Case(
        "xhigh becomes max", "claude-opus-4-6", {"effort": "xhigh"}, "adaptive", "max", None, 64_000, ("max is used",)
    ),
    Case(
        "xhigh becomes high",
        "claude-opus-4-5",
        {"effort": "xhigh"},
        "manual",
        "high",
        10_000,
        32_000,
        ("high is used",),
    ),
    Case("effort as a budget: low", "claude-sonnet-4-5", {"effort": "low"}, "manual", None, 2048),
    Case("effort as a budget: medium", "claude-sonnet-4-5", {"effort": "medium"}, "manual", None, 10_000),
    Case("effort as a budget: high", "claude-sonnet-4-5", {"effort": "high"}, "manual", None, 16_384, 32_384),
    Case("effort as a budget: xhigh", "claude-sonnet-4-5", {"effort": "xhigh"}, "manual", None, 32_768, 48_768),
    Case("effort as a budget: max", "claude-sonnet-4-5", {"effort": "max"}, "manual", None, 32_768, 48_768),
    Case(
        "an explicit budget beats effort",
        "claude-sonnet-4-5",
        {"effort": "max", "budget_tokens": 5000, "budget_explicit": True},
        "manual",
        None,
        5000,
    ),
    Case(
        "effort without effect",
        "claude-sonnet-4-5",
        {"effort": "max", "mode": "off"},
        "off",
        notices=("no effect",),
    ),
    Case(
        "a great budget grows the output",
        "claude-sonnet-4-5",
        {"budget_tokens": 30_000, "budget_explicit": True},
        "manual",
        None,
        30_000,
        46_000,
    ),
    Case(
        "a budget just below the cap",
        "claude-sonnet-4-5",
        {"budget_tokens": 63_999, "budget_explicit": True},
        "manual",
        None,
        63_999,
        64_000,
    ),
    Case(
        "a budget beyond the cap",
        "claude-sonnet-4-5",
        {"budget_tokens": 64_000, "budget_explicit": True},
        "manual",
        None,
        48_000,
        64_000,
        ("was cut to 48000",),
    ),
    Case(
        "explicit output cuts the budget",
        "claude-sonnet-4-5",
        {"max_tokens": 8000},
        "manual",
        None,
        6000,
        8000,
        ("cut to 6000",),
    ),
    Case(
        "but not below the least",
        "claude-sonnet-4-5",
        {"max_tokens": 1100},
        "manual",
        None,
        1024,
        1100,
        ("cut to 1024",),
    ),
    Case("no room at all", "claude-sonnet-4-5", {"max_tokens": 1024}, "off", None, None, 1024, ("no room",)),
    Case(
        "no room, always on",
        "claude-mythos-preview",
        {"mode": "manual", "max_tokens": 500},
        "adaptive",
        None,
        None,
        500,
        ("no room",),
    ),
    Case(
        "thinking between tools spans the turn",
        "claude-sonnet-4-5",
        {"max_tokens": 8000, "interleaved": True},
        "manual",
        None,
        10_000,
        8000,
    ),
    Case(
        "which Haiku 4.5 cannot",
        "claude-haiku-4-5",
        {"max_tokens": 8000, "interleaved": True},
        "manual",
        None,
        6000,
        8000,
        ("cut to 6000",),
    ),
    Case(
        "too small a budget",
        "claude-haiku-4-5",
        {"budget_tokens": 3, "budget_explicit": True},
        "manual",
        None,
        1024,
        notices=("at least 1024",),
    ),
    Case(
        "output beyond the cap",
        "claude-opus-5-5",
        {"max_tokens": 200_000},
        "adaptive",
        None,
        None,
        128_000,
        ("at most 128000",),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rule(case: Case) -> None:
    result = plan(case.model, **case.wishes)
    thinking = result.thinking
    assert (thinking.form, thinking.effort, thinking.budget_tokens) == (case.form, case.effort, case.budget)
    assert result.max_tokens == case.max_tokens
    assert len(result.notices) == len(case.notices)
    for notice, fragment in zip(result.notices, case.notices, strict=True):
        assert fragment in notice
        assert notice.endswith(".")


@pytest.mark.parametrize(
    ("display", "mode", "summarized"),
    [("summary", "auto", True), ("summary", "off", False), ("status", "auto", False), ("off", "auto", False)],
)
def test_only_the_wish_for_summaries_asks_for_them(display: str, mode: str, summarized: bool) -> None:
    assert plan("claude-opus-5", display=display, mode=mode).thinking.summarized is summarized
