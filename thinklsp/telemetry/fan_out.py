"""An observer that passes each call to several observers."""

from __future__ import annotations

from collections.abc import Sequence

from thinklsp.core.server_context import (
    CallObserver,
    CallOutcome,
    LoginRejection,
    ModelLabels,
    Observer,
    StoreOutcome,
    ToolObserver,
    ToolOutcome,
    TurnLabels,
    TurnObserver,
)
from thinklsp.core.usage import Usage


class FanOut(Observer):
    """The observer of a process that has several observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def count_clients(self, change: int) -> None:
        for observer in self._observers:
            observer.count_clients(change)

    def count_rejected_login(self, reason: LoginRejection) -> None:
        for observer in self._observers:
            observer.count_rejected_login(reason)

    def begin_turn(self, turn: TurnLabels) -> TurnObserver:
        return _Turn([observer.begin_turn(turn) for observer in self._observers])

    def report_store_call(self, operation: str, seconds: float, outcome: StoreOutcome) -> None:
        for observer in self._observers:
            observer.report_store_call(operation, seconds, outcome)


class _Turn(TurnObserver):
    def __init__(self, turns: Sequence[TurnObserver]) -> None:
        self._turns = turns

    def begin_call(self, model: ModelLabels) -> CallObserver:
        return _Call([turn.begin_call(model) for turn in self._turns])

    def begin_tool(self, tool: str) -> ToolObserver:
        return _Tool([turn.begin_tool(tool) for turn in self._turns])

    def end(self, outcome: str, usage: Usage) -> None:
        for turn in self._turns:
            turn.end(outcome, usage)


class _Call(CallObserver):
    def __init__(self, calls: Sequence[CallObserver]) -> None:
        self._calls = calls

    def count_retry(self) -> None:
        for call in self._calls:
            call.count_retry()

    def end(self, outcome: CallOutcome, usage: Usage, stop_reason: str | None) -> None:
        for call in self._calls:
            call.end(outcome, usage, stop_reason)


class _Tool(ToolObserver):
    def __init__(self, tools: Sequence[ToolObserver]) -> None:
        self._tools = tools

    def end(self, outcome: ToolOutcome) -> None:
        for tool in self._tools:
            tool.end(outcome)
