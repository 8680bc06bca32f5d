"""Row 10: a durable append to a session in a file, and the load of a session."""

from __future__ import annotations

import os
import sqlite3
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from tests.bench.measure import Bench, Figure, compared, elapsed, in_turn
from tests.support.stored_sessions import ORIGIN, USAGE, full_session
from thinklsp.core.messages import (
    AssistantMessage,
    OpaqueState,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.sessions.session import Session
from thinklsp.sessions.sqlite_store import SqliteStore

STEPS = 5000
BYTES = 10_000
_APPENDED = 50_000


async def durable(bench: Bench) -> list[Figure]:
    """Row 10: a durable append of a step, compared with a plain write and fdatasync."""
    store, random = opened(bench.folder), Random(3)
    session = await store.create("w")
    session = await store.update(session.id, lambda now: now.add_user_message("Go."))
    file = os.open(bench.folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    raw = random.randbytes(_APPENDED)
    numbers = list(range(10_000, 0, -1))

    async def append() -> float:
        # Create the steps beforehand, so that only the writes are measured.
        steps = [build_step(Session(session.id, "w"), numbers.pop(), random, _APPENDED).conversation for _ in range(20)]
        return statistics.median([await elapsed(_add(store, session.id, step)) for step in steps])

    def write() -> float:
        taken = []
        for _ in range(20):
            begun = time.perf_counter()
            os.write(file, raw)
            os.fdatasync(file)
            taken.append((time.perf_counter() - begun) * 1000)
        return statistics.median(taken)

    values, missing = await in_turn({"thinklsp": append, "write + fdatasync": write}, bench.some(11))
    os.close(file)
    await store.aclose()
    return compared("10", "durable append of 50 KB, p50", values, missing, {"write + fdatasync": 1.5})


async def loaded(bench: Bench) -> list[Figure]:
    """Row 10: loading a session of 1,000 messages, compared with a SELECT of its rows."""
    store, random = opened(bench.folder), Random(4)

    large = await store.update((await store.create("w")).id, lambda now: _add_steps(now, 500, random))
    await store.aclose()
    path = bench.folder / "state" / "sessions" / "sessions.db"

    async def load() -> float:
        store = opened(bench.folder)
        await store.list_sessions("w")
        begun = time.perf_counter()
        session = await store.get(large.id, "w")
        taken = (time.perf_counter() - begun) * 1000
        assert len(session.conversation) == 1_001
        await store.aclose()
        return taken

    def select() -> float:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("SELECT count(*) FROM session").fetchall()
            begun = time.perf_counter()
            rows = connection.execute("SELECT * FROM message").fetchall()
            rows += connection.execute("SELECT * FROM opaque").fetchall()
            assert len(rows) > 1_000
            return (time.perf_counter() - begun) * 1000

    values, missing = await in_turn({"thinklsp": load, "SELECT": select}, bench.some(11))
    return compared("10", "load of 1,000 messages", values, missing, {"SELECT": 2.0})


def opened(folder: Path) -> SqliteStore:
    """Open the store below a folder."""
    return SqliteStore(str(folder / "state"))


async def filled(folder: Path, workspace: str = "w", *, sessions: int = 200, steps: int = STEPS) -> str:
    """Fill a store with small sessions and one large session. Return the id of the large one."""
    store, random = opened(folder), Random(1)
    for _ in range(sessions - 1):
        await store.update((await store.create(workspace)).id, full_session)

    large = await store.update((await store.create(workspace)).id, lambda now: _add_steps(now, steps, random))
    summary = next(summary for summary in await store.list_sessions(workspace) if summary.id == large.id)
    assert summary.size > 9_000 * steps, summary
    await store.aclose()
    return large.id


async def _add(store: SqliteStore, session_id: str, step: Sequence[Any]) -> None:
    answer, results = step
    await store.update(session_id, lambda now: now.add_step(answer, results, USAGE))


def _add_steps(session: Session, steps: int, random: Random) -> Session:
    session = session.add_user_message("Go.")
    for number in range(steps):
        session = build_step(session, number, random)
    return session


def build_step(session: Session, number: int, random: Random, size: int = BYTES) -> Session:
    """Add a step of about `size` bytes: half is a tool result, the rest an answer and its opaque state."""
    words = "".join(random.choices("abcdef ghij klmn opqr\n", k=size // 4))
    signature = random.randbytes(400).hex()
    blocks = (
        ThinkingBlock("", OpaqueState(f'{{"type": "thinking", "signature": "{signature}"}}', ORIGIN)),
        TextBlock(words[: size // 8], OpaqueState(words[: size // 8], ORIGIN)),
        ToolUseBlock(f"c{number}", "read_file", {"path": "a.py"}, OpaqueState(words[: size // 8], ORIGIN)),
    )
    results = UserMessage((ToolResultBlock(f"c{number}", words + words),))
    return session.add_step(AssistantMessage(blocks, "tool_use"), results, USAGE)
