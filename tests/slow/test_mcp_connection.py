"""Connections to a server that is written with the SDK, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_client.good_server import PIXELS
from tests.support.watching import seen
from thinklsp.core.errors import McpFailed
from thinklsp.mcp_client.call_result import ResultImage
from thinklsp.mcp_client.connection import RESTART_SECONDS, McpConnection
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.mcp_client.tool_schemas import select_tools

GOOD = str(Path(__file__).parents[1] / "mcp_client" / "good_server.py")
HOSTILE = str(Path(__file__).parents[1] / "mcp_client" / "hostile_server.py")
SMALL = str(Path(__file__).parents[1] / "cli" / "small_mcp_server.py")
WRONG_VALUES: list[Any] = [
    {"inputSchema": None}, {"title": 3}, {"description": 5}, {"annotations": "x"}, {"icons": [{"src": 1}]},
    {"_meta": "x"}, {"outputSchema": {"type": "string"}}, {"outputSchema": "x"}, {"execution": "x"}, {"name": 1},
]  # fmt: skip
LIMITS: Any = {"start_timeout_seconds": 60.0, "timeout_seconds": 60.0}
ERAS = {"modern": "2026-07-28", "legacy": "2025-11-25"}


async def decline(_message: str, _schema: Mapping[str, Any]) -> None:
    return None


class Pauses:
    """The waits before restarts, which end when the test says so."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.gate = asyncio.Semaphore(0)

    async def pause(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await self.gate.acquire()


@asynccontextmanager
async def connect(*command: str, pauses: Pauses | None = None, **options: Any) -> AsyncIterator[McpConnection]:
    config = ServerConfig("good", (sys.executable, *command), **{**LIMITS, **options})
    environment = {**os.environ, "OPENAI_API_KEY": "sk-secret", "THINKLSP_X": "1", "OTHER": "2"}
    connection = McpConnection(config, environment, [os.getcwd()], pause=(pauses or Pauses()).pause)
    try:
        yield connection
    finally:
        await connection.aclose()


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_lists_and_runs_its_tools(era: str) -> None:
    async with connect(GOOD, era) as connection:
        await asyncio.gather(connection.start(), connection.start())
        assert (connection.state, connection.era) == ("ready", ERAS[era])
        assert {tool.name for tool in connection.tools} >= {"add", "fail", "picture", "greet", "wait"}
        added = next(tool for tool in connection.tools if tool.name == "add")
        assert (added.server, added.description) == ("good", "Add two numbers.")
        assert added.input_schema["required"] == ["a", "b"]

        result = await connection.call("add", {"a": 2, "b": 40}, decline)
        assert (result.parts, result.structured, result.is_error) == (("42",), {"result": 42}, False)
        failed = await connection.call("fail", {}, decline)
        assert failed.is_error
        assert "it broke" in str(failed.parts[0])
        unknown = await connection.call("no_such_tool", {}, decline)
        assert unknown.is_error
        assert (await connection.call("picture", {}, decline)).parts == (ResultImage(PIXELS, "image/png"),)
        linked = await connection.call("link", {}, decline)
        assert linked.parts == ("[a link to a: file:///a.txt; it was not opened]", "see there")


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_asks_the_user(era: str) -> None:
    questions: list[tuple[str, Any]] = []

    async def reply(message: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        questions.append((message, schema))
        return {"name": "Ada"}

    async with connect(GOOD, era) as connection:
        await connection.start()
        assert (await connection.call("greet", {}, reply)).parts == ("Hello Ada",)
        declined = await connection.call("greet", {}, decline)
        assert declined.is_error
    [(message, schema)] = questions
    assert message == "What is your name?"
    assert list(schema["properties"]) == ["name"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_is_cancelled_on_the_server(era: str, tmp_path: Path) -> None:
    path = tmp_path / "state"
    async with connect(GOOD, era) as connection:
        await connection.start()
        call = asyncio.ensure_future(connection.call("wait", {"path": str(path)}, decline))
        await seen(lambda: path.exists() and path.read_text() == "waiting")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await seen(lambda: path.read_text() == "cancelled")
        assert (await connection.call("add", {"a": 1, "b": 1}, decline)).parts == ("2",)


@pytest.mark.parametrize("era", ERAS)
async def test_a_crash_ends_the_call_and_the_server_is_started_again(era: str, tmp_path: Path) -> None:
    path, pauses = tmp_path / "calls", Pauses()
    async with connect(GOOD, era, pauses=pauses) as connection:
        await connection.start()
        with pytest.raises(McpFailed, match="The outcome of the tool `crash` is unknown"):
            await connection.call("crash", {"path": str(path)}, decline)
        assert connection.state == "failed"
        with pytest.raises(McpFailed, match="exited with status 5"):
            await connection.start()
        pauses.gate.release()
        assert (await connection.call("add", {"a": 1, "b": 1}, decline)).parts == ("2",)
        # The call was not repeated.
        assert path.read_text() == "x"
        assert pauses.seconds == [1.0]


async def test_a_server_that_crashes_again_and_again_is_switched_off() -> None:
    pauses = Pauses()
    async with connect(HOSTILE, "exit_list", pauses=pauses) as connection:
        with pytest.raises(McpFailed, match="exited with status 3: leaving early"):
            await connection.start()
        for _ in RESTART_SECONDS:
            pauses.gate.release()
        await seen(lambda: connection.state == "off", within=60)
        assert tuple(pauses.seconds) == RESTART_SECONDS
        with pytest.raises(McpFailed, match="It was started 6 times and is now off"):
            await connection.start()


@pytest.mark.parametrize("era", ERAS)
async def test_a_changed_list_is_read_at_the_next_start(era: str) -> None:
    async with connect(GOOD, era) as connection:
        await connection.start()
        await connection.call("grow", {}, decline)
        await seen(lambda: connection.are_tools_stale)
        assert "added" not in {tool.name for tool in connection.tools}
        await connection.start()
        assert "added" in {tool.name for tool in connection.tools}


async def test_a_bad_tool_is_left_out_alone(tmp_path: Path) -> None:
    """Whatever a server lists beside a good tool, in the older protocol, whose types are stricter."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    rows = json.loads((Path(GOOD).parent / "nasty_schemas.json").read_text("utf-8"))
    # A message that is nested more than 64 levels deep ends the server.
    corpus = [row for row in rows if row["name"] != "deep nesting"]
    listed = [{"name": f"m{number}", "inputSchema": schema, **wrong} for number, wrong in enumerate(WRONG_VALUES)]
    listed += [{"name": f"s{number}", "inputSchema": row["schema"]} for number, row in enumerate(corpus)]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([*listed, "x", None, {}, {"name": "good", "inputSchema": schema}]))
    async with connect(SMALL, str(path)) as connection:
        await connection.start()
        assert len(connection.tools) == len(listed) + 4
        names = {tool.listed.name for tool in select_tools(connection.tools)[0]}
        refused = {f"s{number}" for number, row in enumerate(corpus) if "kept" not in row}
        assert names == {tool.name for tool in connection.tools} - refused - {"", "m0"}
        assert (await connection.call("good", {"a": "b"}, decline)).parts == ('{"a": "b"}',)


async def test_a_server_receives_no_keys() -> None:
    variables = {"MINE": "3", "ANTHROPIC_API_KEY": "sk-other", "THINKLSP_STATE_DIR": "/"}
    async with connect(GOOD, "modern", env=variables) as connection:
        await connection.start()
        result = await connection.call("show_environment", {}, decline)
    assert result.structured is not None
    allowed = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR", "MINE", "LC_CTYPE"}
    assert set(result.structured) <= allowed
    assert result.structured["MINE"] == "3"


async def test_a_question_ends_with_its_call() -> None:
    """An older server asks while a call runs. The call's limit does not count the user's time."""
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def hesitate(_message: str, _schema: Mapping[str, Any]) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with connect(GOOD, "legacy") as connection:
        await connection.start()
        call = asyncio.ensure_future(connection.call("greet", {}, hesitate))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await cancelled.wait()


async def test_an_older_server_gets_answers_to_its_requests() -> None:
    answers: list[str] = []

    async def reply(message: str, _schema: Mapping[str, Any]) -> Mapping[str, Any]:
        answers.append(message)
        return {"name": "Ada"}

    async with connect(HOSTILE, "requests") as connection:
        await connection.start()
        [part] = (await connection.call("work", {}, reply)).parts
    assert isinstance(part, str)
    accepted, declined = '{"action": "accept", "content": {"name": "Ada"}}', '{"action": "decline"}'
    for text in ("[{}, ", '{"roots": [{"uri": "file:///', '"Sampling not supported"', '"Method not found"'):
        assert text in part
    assert part.endswith(", ".join([*[accepted] * 3, *[declined] * 3]) + "]")
    assert len(answers) == 3


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/no/such/program",), "cannot be run: `/no/such/program`: no such file or directory"),
        (("npx -y server",), "cannot be run: `npx -y server`: no such file or directory"),
    ],
)
async def test_a_program_that_cannot_be_run_ends_with_a_sentence(command: tuple[str, ...], reason: str) -> None:
    connection = McpConnection(ServerConfig("good", command, **LIMITS), os.environ, [], pause=Pauses().pause)
    with pytest.raises(McpFailed, match=reason):
        await connection.start()
    await connection.aclose()


async def test_a_missing_working_directory_can_be_created_later(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    async with connect(HOSTILE, "ok", cwd=str(folder)) as connection:
        with pytest.raises(McpFailed, match="its working directory does not exist"):
            await connection.start()
        folder.mkdir()
        await connection.start()
        assert connection.state == "ready"
