"""Servers of other people, in both eras of the protocol: list, call, error, cancel, restart, image, elicitation."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_client.accepted_form import offer
from tests.mcp_client.driving import decline
from tests.mcp_servers.conftest import SECONDS, SERVERS, Connect
from tests.support.services import SIDES
from thinklsp.core.errors import McpFailed
from thinklsp.core.messages import ToolSpec
from thinklsp.mcp_client.call_result import CallResult, ResultImage
from thinklsp.mcp_client.connection import McpConnection
from thinklsp.mcp_client.consent import Pins
from thinklsp.mcp_client.elicitation import FormQuestions
from thinklsp.mcp_client.tool_schemas import check_arguments, select_tools

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ERAS = {"time": MODERN, "git": MODERN, "fetch": MODERN, "everything": LEGACY, "filesystem": LEGACY, "memory": LEGACY}
COUNTS = {"time": 2, "git": 12, "fetch": 1, "everything": 13, "filesystem": 14, "memory": 9}


async def call(connection: McpConnection, name: str, **arguments: Any) -> CallResult:
    tool = next(tool for tool in connection.tools if tool.name == name)
    assert await check_arguments(tool.input_schema, arguments) is None
    return await connection.call(name, arguments, decline)


def text_of(result: CallResult) -> str:
    return "\n".join(part for part in result.parts if isinstance(part, str))


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_lists_its_tools_in_its_era(connect: Connect, name: str) -> None:
    connection = connect(name)
    await connection.start()
    assert (connection.state, connection.era) == ("ready", ERAS[name])
    assert len(connection.tools) >= COUNTS[name]
    assert {tool.server for tool in connection.tools} == {name}
    assert connection.start_seconds is not None
    pid = connection.server_pid
    await connection.aclose()
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("name", SERVERS)
async def test_the_same_tools_are_listed_at_every_start(connect: Connect, tmp_path: Path, name: str) -> None:
    """A pin of one start holds at the next one."""
    pins = Pins(str(tmp_path / "state"))
    first, second = connect(name), connect(name)
    await first.start()
    pins.accept(first.config, first.tools)
    await second.start()
    report = pins.check(second.config, second.tools)
    assert report.server == "same"
    assert {pin.state for pin in report.tools.values()} == {"same"}
    assert report.removed == ()


async def test_every_service_accepts_the_tools_of_all_servers(connect: Connect) -> None:
    connections = [connect(name) for name in SERVERS]
    await asyncio.gather(*(connection.start() for connection in connections))
    for connection in connections:
        tools, notices = select_tools(connection.tools)
        assert len(tools) == len(connection.tools)
        assert notices == ()
    tools, notices = select_tools([tool for connection in connections for tool in connection.tools])
    assert notices == ()
    for side in SIDES:
        assert offer(side, [ToolSpec(tool.name, tool.description, tool.schema) for tool in tools]) is None, side


async def test_calls_of_a_modern_server(connect: Connect, folder: Path) -> None:
    time = connect("time")
    await time.start()
    converted = await call(
        time, "convert_time", source_timezone="Europe/Berlin", time="12:00", target_timezone="Asia/Tokyo"
    )
    assert not converted.is_error
    assert "Asia/Tokyo" in text_of(converted)
    wrong = await call(time, "get_current_time", timezone="Nowhere/Land")
    assert wrong.is_error
    assert "Nowhere/Land" in text_of(wrong)
    git = connect("git")
    await git.start()
    (folder / "new.txt").write_text("x")
    assert "new.txt" in text_of(await call(git, "git_status", repo_path=str(folder)))
    assert (await call(git, "git_status", repo_path="/nonexistent")).is_error


async def test_calls_of_legacy_servers(connect: Connect, folder: Path) -> None:
    files, memory = connect("filesystem"), connect("memory")
    await asyncio.gather(files.start(), memory.start())
    await call(files, "write_file", path=str(folder / "a.txt"), content="héllo")
    assert (folder / "a.txt").read_text("utf-8") == "héllo"
    assert "héllo" in text_of(await call(files, "read_text_file", path=str(folder / "a.txt")))
    outside = await call(files, "read_text_file", path="/etc/passwd")
    assert outside.is_error
    assert "denied" in text_of(outside)
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote programs"]}
    await call(memory, "create_entities", entities=[entity])
    found = await call(memory, "search_nodes", query="programs")
    assert "Ada" in text_of(found)
    assert found.structured is not None


async def test_parts_of_results(connect: Connect) -> None:
    everything = connect("everything")
    await everything.start()
    image = await call(everything, "get-tiny-image")
    [picture] = [part for part in image.parts if isinstance(part, ResultImage)]
    assert picture.mime_type == "image/png"
    assert picture.data.startswith(b"\x89PNG")
    links = await call(everything, "get-resource-links", count=2)
    assert len([part for part in links.parts if str(part).startswith("[a link to ")]) == 2
    weather = await call(everything, "get-structured-content", location="Chicago")
    assert weather.structured is not None


async def test_a_question_of_a_server_reaches_the_user(connect: Connect) -> None:
    everything = connect("everything")
    await everything.start()
    asked: list[tuple[str, Mapping[str, Any]]] = []

    async def answer(message: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append((message, schema))
        return {"name": "Ada Lovelace", "check": True}

    result = await everything.call("trigger-elicitation-request", {}, answer)
    [(message, schema)] = asked
    assert message
    assert "name" in schema["properties"]
    assert "Ada Lovelace" in text_of(result)
    declined = await everything.call("trigger-elicitation-request", {}, decline)
    assert "decline" in text_of(declined)


async def test_a_long_form_is_asked_field_by_field(connect: Connect) -> None:
    everything = connect("everything")
    await everything.start()
    asked: list[str] = []

    async def ask(question: str, options: Sequence[str]) -> str | None:
        asked.append(question)
        return options[0]

    async def ask_text(question: str) -> str | None:
        asked.append(question)
        return "7"

    questions = FormQuestions("everything", ask, ask_text)
    result = await everything.call("trigger-elicitation-request", {}, questions.elicit)
    assert questions.notes == []
    assert len(asked) >= 13
    assert "User provided the requested information" in text_of(result)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_killed_server_is_started_again(connect: Connect, name: str) -> None:
    has_ended = asyncio.Event()

    async def pause(_seconds: float) -> None:
        has_ended.set()

    connection = connect(name, pause)
    await connection.start()
    tools, pid = connection.tools, connection.server_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        await has_ended.wait()
    await connection.start()
    assert (connection.state, connection.tools) == ("ready", tools)
    assert connection.server_pid not in (None, pid)


async def test_calls_that_are_cancelled_or_killed_are_not_repeated(connect: Connect) -> None:
    everything = connect("everything")
    await everything.start()

    async def begin_long_call() -> asyncio.Future[CallResult]:
        arguments = {"duration": 600, "steps": 600}
        running = asyncio.ensure_future(everything.call("trigger-long-running-operation", arguments, decline))
        assert "here" in text_of(await call(everything, "echo", message="here"))
        return running

    cancelled = await begin_long_call()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    killed = await begin_long_call()
    assert everything.state == "ready"
    assert everything.server_pid is not None
    os.kill(everything.server_pid, signal.SIGKILL)
    with pytest.raises(McpFailed, match="outcome of the tool `trigger-long-running-operation` is unknown"):
        await killed
    assert "back" in text_of(await call(everything, "echo", message="back"))


class Pages(BaseHTTPRequestHandler):
    held = threading.Event()
    release = threading.Event()

    def do_GET(self) -> None:
        is_page = self.path == "/page"
        if self.path == "/held":
            self.held.set()
            self.release.wait()
        self.send_response(200 if is_page else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if is_page:
            self.wfile.write(b"<html><body><h1>Title</h1><p>Words of a page.</p></body></html>")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Print nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        Pages.release.set()
        server.shutdown()
        thread.join()


async def test_a_page_is_fetched_and_a_fetch_cancelled(connect: Connect, site: str) -> None:
    fetch = connect("fetch")
    await fetch.start()
    assert "Words of a page." in text_of(await call(fetch, "fetch", url=f"{site}/page"))
    assert (await call(fetch, "fetch", url=f"{site}/missing")).is_error
    held = asyncio.ensure_future(call(fetch, "fetch", url=f"{site}/held"))
    assert await asyncio.to_thread(Pages.held.wait, SECONDS)
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held
    assert "Words of a page." in text_of(await call(fetch, "fetch", url=f"{site}/page"))
