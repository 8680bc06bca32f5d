"""Images on the wire of all four families: the form, the same bytes every time, and the strict simulators."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.images import image, png
from tests.support.services import SIDES, Place, ask, place, request_of
from thinklsp.core.errors import ImageRefused
from thinklsp.core.messages import AssistantMessage, ImageBlock, TextBlock, ToolResultBlock, UserMessage
from thinklsp.engine.turn_request import check_images
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.catalogue import Catalogue, find_model
from thinklsp.settings.model import Provider

Json = Any
DATA = base64.b64encode(png()).decode()
URL = f"data:image/png;base64,{DATA}"
FORMS: dict[str, Json] = {
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
    "openai": {"type": "input_image", "image_url": URL, "detail": "auto"},
    "google": {"inlineData": {"mimeType": "image/png", "data": DATA}},
    "deepseek": {"type": "image_url", "image_url": {"url": URL}},
}
# The simulators of these take images; which model does is the user's to say.
NAMES = [name for name in SIDES if name != "google, with a budget"]


def at(name: str) -> Place:
    where = place(*SIDES[name])
    return replace(where, model=replace(where.model, images=True))


def asked(where: Place, *images: ImageBlock, text: str = "What is this?") -> ModelRequest:
    return request_of(where, (UserMessage((*images, TextBlock(text))),))


def find_parts(body: Json) -> list[Json]:
    """Return the parts of the user's last message."""
    messages = body.get("messages") or body.get("input") or body.get("contents")
    last = messages[-1]
    parts: list[Json] = last.get("parts") or last["content"]
    return parts


def sent(where: Place, request: ModelRequest) -> Json:
    return json.loads(where.encode(request).body)


@pytest.mark.parametrize("name", FORMS)
def test_image_precedes_the_text_in_the_providers_form(name: str) -> None:
    where = at(name)
    first, second = find_parts(sent(where, asked(where, image())))
    assert first == FORMS[name]
    assert "What is this?" in second.values()


@pytest.mark.parametrize("name", NAMES)
def test_equal_images_give_equal_bytes_and_later_turns_keep_them(name: str) -> None:
    where = at(name)
    request = asked(where, image())
    body = where.encode(request).body
    assert where.encode(asked(where, image())).body == body
    assert where.encode(request).body == body
    answer = AssistantMessage((TextBlock("A shot."),))
    later = replace(request, conversation=(*request.conversation, answer, UserMessage.from_text("Sure?")))
    [place_] = [at for at in range(len(body)) if body.startswith(DATA.encode(), at)]
    # Anthropic's breakpoint at the end of the message stays, because two messages have one.
    assert where.encode(later).body[: place_ + len(DATA)] == body[: place_ + len(DATA)]


@pytest.mark.parametrize("name", NAMES)
def test_images_of_joined_prompts_follow_the_results(name: str) -> None:
    where = at(name)
    steps = {"step": [{"block": [{"tool": "list_files"}]}, {"block": [{"text": "Seen."}]}]}
    dialect = where.dialect(steps)
    request = asked(where, image())
    called = ask(where, dialect, request).message
    results = tuple(ToolResultBlock(call.id, "a.py") for call in called.tool_uses)
    joined = UserMessage((*results, image(), TextBlock("And this?")))
    request = replace(request, conversation=(*request.conversation, called, joined))
    assert ask(where, dialect, request).message.stop_reason in ("end_turn", "tool_use")


def test_types_that_a_provider_does_not_take_are_named() -> None:
    gif = image("image/gif", "cat.gif")
    with pytest.raises(ImageRefused, match=r"cat\.gif was not sent, because gemini-4-argon takes only PNG, JPEG, WebP"):
        check_images([image(), gif], find_model("google", "gemini-4-argon"), ())
    for provider in ("anthropic", "openai"):
        check_images([image(), gif], find_model(provider, "new"), ())


@pytest.mark.parametrize(("provider", "model"), [("openai", "o3-mini"), ("openai-compatible", "deepseek-v4-pro")])
def test_models_without_images_are_named_with_a_way_out(provider: Provider, model: str) -> None:
    with pytest.raises(ImageRefused, match=rf"shot\.png was not sent, because {model} takes no images") as refused:
        check_images([image()], find_model(provider, model), ())
    assert ("config.toml" in str(refused.value)) == (provider == "openai-compatible")


def test_users_can_say_that_their_model_takes_images() -> None:
    catalogue = Catalogue({"openai-compatible": {"qwen3-vl": {"images": True, "image_types": ["image/png"]}}})
    model = catalogue.find_model("openai-compatible", "qwen3-vl")
    check_images([image()], model, ())
    with pytest.raises(ImageRefused, match="takes only PNG images"):
        check_images([image("image/jpeg", "a.jpg")], model, ())
