"""What a service has refused is known to the next process: one refused request in all, whatever restarts between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.agent.test_remedies import GOOD, NO_BUDGET, NO_EFFORT, SCENARIO, asked_for, sent, turn_of
from tests.engine.test_engine import run, spec
from tests.settings.test_sources import NO_FILE
from tests.support.services import Service
from tests.support.sse_server import SseServer
from tests.support.stored_sessions import NoVault
from thinklsp.agent.remedies import BARE, DROPPING, NEVER
from thinklsp.core.events import Notice
from thinklsp.engine import Engine
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.settings import EditorSettings
from thinklsp.simulator.server import Simulator


@asynccontextmanager
async def restarted(state: Path, **hosts: str) -> AsyncIterator[Engine]:
    """An engine that knows what is on disk."""
    key = {"ANTHROPIC_API_KEY": "sk-ant-canary-0123456789"}
    engine = Engine(NO_FILE | key | hosts, SqliteStore(str(state), vault=NoVault))
    try:
        yield engine
    finally:
        await engine.aclose()


async def test_a_conversation_whose_thinking_no_longer_fits(tmp_path: Path) -> None:
    async with Simulator(SCENARIO) as simulator:
        host = {"ANTHROPIC_BASE_URL": simulator.base_url}
        said = []
        session = None
        for system in (None, "Other.", "Other.", "Once more."):
            async with restarted(tmp_path, **host) as engine:
                turn = await turn_of(engine, session, system=system)
                session = turn.session.id
                said += turn.said
        async with restarted(tmp_path, **host) as engine:
            fork = await engine.store.fork(session or "", "w")
            await engine.store.release(fork.id)
        async with restarted(tmp_path, **host) as engine:
            said += (await turn_of(engine, fork.id, system="A fork.")).said
        assert said == [DROPPING]
        assert [request.status for request in simulator.requests].count(400) == 1
        assert [sent(request).drops for request in simulator.requests[4:]] == [True] * 12


async def test_thinking_that_nobody_knows_any_more(tmp_path: Path) -> None:
    async with Simulator(SCENARIO) as simulator:
        async with restarted(tmp_path, ANTHROPIC_BASE_URL=simulator.base_url) as engine:
            session = (await turn_of(engine, None)).session.id
        port = int(simulator.base_url.rpartition(":")[2])
    said = []
    async with Simulator(SCENARIO, port) as simulator:
        for _ in range(3):
            async with restarted(tmp_path, ANTHROPIC_BASE_URL=simulator.base_url) as engine:
                said += (await turn_of(engine, session)).said
        assert said == [BARE]
        assert [request.status for request in simulator.requests] == [400] + [200] * 9
        # What was thought since goes back.
        assert len(sent(simulator.requests[-1]).signatures) == 8


async def test_a_gateway_that_takes_no_thinking_back(tmp_path: Path) -> None:
    service, said = Service(), []
    wish = {"provider": "openai-compatible", "model": "strict-1"}
    known: dict[str, str] = {}
    async with service:
        for number in range(3):
            async with restarted(tmp_path, **service.environment()) as engine:
                # The last session is a new one: it holds for the model.
                if number == 2:
                    known = {}
                turn = await engine.begin(spec(f"Go on, {number}.", **known), EditorSettings(), wish)
                said += [event.text for event in await run(turn) if isinstance(event, Notice)]
                known = {"session_id": turn.session.id}
        assert said == [NEVER]
        assert [request.status for request in service.requests].count(200) == len(service.requests) - 1
        assert service.violations == []


async def test_a_form_of_thinking_and_a_level_of_effort(tmp_path: Path) -> None:
    """Another model is asked anew, and so is another service."""
    async with SseServer([NO_BUDGET, NO_EFFORT, GOOD]) as server, SseServer([NO_BUDGET, GOOD]) as other:
        wish = {"model": "claude-sonnet-4-6", "thinking.mode": "manual", "effort": "high"}
        for url in (server.url, server.url, server.url, other.url):
            async with restarted(tmp_path, ANTHROPIC_BASE_URL=url) as engine:
                turn = await engine.begin(spec("Hello."), EditorSettings(), wish)
                await run(turn)
                turn = await engine.begin(spec("Hello again."), EditorSettings(), wish)
                with turn:
                    turn.config = replace(turn.config, model=replace(turn.config.model, id="claude-else"))
                    async with aclosing(turn.events(_nobody, _nobody)) as events:
                        async for _ in events:
                            pass
        learning, known, else_ = (
            [("enabled", "high"), ("adaptive", "high")],
            ("adaptive", "medium"),
            ("enabled", "high"),
        )
        assert asked_for(server) == [*learning, known, else_, known, else_, known, else_]
        assert asked_for(other) == [*learning, else_]


async def test_a_model_whose_service_does_not_shorten_conversations(tmp_path: Path) -> None:
    """In a session of its own every time: it holds for the model."""
    config = tmp_path / "config.toml"
    config.write_text('[models.openai."gpt-5.1"]\ncompacts = true\ncontext_window = 100_000\n')
    config.chmod(0o600)
    wish = {"provider": "openai", "model": "gpt-5.1", "compaction.by": "provider"}
    said = []
    async with Service() as service:
        for _ in range(3):
            async with restarted(tmp_path, THINKLSP_CONFIG=str(config), **service.environment()) as engine:
                turn = await engine.begin(spec("Hello."), EditorSettings(), wish)
                said += [event.text for event in await run(turn) if isinstance(event, Notice)]
        asked = ["context_management" in request.body for request in service.requests]
        assert [request.status for request in service.requests].count(400) == 1
    assert said == ["The service does not shorten conversations with gpt-5.1; thinklsp does it when it is due."]
    assert asked == [True] + [False] * (len(asked) - 1)


async def _nobody(*_: object) -> None:
    raise AssertionError("nobody is asked")
