"""Health and readiness of a real server whose store, loop or database does not answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.test_exits import NO_DISK
from tests.support.listening import Listening
from tests.support.postgres_server import run_postgres
from tests.telemetry.monitored import METRICS, fetch, find_port, run_first, until_answer, until_reply
from thinklsp.telemetry.health import StoreProbe


async def test_a_store_that_does_not_answer_keeps_new_clients_away(tmp_path: Path, environment: dict[str, str]) -> None:
    server = Listening("tcp", *METRICS, argv=run_first(NO_DISK))
    try:
        await server.start(tmp_path, environment)
        port = find_port(server)
        assert (await fetch(port, "/ready")).json["problem"] == "The session store has not answered yet."
        reply = await until_reply(port, "/ready", lambda reply: reply.json["store"] != "unknown")
        assert reply.json == {"ok": False, "problem": "The session store does not answer.", "store": "unreachable"}
        assert (await fetch(port, "/health")).status == 200
        assert await server.end() == 143
    finally:
        await server.stop()


async def test_a_store_that_keeps_sessions_in_memory_is_degraded(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "no folder").write_text("")
    server = Listening("tcp", *METRICS)
    try:
        await server.start(tmp_path, environment | {"THINKLSP_STATE_DIR": str(tmp_path / "no folder")})
        assert (await until_answer(find_port(server), "/ready", 200)).json == {"ok": True, "store": "degraded"}
    finally:
        await server.stop()


# A program of the process that stops the event loop for good.
STUCK = """
import os, threading, time
from asyncio import base_events
real = base_events.BaseEventLoop._run_once
def run_once(self):
    if os.path.exists(os.environ["STUCK"]) and threading.current_thread() is threading.main_thread():
        threading.Event().wait()
    real(self)
base_events.BaseEventLoop._run_once = run_once
"""


async def test_an_event_loop_that_does_not_run_is_noticed(tmp_path: Path, environment: dict[str, str]) -> None:
    """Even then the port answers."""
    stuck = tmp_path / "stuck"
    server = Listening("tcp", *METRICS, argv=run_first(STUCK))
    try:
        await server.start(tmp_path, environment | {"STUCK": str(stuck)})
        assert (await fetch(find_port(server), "/health")).status == 200
        stuck.touch()
        reply = await until_answer(find_port(server), "/health", 503)
        assert reply.json == {"ok": False, "problem": "The event loop does not run."}
    finally:
        await server.stop()


async def test_the_loss_of_a_database_is_noticed_and_its_return() -> None:
    with run_postgres() as server:
        store = server.create_store(server.create_identity())
        probe = StoreProbe(store, max_answer_seconds=1)
        async with asyncio.timeout(60):
            while probe.state != "ok":
                await probe.ask()
            await asyncio.to_thread(server.stop)
            while probe.state == "ok":
                await probe.ask()
            assert probe.explain_unready() == "The session store does not answer."
            await asyncio.to_thread(server.start)
            while probe.state != "ok":
                await probe.ask()
        await store.aclose()
