"""Sessions in words, the answers to slash commands, and who may change a session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest

from tests.settings.test_sources import NO_FILE
from tests.support.scripted_model import says
from tests.support.stored_sessions import full_session
from thinklsp.agent.prompts import Excerpt, build_chat_prompt, list_excerpts
from thinklsp.core.errors import SessionError
from thinklsp.core.messages import TextBlock, UserMessage
from thinklsp.core.prompt_syntax import parse_slash_commands
from thinklsp.core.usage import Usage
from thinklsp.engine import Engine
from thinklsp.engine.results import FileStatus
from thinklsp.engine.session_commands import (
    SessionCommands,
    answer_slash_command,
    build_usage_report,
    format_sessions,
    format_undo,
    format_usage,
    show_user_words,
)
from thinklsp.engine.turn_config import Preferences
from thinklsp.engine.workspace_sessions import WorkspaceSessions
from thinklsp.sessions.session import INTERRUPTED, Session
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
    await store.update(session.id, lambda now: now, CallUsage("t2", "openai-compatible", "own|model", UNPRICED))
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


async def test_the_cost_of_a_free_model_is_not_mentioned(store: MemoryStore) -> None:
    session = await store.create("w")
    await store.update(session.id, lambda now: now, CallUsage("t1", "simulator", "m", Usage(10, 5, cost_usd=0.0)))
    told = format_usage(await build_usage_report(store, session.id)).splitlines()
    assert "| turn 1 | 10 | – | 5 | – | – |" in told
    assert told[-1] == "All sessions today: 10 tokens in, 5 out."
    assert not any("exclude" in line for line in told)


async def test_the_list_in_words(store: MemoryStore) -> None:
    busy = await store.create("w")
    await store.update(busy.id, lambda now: now.add_user_message("A | title"))
    other = await store.create("elsewhere")
    await store.update(other.id, lambda now: now.add_user_message("Not here"))
    engine = Engine(NO_FILE, store)
    engine.claims.claim(busy.id, "turn")
    commands = SessionCommands(store, "w", engine)
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
    change = getattr(SessionCommands(store, "w", engine), op)
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


_EXCERPTS = (Excerpt("src/a.py", 3, 4, "x\ny", 9), Excerpt("b.py", 1, 1, "z", 1))
_INSTRUCTIONS = """<project_instructions>
<instructions file=AGENTS.md digest="0123456789abcdef">
Be brief.
</instructions>
</project_instructions>"""


def test_an_old_session_is_shown_without_scaffolding() -> None:
    prompt = f"{build_chat_prompt('Fix it', _EXCERPTS, 'ask')}\n\n{_INSTRUCTIONS}"
    message = UserMessage((TextBlock(INTERRUPTED), TextBlock(prompt)))
    session = Session("s", "w", conversation=(message,)).add_step(says("Done.").message, None, Usage())
    [shown] = show_user_words(session).conversation[0].blocks
    assert shown == TextBlock("Fix it")


def test_the_excerpts_of_a_prompt_are_listed() -> None:
    assert list_excerpts(build_chat_prompt("Fix a.py, lines 1-2 of 3:", _EXCERPTS, "agent")) == ["src/a.py:3-4", "b.py"]
    assert list_excerpts("No <excerpt> here.") == []


class Workspace:
    """The front end's part: the key of its workspace, which can change, and the answers for a session of it."""

    def __init__(self, engine: Engine) -> None:
        self.key = "w"
        self.engine = engine
        self.sessions = WorkspaceSessions(engine, self.read_key, Preferences())

    def read_key(self) -> str:
        return self.key

    async def ask(self, line: str, session_id: str) -> str:
        [invocation] = parse_slash_commands(line).invocations
        return await answer_slash_command(self.sessions, invocation, session_id)


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    async with aclosing(Engine(NO_FILE | {"ANTHROPIC_API_KEY": "sk-ant-canary-0123456789"})) as engine:
        yield Workspace(engine)


async def test_sessions_are_those_of_the_workspace(workspace: Workspace) -> None:
    session = await workspace.engine.store.update((await workspace.sessions.create()).id, full_session)
    assert (await workspace.ask("/usage", session.id)).startswith("This session has not called a model yet.")
    assert session.id in await workspace.ask("/sessions", session.id)
    with pytest.raises(SessionError, match="archive"):
        await workspace.ask("/restore", session.id)
    workspace.key = "another"
    assert session.id not in await workspace.ask("/sessions", session.id)
    for line in ("/effort high", "/restore `a`"):
        with pytest.raises(SessionError):
            await workspace.ask(line, session.id)


def test_an_undo_says_what_happened_to_each_file() -> None:
    files = [
        FileStatus("file:///w/a.py", "applied"),
        FileStatus("file:///w/b.py", "conflict", "it was deleted"),
        FileStatus("file:///w/c.py", "refused"),
    ]
    assert format_undo(files).splitlines() == [
        "- a.py was restored to its state before the turn.",
        "- b.py was not changed: it was deleted.",
        "- c.py was not changed: refused.",
    ]
