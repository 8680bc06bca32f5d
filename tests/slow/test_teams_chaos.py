"""Steps in PostgreSQL while workers, the database and the network fail: none is lost, doubled or written by a loser."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.hosts import cutting
from tests.support.sizes import STEP
from tests.support.stored_sessions import one_turn
from tests.teams.chaos import Chaos, Sizes, read_errors, stop_sender
from tests.teams.cluster import run_cluster
from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.postgres import PostgresStore

SIZES = (
    Sizes(workers=3, sessions=12, kills=6, stops=1, failovers=1, cuts=2, seconds=15)
    if STEP in ("quick", "commit")
    else Sizes(workers=8, sessions=40, kills=30, stops=5, failovers=3, cuts=5, seconds=60)
)


async def test_no_step_is_lost_or_doubled(tmp_path: Path, tally: Callable[[str, int], None]) -> None:
    with run_cluster() as cluster, cutting(cluster.bouncer_port, b"never") as relay:
        outcome = await Chaos(cluster, relay, tmp_path, SIZES).run()
    assert read_errors(tmp_path) == ""
    assert outcome.lost == []
    assert outcome.doubled == []
    assert outcome.recorded_although_refused == []
    assert outcome.sent_without_intent == []
    assert outcome.called_too_late == []
    # The run has met what it is about.
    assert outcome.counts["sent"]
    assert outcome.counts["lost"]
    tally("A-47", len(outcome.acknowledged))


async def test_a_standby_that_nobody_waits_for_loses_steps() -> None:
    """The control: with an asynchronous standby, the same comparison finds lost steps."""
    with run_cluster(is_synchronous=False) as cluster:
        identity = ClientIdentity("tenant", "somebody")
        store = PostgresStore(lambda: cluster.url, identity)
        session = await store.update((await store.create("w")).id, partial(one_turn, 1))
        stop_sender(cluster.primary)
        acknowledged = await store.update(session.id, partial(one_turn, 2))
        await store.aclose()
        cluster.fail_over()
        reader = PostgresStore(lambda: cluster.url, identity)
        left = await reader.get(session.id, "w")
        await reader.aclose()
        assert len(left.conversation) < len(acknowledged.conversation)
