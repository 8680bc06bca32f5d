"""Every model × mode × effort × display, with budgets and caps: what we send is accepted, or refused before it is sent,
or told to the user in a sentence.

The judge is the simulator, whose tables of models and servers are kept apart from our catalogue.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import get_args

import pytest

from tests.stand_ins.anthropic.requests import ANTHROPIC_MODELS as ANTHROPIC
from tests.stand_ins.google.requests import GOOGLE_MODELS as GOOGLE
from tests.stand_ins.openai.requests import OPENAI_MODELS as OPENAI
from tests.support.services import SERVERS, Answer, Place, ask, place, play
from thinklsp.agent.request_fallbacks import RequestFallbacks
from thinklsp.core.choices import EffortSetting, PlannedThinkingMode, SummaryLength, ThinkingDisplay
from thinklsp.core.errors import BadRequest, ProviderError
from thinklsp.core.messages import RedactedThinkingBlock, ThinkingBlock, UserMessage
from thinklsp.engine.turn_config import build_thinking_plan
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.catalogue import ModelInfo, find_model, list_models
from thinklsp.providers.failures import RequestRefused
from thinklsp.providers.thinking import ThinkingPlan
from thinklsp.settings.model import Provider, Settings, build_settings
from thinklsp.tools.registry import TOOLS, build_tool_specs

MODES = get_args(PlannedThinkingMode)
EFFORTS = get_args(EffortSetting)
DISPLAYS = get_args(ThinkingDisplay)
BUDGETS = "thinking.budgetTokens"
CORNERS: tuple[Mapping[str, object], ...] = (
    {},
    {"maxTokens": 1024},
    {"maxTokens": 1025},
    {"maxTokens": 1_000_000},
    {BUDGETS: 1024},
    {BUDGETS: 127_999},
    {BUDGETS: 127_999, "maxTokens": 4096},
)
# Budgets that no other provider's settings take.
OF_GOOGLE: tuple[Mapping[str, object], ...] = (
    *({BUDGETS: budget} for budget in (-1, 0, 1, 128, 512)),
    {BUDGETS: 512, "maxTokens": 1024},
)
LOOP = [
    {"block": [{"thinking": "What is here?"}, {"text": "Looking."}, {"tool": "list_files"}, {"tool": "list_files"}]},
    {"block": [{"thinking": "So that is it."}, {"tool": "list_files"}]},
    {"block": [{"thinking": "Enough."}, {"text": "Done."}]},
]
AFTER = [{"block": [{"thinking": "Easy."}, {"text": "Done."}]}]
SIMULATED: Mapping[Provider, Mapping[str, object]] = {
    "anthropic": ANTHROPIC,
    "openai": OPENAI,
    "google": GOOGLE,
    "openai-compatible": SERVERS,
}
TOOLLESS = "gemini-2.5-flash-image"
ROWS: list[tuple[Provider, str]] = [
    (provider, name)
    for provider, simulated in SIMULATED.items()
    for name in (list_models(provider) if provider != "openai-compatible" else simulated)
    if name != TOOLLESS
]
# Of each kind one, and every server: `tests/slow` plays them all.
KINDS = [
    *{replace(find_model(provider, name), id="", context_window=None, price=None): (provider, name)
      for provider, name in ROWS if provider != "openai-compatible"}.values(),
    *(row for row in ROWS if row[0] == "openai-compatible"),
]  # fmt: skip
# Every step of a loop calls this one. How the others are described is no matter of models.
TOOL = [spec for spec in build_tool_specs(TOOLS) if spec.name == "list_files"]


@cache
def wishes(provider: Provider) -> Sequence[Settings]:
    corners = (*CORNERS, *OF_GOOGLE) if provider == "google" else CORNERS
    return [
        build_settings({"thinking.mode": mode, "effort": effort, "thinking.display": display, **corner})
        for mode, effort, display, corner in product(MODES, EFFORTS, DISPLAYS, corners)
    ]


def plans(provider: Provider, model: ModelInfo) -> set[ThinkingPlan]:
    """All that the wishes of users come to; equal ones are one."""
    return {replace(build_thinking_plan(wish, model), notices=()) for wish in wishes(provider)}


def request_of(where: Place, plan: ThinkingPlan) -> ModelRequest:
    asked = (UserMessage.from_text("Go on."),)
    return ModelRequest(where.model, "Be good.", TOOL, asked, plan.thinking, plan.max_tokens)


def play_loop(where: Place, plan: ThinkingPlan, remedies: RequestFallbacks | None = None) -> list[Answer]:
    """First request, tool loop, end; then a second prompt."""
    request = replace(request_of(where, plan), conversation=())
    return play(where, where.dialect({"step": LOOP}, {"step": AFTER}), request, ["Go on."] * 2, remedies)


def thought(answer: Answer) -> bool:
    if answer.usage.thinking_tokens is not None:
        return answer.usage.thinking_tokens > 0
    return any(isinstance(block, ThinkingBlock | RedactedThinkingBlock) for block in answer.message.blocks)


@pytest.mark.parametrize(("provider", "model_id"), KINDS, ids=[name for _, name in KINDS])
def test_every_request_of_a_tool_loop_is_accepted(provider: Provider, model_id: str) -> None:
    """A loop for each form of thinking; `tests/slow` plays one for each effort and budget, with every model."""
    check_loops(place(provider, model_id), lambda thinking: (thinking.form, thinking.summarized))


def check_loops(where: Place, kind: Callable[[Thinking], Hashable]) -> None:
    """The first request for each cap and kind of thinking, and one loop for each kind."""
    loops: set[Hashable] = set()
    firsts: set[Hashable] = set()
    for plan in plans(where.provider, where.model):
        if (first := (kind(plan.thinking), plan.max_tokens)) in firsts or refused_for_its_cap(where, plan):
            continue
        firsts.add(first)
        # Within a loop nothing depends on the cap of the answer: the first request is judged with each of them.
        if kind(plan.thinking) in loops:
            answer = ask(where, where.dialect({"step": LOOP}), request_of(where, plan), RequestFallbacks())
            assert answer.message.tool_uses
            continue
        loops.add(kind(plan.thinking))
        check_loop(where, plan, play_loop(where, plan, RequestFallbacks()))
    assert len(loops) > (1 if where.model.adaptive or where.model.manual else 0)


def check_loop(where: Place, plan: ThinkingPlan, answers: Sequence[Answer]) -> None:
    assert len(answers) == len(LOOP) + len(AFTER)
    assert [answer.message.text for answer in answers if answer.message.stop_reason == "end_turn"] == ["Done."] * 2
    # One server does not think and says so; everybody else takes everything at the first try.
    said = [notice for answer in answers for notice in answer.notices]
    thinks = where.model.id != "plain-1"
    assert bool(said) is (not thinks and plan.thinking.effort is not None), said
    if plan.thinking.form == "between_tools":
        return
    on = plan.thinking.form in ("adaptive", "manual") and thinks
    answers = answers if where.model.interleaved != "never" else answers[:: len(LOOP)]
    assert [thought(answer) for answer in answers] == [on] * len(answers), plan
    readable = plan.thinking.summarized or where.model.display == "always"
    assert [bool(answer.message.thinking) for answer in answers] == [on and readable] * len(answers), plan


def offers_concise(model_id: str) -> bool:
    """OpenAI's client: `concise` is for "all reasoning models after `gpt-5`"."""
    return model_id.startswith(("gpt-5.", "gpt-6"))


