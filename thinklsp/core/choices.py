"""The values that users choose between in settings, arguments and questions; the only place that lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

EffortLevel = Literal["low", "medium", "high", "xhigh", "max"]
EffortSetting = Literal["auto", EffortLevel]
Effort = Literal["minimal", EffortLevel]
"""The levels of models, the lowest first. `minimal` cannot be chosen; it stands for less than `low`."""

EFFORT_LEVELS: tuple[EffortLevel, ...] = get_args(EffortLevel)
EFFORT_SETTINGS: tuple[EffortSetting, ...] = get_args(EffortSetting)
EFFORTS: tuple[Effort, ...] = get_args(Effort)

PlannedThinkingMode = Literal["auto", "off", "adaptive", "manual"]
ThinkingMode = Literal[PlannedThinkingMode, "normal", "ultra"]
"""`normal` and `ultra` are planned as `auto`."""

THINKING_MODES: tuple[ThinkingMode, ...] = get_args(ThinkingMode)

ThinkingDisplay = Literal["status", "summary", "off"]
SummaryLength = Literal["auto", "concise", "detailed"]

Review = Literal["auto", "always", "never"]
Verify = Literal["auto", "always", "off"]

BudgetAnswer = Literal["continue", "raise", "stop"]

# What users are shown when a turn reaches its budget.
BUDGET_ANSWERS: Mapping[str, BudgetAnswer] = {
    "Continue once": "continue",
    "Lift the limit for this turn": "raise",
    "Stop": "stop",
}
