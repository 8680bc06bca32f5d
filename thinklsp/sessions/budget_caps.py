"""Caps on the spending of a user or of a team, which all processes of a team share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CapScope = Literal["user", "team"]


@dataclass(frozen=True, slots=True)
class BudgetCap:
    """A cap in US dollars. `period` is a UTC day such as 2026-11-26, or a month such as 2026-11."""

    scope: CapScope
    name: str
    period: str
    usd: float


@dataclass(frozen=True, slots=True)
class CapReached:
    """A cap that a model call would exceed, with what was spent and what running model calls have reserved."""

    cap: BudgetCap
    spent_usd: float
    reserved_usd: float
