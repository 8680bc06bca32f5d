"""Images over ACP: blocks of the client, links to files, and the sentences for what cannot be sent."""

from __future__ import annotations

import base64
from typing import Any

from tests.acp.conftest import Begin
from tests.acp.talk import Talk, refusal
from tests.e2e.acting import say
from tests.support.images import gif, jpeg, png
from tests.support.outside import MODEL, said

Json = Any
BLIND = f'[models.anthropic."{MODEL}"]\nimages = false\n'


def block(data: bytes, media_type: str = "image/png") -> Json:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": media_type}


def link(uri: str) -> Json:
    return {"type": "resource_link", "uri": uri, "name": "shot"}


def sent_images(talk: Talk, request: int = 0) -> list[bytes]:
    """Return the images in the last message of a request."""
    parts = talk.provider.requests[request].body["messages"][-1]["content"]
    return [base64.b64decode(part["source"]["data"]) for part in parts if part["type"] == "image"]


async def test_image_blocks_are_sent_and_stay_in_the_session(begin: Begin) -> None:
    talk = await begin(say("A cat."), say("Still a cat."))
    assert talk.client.agent["agentCapabilities"]["promptCapabilities"]["image"] is True
    assert await talk.prompt("What is ", block(png()), "and", block(jpeg(), "image/jpeg"), "?") == "end_turn"
    assert sent_images(talk) == [png(), jpeg()]
    text = talk.provider.requests[0].body["messages"][-1]["content"][-1]["text"]
    assert text.startswith("What is [Image 1] and [Image 2] ?")
    assert "- Image 1 (PNG, 2 × 3 pixels" in text
    assert await talk.prompt("Sure?") == "end_turn"
    first, second = (request.body["messages"][0]["content"] for request in talk.provider.requests)
    assert [part.get("source") for part in first] == [part.get("source") for part in second]


async def test_linked_and_mentioned_files_are_read_through_the_gate(begin: Begin) -> None:
    talk = await begin(say("Two."), say("None."), say("None."))
    (talk.root / "shot one.png").write_bytes(png())
    (talk.root / "b.GIF").write_bytes(gif())
    assert await talk.prompt("Compare", link((talk.root / "shot one.png").as_uri()), "with @b.GIF.") == "end_turn"
    assert sent_images(talk) == [png(), gif()]
    assert talk.peer.reads == [], "a client reads only texts"
    outside = talk.root.parent / "secret.png"
    outside.write_bytes(png())
    (talk.root / "way.png").symlink_to(outside)
    assert await talk.prompt("Look at @way.png") == "end_turn"
    assert await talk.prompt("Look", link(outside.as_uri())) == "end_turn"
    assert (sent_images(talk, 1), sent_images(talk, 2)) == ([], [])


WRONG = {
    "no base64": ({"type": "image", "data": "aGk", "mimeType": "image/png"}, "not valid base64"),
    "other type": (block(jpeg()), "is a JPEG file"),
    "svg": (block(b"<svg/>", "image/svg+xml"), "cannot be sent"),
    "animation": (block(gif(pictures=2), "image/gif"), "animation"),
    "half": (block(png()[:-5]), "damaged"),
}


async def test_wrong_images_are_refused_before_the_call(begin: Begin) -> None:
    talk = await begin(say("Fine."))
    for wrong, sentence in WRONG.values():
        error = await refusal(talk.send("Look.", wrong))
        assert ("Image 1" in error.message, sentence in error.message) == (True, True)
    assert talk.provider.requests == []
    assert await talk.prompt("Hello.") == "end_turn"


async def test_wrong_fields_of_an_image_are_named_by_place(begin: Begin) -> None:
    talk = await begin()
    error = await refusal(talk.send("Look.", {"type": "image", "data": 7, "mimeType": "image/png"}))
    assert (error.code, "prompt.1" in error.message) == (-32602, True)


async def test_session_goes_on_with_a_model_that_cannot_see(begin: Begin) -> None:
    """Earlier images are texts for it, and the user reads that once per turn."""
    talk = await begin(
        say("A cat."), say("I cannot see it."), own='[models.anthropic."claude-opus-4-6"]\nimages = false\n'
    )
    talk.provider.conversations.elsewhere = True
    assert await talk.prompt("Look.", block(png())) == "end_turn"
    assert await talk.prompt("/model claude-opus-4-6") == "end_turn"
    assert await talk.prompt("And now?") == "end_turn"
    last = talk.provider.requests[-1].body
    assert last["model"] == "claude-opus-4-6"
    assert "[image: Image 1 (PNG" in said(last)
    assert '"type": "image"' not in said(last)
    [notice] = talk.outside.told()
    assert "claude-opus-4-6 cannot read the images in this session" in notice


async def test_loaded_session_shows_a_placeholder(begin: Begin) -> None:
    talk = await begin(say("A cat."))
    assert await talk.prompt("Look.", block(png())) == "end_turn"
    params = {"sessionId": talk.session, "cwd": str(talk.root), "mcpServers": []}
    await talk.client.request("session/load", params)
    shown = "".join(update["content"]["text"] for update in talk.updates("user_message_chunk"))
    assert "[image: Image 1 (PNG, 2 × 3 pixels" in shown
