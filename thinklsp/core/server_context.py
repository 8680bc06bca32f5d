"""What a server passes to the layers below: the identity of a client, and the observer of what an operator measures.

The parts of the server call an observer and know nothing of metrics or traces. No call carries a text of a user or of a
model, a path, a key, or an argument of a tool. The classes in this module ignore every call. The observers of
`telemetry/` override the methods. They must be fast and must not raise, because turns wait for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from thinklsp.core.usage import Usage

# The tenant of all users if the tokens name no tenant.
DEFAULT_TENANT = "default"

# The environment variables with a user's names, for the commands that print keys.
TENANT_VARIABLE, USER_VARIABLE = "THINKLSP_TENANT", "THINKLSP_USER"


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The user of a client and the tenant to which the user belongs.

    A user sees only their own sessions. `groups` contains the user's teams, for budgets. On a server for one user, both
    names are `local`.
    """

    tenant: str = "local"
    user: str = "local"
    groups: tuple[str, ...] = ()


LOCAL_IDENTITY = ClientIdentity()


LoginRejection = Literal["token", "origin", "limit", "stopping", "protocol"]
CallOutcome = Literal[
    "ok",
    "cancelled",
    "authentication",
    "bad_request",
    "context_window",
    "rate_limited",
    "overloaded",
    "transport",
    "protocol",
    "error",
]
ToolOutcome = Literal["ok", "error", "cancelled"]
StoreOutcome = Literal["ok", "refused", "failed"]
OTHER = "other"
"""The label for all names that are not known in advance."""


@dataclass(frozen=True, slots=True)
class ModelLabels:
    """The labels of a model. `model` is `other` unless thinklsp or the user's file lists the model."""

    provider: str
    model: str


@dataclass(frozen=True, slots=True)
class TurnLabels:
    """The labels of a turn. The ids are random."""

    turn_id: str
    session_id: str
    kind: Literal["chat", "compact"]


class CallObserver:
    """The observer of a model call, from the first attempt to the last."""

    def count_retry(self) -> None:
        """Count a failed attempt that is repeated."""

    def end(self, outcome: CallOutcome, usage: Usage, stop_reason: str | None) -> None:
        """End the call. `usage` is the usage of all attempts."""


class ToolObserver:
    """The observer of a tool call."""

    def end(self, outcome: ToolOutcome) -> None:
        """End the tool call."""


class TurnObserver:
    """The observer of a turn."""

    def begin_call(self, model: ModelLabels) -> CallObserver:  # noqa: ARG002 - subclasses use the labels
        """Begin a model call of the turn."""
        return CallObserver()

    def begin_tool(self, tool: str) -> ToolObserver:  # noqa: ARG002 - subclasses use the name
        """Record the start of a tool call. `tool` is the name of a built-in tool, `mcp` or `other`."""
        return ToolObserver()

    def end(self, outcome: str, usage: Usage) -> None:
        """End the turn. `outcome` is the stop reason."""


class Observer:
    """The observer of a process."""

    def count_clients(self, change: int) -> None:
        """Add a change to the number of clients."""

    def count_rejected_login(self, reason: LoginRejection) -> None:
        """Count a client that could not connect."""

    def begin_turn(self, turn: TurnLabels) -> TurnObserver:  # noqa: ARG002 - subclasses use the labels
        """Begin a turn."""
        return TurnObserver()

    def report_store_call(self, operation: str, seconds: float, outcome: StoreOutcome) -> None:
        """Report a call of the session store. `refused` is an answer such as an unknown session."""


NO_OBSERVER = Observer()
