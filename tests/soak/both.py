"""Two services for one server: the one that signs, and the simulator for all others. Their long memory is cut."""

from __future__ import annotations

from typing import Any

from tests.support.both_services import BothServices
from tests.support.services import WAYS

# The ways that lead to the simulator, where a conversation goes now and then.
ELSEWHERE = [WAYS[name] for name in ("openai", "google", "openrouter")]
# Messages whose return is checked: those of sessions that go on.
_REMEMBERED = 300


class Both(BothServices):
    """`forget` is called now and then, or a night would fill our own memory. Violations are those since the last."""

    def __init__(self) -> None:
        super().__init__()
        self._cleared = 0

    def secrets(self) -> dict[str, str]:
        """The keys, and what was issued since the last but one `forget`."""
        keys = {name: value for name, value in self.others.secrets().items() if name != "anthropic key"}
        return keys | self.signing.secrets()

    def say(self, *script: Any) -> None:
        """To the next requests for the model that signs; what is left of a turn that ended early is nobody's answer."""
        self.signing.script[:] = script

    def forget(self) -> None:
        issued = self.signing.signer.issued
        for name in list(issued)[: self._cleared]:
            del issued[name]
        self._cleared = len(issued)
        del self.signing.conversations.issued[:-_REMEMBERED]
        del self.signing.requests[:-1]
        self.signing.violations.clear()
        self.others.violations.clear()
