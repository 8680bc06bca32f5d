"""Connections to PostgreSQL: their addresses, their pools, their errors, and the check of the database."""

from __future__ import annotations

import ipaddress
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import cycle
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from thinklsp import __version__
from thinklsp.core.errors import SessionError, StoreUnreachable
from thinklsp.sessions import tables
from thinklsp.sessions.codec import replace_null_characters
from thinklsp.sessions.encryption import NO_ENCRYPTION, Rows, StoreCipher

# PgBouncer in transaction mode does not keep prepared statements.
_OPTIONS: Mapping[str, Any] = {"autocommit": True, "prepare_threshold": None}
_MAX_CONNECTIONS = 4
_MAX_LIFETIME_SECONDS = 1800.0
# The pool doubles the pauses between attempts until this time, and begins again at the next request for a connection.
# By default, it pauses for minutes after a long outage.
_RECONNECT_SECONDS = 4.0
# A failed server is noticed within seconds, and only the primary of several hosts is used.
_DEFAULTS: Mapping[str, Any] = {
    "target_session_attrs": "read-write",
    "connect_timeout": 2,
    "tcp_user_timeout": 3000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "application_name": f"thinklsp/{__version__}",
}
# The sentences for refused statements, by SQLSTATE.
_BUSY = "session store at {place} is too busy. Try again."
_NO_TABLES = "session store at {place} has no tables for this version. Run `thinklsp store migrate`."
_REFUSALS = {
    "40001": _BUSY,
    "40P01": _BUSY,
    "42P01": _NO_TABLES,
    "42703": _NO_TABLES,
    "42501": "role for the session store at {place} lacks rights. Run `thinklsp store migrate --role ROLE`.",
    "57014": "session store at {place} took too long. Try again.",
}
_OTHER_REFUSAL = "session store at {place} has refused a statement (SQLSTATE {state})."
_MIGRATE = "Run `thinklsp store migrate`."
_ROLE = (
    "SELECT current_user, rolsuper OR rolbypassrls, pg_has_role(current_user, "
    "(SELECT relowner FROM pg_class WHERE oid = to_regclass('session')), 'MEMBER') "
    "FROM pg_roles WHERE rolname = current_user"
)
_pools: dict[str, tuple[Pool, int]] = {}
_lock = threading.Lock()


class PostgresConnection:
    """A connection inside a transaction, for the statements of the functions on rows."""

    def __init__(self, connection: psycopg.Connection[Any], cipher: StoreCipher = NO_ENCRYPTION) -> None:
        self._connection = connection
        self.cipher = cipher

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Rows:
        return self._connection.execute(_translate(statement), [_adapt(value) for value in parameters])


class NumberLoader(Loader):
    """Load a `numeric`, which is the type of a sum of integers, as an int or a float."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


@cache
def _translate(statement: str) -> bytes:
    """Return the statement with the placeholders of psycopg."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


def _adapt(value: object) -> object:
    """Return the value with a type and with characters that PostgreSQL accepts in these columns."""
    if isinstance(value, bool):
        return int(value)
    return replace_null_characters(value) if isinstance(value, str) else value


