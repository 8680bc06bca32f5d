"""Questions of MCP servers for a text, in an editor that can show an input and in one that cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acp.slow.test_acp_mcp import CALL
from tests.acp.slow.test_acp_mcp_results import asking
from tests.e2e.acting import say
from tests.support.outside import Connect, start

Json = Any
ANNOUNCED = {"workspace": {"applyEdit": True}, "experimental": {"thinklsp": {"editor": ["input"]}}}
DECLINED = '{"action": "decline"}'


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ({"text": "Rome"}, '{"action": "accept", "content": {"city": "Rome"}}'),
        ({"text": None}, DECLINED),
        ({"text": 5}, DECLINED),
        (None, DECLINED),
    ],
)
async def test_editor_asks_for_a_text(tmp_path: Path, servers: Connect, reply: Json, expected: str) -> None:
    request, content = await run(tmp_path, servers, reply, announce=ANNOUNCED)
    assert request == [{"question": "The MCP server `sky` asks: Which city?"}]
    assert expected in content


async def test_editor_without_an_input_declines_with_a_sentence(tmp_path: Path, servers: Connect) -> None:
    request, content = await run(tmp_path, servers, None)
    assert request == []
    assert "but this client cannot show an input for one" in content
    assert DECLINED in content


async def run(tmp_path: Path, servers: Connect, reply: Json, **how: Any) -> tuple[list[Json], str]:
    """Return the questions to the editor, and the result that the model got."""
    config = tmp_path / "config.toml"
    config.write_text(asking(tmp_path))
    config.chmod(0o600)
    outside = await start(
        tmp_path / "lsp", CALL, say("Sunny."), env={"THINKLSP_CONFIG": str(config)}, connect=servers, **how
    )
    asked: list[Json] = []

    def answer(params: Json) -> Json:
        asked.append(params)
        return reply

    try:
        outside.client.editor.handlers["thinklsp/editor/input"] = answer
        assert (await outside.turn("thinklsp.chat", {"prompt": "How is it?"}))["text"] == "Sunny."
        last = outside.provider.requests[-1].body["messages"][-1]["content"][0]["content"]
        await outside.finish()
    finally:
        await outside.stop()
    return asked, last if isinstance(last, str) else json.dumps(last)
