"""The transactions of a session store in PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from thinklsp.sessions.postgres.adapted_connection import PostgresConnection
from thinklsp.sessions.postgres.lease_rows import PostgresLeases
from thinklsp.sessions.postgres.transactions import Transactions, create_write_key
from thinklsp.sessions.session_database import SessionQuery, SessionRow, StoreKind, StoreQuery

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Row = TypeVar("_Row", bound=SessionRow)
_LEDGER_VERSION = "SELECT count(*), count(outcome), coalesce(sum(undone), 0), coalesce(max(made), 0) FROM ledger"


class PostgresDatabase:
    """The rows of one user. `path` is the address without a password, and `close_pool` ends the use of the pool."""

    kind: StoreKind = "postgresql"

    def __init__(
        self, transactions: Transactions, leases: PostgresLeases, path: str, close_pool: Callable[[], None]
    ) -> None:
        self._transactions = transactions
        self._leases = leases
        self.path = path
        self._close_pool = close_pool

    @property
    def size_bytes(self) -> int:
        """The size of the user's messages in bytes."""
        [size] = self.read_each(lambda connection: connection.execute("SELECT sum(size) FROM session").fetchone()[0])
        return int(size or 0)

    def read(self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._transactions.read(lambda connection: function(connection, session_id, *args, **kwargs))

    def read_each(self, function: StoreQuery[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> list[_T]:
        return [self._transactions.read(lambda connection: function(connection, *args, **kwargs))]

    def read_all(self, function: StoreQuery[_P, Iterable[_Row]], *args: _P.args, **kwargs: _P.kwargs) -> list[_Row]:
        return self._transactions.read(lambda connection: list(function(connection, *args, **kwargs)))

    def write(self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Write to one session in one transaction.

        After an interrupted commit, only a row of usage shows whether the transaction was committed. All other writes
        have the same effect if they run twice.
        """
        key = create_write_key()

        def is_committed(connection: PostgresConnection) -> bool:
            query = "UPDATE usage SET write_key = write_key WHERE write_key = ? RETURNING day"
            return connection.execute(query, (key,)).fetchone() is not None

        return self._transactions.run(
            lambda connection: function(connection, session_id, *args, **kwargs), key=key, is_committed=is_committed
        )

    def write_as_holder(
        self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        key, started = create_write_key(), time.monotonic()

        def write(connection: PostgresConnection) -> _T:
            self._leases.prove(connection, session_id, key)
            return function(connection, session_id, *args, **kwargs)

        def is_committed(connection: PostgresConnection) -> bool:
            return self._leases.has_proved(connection, session_id, key)

        result = self._transactions.run(write, key=key, is_committed=is_committed)
        self._leases.note_write(session_id, started)
        return result

    def delete(self, session_id: str) -> None:
        self.write_as_holder(_delete_session, session_id)

    def erase_traces(self) -> None:
        """Do nothing: vacuum overwrites deleted rows some time later."""

    def read_data_version(self) -> tuple[int, ...]:
        [version] = self.read_each(lambda connection: connection.execute(_LEDGER_VERSION).fetchone())
        return tuple(int(figure) for figure in version)

    def follow_file(self) -> bool:
        return False

    def close(self) -> None:
        # The leases are released before the pool is closed, although the store closes them after its database.
        self._leases.close()
        self._close_pool()


def _delete_session(connection: PostgresConnection, session_id: str) -> None:
    """Delete a session with its key and the rows that refer to it.

    Its usage rows are kept, because they count towards budgets.
    """
    connection.execute("UPDATE usage SET session = NULL, turn = '' WHERE session = ?", (session_id,))
    connection.execute("DELETE FROM ledger WHERE session = ?", (session_id,))
    connection.execute("DELETE FROM session_key WHERE session = ?", (session_id,))
    connection.execute("DELETE FROM session WHERE id = ?", (session_id,))
