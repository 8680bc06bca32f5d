"""The rounds of a turn between its compactions, which show whether the turn still makes progress."""

from __future__ import annotations

import json
from collections.abc import Iterable

from thinklsp.core.messages import ToolUseBlock

REPEATED_CALLS = (
    "The turn ended: after a compaction, the model only repeated its earlier tool calls, because their results do not "
    "fit into the context window together. Ask for less at once, or use a model with a larger context window."
)


class CallRounds:
    """The tool calls of a turn, by round. A compaction ends a round.

    A round gains nothing if it only repeats calls of earlier rounds.
    """

    def __init__(self) -> None:
        self._current: set[tuple[str, str]] = set()
        self._last: set[tuple[str, str]] = set()
        self._earlier: set[tuple[str, str]] = set()
        self._was_repeated = False

    def add_calls(self, calls: Iterable[ToolUseBlock]) -> None:
        self._current |= {(call.name, json.dumps(call.input, sort_keys=True, default=str)) for call in calls}

    def is_stuck(self) -> bool:
        """Return True if this round only repeated the last one, or if this and the last one only repeated others.

        A single round that repeats a part of the earlier calls is normal, because a compaction removes their results.
        """
        return self._is_repeated() and (self._current == self._last or self._was_repeated)

    def end_round(self) -> None:
        self._was_repeated = self._is_repeated()
        self._earlier |= self._current
        self._last, self._current = self._current, set()

    def _is_repeated(self) -> bool:
        return bool(self._current) and self._current <= self._earlier
