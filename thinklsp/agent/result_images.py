"""The images in the results of tools, which the model of the turn must be able to read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from thinklsp.core.images import (
    MAX_CONVERSATION_IMAGE_BYTES,
    MAX_CONVERSATION_IMAGES,
    MAX_PROMPT_IMAGES,
    list_images,
)
from thinklsp.core.messages import Conversation, ImageBlock
from thinklsp.core.tool_type import ToolOutput

_UNREADABLE = "this model cannot read it"
_TOO_MANY = f"the results of one message can have {MAX_PROMPT_IMAGES} images"
_FULL = "the session already has as many images as a request can contain"


class ResultImages:
    """The images that the results of one message may add to the conversation. `accepted` are the model's types."""

    def __init__(self, conversation: Conversation, accepted: Collection[str]) -> None:
        earlier = list_images(conversation)
        self._accepted = accepted
        self._added = 0
        self._left = MAX_CONVERSATION_IMAGES - len(earlier)
        self._bytes_left = MAX_CONVERSATION_IMAGE_BYTES - sum(len(image.data) for image in earlier)

    def admit(self, output: ToolOutput) -> ToolOutput:
        """Return an output without the images that cannot be sent. Its text then says why."""
        images: list[ImageBlock] = []
        notes: list[str] = []
        for image in output.images:
            reason = self._find_reason(image)
            if reason is not None:
                notes.append(f"\n[{image.name} was left out, because {reason}]")
                continue
            self._added += 1
            self._left -= 1
            self._bytes_left -= len(image.data)
            images.append(image)
        return replace(output, text=output.text + "".join(notes), images=tuple(images)) if notes else output

    def _find_reason(self, image: ImageBlock) -> str | None:
        if image.media_type not in self._accepted:
            return _UNREADABLE
        if self._added >= MAX_PROMPT_IMAGES:
            return _TOO_MANY
        return None if self._left > 0 and len(image.data) <= self._bytes_left else _FULL
