"""From what the user wishes about thinking to what the model takes. Pure; every bend of a wish becomes a notice.

A wish is never refused: where a model cannot do it, the nearest thing that it can do is chosen and said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from thinklsp.core.choices import EFFORTS, Effort, PlannedThinkingMode, SummaryLength, ThinkingDisplay
from thinklsp.providers.base import Thinking, ThinkingForm
from thinklsp.providers.model_info import ModelInfo

# What a budget may say instead of a number of tokens, on models that are steered by it.
BUDGET_OFF, BUDGET_DYNAMIC = 0, -1

_BUDGET_OF_EFFORT: dict[Effort, int] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 10_000,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}
# On models that are steered by budgets; above `high` it is all that they take.
_STEERING_BUDGET_OF_EFFORT: dict[Effort, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384}
_USUAL_MAX_TOKENS = 32_000
_GREAT_MAX_TOKENS = 64_000
_ROOM_FOR_ANSWER = 16_000


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """`notices` are sentences for the user, one for each wish that was bent."""

    thinking: Thinking
    max_tokens: int | None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wish:
    """`budget` is an explicit one; `usual_budget` the one to take where neither it nor the effort says anything."""

    mode: PlannedThinkingMode
    effort: Effort | None
    budget: int | None
    usual_budget: int

    @property
    def stops(self) -> bool:
        return self.mode == "off"


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
    """`max_tokens` None: the figure that suits model and effort, where the model's cap is known.

    `interleaved`: every request of the plan carries tools, so on models that think between tool calls on request the
    budget counts for the whole turn and may exceed `max_tokens`.
    """
    notices: list[str] = []
    wish = _Wish(mode, effort, budget_tokens if budget_explicit else None, budget_tokens)
    if model.budget_steers:
        wish = _steered(wish)
    form = _form(model, wish, notices)
    capped = _cap_output(model, max_tokens, notices)
    if form == "manual" and capped is not None and capped <= model.budget_least:
        form = _form_without_budget(model)
        notices.append(
            f"maxTokens {capped} leaves no room for a thinking budget, which is at least {model.budget_least}; "
            f"{model.id} does without one."
        )
    level = _level(model, form, wish, notices)
    thinking_budget: int | None = None
    if form == "manual":
        spans_turn = interleaved and model.interleaved == "header"
        thinking_budget = _fit_budget(model, _wished_budget(model, wish), capped, notices, spans_turn=spans_turn)
    summarized = display == "summary" and form in ("adaptive", "manual") and model.display != "never"
    length = _summary_length(model, summary, notices) if summarized else "auto"
    return ThinkingPlan(
        Thinking(form, thinking_budget, level, summarized, summary=length),
        capped or _auto_max_tokens(model, level or model.default_effort, thinking_budget),
        tuple(notices),
    )


def _steered(wish: _Wish) -> _Wish:
    """The mode that a wish comes to where nothing but a budget steers: any budget or effort is one for manual mode."""
    match wish.mode:
        case "off" | "adaptive":
            return wish
        case "auto" | "manual":
            if wish.budget == BUDGET_OFF:
                return _Wish("off", None, None, wish.usual_budget)
            if wish.budget == BUDGET_DYNAMIC:
                return _Wish("adaptive", None, None, wish.usual_budget)
            speaks = wish.mode == "manual" or wish.budget is not None or wish.effort is not None
            return _Wish("manual" if speaks else "auto", wish.effort, wish.budget, wish.usual_budget)
        case _:
            assert_never(wish.mode)


def _form(model: ModelInfo, wish: _Wish, notices: list[str]) -> ThinkingForm:
    mode = wish.mode
    if model.on_by_effort and wish.effort is None and mode != "off":
        if mode != "auto":
            notices.append(f"{model.id} thinks only if `effort` is set; the thinking mode {mode} has no effect on it.")
        return "unset"
    thinks: ThinkingForm = "adaptive" if model.adaptive else "manual" if model.manual else "unset"
    if mode in ("adaptive", "manual") and thinks == "unset":
        notices.append(f"{model.id} does not think; the thinking mode {mode} has no effect on it.")
        return thinks
    match mode:
        case "auto":
            return thinks
        case "off":
            return _off_form(model, notices)
        case "adaptive":
            if thinks == "manual":
                notices.append(f"{model.id} has no adaptive thinking; it thinks with a token budget instead.")
            return thinks
        case "manual":
            if model.manual:
                return "manual"
            notices.append(f"{model.id} takes no thinking budget; it decides itself how much to think.")
            return thinks
        case _:
            assert_never(mode)


def _off_form(model: ModelInfo, notices: list[str]) -> ThinkingForm:
    if model.off is not None:
        return model.off
    if not model.adaptive and not model.manual:
        return "unset"
    notices.append(f"{model.id} cannot stop thinking; it is asked to think as little as it can.")
    return "adaptive" if model.efforts or not model.manual else "manual"


def _form_without_budget(model: ModelInfo) -> ThinkingForm:
    return "adaptive" if model.adaptive else model.off or "unset"


def _level(model: ModelInfo, form: ThinkingForm, wish: _Wish, notices: list[str]) -> Effort | None:
    """The effort to send, None to send nothing."""
    is_off = form in ("off", "between_tools")
    if wish.stops and not is_off and model.efforts:
        return model.efforts[0]
    if wish.effort is None:
        return None
    if not model.efforts:
        if form != "manual":
            notices.append(f"{model.id} has no effort levels; effort {wish.effort} has no effect on it here.")
        return None
    if is_off and not model.effort_when_off:
        notices.append(f"With thinking off {model.id} takes no effort; effort {wish.effort} has no effect.")
        return None
    level = nearest_effort(model.efforts, wish.effort)
    if level != wish.effort:
        notices.append(f"{model.id} has no effort {wish.effort}; {level} is used.")
    cap = model.effort_cap_when_off
    if is_off and cap is not None and EFFORTS.index(level) > EFFORTS.index(cap):
        notices.append(f"With thinking off {model.id} takes no effort above {cap}; {cap} is used.")
        return cap
    return level


def nearest_effort(levels: tuple[Effort, ...], wish: Effort) -> Effort:
    """The lowest level at or above the wish, else the highest. `levels` is not empty and ascends."""
    return next((level for level in levels if EFFORTS.index(level) >= EFFORTS.index(wish)), levels[-1])


def _cap_output(model: ModelInfo, max_tokens: int | None, notices: list[str]) -> int | None:
    if max_tokens is None or model.output_cap is None or max_tokens <= model.output_cap:
        return max_tokens
    notices.append(f"{model.id} writes at most {model.output_cap} tokens; maxTokens {max_tokens} was cut to that.")
    return model.output_cap


def _wished_budget(model: ModelInfo, wish: _Wish) -> int:
    """An explicit budget beats effort; effort becomes a budget only where the model has no levels of its own."""
    if wish.stops:
        return model.budget_least
    if wish.budget is not None:
        return wish.budget
    if wish.effort is None or model.efforts:
        return wish.usual_budget
    if not model.budget_steers:
        return _BUDGET_OF_EFFORT[wish.effort]
    most = model.budget_most or _BUDGET_OF_EFFORT["max"]
    return max(model.budget_least, min(most, _STEERING_BUDGET_OF_EFFORT.get(wish.effort, most)))


def _fit_budget(model: ModelInfo, wished: int, max_tokens: int | None, notices: list[str], *, spans_turn: bool) -> int:
    """A budget is within the model's range and below the output tokens. A cut one leaves a quarter of them for the
    answer."""
    least, most = model.budget_least, model.budget_most
    if wished < least:
        notices.append(f"A thinking budget of {model.id} is at least {least} tokens; {wished} was raised to that.")
        return least
    if most is not None and wished > most:
        notices.append(f"A thinking budget of {model.id} is at most {most} tokens; {wished} was cut to that.")
        wished = most
    room = max_tokens or model.output_cap
    if room is None or wished < room or spans_turn:
        return wished
    budget = max(least, room * 3 // 4)
    notices.append(
        f"The thinking budget of {wished} tokens does not fit into {room} output tokens; it was cut to {budget}."
    )
    return budget


def _summary_length(model: ModelInfo, wish: SummaryLength, notices: list[str]) -> SummaryLength:
    if wish == "auto" or wish in model.summaries:
        return wish
    notices.append(f"{model.id} offers no {wish} summaries; it chooses their length itself.")
    return "auto"


def _auto_max_tokens(model: ModelInfo, effort: Effort | None, budget: int | None) -> int | None:
    """None where the model's own cap is not known: a figure above it would be refused."""
    if model.output_cap is None:
        return None
    figure = _GREAT_MAX_TOKENS if effort in ("xhigh", "max") else _USUAL_MAX_TOKENS
    if budget is not None:
        figure = max(figure, budget + _ROOM_FOR_ANSWER)
    return min(figure, model.output_cap)
