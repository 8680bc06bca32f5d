"""Figures of the session store: a session of 10,000 messages and 50 MB among 200 others."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

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
from thinklsp.sessions.store import SqliteStore

STEPS = 5000
BYTES = 10_000


async def list_sessions(folder: Path, rounds: int) -> list[float]:
    large = await filled(folder)
    store = opened(folder)
    values = []
    for _ in range(rounds):
        begun = time.perf_counter()
        found = await store.list("w")
        values.append((time.perf_counter() - begun) * 1000)
    assert len(found) == 200
    assert large in {summary.id for summary in found}
    await store.aclose()
    return values


async def resume(folder: Path, rounds: int) -> list[float]:
    """By a process that has just been started, without the start."""
    large = await filled(folder)
    values = []
    for _ in range(rounds):
        store = opened(folder)
        await store.list("w")
        begun = time.perf_counter()
        session = await store.get(large, "w")
        values.append((time.perf_counter() - begun) * 1000)
        assert len(session.conversation) > 10_000
        await store.aclose()
    return values


async def append(folder: Path, rounds: int) -> list[float]:
    """A step of 10 KB, committed to the disk."""
    large = await filled(folder)
    store, random = opened(folder), Random(2)
    session = await store.update(large, lambda session: session)
    values = []
    for number in range(rounds * 10):
        last = _step(Session(large, "w"), STEPS + number, random).conversation
        begun = time.perf_counter()
        session = await store.update(large, lambda now, step=last: now.with_step(*step, USAGE))  # type: ignore[misc]  # an answer and its results
        values.append((time.perf_counter() - begun) * 1000)
    assert session.steps == STEPS + rounds * 10
    await store.aclose()
    return values


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


def _step(session: Session, number: int, random: Random) -> Session:
    """Half of it is the result of a tool; a quarter an answer, which stands in neutral and in sealed form."""
    words = "".join(random.choices("abcdef ghij klmn opqr\n", k=BYTES // 4))
    signature = random.randbytes(400).hex()
    blocks = (
        ThinkingBlock("", OpaqueState(f'{{"type": "thinking", "signature": "{signature}"}}', ORIGIN)),
        TextBlock(words[: BYTES // 8], OpaqueState(words[: BYTES // 8], ORIGIN)),
        ToolUseBlock(f"c{number}", "read_file", {"path": "a.py"}, OpaqueState(words[: BYTES // 8], ORIGIN)),
    )
    results = UserMessage((ToolResultBlock(f"c{number}", words + words),))
    return session.with_step(AssistantMessage(blocks, "tool_use"), results, USAGE)
