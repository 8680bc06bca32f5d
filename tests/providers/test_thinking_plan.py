"""Every model × mode × effort × budget: the plan is always something that the model takes, and what is not as wished
is said; then the single rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, get_args

import pytest

from thinklsp.core.choices import EFFORTS, Effort, PlannedThinkingMode, ThinkingDisplay
from thinklsp.providers.base import ThinkingForm
from thinklsp.providers.catalog import known_models, lookup
from thinklsp.providers.model_info import ModelInfo
from thinklsp.providers.thinking import ThinkingPlan, plan_thinking

PROVIDERS = ("anthropic", "openai", "google", "openai-compatible")
MODELS = [(provider, model_id) for provider in PROVIDERS for model_id in (*known_models(provider), "next-9")]
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
    model = lookup(provider, model_id)
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
    model: str
    wishes: dict[str, Any]
    form: ThinkingForm
    effort: Effort | None = None
    budget: int | None = None
    max_tokens: int | None = 32_000
    notices: tuple[str, ...] = field(default=())


def explicit(budget: int, **wishes: Any) -> dict[str, Any]:
    return {"mode": "auto", "budget_tokens": budget, "budget_explicit": True, **wishes}


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
    Case("another provider's small budget", "claude-sonnet-4-5", explicit(0), "manual", None, 1024, 32_000,
        ("was raised",)),
    Case("and its way to say as you like", "claude-haiku-4-5", explicit(-1), "manual", None, 1024, 32_000,
        ("was raised",)),
    Case("a budget for a model without any", "gpt-6-sol", explicit(0, mode="manual"), "adaptive",
        notices=("takes no thinking budget",)),
    # OpenAI: levels alone.
    Case("reasoning as the service likes", "gpt-6-sol", {}, "adaptive"),
    Case("reasoning off", "gpt-6-sol", {"mode": "off"}, "off"),
    Case("reasoning off takes no level", "gpt-6-sol", {"mode": "off", "effort": "high"}, "off",
        notices=("takes no effort",)),
    Case("reasoning cannot be off", "gpt-6.1-sol", {"mode": "off"}, "adaptive", "low", notices=("cannot stop",)),
    Case("off is the lowest level", "gpt-5", {"mode": "off"}, "adaptive", "minimal", notices=("cannot stop",)),
    Case("low is not minimal", "gpt-5", {"effort": "low"}, "adaptive", "low"),
    Case("on by effort alone: auto", "gpt-5.1", {}, "unset"),
    Case("on by effort alone: adaptive", "gpt-5.4", {"mode": "adaptive"}, "unset", notices=("if `effort` is set",)),
    Case("on by effort alone: manual", "gpt-5.4", {"mode": "manual"}, "unset", notices=("if `effort` is set",)),
    Case("on by effort alone: effort", "gpt-5.4", {"effort": "low"}, "adaptive", "low"),
    Case("on by effort alone: off", "gpt-5.4", {"mode": "off"}, "off"),
    Case("max becomes xhigh", "gpt-5.4", {"effort": "max"}, "adaptive", "xhigh", None, 64_000, ("xhigh is used",)),
    Case("low becomes medium", "gpt-5.5-pro", {"effort": "low"}, "adaptive", "medium", notices=("medium is used",)),
    Case("one level", "gpt-5-pro", {"effort": "low"}, "adaptive", "high", notices=("high is used",)),
    Case("one level, and it cannot stop", "gpt-5.1-chat-latest", {"mode": "off"}, "adaptive", "medium", None, 16_384,
        ("cannot stop",)),
    Case("no reasoning", "gpt-4.1", {}, "unset"),
    Case("no reasoning is off", "gpt-4.1", {"mode": "off"}, "unset"),
    Case("no reasoning, but wished", "gpt-4.1", {"mode": "manual"}, "unset", notices=("does not think",)),
    Case("no reasoning takes no level", "gpt-4.1", {"effort": "max"}, "unset", notices=("no effect",)),
    Case("a small output cap", "gpt-4.1", {"max_tokens": 40_000}, "unset", None, None, 32_768, ("at most 32768",)),
    Case("an unknown one", "gpt-9", {"effort": "max"}, "adaptive", "high", None, None, ("high is used",)),
    Case("a cap that is not known", "gpt-9", {"max_tokens": 500_000}, "adaptive", None, None, 500_000),
    # Gemini 3 and 4: levels.
    Case("thinking as Gemini likes", "gemini-4-argon", {}, "adaptive"),
    Case("a level between two", "gemini-3-pro-preview", {"effort": "medium"}, "adaptive", "high",
        notices=("high is used",)),
    Case("the least level", "gemini-3.6-flash", {"mode": "off"}, "adaptive", "minimal", notices=("cannot stop",)),
    Case("the least level of others", "gemini-3.8-flash", {"mode": "off"}, "adaptive", "low", notices=("cannot stop",)),
    Case("xhigh", "gemini-4-hydrogen", {"effort": "xhigh"}, "adaptive", "xhigh", None, 64_000),
    Case("budgets are of the past", "gemini-4-argon", explicit(5000, mode="manual"), "adaptive",
        notices=("takes no thinking budget",)),
    Case("an explicit budget does not count there", "gemini-4-argon", explicit(0), "adaptive"),
    # Gemini 2.5: budgets.
    Case("dynamic", "gemini-2.5-pro", {}, "adaptive"),
    Case("dynamic in so many words", "gemini-2.5-flash", explicit(-1, effort="max"), "adaptive"),
    Case("dynamic in manual mode", "gemini-2.5-flash-lite", explicit(-1, mode="manual"), "adaptive"),
    Case("a budget in mode auto", "gemini-2.5-pro", explicit(500), "manual", None, 500),
    Case("beats effort", "gemini-2.5-pro", explicit(500, effort="max"), "manual", None, 500),
    Case("the usual budget", "gemini-2.5-pro", {"mode": "manual"}, "manual", None, 10_000),
    Case("effort low", "gemini-2.5-flash-lite", {"effort": "low"}, "manual", None, 2048),
    Case("effort medium", "gemini-2.5-flash", {"effort": "medium"}, "manual", None, 8192),
    Case("effort high", "gemini-2.5-pro", {"effort": "high"}, "manual", None, 16_384, 32_384),
    Case("effort xhigh", "gemini-2.5-pro", {"effort": "xhigh"}, "manual", None, 32_768, 48_768),
    Case("effort max", "gemini-2.5-flash", {"effort": "max"}, "manual", None, 24_576, 40_576),
    Case("effort in mode manual", "gemini-2.5-pro", {"mode": "manual", "effort": "low"}, "manual", None, 2048),
    Case("effort in mode adaptive", "gemini-2.5-pro", {"mode": "adaptive", "effort": "low"}, "adaptive",
        notices=("no effect",)),
    Case("too great a budget", "gemini-2.5-flash", explicit(30_000), "manual", None, 24_576, 40_576,
        ("at most 24576",)),
    Case("too small a budget there", "gemini-2.5-flash-lite", explicit(100), "manual", None, 512,
        notices=("at least 512",)),
    Case("a budget of nothing", "gemini-2.5-flash", explicit(0), "off"),
    Case("a budget of nothing in mode manual", "gemini-2.5-flash-lite", explicit(0, mode="manual"), "off"),
    Case("a budget of nothing where it thinks", "gemini-2.5-pro", explicit(0), "manual", None, 128,
        notices=("cannot stop",)),
    Case("off there", "gemini-2.5-pro", {"mode": "off", "effort": "max"}, "manual", None, 128,
        notices=("cannot stop",)),
    Case("off beats a budget", "gemini-2.5-flash", explicit(5000, mode="off"), "off"),
    Case("no room for it", "gemini-2.5-pro", explicit(5000, max_tokens=1100), "manual", None, 825, 1100,
        ("cut to 825",)),
    Case("no thinking at all", "gemini-2.5-flash-image", {"effort": "low"}, "unset", None, None, None, ("no effect",)),
    # Servers of one's own.
    Case("as the server likes", "qwen3:8b", {}, "adaptive", max_tokens=None),
    Case("a server's level", "qwen3:8b", {"effort": "medium"}, "adaptive", "medium", max_tokens=None),
    Case("off there too", "qwen3:8b", {"mode": "off"}, "off", max_tokens=None),
    Case("DeepSeek's levels", "deepseek-flash", {"effort": "medium"}, "adaptive", "high", notices=("high is used",)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rule(case: Case) -> None:
    result = plan(lookup(family(case.model), case.model), **case.wishes)
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
    for model_id in ("claude-opus-5", "gpt-6-sol", "gemini-2.5-flash", "qwen3:8b"):
        model = lookup(family(model_id), model_id)
        assert plan(model, display=display, mode=mode).thinking.summarized is summarized
        assert not plan(replace(model, display="never"), display=display, mode=mode).thinking.summarized