@pytest.mark.parametrize(("provider", "model_id"), ROWS, ids=[name for _, name in ROWS])
def test_the_length_of_summaries_is_sent_where_there_is_a_choice(provider: Provider, model_id: str) -> None:
    """Otherwise a notice says that the model does not offer it."""
    where = place(provider, model_id)
    asked: set[ThinkingPlan] = set()
    for length, effort, display in product(get_args(SummaryLength), ("auto", "high"), DISPLAYS):
        wish = build_settings({"effort": effort, "thinking.display": display, "thinking.summary": length})
        plan = build_thinking_plan(wish, where.model)
        request = request_of(where, plan)
        if (wanted := replace(plan, notices=())) not in asked:
            asked.add(wanted)
            assert ask(where, where.dialect({"step": LOOP}), request, RequestFallbacks()).message.tool_uses
        sent = json.loads(where.encode(request).body).get("reasoning", {}).get("summary")
        assert (sent is None) is (provider != "openai" or not plan.thinking.summarized)
        is_bent = length == "concise" if provider == "openai" and not offers_concise(model_id) else provider != "openai"
        is_bent = is_bent and plan.thinking.summarized and length != "auto"
        notice = f"{where.model.id} does not offer {length} summaries; the model chooses the length."
        assert (notice in plan.notices) is is_bent
        assert sent in (None, "auto" if is_bent else length)


def refused_for_its_cap(where: Place, plan: ThinkingPlan) -> bool:
    """Where the cap of a model is not known, it is the user who has to know it: such a server says what is too much."""
    if where.model.id not in ("vllm-qwen3-32b", "strict-1") or (plan.max_tokens or 0) < 100_000:
        return False
    with pytest.raises(ProviderError, match=r"max_tokens|context length"):
        play_loop(where, plan)
    return True


def test_a_model_that_takes_no_tools_is_refused_with_a_way_out() -> None:
    where = place("google", TOOLLESS)
    (plan,) = {replace(plan, max_tokens=None) for plan in plans(where.provider, where.model)}
    with pytest.raises(BadRequest) as refused:
        play_loop(where, plan, RequestFallbacks())
    assert not isinstance(refused.value, RequestRefused)
    assert f"{TOOLLESS} cannot call tools, which thinklsp needs: choose another model" in str(refused.value)
