"""Leases on sessions as rows of the database.

A lease is renewed several times before it ends, and by every write of its holder. Its fence is a number that
grows with every new holder, so a holder that was stopped for too long cannot write any more.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from thinklsp.core.errors import SessionError
from thinklsp.sessions.budget_caps import BudgetCap, CapReached
from thinklsp.sessions.lease_uses import LeaseUses
from thinklsp.sessions.postgres.adapted_connection import PostgresConnection
from thinklsp.sessions.postgres.transactions import Transactions, create_write_key

Row = tuple[Any, ...]

# The lease belongs to this row only while both the fence and the holder are unchanged.
_IS_MINE = "session = ? AND fence = ? AND holder = ?"
_UNTIL = "clock_timestamp() + make_interval(secs => ?)"
_EXTEND = f"UPDATE lease SET until = {_UNTIL}"  # noqa: S608 - constants
_ACQUIRE = (
    "INSERT INTO lease (session, fence, holder, holder_name, until) "  # noqa: S608 - constants
    f"VALUES (?, 1, ?, ?, {_UNTIL}) "
    "ON CONFLICT (tenant, account, session) DO UPDATE SET fence = lease.fence + 1, holder = excluded.holder, "
    "holder_name = excluded.holder_name, until = excluded.until, last_key = '' "
    "WHERE lease.holder IS NULL OR lease.holder = excluded.holder OR lease.until < clock_timestamp() RETURNING fence"
)


_LOST = (
    "Another thinklsp has taken over this session, because this one did not answer for too long. Nothing more is saved "
    "here. Open the session again."
)


@dataclass(slots=True)
class _HeldLease:
    """`valid_until` is a time of the monotonic clock, which is never later than the end in the database."""

    fence: int
    valid_until: float


class PostgresLeases(LeaseUses):
    """The leases of one store. `on_lost` is called with the id of a session whose lease another process has taken."""

    def __init__(self, transactions: Transactions, on_lost: Callable[[str], None], lease_seconds: float) -> None:
        super().__init__()
        self._lease_seconds = lease_seconds
        self._transactions = transactions
        self._on_lost = on_lost
        self._holder = secrets.token_hex(16)
        self._holder_name = f"{socket.gethostname()}/{os.getpid()}"
        self._held: dict[str, _HeldLease] = {}
        # Sessions that another process has taken over. This store does not use them before they are released.
        self._lost_ids: set[str] = set()

    @property
    def has_leases(self) -> bool:
        return bool(self._held)

    def take(self, session_id: str) -> None:
        if session_id in self._lost_ids:
            raise SessionError(_LOST)
        held = self._held.get(session_id)
        if held is not None:
            if time.monotonic() >= held.valid_until:
                self._renew_lease(session_id)
                self.take(session_id)
            return
        started = time.monotonic()
        holder = (session_id, self._holder, self._holder_name, self._lease_seconds)
        row = self._transactions.run(lambda connection: connection.execute(_ACQUIRE, holder).fetchone())
        if row is None:
            raise SessionError(
                f"This session is in use by another thinklsp{self._describe_holder(session_id)}. "
                "Fork it or stop the other one."
            )
        self._held[session_id] = _HeldLease(int(row[0]), started + self._lease_seconds)

    def check(self, session_id: str) -> None:
        """Raise SessionError if the lease on a session in use has expired and another process has taken it."""
        if session_id in self._used_ids:
            self.take(session_id)

    def reserve(self, session_id: str, usd: float, caps: Sequence[BudgetCap]) -> CapReached | None:
        self.take(session_id)
        key, started = create_write_key(), time.monotonic()

        def reserve(connection: PostgresConnection) -> Row | None:
            self.prove(connection, session_id, key)
            values = (session_id, usd, json.dumps([asdict(cap) for cap in caps]))
            row = connection.execute("SELECT * FROM reserve_budget(?, ?, ?)", values).fetchone()
            return None if row is None else tuple(row)

        row = self._transactions.run(reserve)
        self.note_write(session_id, started)
        if row is None:
            return None
        *place, spent, reserved = row
        cap = next(cap for cap in caps if [cap.scope, cap.name, cap.period] == place)
        return CapReached(cap, float(spent), float(reserved))

    def release(self, session_id: str) -> None:
        super().release(session_id)
        self._lost_ids.discard(session_id)

    def prove(self, connection: PostgresConnection, session_id: str, key: str) -> None:
        """Check in the transaction of a write that this store still holds the lease, and extend the lease.

        The row stays locked until the transaction ends, so no other process can take the lease before. Raises
        SessionError if the lease is lost.
        """
        if not self._extend(connection, session_id, f"{_EXTEND}, last_key = ? WHERE {_IS_MINE}", key):
            self._lose(session_id)
            raise SessionError(_LOST)

    def has_proved(self, connection: PostgresConnection, session_id: str, key: str) -> bool:
        """Return True if the write with this key was committed, and extend the lease in this case."""
        return self._extend(connection, session_id, f"{_EXTEND} WHERE last_key = ? AND {_IS_MINE}", key)

    def note_write(self, session_id: str, started: float) -> None:
        """Note that a write that started at this time of the monotonic clock has extended the lease."""
        if (held := self._held.get(session_id)) is not None:
            held.valid_until = max(held.valid_until, started + self._lease_seconds)

    def renew(self) -> None:
        """Renew all leases. The ids of lost leases are reported."""
        for session_id in tuple(self._held):
            self._renew_lease(session_id)

    def _renew_lease(self, session_id: str) -> None:
        started, key = time.monotonic(), create_write_key()
        extend = f"{_EXTEND}, last_key = ? WHERE {_IS_MINE}"
        if self._transactions.run(lambda connection: self._extend(connection, session_id, extend, key)):
            self.note_write(session_id, started)
        else:
            self._lose(session_id)

    def find_in_use(self, session_ids: Iterable[str]) -> frozenset[str]:
        wanted = list(session_ids)
        if not wanted:
            return frozenset()
        query = "SELECT session FROM lease WHERE session = ANY(?) AND holder != ? AND until > clock_timestamp()"
        rows = self._transactions.run(lambda connection: connection.execute(query, (wanted, self._holder)).fetchall())
        return frozenset(str(session_id) for (session_id,) in rows)

    def close(self) -> None:
        """Release all leases at once, so that an unreachable database is waited for only once."""
        if self._held:
            self._held.clear()
            self._release("holder = ?", (self._holder,))

    def _drop(self, session_id: str) -> None:
        held = self._held.pop(session_id, None)
        if held is not None:
            self._release(_IS_MINE, (session_id, held.fence, self._holder))

    def _release(self, condition: str, values: tuple[str | int, ...]) -> None:
        """Release leases, and delete those on sessions that are not stored."""

        def release(connection: PostgresConnection) -> None:
            statement = f"UPDATE lease SET holder = NULL WHERE {condition} RETURNING session"  # noqa: S608 - constants
            for session in connection.execute(statement, values).fetchall():
                connection.execute(
                    "DELETE FROM lease WHERE session = ? AND holder IS NULL "
                    "AND NOT EXISTS (SELECT 1 FROM session WHERE id = lease.session)",
                    session,
                )

        # A lease that cannot be released ends by itself.
        with suppress(SessionError):
            self._transactions.run(release)

    def _lose(self, session_id: str) -> None:
        if self._held.pop(session_id, None) is not None and session_id in self._used_ids:
            self._lost_ids.add(session_id)
            self._on_lost(session_id)

    def _extend(self, connection: PostgresConnection, session_id: str, statement: str, key: str) -> bool:
        held = self._held.get(session_id)
        if held is None:
            return False
        values = (self._lease_seconds, key, session_id, held.fence, self._holder)
        return connection.execute(f"{statement} RETURNING fence", values).fetchone() is not None

    def _describe_holder(self, session_id: str) -> str:
        query = "SELECT holder_name FROM lease WHERE session = ? AND holder IS NOT NULL"
        row = self._transactions.run(lambda connection: connection.execute(query, (session_id,)).fetchone())
        return "" if row is None else f" ({row[0]})"
