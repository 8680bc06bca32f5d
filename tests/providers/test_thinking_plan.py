"""Every model × mode × effort × budget: the plan is always something that the model takes, and what is not as wished
is said; then the single rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args

import pytest

from thinklsp.core.choices import EFFORTS, Effort, PlannedThinkingMode, ThinkingDisplay
from thinklsp.providers.base import ThinkingForm
from thinklsp.providers.catalogue import ModelInfo, find_model, list_models
from thinklsp.providers.thinking import ThinkingPlan, plan_thinking

PROVIDERS = ("anthropic", "openai", "google", "openai-compatible")
MODELS = [(provider, model_id) for provider in PROVIDERS for model_id in (*list_models(provider), "next-9")]
FAMILIES = {"claude": "anthropic", "gpt": "openai", "o3": "openai", "gemini": "google"}
WISHES: dict[str, Any] = {
    "mode": "auto",
    "budget_tokens": 10_000,
    "budget_explicit": False,
    "effort": None,
    "display": "status",
    "max_tokens": None,
}


def family(model_id: str) -> str:
    return next((name for start, name in FAMILIES.items() if model_id.startswith(start)), "openai-compatible")


def plan(model: ModelInfo, **wishes: Any) -> ThinkingPlan:
    return plan_thinking(model, **{**WISHES, **wishes})


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
    assert (thinking.budget_tokens is not None) is (thinking.form == "manual")
    if result.max_tokens is not None:
        assert 0 < result.max_tokens <= (model.output_cap or result.max_tokens)
    if thinking.budget_tokens is not None:
        least, most = model.budget_least, model.budget_most or thinking.budget_tokens
        assert least <= thinking.budget_tokens <= most
        assert result.max_tokens is not None
        assert thinking.budget_tokens < result.max_tokens
    assert thinking.effort is None or thinking.effort in model.efforts
    assert not (thinking.effort and thinking.form == "unset")
    assert not thinking.summarized or thinking.form in ("adaptive", "manual")
    if thinking.form in ("off", "between_tools"):
        cap = model.effort_cap_when_off
        assert thinking.effort is None or model.effort_when_off
        assert thinking.effort is None or cap is None or EFFORTS.index(thinking.effort) <= EFFORTS.index(cap)
    if thinking.form == "adaptive" and model.on_by_effort:
        assert thinking.effort is not None


def check_said(model: ModelInfo, result: ThinkingPlan, wishes: dict[str, Any]) -> None:
    """Without a notice, everything that was wished is so."""
    thinking, mode, effort = result.thinking, wishes["mode"], wishes["effort"]
    thinks = model.adaptive or model.manual
    budget = wishes["budget_tokens"] if wishes["budget_explicit"] else None
    spoken = {0: "off", -1: "adaptive"}.get(budget) if model.budget_steers and mode in ("auto", "manual") else None
    assert len(set(result.notices)) == len(result.notices)
    assert all(notice.endswith(".") and (model.id in notice or "budget" in notice) for notice in result.notices)
    if result.notices:
        return
    match spoken or mode:
        case "off":
            assert thinking.form in ("off", "between_tools") or not thinks
        case "adaptive":
            assert thinking.form == "adaptive"
        case "manual":
            assert thinking.form == "manual"
            assert thinking.budget_tokens == budget or budget is None
        case _:
            assert not thinks or thinking.form in ("adaptive", "manual") or (model.on_by_effort and effort is None)
    budget_speaks = thinking.form == "manual" or spoken is not None
    assert thinking.effort == effort or effort is None or budget_speaks
    assert wishes["max_tokens"] in (None, result.max_tokens)


@pytest.mark.parametrize(("provider", "model_id"), MODELS)
def test_every_wish_becomes_something_the_model_takes(provider: str, model_id: str) -> None:
    model = find_model(provider, model_id)
    budgets = (10_000, False), *((count, True) for count in (-1, 0, 1, 127, 1024, 10_000, 63_999, 500_000))
    for mode, effort, display, max_tokens, (budget, explicit) in product(
        get_args(PlannedThinkingMode),
        (None, *get_args(Effort)),
        get_args(ThinkingDisplay),
        (None, 1, 1024, 1025, 8000, 10_000_000),
        budgets,
    ):
        wishes = {
            "mode": mode,
            "effort": effort,
            "display": display,
            "max_tokens": max_tokens,
            "budget_tokens": budget,
            "budget_explicit": explicit,
        }
        result = plan(model, **wishes)
        check_accepted(model, result)
        check_said(model, result, wishes)
        if max_tokens is not None:
            assert result.max_tokens is not None
            assert result.max_tokens <= max_tokens
        if mode == "auto" and effort in (None, *model.efforts) and max_tokens is None and budget == 10_000:
            assert result.notices == ()
        # The lowest level is for those who want none.
        if thinking_is_wished(mode, budget) and effort != "minimal":
            assert result.thinking.effort != "minimal"


def thinking_is_wished(mode: PlannedThinkingMode, budget: int) -> bool:
    return mode != "off" and budget != 0


@dataclass(frozen=True)
class Case:
    id: str
    wishes: dict[str, Any]
    form: ThinkingForm
    effort: Effort | None = None
    budget: int | None = None
    cap: int | None = 32_000
    notice: str = ""


def explicit(budget: int, **wishes: Any) -> dict[str, Any]:
    return {"mode": "auto", "budget_tokens": budget, "budget_explicit": True, **wishes}


NO_OFF = "cannot turn thinking off"
NO_ADAPTIVE = "does not support adaptive"
NO_EFFORT = "does not accept an effort"
NO_BUDGET = "does not accept a thinking budget"
CAPPED = "the highest effort"
BY_EFFORT = "if `effort` is set"
CASES: dict[str, list[Case]] = {
    "claude-opus-5-5": [
        Case("auto on a new model", {}, "adaptive"),
        Case("off, always on", {"mode": "off"}, "adaptive", "low", notice=NO_OFF),
        Case("manual is gone", {"mode": "manual"}, "adaptive", notice=NO_BUDGET),
        Case("great effort, more room", {"effort": "max"}, "adaptive", "max", cap=64_000),
        Case("output beyond the cap", {"max_tokens": 200000}, "adaptive", cap=128_000, notice="at most 128000"),
    ],
    "claude-haiku-4-5": [
        Case("off, unset is off already", {"mode": "off"}, "off"),
        Case(
            "no thinking between tools",
            {"max_tokens": 8000, "interleaved": True},
            "manual",
            budget=6000,
            cap=8000,
            notice="reduced to 6000",
        ),
        Case("too small a budget", explicit(3), "manual", budget=1024, notice="at least 1024"),
        Case("another provider's way to leave it open", explicit(-1), "manual", budget=1024, notice="was raised"),
    ],
    "claude-opus-4-6": [
        Case("manual", {"mode": "manual"}, "manual", budget=10_000),
        Case("xhigh becomes max", {"effort": "xhigh"}, "adaptive", "max", cap=64_000, notice="max is used"),
    ],
    "claude-sonnet-5-5": [
        Case("off on Sonnet 5.5 with max", {"mode": "off", "effort": "max"}, "between_tools", "high", notice=CAPPED),
    ],
    "claude-fable-5": [
        Case(
            "off beats effort where thinking cannot stop",
            {"mode": "off", "effort": "max"},
            "adaptive",
            "low",
            notice=NO_OFF,
        ),
    ],
    "claude-mythos-preview": [
        Case("off, always on, no levels", explicit(20000, mode="off"), "manual", budget=1024, notice=NO_OFF),
        Case("no room, always on", {"mode": "manual", "max_tokens": 500}, "adaptive", cap=500, notice="no room"),
    ],
    "claude-opus-4-5": [
        Case("adaptive is not there yet", {"mode": "adaptive"}, "manual", budget=10_000, notice=NO_ADAPTIVE),
    ],
    "claude-sonnet-4-5": [
        Case("effort as a budget: low", {"effort": "low"}, "manual", budget=2048),
        Case("effort as a budget: xhigh", {"effort": "xhigh"}, "manual", budget=32_768, cap=48_768),
        Case("an explicit budget beats effort", explicit(5000, effort="max"), "manual", budget=5000),
        Case("a great budget grows the output", explicit(30000), "manual", budget=30_000, cap=46_000),
        Case("a budget just below the cap", explicit(63999), "manual", budget=63_999, cap=64_000),
        Case(
            "a budget beyond the cap",
            explicit(64000),
            "manual",
            budget=48_000,
            cap=64_000,
            notice="was reduced to 48000",
        ),
        Case(
            "explicit output cuts the budget",
            {"max_tokens": 8000},
            "manual",
            budget=6000,
            cap=8000,
            notice="reduced to 6000",
        ),
        Case(
            "but not below the least", {"max_tokens": 1100}, "manual", budget=1024, cap=1100, notice="reduced to 1024"
        ),
        Case("no room at all", {"max_tokens": 1024}, "off", cap=1024, notice="no room"),
        Case(
            "thinking between tools spans the turn",
            {"max_tokens": 8000, "interleaved": True},
            "manual",
            budget=10_000,
            cap=8000,
        ),
        Case("another provider's small budget", explicit(0), "manual", budget=1024, notice="was raised"),
    ],
    "gpt-6-sol": [
        Case("a budget for a model without any", explicit(0, mode="manual"), "adaptive", notice=NO_BUDGET),
        Case("reasoning off takes no level", {"mode": "off", "effort": "high"}, "off", notice=NO_EFFORT),
    ],
    "gpt-5": [
        Case("off is the lowest level", {"mode": "off"}, "adaptive", "minimal", notice=NO_OFF),
    ],
    "gpt-5.4": [
        Case("on by effort alone: adaptive", {"mode": "adaptive"}, "unset", notice=BY_EFFORT),
        Case("on by effort alone: manual", {"mode": "manual"}, "unset", notice=BY_EFFORT),
        Case("on by effort alone: effort", {"effort": "low"}, "adaptive", "low"),
    ],
    "gpt-5.1-chat-latest": [
        Case("one level, and it cannot stop", {"mode": "off"}, "adaptive", "medium", cap=16_384, notice=NO_OFF),
    ],
    "gpt-4.1": [
        Case("no reasoning, but wished", {"mode": "manual"}, "unset", notice="does not support thinking"),
        Case("no reasoning takes no level", {"effort": "max"}, "unset", notice="no effect"),
        Case("a small output cap", {"max_tokens": 40000}, "unset", cap=32_768, notice="at most 32768"),
    ],
    "gpt-9": [
        Case("an unknown one", {"effort": "max"}, "adaptive", "high", cap=None, notice="high is used"),
        Case("a cap that is not known", {"max_tokens": 500000}, "adaptive", cap=500_000),
    ],
    "gemini-4-argon": [
        Case("budgets are of the past", explicit(5000, mode="manual"), "adaptive", notice=NO_BUDGET),
        Case("an explicit budget does not count there", explicit(0), "adaptive"),
    ],
    "gemini-3-pro-preview": [
        Case("a level between two", {"effort": "medium"}, "adaptive", "high", notice="high is used"),
    ],
    "gemini-2.5-pro": [
        Case("a budget in mode auto", explicit(500), "manual", budget=500),
        Case("beats effort", explicit(500, effort="max"), "manual", budget=500),
        Case("the usual budget", {"mode": "manual"}, "manual", budget=10_000),
        Case("effort xhigh", {"effort": "xhigh"}, "manual", budget=32_768, cap=48_768),
        Case("effort in mode manual", {"mode": "manual", "effort": "low"}, "manual", budget=2048),
        Case("effort in mode adaptive", {"mode": "adaptive", "effort": "low"}, "adaptive", notice="no effect"),
        Case("a budget of nothing where it thinks", explicit(0), "manual", budget=128, notice=NO_OFF),
        Case("off there", {"mode": "off", "effort": "max"}, "manual", budget=128, notice=NO_OFF),
        Case(
            "no room for it", explicit(5000, max_tokens=1100), "manual", budget=825, cap=1100, notice="reduced to 825"
        ),
    ],
    "gemini-2.5-flash": [
        Case("dynamic in so many words", explicit(-1, effort="max"), "adaptive"),
        Case("effort max", {"effort": "max"}, "manual", budget=24_576, cap=40_576),
        Case("too great a budget", explicit(30000), "manual", budget=24_576, cap=40_576, notice="at most 24576"),
        Case("a budget of nothing", explicit(0), "off"),
        Case("off beats a budget", explicit(5000, mode="off"), "off"),
    ],
    "gemini-2.5-flash-lite": [
        Case("dynamic in manual mode", explicit(-1, mode="manual"), "adaptive"),
        Case("too small a budget there", explicit(100), "manual", budget=512, notice="at least 512"),
        Case("a budget of nothing in mode manual", explicit(0, mode="manual"), "off"),
    ],
    "qwen3:8b": [
        Case("as the server likes", {}, "adaptive", cap=None),
    ],
    "deepseek-flash": [
        Case("DeepSeek's levels", {"effort": "medium"}, "adaptive", "high", notice="high is used"),
    ],
}


@pytest.mark.parametrize(("model", "case"), [(model, case) for model, cases in CASES.items() for case in cases])
def test_a_wish_becomes_a_plan(model: str, case: Case) -> None:
    result = plan(find_model(family(model), model), **case.wishes)
    thinking = result.thinking
    assert (thinking.form, thinking.effort, thinking.budget_tokens) == (case.form, case.effort, case.budget)
    assert result.max_tokens == case.cap
    assert len(result.notices) == bool(case.notice)
    for notice in result.notices:
        assert case.notice in notice
        assert notice.endswith(".")


@pytest.mark.parametrize(
    ("display", "mode", "summarized"),
    [("summary", "auto", True), ("summary", "off", False), ("status", "auto", False), ("off", "auto", False)],
)
def test_only_the_wish_for_summaries_asks_for_them(display: str, mode: str, summarized: bool) -> None:
    for model_id in ("claude-opus-5", "gpt-6-sol", "gemini-2.5-flash", "qwen3:8b"):
        model = find_model(family(model_id), model_id)
        assert plan(model, display=display, mode=mode).thinking.summarized is summarized
        assert not plan(replace(model, display="never"), display=display, mode=mode).thinking.summarized