class StoreConnection(psycopg.Connection[Any]):
    """A connection that notes warnings.

    The server only warns if a commit was cancelled while it waited for the standby, so a warning means that the commit
    may be lost in a failover.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.has_warning = False
        self.add_notice_handler(self._note)
        self.adapters.register_loader("numeric", NumberLoader)

    def _note(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            self.has_warning = True


Pool = ConnectionPool[StoreConnection]


def acquire_pool(conninfo: str, check: Callable[[], None]) -> Pool:
    """Return the pool for an address, and create it for its first user after `check`.

    Each user calls `release_pool` once.
    """
    if conninfo not in _pools:
        check()
    with _lock:
        pool, users = _pools.get(conninfo) or (_create_pool(conninfo), 0)
        _pools[conninfo] = pool, users + 1
        return pool


def release_pool(conninfo: str) -> None:
    """Close the pool after its last user."""
    with _lock:
        pool, users = _pools.pop(conninfo)
        if users > 1:
            _pools[conninfo] = pool, users - 1
            return
    pool.close(timeout=2.0)


def _create_pool(conninfo: str) -> Pool:
    return ConnectionPool(
        conninfo,
        connection_class=StoreConnection,
        kwargs=dict(_OPTIONS),
        min_size=0,
        max_size=_MAX_CONNECTIONS,
        max_lifetime=_MAX_LIFETIME_SECONDS,
        reconnect_timeout=_RECONNECT_SECONDS,
        check=ConnectionPool.check_connection,
        open=True,
        name="thinklsp-sessions",
    )


def build_conninfo(url: str) -> str:
    """Return the address with the options that it lacks.

    Raises SessionError if the address is invalid, or if it allows a connection to another machine without a verified
    certificate.
    """
    options = _parse_address(url)
    added: dict[str, Any] = {key: value for key, value in _DEFAULTS.items() if key not in options}
    if not all(map(_is_local, (*_list_hosts(options), *_list_hosts(options, "hostaddr")))):
        mode = options.get("sslmode")
        if mode not in (None, "verify-full"):
            raise SessionError(
                f"The address of the session store sets sslmode={mode}. Use sslmode=verify-full, because the "
                "database is on another machine."
            )
        added["sslmode"] = "verify-full"
        if "sslrootcert" not in options:
            added["sslrootcert"] = "system"
    return make_conninfo(url, **added)


def describe_address(url: str) -> str:
    """Return the hosts and the database of an address, without its user and its password. Raises SessionError."""
    options = _parse_address(url)
    ports = cycle(str(options.get("port") or 5432).split(","))
    places = ",".join(f"{host or 'localhost'}:{port}" for host, port in zip(_list_hosts(options), ports, strict=False))
    return f"postgresql://{places}/{options.get('dbname') or ''}"


def _parse_address(url: str) -> Mapping[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # The message of the library contains the address with its password.
        raise SessionError(
            "The address of the session store is invalid. Use postgresql://USER@HOST:PORT/DATABASE in [store] url."
        ) from None


def _list_hosts(options: Mapping[str, Any], key: str = "host") -> list[str]:
    return str(options.get(key) or os.environ.get(f"PG{key.upper()}") or "").split(",")


def _is_local(host: str) -> bool:
    """Return True for a Unix socket and for an address of this machine."""
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_connection_loss(error: psycopg.Error) -> bool:
    """Return True if the server is unreachable, restarts, is overloaded, or is no longer the primary."""
    if isinstance(error, PoolTimeout | psycopg.InterfaceError):
        return True
    state = error.sqlstate or ""
    if not state:
        return isinstance(error, psycopg.OperationalError)
    return state.startswith(("08", "53", "57P")) or state in ("25006", "25P03")


def build_refusal_error(error: psycopg.Error, place: str) -> SessionError:
    """Return an error with a sentence for a statement that the database at `place` has refused."""
    state = error.sqlstate or type(error).__name__
    return SessionError(f"The {_REFUSALS.get(state, _OTHER_REFUSAL).format(place=place, state=state)}")


@contextmanager
def open_connection(url: str) -> Iterator[StoreConnection]:
    """Open a connection without a pool.

    Raises SessionError with the server's reason, which contains no password, and also for errors of the database in the
    body of the `with` statement.
    """
    conninfo, place = build_conninfo(url), describe_address(url)
    try:
        connection = StoreConnection.connect(conninfo, **_OPTIONS)
    except psycopg.Error as error:
        # Without hints, and with the reason of each host once.
        reasons = re.findall(r"connection (?:failed|is bad): (.+)", str(error)) or str(error).splitlines()[:1]
        reason = "; ".join(dict.fromkeys(reasons)).rstrip(".")
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


def load_migrations() -> Mapping[int, str]:
    """Return the SQL scripts by the schema version that they create."""
    return tables.load_migrations("postgres/migrations")


def read_version(connection: StoreConnection) -> int:
    """Return the version of the schema, or 0 if there are no tables."""
    if connection.execute("SELECT to_regclass('schema_version')").fetchone() == (None,):
        return 0
    [(version,)] = connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchall()
    return int(version)
