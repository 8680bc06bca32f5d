"""The Python SDK's client drives the agent: a prompt with tools, an edit, a cancel, a session that is loaded."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.helpers import resource_link_block
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    Implementation,
    ReadTextFileResponse,
    RequestPermissionResponse,
    ToolCallProgress,
    ToolCallStart,
    UserMessageChunk,
    WriteTextFileResponse,
)

from tests.acp.talk import ARGV
from tests.e2e.acting import edit_file, read_file, say
from tests.support.outside import MODEL, ROOT
from tests.support.signing_server import Hold, SigningServer, Text, Thinking, answer
from tests.support.watching import Watched

KEY = "sk-ant-canary-Zq8wLr2vTn5xKc9pBd4fMh7jXe"
DONE = say("Done.")
Json = Any


class Editor(Watched):
    """A client on the disk. `option`: what is chosen when permission is asked; None: cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: list[tuple[str, Any]] = []
        self.questions: list[Any] = []
        self.option: str | None = "allow_once"

    def of(self, kind: type) -> list[Any]:
        return [update for _, update in self.updates if isinstance(update, kind)]

    def text(self, kind: type = AgentMessageChunk) -> str:
        return "".join(update.content.text for update in self.of(kind))

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))
        self.changed()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.questions.append((tool_call, options))
        self.changed()
        if self.option is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.option))

    async def read_text_file(self, session_id: str, path: str, line: Any = None, limit: Any = None, **_: Any) -> Any:
        return ReadTextFileResponse(content=await asyncio.to_thread(Path(path).read_text))

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> Any:
        await asyncio.to_thread(Path(path).write_text, content)
        return WriteTextFileResponse()


class Seat:
    """An agent that the SDK has started, in a workspace of its own."""

    def __init__(self, place: Path, provider: SigningServer) -> None:
        self.root, self.home = place / "work", place / "home"
        self.root.mkdir(parents=True)
        self.home.mkdir(mode=0o700)
        self.provider = provider
        self.editor = Editor()
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        folders = {"HOME": self.home, "XDG_CONFIG_HOME": self.home, "THINKLSP_STATE_DIR": self.home / "state"}
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "THINKLSP_MODEL": MODEL}
        env |= {name: str(path) for name, path in folders.items()} | self.provider.environment()
        env["THINKLSP_THINKING_DISPLAY"] = "summary"
        (self.home / "state").mkdir(mode=0o700, exist_ok=True)
        spawned = spawn_agent_process(
            self.editor, *ARGV, env=env, cwd=self.root, use_unstable_protocol=True,
            transport_kwargs={"limit": 1 << 23},
        )  # fmt: skip
        self.agent, self.process = await self._stack.enter_async_context(spawned)
        files = FileSystemCapabilities(read_text_file=True, write_text_file=True)
        self.initialized = await self.agent.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(fs=files),
            client_info=Implementation(name="python-sdk", version="1"),
        )

    async def new(self) -> str:
        session = await self.agent.new_session(cwd=str(self.root), mcp_servers=[])
        return str(session.session_id)

    async def prompt(self, session: str, *blocks: Any) -> str:
        answered = await self.agent.prompt(session_id=session, prompt=[*blocks])
        return str(answered.stop_reason)

    async def stop(self) -> None:
        """Close the agent's input, as the SDK does at the end."""
        await self._stack.aclose()
        assert self.process.returncode == 0


Begin = Callable[..., Awaitable[Seat]]


@pytest.fixture
async def begin(tmp_path: Path) -> AsyncIterator[Begin]:
    async with AsyncExitStack() as stack:

        async def begin(*script: Any, **files: str) -> Seat:
            provider = await stack.enter_async_context(SigningServer(KEY, *script))
            seat = Seat(tmp_path, provider)
            for name, text in files.items():
                (seat.root / f"{name}.py").write_text(text)
            stack.push_async_callback(seat.stop)
            await seat.start()
            stack.callback(lambda: _check(provider))
            return seat

        yield begin


