"""Images over LSP: the argument of `chat`, mentions in chat documents, and what a session with images becomes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import begin_talk, chat, refused, say, send
from tests.e2e.conftest import Begin
from tests.support.images import gif, jpeg, png
from tests.support.outside import MODEL, Outside
from tests.support.signing_server import Hold, Text, answer, tool

Json = Any
BLIND = f'[models.anthropic."{MODEL}"]\nimages = false\n'


def image(data: bytes, media_type: str = "image/png") -> Json:
    return {"mimeType": media_type, "data": base64.b64encode(data).decode()}


def sent_images(outside: Outside, request: int = 0) -> list[bytes]:
    """Return the images in the last message of a request."""
    parts = outside.provider.requests[request].body["messages"][-1]["content"]
    return [base64.b64decode(part["source"]["data"]) for part in parts if part["type"] == "image"]


async def test_images_of_the_command_are_sent_before_the_prompt(begin: Begin) -> None:
    outside = await begin(say("A cat."), say("Still."))
    result = await chat(outside, "What is this?", token="t", images=[image(png()), image(jpeg(), "image/jpeg")])
    assert sent_images(outside) == [png(), jpeg()]
    kinds = [part["type"] for part in outside.provider.requests[0].body["messages"][-1]["content"]]
    assert kinds == ["image", "image", "text"]
    await chat(outside, "Sure?", token="u", sessionId=result["sessionId"])
    first, second = (request.body["messages"][0]["content"] for request in outside.provider.requests)
    assert [part.get("source") for part in first] == [part.get("source") for part in second]
    exported = await outside.client.command(
        "thinklsp.sessions", {"op": "export", "sessionId": result["sessionId"], "format": "json"}
    )
    blocks = json.loads(exported["text"])["messages"][0]["blocks"]
    assert [block["kind"] for block in blocks] == ["image", "image", "text"]
    assert blocks[2]["text"] == "What is this?"
    assert base64.b64encode(png()).decode() not in exported["text"]


async def test_images_alone_are_a_prompt(begin: Begin) -> None:
    outside = await begin(say("A cat."))
    await chat(outside, " ", token="t", images=[image(png())])
    assert sent_images(outside) == [png()]


async def test_mentioned_and_referenced_images_are_read(begin: Begin) -> None:
    outside, _, uri = await begin_talk(begin, "What is in @shot.png and @a.py?", say("A cat."), say("Two."))
    (outside.root / "shot.png").write_bytes(png())
    (outside.root / "a.py").write_text("x = 1\n")
    await send(outside, uri)
    assert sent_images(outside) == [png()]
    assert "x = 1" in str(outside.provider.requests[0].body)
    (outside.root / "b.gif").write_bytes(gif())
    await chat(outside, "Look.", token="t", references=[(outside.root / "b.gif").as_uri()], images=[image(png())])
    assert sent_images(outside, 1) == [png(), gif()]


WRONG: dict[str, tuple[Json, int, str]] = {
    "no base64": ({"mimeType": "image/png", "data": "aGk"}, -32803, "Image 1 is not valid base64"),
    "other type": (image(jpeg()), -32803, "Image 1 is a JPEG file, not image/png"),
    "text": (image(b"hello"), -32803, "Image 1 is not an image"),
    "too wide": (image(png(8_001)), -32803, "8,001 × 3 pixels"),
    "no data": ({"mimeType": "image/png"}, -32602, "data"),
    "a number": ({"mimeType": "image/png", "data": 1}, -32602, "data"),
    "unknown field": (image(png()) | {"name": "x"}, -32602, "name"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_wrong_images_are_refused_before_the_call(begin: Begin, case: str) -> None:
    outside = await begin(say("Fine."))
    wrong, code, sentence = WRONG[case]
    assert sentence in await refused(chat(outside, "Look.", images=[wrong]), code)
    assert outside.provider.requests == []
    await chat(outside, "Hello.", token="t")


async def test_damaged_file_is_named(begin: Begin) -> None:
    outside = await begin(say("Fine."))
    (outside.root / "half.png").write_bytes(png()[:-4])
    uri = (outside.root / "half.png").as_uri()
    assert "half.png is damaged" in await refused(chat(outside, "Look.", references=[uri]))
    (outside.root / "large.png").write_bytes(png() + bytes(5_000_000))
    uri = (outside.root / "large.png").as_uri()
    assert "large.png" in await refused(chat(outside, "Look.", references=[uri]))


async def test_too_many_images_are_refused(begin: Begin) -> None:
    outside = await begin()
    await refused(chat(outside, "Look.", images=[image(png())] * 21), -32602)


async def test_model_without_images_refuses_them_before_the_call(begin: Begin, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(BLIND)
    config.chmod(0o600)
    outside = await begin(say("Fine."), env={"THINKLSP_CONFIG": str(config)})
    (outside.root / "shot.png").write_bytes(png())
    uri = (outside.root / "shot.png").as_uri()
    assert await refused(chat(outside, "Look.", references=[uri])) == (
        f"shot.png was not sent, because {MODEL} takes no images. Choose another model, or describe the image."
    )
    assert outside.provider.requests == []
    await chat(outside, "Hello.", token="t")


async def test_queued_images_join_the_running_turn(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(
        answer(Text("I look."), hold, tool("read_file", path="a.py")), say("Both."), files={"a.py": "x = 1\n"}
    )
    running = outside.client.command("thinklsp.chat", {"prompt": "Look."}, token="running")
    await hold.reached.wait()
    [entry] = await outside.client.command("thinklsp.sessions")
    session = entry["sessionId"]
    argument = {"prompt": "And this?", "sessionId": session, "queue": True, "images": [image(png())]}
    queued = outside.client.command("thinklsp.chat", argument, token="joined")
    while not await is_queued(outside, session):
        pass
    hold.release()
    await running
    await queued
    kinds = [part["type"] for part in outside.provider.requests[1].body["messages"][-1]["content"]]
    assert kinds == ["tool_result", "image", "text"]


async def is_queued(outside: Outside, session: str) -> bool:
    exported = await outside.client.command(
        "thinklsp.sessions", {"op": "export", "sessionId": session, "format": "json"}
    )
    return any(entry["outcome"] == "queued" for entry in json.loads(exported["text"])["unanswered"])
