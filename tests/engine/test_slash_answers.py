"""The answers to slash commands, which need nothing but an engine and the sessions of a workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from tests.settings.test_sources import NO_FILE
from tests.support.stored_sessions import full_session
from thinklsp.core.errors import SessionError, SettingsError
from thinklsp.core.prompt_syntax import SLASH_COMMANDS, parse_slash_commands
from thinklsp.engine import Engine
from thinklsp.engine.results import FileStatus
from thinklsp.engine.session_commands import SlashAnswers, format_undo
from thinklsp.engine.turn_config import Preferences
from thinklsp.engine.workspace_sessions import WorkspaceSessions


class Workspace:
    """The front end's part: the key of its workspace, which can change, and the answers for a session of it."""

    def __init__(self, engine: Engine) -> None:
        self.key = "w"
        self.engine = engine
        self.sessions = WorkspaceSessions(engine, self.read_key, Preferences())
        self.answers = SlashAnswers(self.sessions, engine, self.read_key)

    def read_key(self) -> str:
        return self.key

    async def ask(self, line: str, session_id: str) -> str:
        [invocation] = parse_slash_commands(line).invocations
        return await self.answers.answer(invocation, session_id)


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    async with aclosing(Engine(NO_FILE | {"ANTHROPIC_API_KEY": "sk-ant-canary-0123456789"})) as engine:
        yield Workspace(engine)


async def test_a_choice_belongs_to_its_session(workspace: Workspace) -> None:
    first, second = await workspace.sessions.create(), await workspace.sessions.create()
    assert (await workspace.ask("/effort high", first.id)).startswith("Effort: high.")
    assert (await workspace.ask("/effort", first.id)).startswith("Effort: high. Choices: ")
    assert not (await workspace.ask("/effort", second.id)).startswith("Effort: high.")
    assert (await workspace.ask("/think  off", first.id)).startswith("Thinking: off (adaptive is used).")
    with pytest.raises(SettingsError):
        await workspace.ask("/effort enormous", first.id)


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


async def test_help_lists_every_command(workspace: Workspace) -> None:
    lines = (await workspace.ask("/help", "no session")).splitlines()
    assert lines == [f"- `{command.usage}`: {command.description}" for command in SLASH_COMMANDS]


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
