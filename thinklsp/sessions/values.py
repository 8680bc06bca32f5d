"""What the store tells about sessions, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal

from thinklsp.core.messages import Conversation
from thinklsp.core.usage import Usage

Purpose = Literal["step", "compaction", "title", "lost"]


@dataclass(frozen=True, slots=True)
class Condition:
    """How the store is, for `doctor`. `kind` memory: nothing outlives the process. `place`: the path of the file, or
    the address of a server. `protection` is a sentence, `size` the bytes that the store takes."""

    kind: Literal["file", "read-only", "memory"]
    place: str
    protection: str
    problems: tuple[str, ...]
    sessions: int
    size: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A session in a list. `model` is the one that answered last, empty before; `size` the bytes that it takes, its
    archives included; times are UTC."""

    id: str
    title: str
    workspace: str
    model: str
    steps: int
    messages: int
    size: int
    created: datetime
    updated: datetime
    usage: Usage

    @property
    def session_id(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class Spent:
    """What one model call has cost. `lost`: an answer that became no step, as it was declined or the turn stopped."""

    turn_id: str
    provider: str
    model: str
    usage: Usage
    purpose: Purpose = "step"


@dataclass(frozen=True, slots=True)
class LastStep:
    """The newest step of a session, and when it was stored (UTC): its prompt may still stand in the service's cache."""

    spent: Spent
    at: datetime


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Sums over model calls. Turns in the order in which they began, days in theirs (UTC); calls of sessions that
    were deleted count for their day only."""

    total: Usage
    by_turn: Mapping[str, Usage]
    by_day: Mapping[date, Usage]
    by_model: Mapping[str, Usage]


@dataclass(frozen=True, slots=True)
class Archive:
    """A conversation that a compaction has replaced. `messages` and `steps` are those that it had."""

    id: str
    session_id: str
    note: str
    messages: int
    steps: int
    made: datetime


@dataclass(frozen=True, slots=True)
class Archived:
    archive: Archive
    conversation: Conversation
