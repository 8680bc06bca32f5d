"""The rows and the leases of one user in PostgreSQL, with transactions that survive a failover.

A transaction whose commit was interrupted may have been committed. Before it runs again, the database is asked whether
it was.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg

from thinklsp.core.errors import SessionError, StoreUnreachable
from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.postgres.store_connections import (
    PostgresConnection,
    acquire_pool,
    build_conninfo,
    build_refusal_error,
    check_schema,
    describe_address,
    is_connection_loss,
    open_connection,
    release_pool,
)
from thinklsp.sessions.postgres.team_cipher import TeamCipher
from thinklsp.sessions.spending import BudgetCap, CapReached
from thinklsp.sessions.store import SessionQuery, StoreKind
from thinklsp.sessions.store_folder import Leases

_P = ParamSpec("_P")
_T = TypeVar("_T")
Work = Callable[[PostgresConnection], _T]
Row = tuple[Any, ...]

RECONNECT_SECONDS = 30.0
_CONFLICTS = psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected
_MAX_CONFLICTS = 5
_GET_SECONDS = 5.0
# The settings of a transaction. Nothing depends on settings of a session, which PgBouncer would not keep. A write locks
# its key, so that the check for an interrupted commit waits until the server has finished that transaction.
_BEGIN = (
    "SELECT set_config('thinklsp.tenant', %s, true), set_config('thinklsp.user', %s, true), "
    "set_config('thinklsp.teams', %s, true), "
    "set_config('statement_timeout', '10s', true), "
    "set_config('idle_in_transaction_session_timeout', '10s', true), set_config('synchronous_commit', 'on', true), "
    "CASE WHEN %s <> '' THEN pg_advisory_xact_lock(hashtextextended(%s, 0)) END"
)
_LEDGER_VERSION = "SELECT count(*), count(outcome), coalesce(sum(undone), 0), coalesce(max(made), 0) FROM ledger"

# The lease belongs to this row only while both the fence and the holder are unchanged.
_IS_MINE = "session = ? AND fence = ? AND holder = ?"
_UNTIL = "clock_timestamp() + make_interval(secs => ?)"
_EXTEND = f"UPDATE lease SET until = {_UNTIL}"  # noqa: S608 - constants
_EXTEND_MINE = f"{_EXTEND}, last_key = ? WHERE {_IS_MINE}"
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


class PostgresDatabase:
    """The rows of one user. `path` is the address without a password.

    `stopping` ends all waiting for the database. `on_lost` gets the id of a session whose lease was lost. The
    constructor checks the database for the first store of a process, and raises SessionError.
    """

    kind: StoreKind = "postgresql"

    def __init__(
        self,
        url: str,
        identity: ClientIdentity,
        cipher: TeamCipher,
        stopping: threading.Event,
        on_lost: Callable[[str], None],
        lease_seconds: float,
    ) -> None:
        self.path = describe_address(url)
        self.protection = cipher.protection
        self._cipher = cipher
        self._identity = identity
        self._stopping = stopping
        self._conninfo = build_conninfo(url)
        self._unreachable_since: float | None = None
        self._pool = acquire_pool(self._conninfo, lambda: _check_database(url, self.path))
        self.leases = PostgresLeases(self, on_lost, lease_seconds)

    @property
    def size_bytes(self) -> int:
        """The size of the user's messages in bytes."""
        return int(self.read(lambda connection: connection.execute("SELECT sum(size) FROM session").fetchone()[0]) or 0)

    def read(
        self, function: Callable[Concatenate[PostgresConnection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Run a query whose statements all see the database as it was at one moment. Raises SessionError."""
        return self.run(
            lambda connection: function(connection, *args, **kwargs), isolation=psycopg.IsolationLevel.REPEATABLE_READ
        )

    def write(self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Write to one session in one transaction, which has the same effect if it runs twice."""
        return self.run(lambda connection: function(connection, session_id, *args, **kwargs), key=create_write_key())

    def write_as_holder(
        self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        key, started = create_write_key(), time.monotonic()
        results: list[_T] = []

        def write(connection: PostgresConnection) -> _T:
            # An earlier attempt whose commit was interrupted may have been committed.
            if results and self.leases.has_proved(connection, session_id, key):
                return results[-1]
            self.leases.prove(connection, session_id, key)
            results.append(function(connection, session_id, *args, **kwargs))
            return results[-1]

        result = self.run(write, key=key)
        self.leases.note_write(session_id, started)
        return result

    def delete(self, session_id: str) -> None:
        self.write_as_holder(_delete_session, session_id)

    def erase_traces(self) -> None:
        """Do nothing: vacuum overwrites deleted rows some time later."""

    def read_data_version(self) -> tuple[int, ...]:
        version = self.read(lambda connection: connection.execute(_LEDGER_VERSION).fetchone())
        return tuple(int(figure) for figure in version)

    def follow_file(self) -> bool:
        return False

    def close(self) -> None:
        # The leases are released before the pool is closed, although the store closes them after its database.
        self.leases.close()
        release_pool(self._conninfo)

    def run(self, work: Work[_T], *, key: str = "", isolation: psycopg.IsolationLevel | None = None) -> _T:
        """Run `work` in a transaction until it is committed, and return its result.

        `work` may run several times. With a `key`, it starts when the server has finished each earlier transaction with
        the same key. Raises SessionError if the database is not reachable or too slow for 30 seconds, which calls in a
        row wait for together, or if it refuses a statement.
        """
        started = time.monotonic()
        conflicts = 0
        while True:
            failure: SessionError = StoreUnreachable(f"The session store at {self.path} is not reachable.")
            try:
                result, is_safe = self._run_once(work, key, isolation)
                if is_safe:
                    return result
            except psycopg.Error as error:
                if isinstance(error, _CONFLICTS) and (conflicts := conflicts + 1) <= _MAX_CONFLICTS:
                    continue
                if not is_connection_loss(error):
                    failure = build_refusal_error(error, self.path)
                    # A busy database has cancelled the statement after its time limit.
                    if not isinstance(error, psycopg.errors.QueryCanceled):
                        raise failure from None
            except sqlite3.DatabaseError:
                raise SessionError(f"The session store at {self.path} does not return what was written.") from None
            if not self._pause(started):
                raise failure

    def _pause(self, started: float) -> bool:
        """Wait before the next attempt. Return False if there is no time for one or the store is closed."""
        now = time.monotonic()
        self._unreachable_since = self._unreachable_since or now
        remaining = min(started, self._unreachable_since) + RECONNECT_SECONDS - now
        return remaining > 0 and not self._stopping.wait(min(remaining, random.uniform(0.05, 0.5)))  # noqa: S311 - jitter

    def _run_once(self, work: Work[_T], key: str, isolation: psycopg.IsolationLevel | None) -> tuple[_T, bool]:
        """Run one transaction. Return its result, and False if a failover could still lose it."""
        identity = self._identity
        groups = json.dumps(sorted(identity.groups))
        with self._pool.connection(timeout=_GET_SECONDS) as connection:
            connection.has_warning = False
            connection.isolation_level = isolation
            with connection.transaction():
                connection.execute(_BEGIN, (identity.tenant, identity.user, groups, key, key))
                self._unreachable_since = None
                result = work(PostgresConnection(connection, self._cipher))
            return result, not connection.has_warning


def create_write_key() -> str:
    """Return a key that identifies one write, however often its transaction runs."""
    return secrets.token_hex(16)


def _check_database(url: str, place: str) -> None:
    with open_connection(url) as connection:
        check_schema(connection, place)


def _delete_session(connection: PostgresConnection, session_id: str) -> None:
    """Delete a session with its key and the rows that refer to it.

    Its usage rows are kept, because they count towards budgets.
    """
    connection.execute("UPDATE usage SET session = NULL, turn = '' WHERE session = ?", (session_id,))
    connection.execute("DELETE FROM ledger WHERE session = ?", (session_id,))
    connection.execute("DELETE FROM session_key WHERE session = ?", (session_id,))
    connection.execute("DELETE FROM session WHERE id = ?", (session_id,))


@dataclass(slots=True)
class _HeldLease:
    """`valid_until` is a time of the monotonic clock, which is never later than the end in the database."""

    fence: int
    valid_until: float


class PostgresLeases(Leases):
    """The leases of one store, as rows of the database.

    A lease is renewed several times before it ends, and by every write of its holder. Its fence is a number that grows
    with every new holder, so a holder that was stopped for too long cannot write any more. `on_lost` is called with the
    id of a session whose lease another process has taken.
    """

    def __init__(self, database: PostgresDatabase, on_lost: Callable[[str], None], lease_seconds: float) -> None:
        super().__init__()
        self._lease_seconds = lease_seconds
        self._database = database
        self._on_lost = on_lost
        self._holder = secrets.token_hex(16)
        self._holder_name = f"{socket.gethostname()}/{os.getpid()}"
        self._held: dict[str, _HeldLease] = {}
        # Sessions that another process has taken over. This store does not use them before they are released.
        self._lost_ids: set[str] = set()

    @property
    def must_renew(self) -> bool:
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
        row = self._database.run(lambda connection: connection.execute(_ACQUIRE, holder).fetchone())
        if row is None:
            raise SessionError(self._describe_use(session_id))
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

        row = self._database.run(reserve)
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
        if not self._extend(connection, session_id, _EXTEND_MINE, key):
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
        if self._database.run(lambda connection: self._extend(connection, session_id, _EXTEND_MINE, key)):
            self.note_write(session_id, started)
        else:
            self._lose(session_id)

    def find_in_use(self, session_ids: Iterable[str]) -> frozenset[str]:
        wanted = list(session_ids)
        if not wanted:
            return frozenset()
        query = "SELECT session FROM lease WHERE session = ANY(?) AND holder != ? AND until > clock_timestamp()"
        rows = self._database.run(lambda connection: connection.execute(query, (wanted, self._holder)).fetchall())
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
            self._database.run(release)

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

    def _describe_use(self, session_id: str) -> str:
        query = "SELECT holder_name, ceil(extract(epoch FROM until - clock_timestamp())) FROM lease WHERE session = ?"
        row = self._database.run(lambda connection: connection.execute(query, (session_id,)).fetchone())
        holder, seconds = ("", 0) if row is None else (f" ({row[0]})", row[1])
        return (
            f"This session is in use by another thinklsp{holder}. Fork it, stop the other one, or wait "
            f"{max(1, seconds)} s if it has crashed."
        )
