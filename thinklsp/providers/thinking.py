"""The thinking plan, which converts the user's thinking settings to settings that the model accepts.

An unsupported setting is never an error. The plan uses the nearest supported value and adds a notice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from thinklsp.core.choices import EFFORTS, Effort, PlannedThinkingMode, SummaryLength, ThinkingDisplay
from thinklsp.providers.base import Thinking
from thinklsp.providers.catalogue import ModelInfo, ThinkingForm

# Special budget values for models that use budgets instead of effort levels.
BUDGET_OFF, BUDGET_DYNAMIC = 0, -1

_BUDGET_OF_EFFORT: dict[Effort, int] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 10_000,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}
# Maps efforts to budgets for models that use budgets instead of effort levels. Efforts above `high` use the model's
# largest budget.
_STEERING_BUDGET_OF_EFFORT: dict[Effort, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384}
_DEFAULT_MAX_TOKENS = 32_000
_HIGH_EFFORT_MAX_TOKENS = 64_000
_ANSWER_TOKENS = 16_000


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """The resolved thinking settings for a turn. `notices` contains a sentence for each setting that was changed."""

    thinking: Thinking
    max_tokens: int | None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _ThinkingRequest:
    """The thinking settings that the user requested.

    `budget` is None unless the user set a budget. `default_budget` applies if neither a budget nor an effort is set.
    """

    mode: PlannedThinkingMode
    effort: Effort | None
    budget: int | None
    default_budget: int


def plan_thinking(
    model: ModelInfo,
    *,
    mode: PlannedThinkingMode,
    budget_tokens: int,
    budget_explicit: bool,
    effort: Effort | None,
    display: ThinkingDisplay,
    summary: SummaryLength = "auto",
    max_tokens: int | None,
    interleaved: bool = False,
) -> ThinkingPlan:
    """Resolve the thinking settings and the output limit for a model.

    If `max_tokens` is None, the output limit depends on the model and the effort. `interleaved` is true if all requests
    in the turn contain tools. The budget may then exceed `max_tokens` if the model can be asked to think between tool
    calls.
    """
    notices: list[str] = []
    request = _ThinkingRequest(mode, effort, budget_tokens if budget_explicit else None, budget_tokens)
    if model.budget_steers:
        request = _resolve_budget_mode(request)
    form = _choose_form(model, request, notices)
    capped = _limit_output(model, max_tokens, notices)
    if form == "manual" and capped is not None and capped <= model.budget_least:
        form = "adaptive" if model.adaptive else model.off or "unset"
        notices.append(
            f"`maxTokens` {capped} leaves no room for a thinking budget, which is at least {model.budget_least} "
            f"tokens; {model.id} is used without a budget."
        )
    level = _choose_effort(model, form, request, notices)
    thinking_budget: int | None = None
    if form == "manual":
        spans_turn = interleaved and model.interleaved == "header"
        thinking_budget = _limit_budget(model, _choose_budget(model, request), capped, notices, spans_turn=spans_turn)
    summarized = display == "summary" and form in ("adaptive", "manual") and model.display != "never"
    length = _choose_summary_length(model, summary, notices) if summarized else "auto"
    return ThinkingPlan(
        Thinking(form, thinking_budget, level, summarized, summary=length),
        capped or _choose_max_tokens(model, level or model.default_effort, thinking_budget),
        tuple(notices),
    )


def _resolve_budget_mode(request: _ThinkingRequest) -> _ThinkingRequest:
    """Return the request with the thinking mode that the budget implies, for a model without effort levels."""
    if request.mode in ("off", "adaptive"):
        return request
    if request.budget in (BUDGET_OFF, BUDGET_DYNAMIC):
        mode: PlannedThinkingMode = "off" if request.budget == BUDGET_OFF else "adaptive"
        return replace(request, mode=mode, effort=None, budget=None)
    is_manual = request.mode == "manual" or request.budget is not None or request.effort is not None
    return replace(request, mode="manual" if is_manual else "auto")


def _choose_form(model: ModelInfo, request: _ThinkingRequest, notices: list[str]) -> ThinkingForm:
    mode = request.mode
    if model.on_by_effort and request.effort is None and mode != "off":
        if mode != "auto":
            notices.append(f"{model.id} thinks only if `effort` is set; the thinking mode {mode} has no effect.")
        return "unset"
    thinks: ThinkingForm = "adaptive" if model.adaptive else "manual" if model.manual else "unset"
    match mode:
        case "auto":
            return thinks
        case "off":
            return _choose_off_form(model, notices)
        case "manual" if model.manual:
            return "manual"
        case "adaptive" | "manual" if thinks == "unset":
            notices.append(f"{model.id} does not support thinking; the thinking mode {mode} has no effect.")
        case "adaptive":
            if thinks == "manual":
                notices.append(f"{model.id} does not support adaptive thinking; a token budget is used instead.")
        case "manual":
            notices.append(f"{model.id} does not accept a thinking budget; the model decides how much to think.")
        case _:
            assert_never(mode)
    return thinks


def _choose_off_form(model: ModelInfo, notices: list[str]) -> ThinkingForm:
    if model.off is not None:
        return model.off
    if not model.adaptive and not model.manual:
        return "unset"
    notices.append(f"{model.id} cannot turn thinking off; the lowest setting is used.")
    return "adaptive" if model.efforts or not model.manual else "manual"


def _choose_effort(
    model: ModelInfo, form: ThinkingForm, request: _ThinkingRequest, notices: list[str]
) -> Effort | None:
    """Return the effort to send, or None to send no effort."""
    is_off = form in ("off", "between_tools")
    if request.mode == "off" and not is_off and model.efforts:
        return model.efforts[0]
    if request.effort is None:
        return None
    if not model.efforts:
        if form != "manual":
            notices.append(f"{model.id} has no effort levels; effort {request.effort} has no effect.")
        return None
    if is_off and not model.effort_when_off:
        notices.append(
            f"With thinking off, {model.id} does not accept an effort; effort {request.effort} has no effect."
        )
        return None
    level = find_nearest_effort(model.efforts, request.effort)
    if level != request.effort:
        notices.append(f"{model.id} does not support effort {request.effort}; {level} is used.")
    cap = model.effort_cap_when_off
    if is_off and cap is not None and EFFORTS.index(level) > EFFORTS.index(cap):
        notices.append(f"With thinking off, the highest effort for {model.id} is {cap}; {cap} is used.")
        return cap
    return level


def find_nearest_effort(levels: tuple[Effort, ...], effort: Effort) -> Effort:
    """Return the lowest level that is not below `effort`, or the highest level if there is none.

    `levels` must be in ascending order and not empty.
    """
    return next((level for level in levels if EFFORTS.index(level) >= EFFORTS.index(effort)), levels[-1])


def _limit_output(model: ModelInfo, max_tokens: int | None, notices: list[str]) -> int | None:
    if max_tokens is None or model.output_cap is None or max_tokens <= model.output_cap:
        return max_tokens
    notices.append(
        f"{model.id} writes at most {model.output_cap} tokens; `maxTokens` {max_tokens} was reduced to that limit."
    )
    return model.output_cap


def _choose_budget(model: ModelInfo, request: _ThinkingRequest) -> int:
    """Return the requested budget. A budget takes precedence over an effort.

    The effort determines the budget only if the model has no effort levels.
    """
    if request.mode == "off":
        return model.budget_least
    if request.budget is not None:
        return request.budget
    if request.effort is None or model.efforts:
        return request.default_budget
    if not model.budget_steers:
        return _BUDGET_OF_EFFORT[request.effort]
    most = model.budget_most or _BUDGET_OF_EFFORT["max"]
    return max(model.budget_least, min(most, _STEERING_BUDGET_OF_EFFORT.get(request.effort, most)))


def _limit_budget(
    model: ModelInfo, requested: int, max_tokens: int | None, notices: list[str], *, spans_turn: bool
) -> int:
    """Return a budget that is within the model's range and below the output limit.

    A budget that exceeds the output limit is reduced to three quarters of the limit, to leave tokens for the answer.
    """
    least, most = model.budget_least, model.budget_most
    if requested < least:
        notices.append(
            f"The thinking budget for {model.id} must be at least {least} tokens; {requested} was raised to {least}."
        )
        return least
    if most is not None and requested > most:
        notices.append(
            f"The thinking budget for {model.id} must be at most {most} tokens; {requested} was reduced to {most}."
        )
        requested = most
    room = max_tokens or model.output_cap
    if room is None or requested < room or spans_turn:
        return requested
    budget = max(least, room * 3 // 4)
    notices.append(
        f"The thinking budget of {requested} tokens does not fit into {room} output tokens; it was reduced to {budget}."
    )
    return budget


def _choose_summary_length(model: ModelInfo, request: SummaryLength, notices: list[str]) -> SummaryLength:
    if request == "auto" or request in model.summaries:
        return request
    notices.append(f"{model.id} does not offer {request} summaries; the model chooses the length.")
    return "auto"


def _choose_max_tokens(model: ModelInfo, effort: Effort | None, budget: int | None) -> int | None:
    """Return the default output limit. Providers reject limits above the model's output cap.

    Return None if the output cap is unknown.
    """
    if model.output_cap is None:
        return None
    figure = _HIGH_EFFORT_MAX_TOKENS if effort in ("xhigh", "max") else _DEFAULT_MAX_TOKENS
    if budget is not None:
        figure = max(figure, budget + _ANSWER_TOKENS)
    return min(figure, model.output_cap)
