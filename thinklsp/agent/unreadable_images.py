"""Images in a conversation that the model of a request cannot read."""

from __future__ import annotations

from dataclasses import replace

from thinklsp.core.events import Notice
from thinklsp.core.images import replace_images
from thinklsp.providers.base import ModelRequest


def replace_unreadable_images(request: ModelRequest) -> tuple[ModelRequest, tuple[Notice, ...]]:
    """Replace the images that the model cannot read with descriptions. Return the request, and a notice if any was.

    Only a session that began with another model has such images, because a prompt with them is refused.
    """
    readable = replace_images(request.conversation, request.model.accepted_images)
    if readable is request.conversation:
        return request, ()
    text = f"{request.model.id} cannot read the images in this session, so it gets their names and sizes instead."
    return replace(request, conversation=readable), (Notice("info", text),)
