"""The schema of the PostgreSQL store and the role that uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg
from psycopg import sql

from thinklsp.core.errors import SessionError, StoreUnreachable
from thinklsp.sessions.postgres.address import build_conninfo, describe_address
from thinklsp.sessions.postgres.database_errors import build_refusal_error, is_connection_loss
from thinklsp.sessions.postgres.migrations import load_migrations
from thinklsp.sessions.postgres.pools import StoreConnection, connect

# A number of our own for `pg_advisory_xact_lock`, so that only one process migrates at a time.
_MIGRATION_LOCK = 0x7468696E6B6C7370
_MIGRATE = "Run `thinklsp store migrate`."
_ROLE = (
    "SELECT current_user, rolsuper OR rolbypassrls, pg_has_role(current_user, "
    "(SELECT relowner FROM pg_class WHERE oid = to_regclass('session')), 'MEMBER') "
    "FROM pg_roles WHERE rolname = current_user"
)


@contextmanager
def open_connection(url: str) -> Iterator[StoreConnection]:
    """Open a connection without a pool. Raises SessionError with the server's reason, which contains no password, and
    also for errors of the database in the body of the `with` statement."""
    conninfo, place = build_conninfo(url), describe_address(url)
    try:
        connection = connect(conninfo)
    except psycopg.Error as error:
        reason = " ".join(str(error).split()).removeprefix("connection failed: ").rstrip(".")
        raise StoreUnreachable(f"The session store at {place} is not reachable: {reason}.") from None
    try:
        with connection:
            yield connection
    except psycopg.Error as error:
        if is_connection_loss(error):
            raise StoreUnreachable(f"The session store at {place} has closed the connection. Try again.") from None
        raise build_refusal_error(error, place) from None


def check_schema(connection: StoreConnection, place: str) -> None:
    """Check that the tables belong to this version and that the role sees only the rows of one user.

    Raises SessionError with what to do.
    """
    [(role, is_privileged, is_owner)] = connection.execute(_ROLE).fetchall()
    if is_privileged or is_owner:
        reason = "is a superuser or bypasses row security" if is_privileged else "owns the tables"
        raise SessionError(
            f"The session store at {place} cannot be used with the role {role}, because it {reason} and would see the "
            "sessions of all users. Create another role and run `thinklsp store migrate --role ROLE`."
        )
    try:
        version, latest = read_version(connection), max(load_migrations())
    except psycopg.errors.InsufficientPrivilege:
        raise SessionError(
            f"The role {role} has no rights in the session store at {place}. Run "
            f"`thinklsp store migrate --role {role}`."
        ) from None
    if version < latest:
        state = "has no tables yet" if version == 0 else "belongs to an older version of thinklsp"
        raise SessionError(f"The session store at {place} {state}. {_MIGRATE}")
    if version > latest:
        raise SessionError(f"The session store at {place} belongs to a newer version of thinklsp. Update thinklsp.")


def read_version(connection: StoreConnection) -> int:
    """Return the version of the schema, or 0 if there are no tables."""
    if connection.execute("SELECT to_regclass('schema_version')").fetchone() == (None,):
        return 0
    [(version,)] = connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchall()
    return int(version)


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
