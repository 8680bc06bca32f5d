"""An answer that ends at a limit is told with its cause: ours, the model's, or the server's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.scripted_model import SCRIPTED
from thinklsp.agent.budget import BudgetLimits, TurnConfig
from thinklsp.agent.turn_loop import explain_truncation, is_window_full
from thinklsp.core.usage import Usage
from thinklsp.providers.base import Thinking

UNKNOWN = replace(SCRIPTED, context_window=None, output_cap=None)
LOCAL = replace(UNKNOWN, context_window=8_192)
CAPPED = replace(SCRIPTED, output_cap=64_000)


def config(model: Any, max_tokens: int | None) -> TurnConfig:
    return TurnConfig(model, "system", Thinking(), max_tokens, BudgetLimits(5))


@pytest.mark.parametrize(
    ("model", "asked", "usage", "said"),
    [
        (CAPPED, 4_096, Usage(500, 4_096), "Raise `maxTokens`"),
        (CAPPED, 4_096, Usage(500, 4_090), "Raise `maxTokens`"),
        (CAPPED, 4_096, Usage(500, None), "Raise `maxTokens`"),
        (UNKNOWN, 4_096, Usage(500, 4_096), "Raise `maxTokens`"),
        (CAPPED, 64_000, Usage(500, 64_000), "m writes at most"),
        (CAPPED, 4_096, Usage(500, 700), "at its own limit"),
        (UNKNOWN, None, Usage(500, 700), "at its own limit"),
        (UNKNOWN, None, Usage(), "at its own limit"),
    ],
)
def test_the_sentence_names_what_helps(model: Any, asked: int | None, usage: Usage, said: str) -> None:
    sentence = explain_truncation(config(model, asked), usage)
    assert said in sentence
    assert ("Raise `maxTokens`" in sentence) is (said == "Raise `maxTokens`")


@pytest.mark.parametrize(
    ("model", "usage", "full"),
    [
        (LOCAL, Usage(6_000, 2_192), True),
        (LOCAL, Usage(6_000, 2_150), True),
        (LOCAL, Usage(6_000, 1_000), False),
        (LOCAL, Usage(None, 8_192), False),
        (UNKNOWN, Usage(6_000, 2_192), False),
    ],
)
def test_window_is_full_when_input_and_output_reach_it(model: Any, usage: Usage, full: bool) -> None:
    assert is_window_full(config(model, 4_096), usage) is full
