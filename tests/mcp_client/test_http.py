"""Connections to servers at a URL: tokens, redirects and limits."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_client import driving
from tests.mcp_client.driving import decline
from tests.mcp_client.http_stub import TOOL, Answer, Request, Response, behave, reply, serve
from thinklsp.core.errors import McpFailed
from thinklsp.mcp_client.connection import McpConnection
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.settings.user_file import NetworkSection

GOOD = Path(__file__).parent / "good_server.py"
TOKEN = (sys.executable, "-c", "print('t-1')")


def connect(url: str, **options: Any) -> AbstractAsyncContextManager[McpConnection]:
    limits: Any = {"start_timeout_seconds": 60.0, "timeout_seconds": 60.0, **options}
    return driving.connect(ServerConfig("web", url=url, **limits))


async def start_once(url: str, **options: Any) -> None:
    async with connect(url, **options):
        pass


def moved(location: str) -> Answer:
    return lambda request: Response(307, {"location": location}) if request.path == "/mcp" else behave(request)


async def test_a_redirect_within_the_origin_is_followed_with_the_token() -> None:
    async with serve(moved("/other")) as stub, connect(f"{stub.url}/mcp", token_command=TOKEN) as connection:
        assert [tool.name for tool in connection.tools] == ["work"]
        assert (await connection.call("work", {}, decline)).parts == ("/other",)
        assert {request.headers.get("authorization") for request in stub.requests} == {"Bearer t-1"}


async def test_nothing_is_sent_to_another_origin() -> None:
    async with serve(behave) as other, serve(moved(f"{other.url}/other")) as stub:
        with pytest.raises(McpFailed, match=r"Redirect to http://127\.0\.0\.1:\d+/other not followed"):
            await start_once(f"{stub.url}/mcp", token_command=TOKEN, headers={"X-Key": "k"})
        assert other.requests == []


def answer_with(response: Response) -> Answer:
    """Answer calls of the tool with a response."""
    return lambda request: response if request.message["method"] == "tools/call" else behave(request)


def answer_with_text(size: int) -> Answer:
    def answer(request: Request) -> Response:
        if request.message["method"] != "tools/call":
            return behave(request)
        return reply(request, {"resultType": "complete", "content": [{"type": "text", "text": "x" * size}]})

    return answer


STREAM = {"content-type": "text/event-stream"}
UNKNOWN = "The outcome of the tool `work` is unknown."
FAULTS: dict[str, tuple[Answer, str]] = {
    "long": (answer_with_text(5 * 1024 * 1024), f"sent an answer longer than 4 MiB. {UNKNOWN}"),
    "deep": (answer_with(Response(body=b"[" * 10**6)), f"is nested more than 64 levels deep. {UNKNOWN}"),
    "compressed": (
        answer_with(Response(headers={"content-encoding": "gzip"}, body=b"x")),
        f"sent a compressed answer, which thinklsp did not request. {UNKNOWN}",
    ),
    "unauthorized": (answer_with(Response(401)), f"rejected the token \\(HTTP 401\\). {UNKNOWN}"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_faulty_answer_ends_the_connection(fault: str) -> None:
    answer, message = FAULTS[fault]
    async with serve(answer) as stub, connect(f"{stub.url}/mcp") as connection:
        with pytest.raises(McpFailed, match=message):
            await connection.call("work", {}, decline)


ERRORS: dict[str, tuple[Response, str]] = {
    "event": (Response(headers=STREAM, body=b"data: " + b"x" * 2 * 1024 * 1024 + b"\n\n"), "SSE stream failed"),
    "no answer": (Response(headers=STREAM, body=b": nothing\n\n"), "SSE stream ended without a response"),
    "type": (Response(headers={"content-type": "text/html"}, body=b"<p>"), "Unexpected content type"),
    "status": (Response(500), "Server returned an error response"),
    "json": (Response(body=b"{"), "Failed to parse JSON response"),
}


@pytest.mark.parametrize("error", ERRORS)
async def test_an_answer_that_is_no_result_is_an_error(error: str) -> None:
    response, text = ERRORS[error]
    async with serve(answer_with(response)) as stub, connect(f"{stub.url}/mcp") as connection:
        result = await connection.call("work", {}, decline)
        assert result.is_error
        assert text in str(result.parts)
        assert connection.state == "ready"


async def test_an_answer_of_four_mebibytes_is_read() -> None:
    size = 4 * 1024 * 1024 - 200
    async with serve(answer_with_text(size)) as stub, connect(f"{stub.url}/mcp") as connection:
        assert (await connection.call("work", {}, decline)).parts == ("x" * size,)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_bad_tool_is_left_out_alone(*, is_stream: bool) -> None:
    def answer(request: Request) -> Response:
        if (request.message or {}).get("method") != "tools/list":
            return behave(request)
        bad = {"name": "bad", "inputSchema": {"type": "string"}, "outputSchema": 1}
        result = {"resultType": "complete", "tools": [TOOL, bad, "x"], "ttlMs": 0, "cacheScope": "private"}
        plain = reply(request, result)
        stream = Response(headers={"content-type": "text/event-stream"}, body=b"data: " + plain.body + b"\n\n")
        return stream if is_stream else plain

    async with serve(answer) as stub, connect(f"{stub.url}/mcp") as connection:
        assert [tool.name for tool in connection.tools] == ["work", "bad", ""]
        assert (await connection.call("work", {}, decline)).parts == ("/mcp",)


async def test_a_server_that_cannot_be_used_ends_with_a_sentence() -> None:
    with pytest.raises(
        McpFailed, match=r"`web` cannot be reached. 127.0.0.1:\d+ refused the connection. Check .* correct.$"
    ):
        await start_once(f"http://127.0.0.1:{find_free_port()}/mcp")
    with pytest.raises(McpFailed, match="The token command for the MCP server `web` failed"):
        await start_once("https://127.0.0.1/mcp", token_command=(sys.executable, "-c", "raise SystemExit(1)"))


@pytest.mark.skipif(find_spec("socksio") is not None, reason="socksio is installed")
async def test_a_socks_proxy_without_its_package_names_the_command() -> None:
    config = ServerConfig("web", url="https://api.example/mcp", start_timeout_seconds=60.0)
    connection = McpConnection(config, os.environ, (), NetworkSection(proxy="socks5://127.0.0.1:9"))
    with pytest.raises(McpFailed, match=r"`web` cannot be reached\. A SOCKS proxy needs .* Run .*socksio"):
        await connection.start()
    await connection.aclose()


async def test_a_server_of_the_sdk_is_used_over_http() -> None:
    port = find_free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(GOOD), "http", str(port), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        while b"running on" not in (line := await process.stderr.readline()):
            assert line, "the server has ended"
        async with connect(f"http://127.0.0.1:{port}/mcp") as connection:
            assert connection.era == "2026-07-28"
            result = await connection.call("add", {"a": 1, "b": 2}, decline)
            assert json.loads(str(result.parts[0])) == 3
    finally:
        process.kill()
        await process.communicate()


def find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
