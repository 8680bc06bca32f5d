"""Errors of PostgreSQL in sentences for the user."""

from __future__ import annotations

import psycopg
from psycopg_pool import PoolTimeout

from thinklsp.core.errors import SessionError


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
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return SessionError(
            f"The session store at {place} has no tables for this version. Run `thinklsp store migrate`."
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return SessionError(
            f"The role for the session store at {place} lacks rights. Run `thinklsp store migrate --role ROLE`."
        )
    if isinstance(error, psycopg.errors.QueryCanceled):
        return SessionError(f"The session store at {place} took too long. Try again.")
    state = error.sqlstate or type(error).__name__
    return SessionError(f"The session store at {place} has refused a statement (SQLSTATE {state}).")
