"""`thinklsp ask` where the user lets commands run: the same questions, at the terminal."""

from __future__ import annotations

import asyncio

from tests.cli.test_ask import service
from tests.support.sandboxed import needs_sandbox

RUNNING = """
[[turn]]
[[turn.step]]
block = [{ tool = "run_command", input = { argv = ["echo", "a  b"] } }]
[[turn.step]]
block = [{ text = "I was told: {{result:1}}" }]
"""


@needs_sandbox
async def test_the_whole_command_is_asked_about_at_the_terminal(cli):
    (cli.home / "config.toml").write_text("[commands]\nenabled = true\n")
    for choice, told in (("1", "a  b"), ("4", "did not permit")):
        async with service(RUNNING) as env:
            config = str(cli.home / "config.toml")
            with cli.terminal("ask", "Run it.", columns=200, THINKLSP_CONFIG=config, **env) as terminal:
                await asyncio.to_thread(terminal.until, "Your choice [1-4]: ")
                assert '"echo" "a \\u0020b"' in terminal.output
                assert "  3  Always allow exactly this command" in terminal.output
                terminal.type(f"{choice}\n")
                assert await asyncio.to_thread(terminal.end) == 0
            assert told in terminal.output
