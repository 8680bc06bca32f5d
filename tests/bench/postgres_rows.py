"""Figures of the session store in PostgreSQL, beside the one in a file, both on this machine with a durable commit."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tests.bench.measure import Bench, Figure, elapsed
from tests.bench.store_rows import build_step, opened
from tests.support.postgres_server import list_program_folders, run_postgres
from tests.support.stored_sessions import USAGE
from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.session import Session
from thinklsp.sessions.store import SessionStore

if TYPE_CHECKING:
    from collections.abc import Sequence

_BYTES = 20_000


async def steps(bench: Bench) -> list[Figure]:
    """Measure a step of 20 KB: the slowest of a hundred of a turn, with the lease held."""
    name = "a step of 20 KB in PostgreSQL, p99"
    if not list_program_folders():
        missing = "PostgreSQL is not installed (on Debian: apt-get install postgresql)"
        return [Figure("team", name, note=missing, outcome="skipped")]
    with run_postgres(is_durable=True) as server:
        theirs, ours = opened(bench.folder), server.create_store(ClientIdentity("bench", "somebody"))
        try:
            in_file = [await _measure(theirs, number) for number in range(bench.some(5))]
            in_database = [await _measure(ours, number) for number in range(bench.some(5))]
        finally:
            await theirs.aclose()
            await ours.aclose()
    slowest = max(in_database)
    return [Figure("team", name, "ms", in_database, in_file, "SQLite", slowest, " ms", most=50)]


async def _measure(store: SessionStore, number: int) -> float:
    """Return the 99th percentile of the milliseconds of 100 steps of a new session."""
    session = await store.update((await store.create("w")).id, lambda new: new.add_user_message("Go."))
    random = Random(number)
    made = [build_step(Session(session.id, "w"), at, random, _BYTES).conversation for at in range(101)]
    taken = sorted([await elapsed(_add(store, session.id, step)) for step in made][1:])
    await store.release(session.id)
    return taken[98]


async def _add(store: SessionStore, session_id: str, step: Sequence[Any]) -> None:
    answer, results = step
    await store.update(session_id, lambda now: now.add_step(answer, results, USAGE))
