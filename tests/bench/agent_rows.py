"""Row "agent": the agent of the Agent Client Protocol, compared with the language server of the same checkout."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.latency_rows import chat, served, talking
from tests.bench.lockstep import AgentLockstep, Lockstep
from tests.bench.measure import Bench, Figure, compared, compared_memory, in_turn
from tests.bench.source import MODEL
from tests.bench.store_rows import opened
from tests.support.stored_sessions import USAGE
from thinklsp.core.messages import AssistantMessage, TextBlock
from thinklsp.sessions.session import Session
from thinklsp.workspace.paths import compute_workspace_key

AGENT, SERVER = "thinklsp acp", "thinklsp --stdio"
TURNS = 5_000
_EVENTS = 100


async def initialize(bench: Bench) -> list[Figure]:
    """Time and memory of the same starts, at the answer to `initialize`."""
    memory: dict[str, list[float]] = {}
    starts = {AGENT: ("acp", AgentLockstep), SERVER: ("--stdio", Lockstep)}

    def start(name: str, argument: str, client: type[Lockstep]) -> Callable[[], float]:
        def measure() -> float:
            with client([*bench.peers.ours(), argument], bench.folder / argument) as server:
                server.initialize()
                taken = server.elapsed
                memory.setdefault(name, []).append(server.resident)
            return taken

        return measure

    values, missing = await in_turn({name: start(name, *how) for name, how in starts.items()}, bench.rounds)
    figures = compared("agent", "agent: spawn → initialize", values, missing, {SERVER: 3.0}, ours=AGENT)
    return [*figures, compared_memory("agent", "agent: memory at initialize", memory, SERVER, own=AGENT, most=1.2)]


async def first_turn(bench: Bench) -> list[Figure]:
    """Time and memory of the same starts, at the end of the first turn."""
    memory: dict[str, list[float]] = {}
    with talking(_EVENTS, 1e9) as url:

        def run_agent() -> float:
            with _start_agent(bench.folder / "agent", url) as agent:
                agent.prompt(agent.new_session())
                taken = agent.elapsed
                memory.setdefault(AGENT, []).append(agent.resident)
            return taken

        def run_server() -> float:
            with served(bench.folder / "server", url) as server:
                server.ask(chat(10))
                taken = server.elapsed
                memory.setdefault(SERVER, []).append(server.resident)
            return taken

        values, missing = await in_turn({AGENT: run_agent, SERVER: run_server}, bench.rounds)
    figures = compared("agent", "agent: spawn → end of the first turn", values, missing, {SERVER: None}, ours=AGENT)
    return [*figures, compared_memory("agent", "agent: memory after a turn", memory, SERVER, own=AGENT, most=1.2)]


def _start_agent(folder: Path, url: str) -> AgentLockstep:
    given = {"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": url, "THINKLSP_MODEL": MODEL}
    agent = AgentLockstep([sys.executable, "-m", "thinklsp", "acp"], folder, **given)
    agent.initialize()
    return agent


async def replay(bench: Bench) -> list[Figure]:
    """The time from `session/load` to its answer, for a session of 10,000 updates and 5 MB."""
    turns = TURNS // 10 if bench.quick else TURNS
    folder = bench.folder
    session_id = await _store_session(folder, turns)
    taken: list[float] = []
    for _ in range(bench.some(5)):
        with _start_agent(folder, "http://127.0.0.1:1") as agent:
            agent.new_session()
            params = {"sessionId": session_id, "cwd": str(folder), "mcpServers": []}
            before, begun = len(agent.passed), time.perf_counter()
            agent.ask({"id": agent.next_id(), "method": "session/load", "params": params})
            taken.append((time.perf_counter() - begun) * 1000)
            assert len(agent.passed) - before >= 2 * turns
    return [Figure("agent", f"agent: replay of {2 * turns:,} updates", "ms", taken, value=max(taken), value_unit=" ms",
                   most=5_000.0)]  # fmt: skip


async def _store_session(folder: Path, turns: int) -> str:
    """Store a session with short prompts and answers in the workspace of the folder, and return its id."""
    store = opened(folder)
    created = await store.create(compute_workspace_key(folder.as_uri()))

    def fill(session: Session) -> Session:
        for number in range(turns):
            session = session.add_user_message(f"prompt {number}", prompt=None)
            session = session.add_step(AssistantMessage((TextBlock(f"{number}" * 200),)), None, USAGE)
        return session

    await store.update(created.id, fill)
    await store.aclose()
    return created.id
