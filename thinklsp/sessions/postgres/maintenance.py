"""Maintenance of the PostgreSQL store by the owner of its tables: checks, and the deletion of old rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import psycopg

from thinklsp.core.errors import SessionError
from thinklsp.sessions import edit_rows, fallback_rows
from thinklsp.sessions.postgres.adapted_connection import PostgresConnection
from thinklsp.sessions.postgres.address import describe_address
from thinklsp.sessions.postgres.migrations import load_migrations
from thinklsp.sessions.postgres.pools import StoreConnection
from thinklsp.sessions.postgres.schema import check_schema, open_connection, read_version

_BATCH = 100
_PRUNE_BATCH = (
    "DELETE FROM session USING (SELECT tenant, account, id FROM session AS old WHERE updated < ? AND NOT EXISTS ("  # noqa: S608 - a constant
    "SELECT 1 FROM lease WHERE (lease.tenant, lease.account, lease.session) = (old.tenant, old.account, old.id) "
    f"AND holder IS NOT NULL AND until > clock_timestamp()) LIMIT {_BATCH}) AS batch "
    "WHERE (session.tenant, session.account, session.id) = (batch.tenant, batch.account, batch.id) "
    "RETURNING session.tenant, session.account, session.id"
)
_FORGET = (
    "UPDATE usage SET session = NULL, turn = '' WHERE tenant = ? AND account = ? AND session = ?",
    "DELETE FROM ledger WHERE tenant = ? AND account = ? AND session = ?",
    "DELETE FROM session_key WHERE tenant = ? AND account = ? AND session = ?",
    "DELETE FROM lease WHERE tenant = ? AND account = ? AND session = ?",
)


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """The result of a check. `facts` contains names and values, and `problems` says what to do."""

    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]


def check_store(url: str) -> StoreCheck:
    """Check the address, the schema, the role, the encryption of the connection and the replicas. Raises SessionError
    if the database is not reachable."""
    place = describe_address(url)
    problems: list[str] = []
    with open_connection(url) as connection:
        version = read_version(connection)
        try:
            check_schema(connection, place)
        except SessionError as error:
            problems.append(str(error))
        problems += _check_replicas(connection)
        facts = (
            ("address", place),
            ("server", f"PostgreSQL {connection.info.parameter_status('server_version')}"),
            ("schema", f"version {version} of {max(load_migrations())}"),
            ("role", connection.info.user),
            ("connection", "encrypted" if connection.pgconn.ssl_in_use else "not encrypted (this machine)"),
        )
    return StoreCheck(facts, tuple(problems))


def _check_replicas(connection: StoreConnection) -> Iterator[str]:
    [(standbys, replicas)] = connection.execute(
        "SELECT current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication)"
    ).fetchall()
    if replicas and not standbys:
        yield (
            "The database has replicas, but `synchronous_standby_names` is empty. A failover would lose the last "
            "answers although thinklsp has confirmed them. Set it to the names of your standby servers."
        )


def prune(url: str, age: timedelta) -> int:
    """Delete the sessions of all users that were last used longer ago, and other rows that have expired.

    Sessions are deleted in batches, and a session in use is kept. Their usage still counts. Returns the number of
    deleted sessions. Raises SessionError, also if the role does not own the tables.
    """
    limit = time.time_ns() - int(age.total_seconds() * 10**9)
    count = 0
    with open_connection(url) as connection:
        check_owner(connection, describe_address(url))
        rows = PostgresConnection(connection)
        try:
            while batch := _delete_batch(connection, rows, limit):
                count += batch
            with connection.transaction():
                edit_rows.delete_old_edits(rows)
                fallback_rows.delete_old_fallbacks(rows)
                rows.execute("DELETE FROM spending WHERE period < to_char(now() - interval '13 months', 'YYYY-MM-DD')")
                rows.execute("DELETE FROM lease WHERE until < clock_timestamp() - interval '1 day'")
                rows.execute(
                    "DELETE FROM session_key AS key WHERE NOT EXISTS (SELECT 1 FROM session WHERE "
                    "(session.tenant, session.account, session.id) = (key.tenant, key.account, key.session)) "
                    "AND NOT EXISTS (SELECT 1 FROM ledger WHERE "
                    "(ledger.tenant, ledger.account, ledger.session) = (key.tenant, key.account, key.session))"
                )
                rows.execute(
                    "DELETE FROM origin WHERE NOT EXISTS (SELECT 1 FROM opaque WHERE "
                    "(opaque.tenant, opaque.account, opaque.origin) = (origin.tenant, origin.account, origin.id))"
                )
        except psycopg.Error as error:
            raise SessionError(
                f"The session store could not be pruned after {count} sessions (SQLSTATE {error.sqlstate}). Run the "
                "command again."
            ) from None
    return count


def _delete_batch(connection: StoreConnection, rows: PostgresConnection, limit: int) -> int:
    with connection.transaction():
        deleted = rows.execute(_PRUNE_BATCH, (limit,)).fetchall()
        for place in deleted:
            for statement in _FORGET:
                rows.execute(statement, place)
    return len(deleted)


def check_owner(connection: StoreConnection, place: str) -> None:
    """Check that the tables belong to this version and that the role owns them. Raises SessionError."""
    version = read_version(connection)
    if version != max(load_migrations()):
        raise SessionError(
            f"The tables of the session store at {place} are of another version. Run `thinklsp store migrate`."
        )
    query = "SELECT pg_has_role(current_user, relowner, 'MEMBER') FROM pg_class WHERE oid = to_regclass('session')"
    if connection.execute(query).fetchone() != (True,):
        raise SessionError(
            f"The role {connection.info.user} sees only the sessions of one user. Use the role that owns the tables of "
            f"{place}."
        )
