"""A turn whose session another process has taken over: it stops at once, and records nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from tests.engine.test_engine import KEY, PLAIN, run, spec
from tests.settings.test_sources import NO_FILE
from tests.support.postgres_server import PostgresServer
from tests.support.scripted_model import ScriptedModel, connect_to, says
from tests.support.watching import seen
from thinklsp.agent.model_call import CallEvent, CallFinished
from thinklsp.core.errors import SessionError
from thinklsp.engine import Engine, Turn
from thinklsp.providers.base import ModelRequest
from thinklsp.sessions.postgres import PostgresStore


class SilentModel(ScriptedModel):
    """A model whose answer never comes."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        self.requests.append(request)
        await asyncio.Event().wait()
        yield CallFinished(says().message, says().usage, "")


def ask_silent_model(turn: Turn) -> SilentModel:
    model = SilentModel(())

    async def connect(_known: object) -> SilentModel:
        return model

    connect_to(turn, connect)
    return model


async def test_a_turn_stops_when_another_process_takes_its_session(postgres: PostgresServer) -> None:
    identity = postgres.create_identity()
    store = PostgresStore(lambda: postgres.url, identity, lease_seconds=0.3)
    other = postgres.create_store(identity)
    async with aclosing(Engine(NO_FILE | {"ANTHROPIC_API_KEY": KEY}, store)) as engine, aclosing(other):
        turn = await engine.start_turn(spec(), PLAIN, {})
        model = ask_silent_model(turn)
        running = asyncio.create_task(run(turn))
        await seen(lambda: model.requests, within=60)
        # Another process gets the lease, as if this one had been stopped meanwhile.
        postgres.execute(
            "UPDATE lease SET holder = 'another', fence = fence + 1, until = now() + interval '1 h' WHERE session = %s",
            turn.session.id,
        )
        with pytest.raises(SessionError, match="another thinklsp has taken over its session"):
            await asyncio.wait_for(running, 60)
        left = await other.get(turn.session.id, None)
        assert (left.steps, len(left.conversation)) == (0, 1)
        with pytest.raises(SessionError, match="in use by another thinklsp"):
            await run(await engine.start_turn(spec(session_id=turn.session.id), PLAIN, {}))


async def test_a_cancelled_turn_stays_cancelled(postgres: PostgresServer) -> None:
    store = postgres.create_store(postgres.create_identity())
    async with aclosing(Engine(NO_FILE | {"ANTHROPIC_API_KEY": KEY}, store)) as engine:
        turn = await engine.start_turn(spec(), PLAIN, {})
        model = ask_silent_model(turn)
        running = asyncio.create_task(run(turn))
        await seen(lambda: model.requests, within=60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        [prompt] = (await engine.store.get(turn.session.id, None)).prompts
        assert prompt.outcome == "cancelled"
