"""Sessions and what they have used as Markdown, for chat documents: nothing breaks the table."""

from __future__ import annotations

from thinklsp.core.usage import Usage
from thinklsp.engine.sessions import Reach, SessionCommands, sessions_told
from thinklsp.engine.usage import usage_report, usage_told
from thinklsp.sessions.store import MemoryStore
from thinklsp.sessions.values import Spent

PRICED = Usage(1000, 100, 50, 800, 100, 0.25)
UNPRICED = Usage(10, 5)


async def test_usage_in_words() -> None:
    store = MemoryStore()
    session = await store.create("w")
    assert usage_told(await usage_report(store, session.id)).startswith("This session has used nothing yet.")
    await store.update(session.id, lambda now: now.with_user("Hello."), Spent("t1", "anthropic", "dear", PRICED))
    await store.record(session.id, Spent("t2", "openai-compatible", "own|model", UNPRICED))
    told = usage_told(await usage_report(store, session.id))
    for line in (
        "| all | 1,010 | 800 (79%) | 105 | 50 | $0.2500 |",
        "| turn 1 | 1,000 | 800 (80%) | 100 | 50 | $0.2500 |",
        "| turn 2 | 10 | – | 5 | – | unknown |",
        "| own\\|model | 10 | – | 5 | – | unknown |",
        "The price of own|model is not known; its calls are in no cost.",
        "All sessions today: 1,010 tokens in, 105 out, cost $0.2500.",
    ):
        assert line in told.splitlines()


async def test_the_list_in_words() -> None:
    store = MemoryStore()
    busy = await store.create("w")
    await store.update(busy.id, lambda now: now.with_user("A | title"))
    other = await store.create("elsewhere")
    await store.update(other.id, lambda now: now.with_user("Not here"))
    commands = SessionCommands(store, Reach("w"), lambda session_id: session_id == busy.id)
    row = sessions_told(await commands.list()).splitlines()[-1]
    assert row.startswith(f"| `{busy.id}` | A \\| title (a turn is running) | – | 0 | unknown |")
    assert sessions_told([]) == "There is no session here yet."
