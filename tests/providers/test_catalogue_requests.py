"""Every model × mode × effort × display, with budgets and caps: what we send is accepted, or refused before it is sent.

The judge is the simulator, whose table of models is kept apart from our catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest

from tests.support.anthropic_cases import ENDPOINT, run
from thinklsp.core.messages import AssistantMessage, ThinkingBlock, ToolResultBlock, UserMessage
from thinklsp.engine.engine import plan_for
from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.catalog import known_models, lookup
from thinklsp.providers.thinking import ThinkingDisplay, ThinkingMode, ThinkingPlan
from thinklsp.settings import EditorSettings
from thinklsp.settings.model import EffortWish, nested
from thinklsp.simulator.anthropic.models import MODELS as SIMULATED
from thinklsp.simulator.anthropic.service import AnthropicDialect
from thinklsp.simulator.dialect import Received
from thinklsp.simulator.frames import Send, Streamed, Whole
from thinklsp.simulator.scenario import Scenario
from thinklsp.simulator.script import Script
from thinklsp.tools.registry import TOOLS, tool_specs

MODES = get_args(ThinkingMode)
EFFORTS = get_args(EffortWish)
DISPLAYS = get_args(ThinkingDisplay)
CORNERS: tuple[Mapping[str, object], ...] = (
    {},
    {"maxTokens": 1024},
    {"maxTokens": 1025},
    {"maxTokens": 1_000_000},
    {"thinking.budgetTokens": 1024},
    {"thinking.budgetTokens": 127_999},
    {"thinking.budgetTokens": 127_999, "maxTokens": 4096},
)
LOOP = [
    {"block": [{"thinking": "What is here?"}, {"text": "Looking."}, {"tool": "list_files"}, {"tool": "list_files"}]},
    {"block": [{"thinking": "So that is it."}, {"tool": "list_files"}]},
    {"block": [{"thinking": "Enough."}, {"text": "Done."}]},
]


WISHES = [
    nested({"thinking.mode": mode, "effort": effort, "thinking.display": display, **corner})
    for mode, effort, display, corner in product(MODES, EFFORTS, DISPLAYS, CORNERS)
]


def ask(dialect: AnthropicDialect, request: ModelRequest) -> AssistantMessage:
    wire = AnthropicAdapter().encode(request, ENDPOINT)
    reply = dialect.reply(Received("POST", "/v1/messages", "", wire.headers, wire.body))
    refusal = reply.body.decode() if isinstance(reply, Whole) else ""
    assert isinstance(reply, Streamed), f"{request.model.id}, {request.thinking}, {request.max_tokens}: {refusal}"
    data = b"".join(frame.data for frame in reply.frames if isinstance(frame, Send))
    return run(data, ENDPOINT.origin(request.model.id))[0]


def play_loop(model: str, plan: ThinkingPlan) -> list[AssistantMessage]:
    """First request, tool loop, end; then a second prompt."""
    dialect = AnthropicDialect(Script(Scenario.model_validate({"turn": [{"step": LOOP}] * 2})))
    request = ModelRequest(
        lookup("anthropic", model), "Be good.", tool_specs(TOOLS), (), plan.thinking, plan.max_tokens
    )
    answers: list[AssistantMessage] = []
    for _ in range(2):
        request = replace(request, conversation=(*request.conversation, UserMessage.of("Go on.")))
        for _ in LOOP:
            answers.append(ask(dialect, request))
            results = tuple(ToolResultBlock(call.id, "x") for call in answers[-1].tool_uses)
            added = (answers[-1], UserMessage(results)) if results else (answers[-1],)
            request = replace(request, conversation=request.conversation + added)
    return answers


@pytest.mark.parametrize("model_id", sorted({*known_models("anthropic"), *SIMULATED}))
def test_every_request_of_a_tool_loop_is_accepted(model_id: str) -> None:
    model = lookup("anthropic", model_id)
    assert model.known
    plans = {replace(plan_for(wish, model), notices=()) for wish in WISHES}
    assert len(plans) > 3
    for plan in plans:
        answers = play_loop(model_id, plan)
        assert answers[-1].text == "Done."
        thought = any(isinstance(block, ThinkingBlock) for answer in answers for block in answer.blocks)
        if plan.thinking.form != "between_tools":
            assert thought is (plan.thinking.form in ("adaptive", "manual"))
            assert any(answer.thinking for answer in answers) is (thought and plan.thinking.summarized)


def test_the_catalogue_lists_what_the_simulator_plays() -> None:
    assert {*known_models("anthropic")} <= {*SIMULATED}
    assert [name for name in SIMULATED if not lookup("anthropic", name).known] == []


REFUSED: dict[str, Any] = {
    "thinking.budgetTokens": (0, 1023, 128_000, "much"),
    "maxTokens": (0, 1023, "much"),
    "effort": ("most", 3),
    "thinking.mode": ("on", None),
    "thinking.display": ("omitted",),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in REFUSED.items() for value in values])
def test_what_no_model_takes_is_refused_with_a_sentence(key: str, value: object) -> None:
    before = EditorSettings()
    after, said = before.updated({key: value})
    if value is None:
        return
    assert len(said) == 1
    assert key in said[0]
    assert said[0].endswith(".")
    assert after.updated({})[0] == before.updated({})[0]


def test_the_judge_can_say_no() -> None:
    plan = plan_for(nested({"thinking.mode": "manual"}), lookup("anthropic", "claude-opus-4-5"))
    with pytest.raises(AssertionError, match="not supported for this model"):
        play_loop("claude-opus-5-5", plan)
