"""What the model calls of one turn use."""

from __future__ import annotations

from dataclasses import dataclass, field

from thinklsp.core.usage import Usage


@dataclass(slots=True)
class UsageTally:
    """Usage of the calls of one turn, each attempt counted once, those included that broke off or failed.

    `running` is the attempt that runs, as far as the service has reported its figures.
    """

    ended: Usage = field(default_factory=Usage)
    running: Usage = field(default_factory=Usage)

    @property
    def used(self) -> Usage:
        return self.ended + self.running

    def end_attempt(self) -> Usage:
        """Count the running attempt as ended and return its usage."""
        attempt, self.running = self.running, Usage()
        self.ended += attempt
        return attempt
