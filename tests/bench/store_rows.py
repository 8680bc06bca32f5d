"""Row 10, and figures of the session store: a session of 10,000 messages and 50 MB among 200 others."""

from __future__ import annotations

import os
import sqlite3
import statistics
import time
from contextlib import closing
from pathlib import Path
from random import Random

from tests.bench.measure import Bench, Figure, compared, in_turn
from tests.support.stored_sessions import ORIGIN, USAGE, NoVault, full_session
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
    """Row 10: what a step costs that is on the disk when it is answered, against the least that this can cost."""
    store, random = opened(bench.folder), Random(3)
    session = await store.create("w")
    session = await store.update(session.id, lambda now: now.with_user("Go."))
    file = os.open(bench.folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    raw = random.randbytes(_APPENDED)
    numbers = list(range(10_000, 0, -1))

    async def append() -> float:
        # Made beforehand: the other side writes one after the other, too.
        steps = [_step(Session(session.id, "w"), numbers.pop(), random, _APPENDED).conversation for _ in range(20)]
        taken = []
        for last in steps:
            begun = time.perf_counter()
            await store.update(session.id, lambda now, step=last: now.with_step(*step, USAGE))  # type: ignore[misc]  # an answer and its results
            taken.append((time.perf_counter() - begun) * 1000)
        return statistics.median(taken)

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
    """Row 10: a session of 1,000 messages, as it is used, against its rows."""
    store, random = opened(bench.folder), Random(4)

    def fill(session: Session) -> Session:
        session = session.with_user("Go.")
        for number in range(500):
            session = _step(session, number, random)
        return session

    large = await store.update((await store.create("w")).id, fill)
    await store.aclose()
    path = bench.folder / "state" / "sessions" / "sessions.db"

    async def load() -> float:
        store = opened(bench.folder)
        await store.list("w")
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


async def large(bench: Bench) -> list[Figure]:
    """For information: the whole store, the list of it, a resume, a step."""
    identity = await filled(bench.folder)
    listed, resumed, appended = [], [], []
    for number in range(bench.some(5)):
        store = opened(bench.folder)
        begun = time.perf_counter()
        found = await store.list("w")
        listed.append((time.perf_counter() - begun) * 1000)
        assert len(found) == 200
        begun = time.perf_counter()
        session = await store.get(identity, "w")
        resumed.append((time.perf_counter() - begun) * 1000)
        last = _step(Session(identity, "w"), STEPS + number, Random(number)).conversation
        begun = time.perf_counter()
        await store.update(identity, lambda now, step=last: now.with_step(*step, USAGE))  # type: ignore[misc]  # an answer and its results
        appended.append((time.perf_counter() - begun) * 1000)
        assert len(session.conversation) > 10_000
        await store.aclose()
    return [
        Figure("store", "list of 200 sessions, one of 50 MB", "ms", listed),
        Figure("store", "resume of 10,000 messages, 50 MB", "ms", resumed),
        Figure("store", "first append after that", "ms", appended),
    ]


def opened(folder: Path) -> SqliteStore:
    """The store below a folder."""
    return SqliteStore(str(folder / "state"), vault=NoVault)


async def filled(folder: Path, workspace: str = "w", *, sessions: int = 200, steps: int = STEPS) -> str:
    """The id of the large session among so many."""
    store, random = opened(folder), Random(1)
    for _ in range(sessions - 1):
        await store.update((await store.create(workspace)).id, full_session)

    def fill(session: Session) -> Session:
        session = session.with_user("Go.")
        for number in range(steps):
            session = _step(session, number, random)
        return session

    large = await store.update((await store.create(workspace)).id, fill)
    summary = next(summary for summary in await store.list(workspace) if summary.id == large.id)
    assert summary.size > 9_000 * steps, summary
    await store.aclose()
    return large.id


def _step(session: Session, number: int, random: Random, size: int = BYTES) -> Session:
    """Half of it is the result of a tool; a quarter an answer, which stands in neutral and in sealed form."""
    words = "".join(random.choices("abcdef ghij klmn opqr\n", k=size // 4))
    signature = random.randbytes(400).hex()
    blocks = (
        ThinkingBlock("", OpaqueState(f'{{"type": "thinking", "signature": "{signature}"}}', ORIGIN)),
        TextBlock(words[: size // 8], OpaqueState(words[: size // 8], ORIGIN)),
        ToolUseBlock(f"c{number}", "read_file", {"path": "a.py"}, OpaqueState(words[: size // 8], ORIGIN)),
    )
    results = UserMessage((ToolResultBlock(f"c{number}", words + words),))
    return session.with_step(AssistantMessage(blocks, "tool_use"), results, USAGE)
