"""Long results and images of MCP servers: what the model gets, and what is kept for how long."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any, ClassVar

from tests.acp.conftest import Begin
from tests.acp.fake_zed import FakeZed
from tests.acp.slow.test_acp_images import sent_images
from tests.acp.slow.test_acp_mcp import CALL, WEATHER, own_server, results
from tests.acp.talk import Talk
from tests.e2e.acting import say
from tests.support.images import jpeg, png
from tests.support.signing_server import answer, tool

Json = Any
LINES = [f"{number} It is sunny." for number in range(20_000)]
READ = "Read a part of it."


def returning(tmp_path: Path, *content: Json) -> str:
    (tmp_path / "sky.results").write_text(json.dumps({"weather": content}))
    return own_server(tmp_path, WEATHER, more='ask = "never"')


def picture(data: bytes, media_type: str = "image/png") -> Json:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": media_type}


def asking(tmp_path: Path) -> str:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    (tmp_path / "sky.results").write_text(json.dumps({"weather": schema}))
    return own_server(tmp_path, WEATHER, more='ask = "never"')


class FormlessZed(FakeZed):
    capabilities: ClassVar[Json] = {key: value for key, value in FakeZed.capabilities.items() if key != "elicitation"}


def kept_files(talk: Talk) -> list[Path]:
    return [path for path in talk.outside.home.rglob("sessions/texts/*/*") if path.is_file()]


async def test_long_result_is_read_in_parts(begin: Begin, tmp_path: Path) -> None:
    own = returning(tmp_path, {"type": "text", "text": "\n".join(LINES)})
    talk = await begin(CALL, say("Sunny."), own=own)
    await talk.prompt("How is it?")
    [result] = results(talk)
    text = str(result["content"])
    assert len(text) < 50_000
    assert LINES[0] in text
    assert LINES[-1] in text
    assert LINES[9_000] not in text
    path = re.search(r"read_file with the path `(result:\w{8})` shows all 20,001 lines", text)
    assert path is not None

    talk.provider.script[:] = [answer(tool("read_file", path=path[1], start_line=9_002, end_line=9_002)), say("Yes.")]
    await talk.prompt(READ)
    [result] = results(talk, 3)
    assert str(result["content"]).endswith(f"{path[1]}, lines 9002-9002 of 20001\n 9002\t{LINES[9_000]}")
    assert len(kept_files(talk)) == 1

    first = talk.session
    await talk.new_session()
    talk.provider.script[:] = [answer(tool("read_file", path=path[1])), say("No.")]
    await talk.prompt(READ)
    [result] = results(talk, 5)
    assert result["is_error"] is True
    assert "is no longer kept. Call the tool again" in str(result["content"])

    await talk.client.request("session/delete", {"sessionId": first})
    assert kept_files(talk) == []


async def test_image_follows_the_result(begin: Begin, tmp_path: Path) -> None:
    own = returning(tmp_path, {"type": "text", "text": "Here."}, picture(png()), picture(jpeg(), "image/jpeg"))
    talk = await begin(CALL, say("Sunny."), say("Still."), own=own)
    await talk.prompt("How is it?")
    [result] = results(talk)
    assert "Here.\n\n[image 1 of the MCP server sky (PNG, 2 × 3 pixels" in str(result["content"])
    assert sent_images(talk, 1) == [png(), jpeg()]
    await talk.outside.restart()
    await talk.client.request("session/load", {"sessionId": talk.session, "cwd": str(talk.root), "mcpServers": []})
    assert "image" not in str(talk.updates("user_message_chunk"))
    await talk.prompt("Sure?")
    messages = talk.provider.requests[2].body["messages"]
    assert [part["type"] for part in messages[2]["content"]] == ["tool_result", "image", "image"]


async def test_server_asks_for_a_text_in_a_form(begin: Begin, tmp_path: Path) -> None:
    talk = await begin(CALL, say("Sunny."), own=asking(tmp_path))
    talk.peer.handlers["elicitation/create"] = lambda params: {"action": "accept", "content": {"answer": "Rome"}}
    await talk.prompt("How is it?")
    [question] = talk.client.requests("elicitation/create")
    assert question["message"] == "The MCP server `sky` asks: Which city?"
    assert question["requestedSchema"]["properties"] == {"answer": {"type": "string", "title": "Answer"}}
    [result] = results(talk)
    assert '{"action": "accept", "content": {"city": "Rome"}}' in str(result["content"])


async def test_client_without_forms_declines_with_a_sentence(begin: Begin, tmp_path: Path) -> None:
    talk = await begin(CALL, say("Sunny."), own=asking(tmp_path), peer=FormlessZed)
    await talk.prompt("How is it?")
    [result] = results(talk)
    assert "but this client cannot show an input for one. The question was declined" in str(result["content"])
    assert '{"action": "decline"}' in str(result["content"])
