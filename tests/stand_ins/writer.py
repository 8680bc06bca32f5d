"""What the writers of all stand-ins have in common, and a scenario as one service plays it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar, assert_never

from thinklsp.offline.scenario import (
    DialectName,
    RawPart,
    RedactedPart,
    Scenario,
    ScenarioStep,
    ScenarioTurn,
    TextPart,
    ThinkingPart,
    ToolPart,
)

PieceT = TypeVar("PieceT")
# The services that can pause an answer and continue it in the next response.
_PAUSING_DIALECTS: frozenset[DialectName] = frozenset({"anthropic", "google"})


def adapt_scenario(scenario: Scenario, dialect: DialectName) -> Scenario:
    """Return the scenario as one service plays it."""
    turns = (turn.model_copy(update={"step": tuple(_select_steps(turn, dialect))}) for turn in scenario.turn)
    return scenario.model_copy(update={"turn": tuple(turns)})


def _select_steps(turn: ScenarioTurn, dialect: DialectName) -> list[ScenarioStep]:
    """Return the steps of a turn for one service, without the raw blocks for other services.

    If the service cannot pause an answer, a paused step is merged with the next step.
    """
    steps: list[ScenarioStep] = []
    for step in turn.step:
        blocks = tuple(part for part in step.parts if not isinstance(part, RawPart) or part.dialect == dialect)
        step = step.model_copy(update={"parts": blocks})
        if steps and steps[-1].stop_reason == "pause_turn" and dialect not in _PAUSING_DIALECTS:
            first = steps.pop()
            changes = {"parts": (*first.parts, *step.parts), "pacing": first.pacing, "fault": first.fault or step.fault}
            step = step.model_copy(update=changes)
        steps.append(step)
    if steps[-1].stop_reason == "pause_turn" and dialect not in _PAUSING_DIALECTS:
        steps[-1] = steps[-1].model_copy(update={"stop_reason": None})
    return steps


class AnswerWriter(ABC, Generic[PieceT]):
    """A base class for writers that convert a scripted answer to the format of a service.

    Thinking parts are skipped unless `thinks` is true.
    """

    def __init__(self, answer: ScenarioStep, *, thinks: bool) -> None:
        self._answer = answer
        self._thinks = thinks

    def write(self) -> Iterator[PieceT]:
        for number, part in enumerate(self._answer.parts):
            match part:
                case ThinkingPart() | RedactedPart():
                    if self._thinks:
                        yield from self._write_thinking(part, number)
                case TextPart():
                    yield from self._write_text(part, number)
                case ToolPart():
                    yield from self._write_tool_call(part, number)
                case RawPart():
                    yield from self._write_raw(part)
                case _:
                    assert_never(part)

    @abstractmethod
    def _write_thinking(self, part: ThinkingPart | RedactedPart, number: int) -> Iterator[PieceT]: ...

    @abstractmethod
    def _write_text(self, part: TextPart, number: int) -> Iterator[PieceT]: ...

    @abstractmethod
    def _write_tool_call(self, part: ToolPart, number: int) -> Iterator[PieceT]: ...

    @abstractmethod
    def _write_raw(self, part: RawPart) -> Iterator[PieceT]: ...

    @property
    def _interval_ms(self) -> int:
        """The pause before each delta in milliseconds."""
        return self._answer.pacing.interval_ms

    def _split(self, text: str) -> list[str]:
        size = self._answer.pacing.chunk_chars
        return [text[start : start + size] for start in range(0, len(text), size)]
