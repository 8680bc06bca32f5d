"""Sessions and what they have used in words, as Markdown that nothing breaks; and who may change them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest

from tests.settings.test_sources import NO_FILE
from thinklsp.core.errors import SessionError
from thinklsp.core.usage import Usage
from thinklsp.engine import Engine
from thinklsp.engine.session_commands import (
    SessionCommands,
    SessionScope,
    build_usage_report,
    format_sessions,
    format_usage,
)
from thinklsp.sessions.session import Session
from thinklsp.sessions.spending import CallUsage
from thinklsp.sessions.sqlite_store import MemoryStore

PRICED = Usage(1000, 100, 50, 800, 100, 0.25)
UNPRICED = Usage(10, 5)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    async with aclosing(MemoryStore()) as made:
        yield made


async def test_usage_in_words(store: MemoryStore) -> None:
    session = await store.create("w")
    assert format_usage(await build_usage_report(store, session.id)).startswith(
        "This session has not called a model yet."
    )
    await store.update(
        session.id, lambda now: now.add_user_message("Hello."), CallUsage("t1", "anthropic", "dear", PRICED)
    )
    await store.record_usage(session.id, CallUsage("t2", "openai-compatible", "own|model", UNPRICED))
    told = format_usage(await build_usage_report(store, session.id))
    for line in (
        "| all | 1,010 | 800 (79%) | 105 | 50 | $0.2500 |",
        "| turn 1 | 1,000 | 800 (80%) | 100 | 50 | $0.2500 |",
        "| turn 2 | 10 | – | 5 | – | unknown |",
        "| own\\|model | 10 | – | 5 | – | unknown |",
        "Costs exclude calls to models with an unknown price: own|model.",
        "All sessions today: 1,010 tokens in, 105 out, cost $0.2500.",
    ):
        assert line in told.splitlines()


async def test_the_list_in_words(store: MemoryStore) -> None:
    busy = await store.create("w")
    await store.update(busy.id, lambda now: now.add_user_message("A | title"))
    other = await store.create("elsewhere")
    await store.update(other.id, lambda now: now.add_user_message("Not here"))
    engine = Engine(NO_FILE, store)
    engine.claims.claim(busy.id, "turn")
    commands = SessionCommands(store, SessionScope("w"), engine)
    row = format_sessions(await commands.list()).splitlines()[-1]
    assert row.startswith(f"| `{busy.id}` | A \\| title (a turn is running) | – | 0 | unknown |")
    assert format_sessions([]) == "There are no sessions yet."


class Watched(MemoryStore):
    """Has `look` called in the middle of every change."""

    look: Callable[[], None]

    async def get(self, session_id: str, workspace: str | None = None) -> Session:
        self.look()
        return await super().get(session_id, workspace)

    async def delete(self, session_id: str, workspace: str | None = None) -> None:
        self.look()
        await super().delete(session_id, workspace)


@pytest.mark.parametrize("op", ["repair", "delete"])
async def test_no_turn_begins_in_a_session_that_is_being_changed(op: str) -> None:
    store = Watched()
    session = await store.create("w")
    await store.update(session.id, lambda now: now.add_user_message("Hello."))
    engine = Engine(NO_FILE, store)
    change = getattr(SessionCommands(store, SessionScope("w"), engine), op)
    free = engine.claims.claim(session.id, "turn")
    with pytest.raises(SessionError, match="A turn is running in this session"):
        await change(session.id)
    free()
    refused: list[str] = []

    def look() -> None:
        with pytest.raises(SessionError, match="busy") as error:
            engine.claims.claim(session.id, "turn")
        refused.append(str(error.value))

    store.look = look
    await change(session.id)
    assert len(refused) == 1
    assert not engine.claims.is_busy(session.id)
    await engine.aclose()