def _check(provider: SigningServer) -> None:
    assert provider.violations == []


async def test_prompt_with_tools(begin: Begin) -> None:
    script = answer(Thinking("I look."), read_file("a.py")), answer(Text("It is 1."))
    seat = await begin(*script, a="x = 1\n")
    assert seat.initialized.agent_info.name == "thinklsp"
    assert seat.initialized.agent_capabilities.load_session
    session = await seat.new()
    link = resource_link_block(name="a.py", uri=(seat.root / "a.py").as_uri())
    assert await seat.prompt(session, text_block("What is x?"), link) == "end_turn"
    assert seat.editor.text() == "It is 1."
    assert seat.editor.text(AgentThoughtChunk) == "I look."
    [call] = seat.editor.of(ToolCallStart)
    assert (call.kind, call.status) == ("read", "pending")
    assert [u.status for u in seat.editor.of(ToolCallProgress) if u.status][-1] == "completed"


@pytest.mark.parametrize(("option", "text"), [("allow_once", "x = 2\n"), ("reject_once", "x = 1\n")])
async def test_edit_with_permission(begin: Begin, option: str, text: str) -> None:
    seat = await begin(answer(edit_file("a.py", "1", "2")), DONE, a="x = 1\n")
    seat.editor.option = option
    assert await seat.prompt(await seat.new(), text_block("Two.")) == "end_turn"
    [(call, options)] = seat.editor.questions
    [diff] = call.content
    assert (diff.type, diff.old_text, diff.new_text) == ("diff", "x = 1\n", "x = 2\n")
    assert [each.option_id for each in options] == ["allow_once", "allow_always", "reject_once"]
    assert (seat.root / "a.py").read_text() == text


async def test_cancel(begin: Begin) -> None:
    hold = Hold()
    seat = await begin(answer(Text("Hello"), hold), say("Here."))
    session = await seat.new()
    running = asyncio.create_task(seat.prompt(session, text_block("Hello.")))
    await hold.reached.wait()
    await seat.agent.cancel(session_id=session)
    assert await running == "cancelled"
    assert await seat.prompt(session, text_block("Are you there?")) == "end_turn"


async def test_load(begin: Begin) -> None:
    seat = await begin(say("One."), say("Two."))
    session = await seat.new()
    assert await seat.prompt(session, text_block("First.")) == "end_turn"
    seat.editor.updates.clear()
    loaded = await seat.agent.load_session(cwd=str(seat.root), session_id=session, mcp_servers=[])
    assert [option.id for option in loaded.config_options][:3] == ["mode", "model", "effort"]
    await seat.editor.wait_for(lambda: seat.editor.text() == "One.", what="the replay")
    assert seat.editor.text(UserMessageChunk) == "First."
    assert await seat.prompt(session, text_block("Second.")) == "end_turn"
    listed = await seat.agent.list_sessions(cwd=str(seat.root))
    assert [entry.session_id for entry in listed.sessions] == [session]


async def test_resume(begin: Begin) -> None:
    seat = await begin(say("One."), say("Two."))
    session = await seat.new()
    assert await seat.prompt(session, text_block("First.")) == "end_turn"
    await seat.agent.close_session(session_id=session)
    seat.editor.updates.clear()
    resumed = await seat.agent.resume_session(cwd=str(seat.root), session_id=session, mcp_servers=[])
    assert resumed.modes.current_mode_id == "edit"
    assert await seat.prompt(session, text_block("Second.")) == "end_turn"
    await seat.editor.wait_for(lambda: seat.editor.text() == "Two.", what="the answer, and no replay")
    assert seat.editor.of(UserMessageChunk) == []


async def test_error_is_a_sentence(begin: Begin) -> None:
    seat = await begin()
    with pytest.raises(RequestError) as unknown:
        await seat.prompt("no-such-session", text_block("Hello."))
    assert unknown.value.code == -32002
