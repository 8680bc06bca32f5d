"""An MCP server that is written with the server side of the SDK.

The first argument is `modern`, `legacy` or `http PORT`. As `legacy`, the server does not know the newer protocol.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import CallToolResult, ResourceLink, TextContent
from pydantic import BaseModel

server = MCPServer("good")
# The smallest part of an image that shows that the bytes arrive unchanged.
PIXELS = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


class Name(BaseModel):
    name: str


def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    raise ToolError("it broke")


@server.tool()
def picture() -> Image:
    return Image(data=PIXELS, format="png")


@server.tool()
def link() -> CallToolResult:
    parts = [ResourceLink(uri="file:///a.txt", name="a"), TextContent(text="see there")]
    return CallToolResult(content=parts)


@server.tool()
def greet(who: Annotated[Name, Resolve(ask_name)]) -> str:
    return f"Hello {who.name}"


@server.tool()
async def wait(path: str) -> str:
    """Wait until the call is cancelled, and say so in a file."""
    await anyio.Path(path).write_text("waiting")
    try:
        await anyio.sleep(600)
    finally:
        Path(path).write_text("cancelled")  # noqa: ASYNC240 - nothing can be awaited after a cancellation
    return "never"


@server.tool()
def crash(path: str) -> str:
    """Exit during the call, and count the calls in a file."""
    with open(path, "a") as file:
        file.write("x")
    os._exit(5)


@server.tool()
async def show_environment() -> dict[str, str]:
    return dict(os.environ)


@server.tool()
async def grow(context: Context) -> str:
    """Add a tool, and report the change."""
    server.add_tool(add, name="added")
    await context.notify_tools_changed()
    await context.session.send_tool_list_changed()
    return "grown"


def relay() -> None:
    """Run the server behind a relay that rejects the first request of the newer protocol."""
    inner = subprocess.Popen([sys.executable, __file__, "modern"], stdin=subprocess.PIPE, stdout=1)
    assert inner.stdin is not None
    threading.Thread(target=lambda: os._exit(inner.wait()), daemon=True).start()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "server/discover":
            error = {"code": -32601, "message": "Method not found"}
            os.write(1, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode() + b"\n")
            continue
        try:
            inner.stdin.write(line)
            inner.stdin.flush()
        except BrokenPipeError:
            break
    inner.stdin.close()
    inner.wait()


if __name__ == "__main__":
    if sys.argv[1] == "legacy":
        relay()
    elif sys.argv[1] == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run()
