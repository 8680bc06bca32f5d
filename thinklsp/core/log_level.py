"""The level of the log: its values, and the variable that chooses it for one process."""

from __future__ import annotations

from collections.abc import Mapping

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_LEVEL_VARIABLE = "THINKLSP_LOG_LEVEL"


def log_level(environment: Mapping[str, str]) -> str | None:
    """Return the level that the environment chooses; None if it chooses none of them."""
    level = environment.get(LOG_LEVEL_VARIABLE, "").strip().lower()
    return level if level in LOG_LEVELS else None


def has_wrong_level(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a level that does not exist."""
    return bool(environment.get(LOG_LEVEL_VARIABLE, "").strip()) and log_level(environment) is None
