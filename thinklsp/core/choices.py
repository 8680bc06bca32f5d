"""The choices that users have in settings, arguments and questions. Each list of choices is defined only here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

EffortLevel = Literal["low", "medium", "high", "xhigh", "max"]
EffortSetting = Literal["auto", EffortLevel]
Effort = Literal["minimal", EffortLevel]
"""The effort levels in ascending order. `minimal` is below `low` and cannot be chosen in settings."""

EFFORT_LEVELS: tuple[EffortLevel, ...] = get_args(EffortLevel)
EFFORT_SETTINGS: tuple[EffortSetting, ...] = get_args(EffortSetting)
EFFORTS: tuple[Effort, ...] = get_args(Effort)

PlannedThinkingMode = Literal["auto", "off", "adaptive", "manual"]
ThinkingMode = Literal[PlannedThinkingMode, "normal", "ultra"]
"""All values of `thinking.mode`. The planner treats `normal` and `ultra` as `auto`."""

THINKING_MODES: tuple[ThinkingMode, ...] = get_args(ThinkingMode)

ThinkingDisplay = Literal["status", "summary", "off"]
SummaryLength = Literal["auto", "concise", "detailed"]

Review = Literal["auto", "always", "never"]
Verify = Literal["auto", "always", "off"]

CompactionService = Literal["thinklsp", "provider"]
ThinkingAfterCompaction = Literal["keep", "off"]

# The values of some settings, from the loosest to the strictest. Editor settings can only be stricter than user
# settings.
STRICTNESS: Mapping[str, tuple[str, ...]] = {
    "edits.review": ("never", "auto", "always"),
    "verify": ("off", "auto", "always"),
    "compaction.thinkingAfter": ("keep", "off"),
}

ReasoningEcho = Literal["auto", "reasoning", "reasoning_content", "reasoning_details", "none"]
"""The message field in which an OpenAI-compatible server receives a model's earlier thinking."""

BudgetAnswer = Literal["continue", "raise", "stop"]

# The buttons shown when thinklsp asks whether a turn may exceed its budget.
BUDGET_ANSWERS: Mapping[str, BudgetAnswer] = {
    "Continue once": "continue",
    "Lift the limit for this turn": "raise",
    "Stop": "stop",
}

# The buttons shown when the user is asked if the model may run a command or a tool of another program.
RUN_ONCE, ALLOW_FOR_SESSION, DO_NOT_RUN = "Run once", "Allow for this session", "Don't run"
NOT_NOW = "Not now"
DECLINING = frozenset((NOT_NOW, DO_NOT_RUN, *(title for title, answer in BUDGET_ANSWERS.items() if answer == "stop")))
"""The buttons that change nothing and allow nothing."""

LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
LOG_LEVEL_VARIABLE = "THINKLSP_LOG_LEVEL"


def read_log_level(environment: Mapping[str, str]) -> str | None:
    """Return the log level set in the environment, or None if it is not set or not valid."""
    level = environment.get(LOG_LEVEL_VARIABLE, "").strip().lower()
    return level if level in LOG_LEVELS else None


def has_invalid_log_level(environment: Mapping[str, str]) -> bool:
    """Return whether the log level set in the environment is invalid."""
    return bool(environment.get(LOG_LEVEL_VARIABLE, "").strip()) and read_log_level(environment) is None
