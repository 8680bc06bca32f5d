"""What a service has refused is known to the next process: one refused request in all, whatever restarts between."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from tests.agent.test_remedies import GOOD, NO_BUDGET, NO_EFFORT, form_and_effort, sent
from tests.engine.test_engine import run, spec
from tests.engine.test_known_incidents import LOOPS
from tests.settings.test_sources import NO_FILE
from tests.stand_ins.http_server import Simulator
from tests.support.hosts import SseServer
from tests.support.scripted_model import run_to_end
from tests.support.services import Service
from thinklsp.agent.request_fallbacks import DROP_NOTICE
from thinklsp.core.events import Notice
from thinklsp.engine import Engine
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.settings.sources import EditorSettings


def restarted(state: Path, **hosts: str) -> aclosing[Engine]:
    """An engine that knows what is on disk."""
    key = {"ANTHROPIC_API_KEY": "sk-ant-canary-0123456789"}
    return aclosing(Engine(NO_FILE | key | hosts, SqliteStore(str(state))))


async def test_a_conversation_whose_thinking_no_longer_fits(tmp_path: Path) -> None:
    said: list[str] = []

    async def play(engine: Engine, session: str | None, system: str | None) -> str:
        turn = await engine.start_turn(spec(session_id=session), EditorSettings(), {"model": "claude-opus-5-5"})
        if system is not None:
            turn.config = replace(turn.config, system=system)
        assert (await run_to_end(turn)).text == "Seen."
        said.extend(turn.output.notices)
        return turn.session.id

    async with Simulator(LOOPS) as simulator:
        host = {"ANTHROPIC_BASE_URL": simulator.base_url}
        session = None
        for system in (None, "Other.", "Other.", "Once more."):
            async with restarted(tmp_path, **host) as engine:
                session = await play(engine, session, system)
        async with restarted(tmp_path, **host) as engine:
            fork = await engine.store.fork(session or "", "w")
            await engine.store.release(fork.id)
        async with restarted(tmp_path, **host) as engine:
            await play(engine, fork.id, "A fork.")
        assert said == [DROP_NOTICE]
        assert [request.status for request in simulator.requests].count(400) == 1
        assert [sent(request).drops for request in simulator.requests[4:]] == [True] * 12


async def test_a_form_of_thinking_and_a_level_of_effort(tmp_path: Path) -> None:
    """Another model is asked anew, and so is another service."""
    async with SseServer([NO_BUDGET, NO_EFFORT, GOOD]) as server, SseServer([NO_BUDGET, GOOD]) as other:
        wish = {"model": "claude-sonnet-4-6", "thinking.mode": "manual", "effort": "high"}
        for url in (server.url, server.url, server.url, other.url):
            async with restarted(tmp_path, ANTHROPIC_BASE_URL=url) as engine:
                turn = await engine.start_turn(spec("Hello."), EditorSettings(), wish)
                await run(turn)
                turn = await engine.start_turn(spec("Hello again."), EditorSettings(), wish)
                turn.config = replace(turn.config, model=replace(turn.config.model, id="claude-else"))
                await run_to_end(turn)
        known, else_ = ("adaptive", "medium"), ("enabled", "high")
        learning = [else_, ("adaptive", "high")]
        assert list(map(form_and_effort, server.received)) == [*learning, known, else_, known, else_, known, else_]
        assert list(map(form_and_effort, other.received)) == [*learning, else_]


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
                turn = await engine.start_turn(spec("Hello."), EditorSettings(), wish)
                said += [event.text for event in await run(turn) if isinstance(event, Notice)]
        asked = ["context_management" in request.body for request in service.requests]
        assert [request.status for request in service.requests].count(400) == 1
    assert said == ["The provider does not compact conversations with gpt-5.1; thinklsp compacts them instead."]
    assert asked == [True] + [False] * (len(asked) - 1)
