"""Transactions that survive a lost connection, a failover and a conflict.

A transaction whose commit was interrupted may have been committed. Before it runs again, the database is asked whether
it was.
"""

from __future__ import annotations

import json
import random
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from thinklsp.core.errors import SessionError, StoreUnreachable
from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.postgres.adapted_connection import PostgresConnection
from thinklsp.sessions.postgres.database_errors import build_refusal_error, is_connection_loss
from thinklsp.sessions.postgres.pools import Pool, StoreConnection

_T = TypeVar("_T")
Work = Callable[[PostgresConnection], _T]

RECONNECT_SECONDS = 30.0
_MAX_CONFLICTS = 5
_GET_SECONDS = 5.0
# The settings of a transaction. Nothing depends on settings of a session, which PgBouncer would not keep. A write locks
# its key, so that the check for an interrupted commit waits until the server has finished that transaction.
_BEGIN = (
    "SELECT set_config('thinklsp.tenant', %s, true), set_config('thinklsp.user', %s, true), "
    "set_config('thinklsp.teams', %s, true), "
    "set_config('thinklsp.write_key', %s, true), set_config('statement_timeout', '10s', true), "
    "set_config('idle_in_transaction_session_timeout', '10s', true), set_config('synchronous_commit', 'on', true), "
    "CASE WHEN %s <> '' THEN pg_advisory_xact_lock(hashtextextended(%s, 0)) END"
)


def create_write_key() -> str:
    """Return a key that identifies one write, however often its transaction runs."""
    return secrets.token_hex(16)


class Transactions:
    """The transactions of one user. `place` is the address in messages, and `stopping` ends all waiting."""

    def __init__(self, pool: Pool, identity: ClientIdentity, place: str, stopping: threading.Event) -> None:
        self._pool = pool
        self._identity = identity
        self._place = place
        self._stopping = stopping

    def read(self, work: Work[_T]) -> _T:
        """Run a query whose statements all see the database as it was at one moment. Raises SessionError."""
        return self.run(work, isolation=psycopg.IsolationLevel.REPEATABLE_READ)

    def run(
        self,
        work: Work[_T],
        *,
        key: str = "",
        is_committed: Work[bool] | None = None,
        isolation: psycopg.IsolationLevel | None = None,
    ) -> _T:
        """Run `work` in a transaction until it is committed, and return its result.

        `work` may run several times, but with `is_committed` only one run is committed: this function returns whether
        an earlier run with the same `key` was, and it must write a row if so. Raises SessionError if the database is
        not reachable or too slow for 30 seconds, or if it refuses a statement.
        """
        deadline = time.monotonic() + RECONNECT_SECONDS
        conflicts = 0
        results: list[_T] = []

        def attempt(connection: PostgresConnection) -> _T:
            if results and is_committed is not None and is_committed(connection):
                return results[-1]
            results.append(work(connection))
            return results[-1]

        while True:
            failure: SessionError = StoreUnreachable(f"The session store at {self._place} is not reachable.")
            try:
                result, is_safe = self._run_once(attempt, key, isolation)
                if is_safe:
                    return result
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                conflicts += 1
                if conflicts > _MAX_CONFLICTS:
                    raise SessionError(f"The session store at {self._place} is too busy. Try again.") from None
                continue
            except psycopg.errors.QueryCanceled as error:
                # A busy database has cancelled a statement after its time limit.
                failure = build_refusal_error(error, self._place)
            except psycopg.Error as error:
                if not is_connection_loss(error):
                    raise build_refusal_error(error, self._place) from None
            except sqlite3.DatabaseError:
                raise SessionError(f"The session store at {self._place} does not return what was written.") from None
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self._stopping.wait(min(remaining, random.uniform(0.05, 0.5))):  # noqa: S311 - jitter
                raise failure

    def _run_once(self, work: Work[_T], key: str, isolation: psycopg.IsolationLevel | None) -> tuple[_T, bool]:
        """Run one transaction. Return its result, and False if a failover could still lose it."""
        with self._pool.connection(timeout=_GET_SECONDS) as connection:
            connection.has_warning = False
            connection.isolation_level = isolation
            with connection.transaction():
                self._begin(connection, key)
                result = work(PostgresConnection(connection))
            return result, not connection.has_warning

    def _begin(self, connection: StoreConnection, key: str) -> None:
        identity = self._identity
        connection.execute(_BEGIN, (identity.tenant, identity.user, json.dumps(sorted(identity.groups)), key, key, key))
