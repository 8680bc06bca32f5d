"""Connection pools, one for each address. All stores of a process share them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from thinklsp.sessions.postgres.adapted_connection import NumberLoader

_MAX_CONNECTIONS = 4
_MAX_LIFETIME_SECONDS = 1800.0


class StoreConnection(psycopg.Connection[Any]):
    """A connection that notes warnings.

    The server only warns if a commit was cancelled while it waited for the standby, so a warning means that the commit
    may be lost in a failover.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.has_warning = False
        self.add_notice_handler(self._note)

    def _note(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            self.has_warning = True


Pool = ConnectionPool[StoreConnection]

_pools: dict[str, tuple[Pool, int]] = {}
_lock = threading.Lock()


def connect(conninfo: str) -> StoreConnection:
    """Open a connection without a pool. Raises psycopg.Error."""
    connection = StoreConnection.connect(conninfo, autocommit=True, prepare_threshold=None)
    _configure(connection)
    return connection


def acquire_pool(conninfo: str, check: Callable[[], None]) -> Pool:
    """Return the pool for an address, and create it for its first user after `check`. Each user calls `release_pool`
    once."""
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
        # PgBouncer in transaction mode does not keep prepared statements.
        kwargs={"autocommit": True, "prepare_threshold": None},
        min_size=0,
        max_size=_MAX_CONNECTIONS,
        max_lifetime=_MAX_LIFETIME_SECONDS,
        configure=_configure,
        check=ConnectionPool.check_connection,
        open=True,
        name="thinklsp-sessions",
    )


def _configure(connection: StoreConnection) -> None:
    connection.adapters.register_loader("numeric", NumberLoader)
