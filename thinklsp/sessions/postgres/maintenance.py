"""Maintenance of the PostgreSQL store by the owner of its tables: migrations, checks, deletion and key rotation.

The schema has one SQL script per version. Never change a released script.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg
from psycopg import sql

from thinklsp.core.errors import SessionError
from thinklsp.sessions import ledger, session_rows
from thinklsp.sessions.postgres.store_connections import (
    PostgresConnection,
    StoreConnection,
    check_schema,
    describe_address,
    load_migrations,
    open_connection,
    read_version,
)
from thinklsp.sessions.postgres.team_cipher import Owner, TenantKeys, WrappedKey

# A number of our own for `pg_advisory_xact_lock`, so that only one process migrates at a time.
_MIGRATION_LOCK = 0x7468696E6B6C7370
_NO_STANDBYS = (
    "The database has replicas, but `synchronous_standby_names` is empty. A failover would lose the last answers "
    "although thinklsp has confirmed them. Set it to the names of your standby servers."
)
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


def migrate(url: str, role: str | None, migrations: Mapping[int, str] | None = None) -> tuple[int, int]:
    """Bring the tables to the version of this thinklsp, and give `role` the rights to use them.

    Returns the versions before and after. Raises SessionError.
    """
    scripts = load_migrations() if migrations is None else migrations
    place = describe_address(url)
    with open_connection(url) as connection:
        try:
            before = _apply(connection, scripts, place)
            if role is not None:
                _grant(connection, role)
        except psycopg.errors.LockNotAvailable:
            raise SessionError(
                f"The tables of the session store at {place} are in use. Run `thinklsp store migrate` again."
            ) from None
        except psycopg.errors.UndefinedObject:
            raise SessionError(
                f"The database has no role {role}. Create it first, for example with `createuser`."
            ) from None
        except psycopg.errors.InsufficientPrivilege as error:
            reason = error.diag.message_primary or "permission denied"
            raise SessionError(
                f"The tables of the session store at {place} cannot be created ({reason}). Use a role that owns the "
                "database."
            ) from None
    return before, max(scripts)


def _apply(connection: StoreConnection, scripts: Mapping[int, str], place: str) -> int:
    first: int | None = None
    while True:
        with connection.transaction():
            _lock(connection)
            version = read_version(connection)
            first = version if first is None else first
            if version > max(scripts):
                raise SessionError(
                    f"The session store at {place} belongs to a newer version of thinklsp. Update thinklsp."
                )
            if version == max(scripts):
                return first
            connection.execute(scripts[version + 1].encode())
            connection.execute("INSERT INTO schema_version (version) VALUES (%s)", (version + 1,))


def _lock(connection: StoreConnection) -> None:
    connection.execute("SELECT set_config('lock_timeout', '5s', true)")
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))


def _grant(connection: StoreConnection, role: str) -> None:
    name = sql.Identifier(role)
    tables = "session, message, origin, opaque, archive, usage, ledger, remedy, image, lease, session_key"
    grants = (
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {{}}",
        "GRANT SELECT ON schema_version, spending TO {}",
        "GRANT EXECUTE ON FUNCTION reserve_budget TO {}",
    )
    with connection.transaction():
        _lock(connection)
        for grant in grants:
            connection.execute(sql.SQL(grant).format(name))


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """The result of a check. `facts` contains names and values, and `problems` says what to do."""

    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]


def check_store(url: str) -> StoreCheck:
    """Check the address, the schema, the role, the encryption of the connection and the replicas.

    Raises SessionError if the database is not reachable.
    """
    place = describe_address(url)
    problems: list[str] = []
    with open_connection(url) as connection:
        version = read_version(connection)
        try:
            check_schema(connection, place)
        except SessionError as error:
            problems.append(str(error))
        [(standbys, replicas)] = connection.execute(
            "SELECT current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication)"
        ).fetchall()
        if replicas and not standbys:
            problems.append(_NO_STANDBYS)
        facts = (
            ("address", place),
            ("server", f"PostgreSQL {connection.info.parameter_status('server_version')}"),
            ("schema", f"version {version} of {max(load_migrations())}"),
            ("role", connection.info.user),
            ("connection", "encrypted" if connection.pgconn.ssl_in_use else "not encrypted (this machine)"),
        )
    return StoreCheck(facts, tuple(problems))


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
        while batch := _delete_batch(connection, rows, limit):
            count += batch
        with connection.transaction():
            ledger.delete_old_edits(rows)
            session_rows.delete_old_fallbacks(rows)
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


@dataclass(frozen=True, slots=True)
class RewrapReport:
    """The number of keys that were encrypted again.

    `lost` names the sessions whose key cannot be decrypted with any key of the tenant: tenant, user and id. `errors`
    contains the errors of whole tenants.
    """

    rewrapped: int
    lost: tuple[Owner, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)


def rewrap_keys(url: str, create_loader: Callable[[str], Callable[[], str]]) -> RewrapReport:
    """Encrypt the keys of all sessions with the current key of their tenant.

    `create_loader` returns the function that loads a tenant's keys, as `TenantKeys` describes. Raises SessionError.
    """
    rewrapped, lost, errors = 0, [], {}
    with open_connection(url) as connection:
        check_owner(connection, describe_address(url))
        rows = PostgresConnection(connection)
        for (tenant,) in rows.execute("SELECT DISTINCT tenant FROM session_key").fetchall():
            keys = TenantKeys(create_loader(tenant))
            try:
                keys.refresh()
                for owner, is_rewrapped in _rewrap_tenant(rows, tenant, keys):
                    rewrapped += is_rewrapped
                    lost += [] if is_rewrapped else [owner]
            except SessionError as error:
                errors[tenant] = str(error)
    return RewrapReport(rewrapped, tuple(lost), errors)


def _rewrap_tenant(rows: PostgresConnection, tenant: str, keys: TenantKeys) -> Iterator[tuple[Owner, bool]]:
    """Yield each session whose key is not encrypted with the current key, and False if its key cannot be decrypted."""
    query = "SELECT account, session, tenant_key, content FROM session_key WHERE tenant = ? AND tenant_key != ?"
    for account, session_id, *wrapped in rows.execute(query, (tenant, keys.get_current_id())).fetchall():
        owner = (tenant, account, session_id)
        keys.refresh()
        try:
            key = keys.unwrap(WrappedKey(*wrapped), owner)
        except SessionError:
            yield owner, False
            continue
        rows.execute(
            "UPDATE session_key SET tenant_key = ?, content = ? WHERE tenant = ? AND account = ? AND session = ? "
            "AND content = ?",
            (*keys.wrap(key, owner), *owner, wrapped[1]),
        )
        yield owner, True
