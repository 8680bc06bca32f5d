"""The event loop of the language server while three large MCP servers start, list their tools and answer."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.acting import say
from tests.mcp_client.driving import HOSTILE
from tests.slow.test_load import echo
from tests.support.outside import UNWATCHED, server_by, start
from tests.support.signing_server import answer, tool

WATCHED = str(Path(__file__).parents[1] / "bench" / "servers" / "watched.py")
ERAS = {"first": "modern", "second": "legacy", "third": "modern"}
MAX_MS = 50.0
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the settings of the servers name POSIX paths"),
    pytest.mark.timing,
]


async def test_large_servers_never_keep_the_loop(tmp_path: Path) -> None:
    """The processor time of the longest callback, which other load on the machine does not change."""
    config, blocks = tmp_path / "config.toml", tmp_path / "blocks"
    entries = [build_entry(name, era) for name, era in ERAS.items()]
    # The tools of two servers would fill the definitions that a request can contain.
    config.write_text('tools = ["a_work"]\n'.join(entries))
    config.chmod(0o600)
    calls = [tool(f"mcp__{name}__a_work") for name in ERAS]
    outside = await start(
        tmp_path / "lsp", answer(*calls), say("Done."), connect=server_by([sys.executable, WATCHED]),
        env={**UNWATCHED, "THINKLSP_CONFIG": str(config), "BLOCKS": str(blocks)},
    )  # fmt: skip
    try:
        await echo(outside.client)  # `initialize` may be answered before the loop starts, which builds the server.
        begun = time.monotonic()
        result = await outside.turn("thinklsp.chat", {"prompt": "Use them."})
        assert result["text"] == "Done."
        last = json.dumps(outside.provider.requests[-1].body["messages"][-1])
        assert last.count("characters omitted") == len(ERAS)
        [_, _, third] = (await outside.client.command("thinklsp.mcp"))["servers"]
        assert len(third["tools"]) == 250
        ended = time.monotonic()
        outside.told()
        await outside.finish()
    finally:
        await outside.stop()
    lines = [tuple(map(float, line.split())) for line in blocks.read_text().splitlines()]
    longest = sorted((taken for at, taken in lines if begun < at < ended), reverse=True)
    assert longest[0] < MAX_MS, longest[:5]


def build_entry(name: str, era: str) -> str:
    arguments = json.dumps([str(HOSTILE), f"many_large_{era}"])
    return (
        f"[mcp.servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n"
        f'ask = "never"\nstart_timeout_s = 60\n'
    )
