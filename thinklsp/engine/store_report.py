"""The session store in the doctor report."""

from __future__ import annotations

from typing import Any

from thinklsp.core.errors import SessionError
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.sessions.state_folder import StateReport
from thinklsp.sessions.store import SessionStore


async def describe_store(store: SessionStore, state: StateReport, problems: list[str]) -> dict[str, Any]:
    """Describe the session store without creating the database."""
    nothing = {"protection": None, "databaseExists": False, "sessions": 0, "bytes": 0}
    if isinstance(store, SqliteStore) and not state.store_exists:
        return {"kind": "file", "path": state.store, **nothing}
    try:
        condition = await store.read_status()
    except SessionError as error:
        problems.append(str(error))
        return {"kind": "postgresql", "path": None, **nothing}
    problems.extend(problem for problem in condition.problems if problem not in problems)
    exists = condition.kind != "memory"
    return {
        "kind": condition.kind,
        "path": condition.place or None,
        "protection": condition.protection,
        "databaseExists": exists,
        "sessions": condition.sessions,
        "bytes": condition.size,
    }
