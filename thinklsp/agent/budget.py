"""What model calls of the day have cost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime


def _utc_today() -> date:
    return datetime.now(UTC).date()


class DaySpending:
    """Mutable, owned by the engine and shared by its turns. A day is a UTC day."""

    def __init__(self, today: Callable[[], date] = _utc_today) -> None:
        self._today = today
        self._day = today()
        self._usd = 0.0

    @property
    def usd(self) -> float:
        """US dollars of all attempts at model calls that ended today and whose price is known."""
        self._turn_page()
        return self._usd

    @property
    def day(self) -> date:
        return self._today()

    def is_at(self, usd: float | None) -> None:
        """What the day has cost so far, other processes included, as somebody knows who keeps books. It never goes
        back: calls that have just ended may not be in the books yet."""
        self._turn_page()
        self._usd = max(self._usd, usd or 0.0)

    def add(self, usd: float | None) -> None:
        self._turn_page()
        self._usd += usd or 0.0

    def _turn_page(self) -> None:
        if (today := self._today()) != self._day:
            self._day, self._usd = today, 0.0
