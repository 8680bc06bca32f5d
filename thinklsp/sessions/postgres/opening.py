"""Opens the PostgreSQL store of one user."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.postgres.address import build_conninfo, describe_address
from thinklsp.sessions.postgres.lease_rows import PostgresLeases
from thinklsp.sessions.postgres.pools import acquire_pool, release_pool
from thinklsp.sessions.postgres.postgres_database import PostgresDatabase
from thinklsp.sessions.postgres.schema import check_schema, open_connection
from thinklsp.sessions.postgres.transactions import Transactions


def open_postgres(
    url: str,
    identity: ClientIdentity,
    stopping: threading.Event,
    on_lost: Callable[[str], None],
    lease_seconds: float,
) -> tuple[PostgresDatabase, PostgresLeases]:
    """Check the database and return the rows and the leases of one user.

    `stopping` ends all waiting for the database. `on_lost` gets the id of a session whose lease was lost. Raises
    SessionError.
    """
    conninfo = build_conninfo(url)
    place = describe_address(url)
    transactions = Transactions(acquire_pool(conninfo, partial(_check_database, url, place)), identity, place, stopping)
    leases = PostgresLeases(transactions, on_lost, lease_seconds)
    return PostgresDatabase(transactions, leases, place, partial(release_pool, conninfo)), leases


def _check_database(url: str, place: str) -> None:
    with open_connection(url) as connection:
        check_schema(connection, place)
