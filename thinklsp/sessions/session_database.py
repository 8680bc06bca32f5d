"""The interfaces of a store's database and of its leases. All their functions run in the store's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from thinklsp.sessions.budget_caps import BudgetCap, CapReached

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SessionRow(Protocol):
    """A query result that belongs to one session."""

    @property
    def session_id(self) -> str: ...


_Row = TypeVar("_Row", bound=SessionRow)
# Functions that query one session or all sessions. Their first argument is a connection of the database.
SessionQuery = Callable[Concatenate[Any, str, _P], _T]
StoreQuery = Callable[Concatenate[Any, _P], _T]
StoreKind = Literal["file", "read-only", "memory", "postgresql"]


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The status of the session store, for `doctor`. If `kind` is `memory`, sessions are lost when the process exits.

    `place` is the path of the file or the address of the database. `protection` describes the encryption. `size` is the
    size of the store in bytes.
    """

    kind: StoreKind
    place: str
    protection: str
    problems: tuple[str, ...]
    sessions: int
    size: int


class SessionDatabase(Protocol):
    """Transactions on the rows of sessions. Every call may raise SessionError with a message for the user."""

    @property
    def kind(self) -> StoreKind: ...

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def read(self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Read from one session."""

    def read_each(self, function: StoreQuery[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> list[_T]:
        """Run a query in each database of the store and return the results."""

    def read_all(self, function: StoreQuery[_P, Iterable[_Row]], *args: _P.args, **kwargs: _P.kwargs) -> list[_Row]:
        """Return the rows of all sessions."""

    def write(self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Write to one session in one transaction. The function may run twice, but only one run is committed."""

    def write_as_holder(
        self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Write like `write`, but only if this process still holds the lease on the session."""

    def delete(self, session_id: str) -> None:
        """Delete the rows of a session. Call `erase_traces` afterwards."""

    def erase_traces(self) -> None:
        """Erase the bytes of deleted rows."""

    def read_data_version(self) -> tuple[int, ...]:
        """Return a value that changes if another process or connection commits a transaction."""

    def follow_file(self) -> bool:
        """Return True if another program has removed or replaced the database file."""

    def close(self) -> None:
        """Close the database."""


class SessionLeases(Protocol):
    """Leases on sessions. Only the process with the lease can change a session or apply its edits."""

    def acquire(self, session_id: str) -> None:
        """Acquire the lease on a session until `release` is called. Raises SessionError if another process is using the
        session."""

    def take(self, session_id: str) -> None:
        """Acquire the lease on a session, but do not keep it longer than necessary. Raises SessionError."""

    def check(self, session_id: str) -> None:
        """Raise SessionError if the lease on a session in use was lost."""

    def reserve(self, session_id: str, usd: float, caps: Sequence[BudgetCap]) -> CapReached | None:
        """Check the lease and reserve the cost of a model call, or return a cap that it would exceed."""

    def release(self, session_id: str) -> None:
        """Release the lease on a session, unless an edit is still waiting for the editor's response."""

    def hold_for_edit(self, session_id: str, edit: str) -> None:
        """Keep the lease on a session until the edit is settled."""

    def settle_edit(self, session_id: str, edit: str) -> None:
        """Mark an edit as settled, and release the lease if the session is no longer in use."""

    def forget(self, session_id: str) -> None:
        """Release the lease on a deleted session."""

    def find_in_use(self, session_ids: Iterable[str]) -> frozenset[str]:
        """Return the ids of the sessions that another process is using."""

    def renew(self) -> None:
        """Acquire the leases again after the folder was replaced."""

    def close(self) -> None:
        """Release all leases."""
