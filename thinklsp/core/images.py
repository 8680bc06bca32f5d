"""Images in prompts: their checks, their texts, and their replacement for models that take none."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable
from dataclasses import replace
from hashlib import sha256
from typing import get_args

from thinklsp.core.errors import ImageRefused
from thinklsp.core.identity_memo import IdentityMemo
from thinklsp.core.image_headers import read_header
from thinklsp.core.messages import Conversation, ImageBlock, ImageType, TextBlock, UserMessage

MAX_IMAGE_BYTES = 5_000_000
MAX_IMAGE_SIDE = 8_000
MAX_PROMPT_IMAGES = 20
# The limits of a whole conversation. With base64, 14 MB stay below the request limits of all providers.
MAX_CONVERSATION_IMAGES = 60
MAX_CONVERSATION_IMAGE_BYTES = 14_000_000

IMAGE_TYPES: tuple[ImageType, ...] = get_args(ImageType)
_TYPE_NAMES: dict[ImageType, str] = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/webp": "WebP",
    "image/gif": "GIF",
}
_SUPPORTED = "Use a PNG, JPEG, WebP or GIF file."
_TYPES_BY_SUFFIX: dict[str, ImageType] = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
}
_ALIASES = {"image/jpg": "image/jpeg"}
# An image has at most this many tokens at any provider, because larger images are scaled down.
_MAX_TOKENS = 4_800
_PIXELS_PER_TOKEN = 750

_ENCODED: IdentityMemo[str] = IdentityMemo()
_REPLACED: IdentityMemo[tuple[Collection[str], UserMessage]] = IdentityMemo()


def find_image_type(path: str) -> ImageType | None:
    """Return the media type that the name of a file states, or None if the file is not a supported image."""
    stem, _, suffix = path.rpartition(".")
    return _TYPES_BY_SUFFIX.get(suffix.lower()) if stem else None


def parse_image(name: str, data: bytes, media_type: str) -> ImageBlock:
    """Check the bytes of an image. Raises ImageRefused if the image is damaged, too large, or of another type.

    `name` must not contain control characters.
    """
    stated = _ALIASES.get(media_type.lower(), media_type.lower())
    if stated not in IMAGE_TYPES:
        raise ImageRefused(f"{name} has the type {media_type[:60]!r}, which cannot be sent. {_SUPPORTED}")
    if not data:
        raise ImageRefused(f"{name} is empty. Save it again, or choose another file.")
    if len(data) > MAX_IMAGE_BYTES:
        raise _build_size_error(name, len(data))
    header = read_header(data)
    if header is None:
        raise ImageRefused(f"{name} is not an image. {_SUPPORTED}")
    kind = _TYPE_NAMES[header.media_type]
    if header.media_type != stated:
        raise ImageRefused(f"{name} is a {kind} file, not {stated}. Rename or convert the file.")
    if not (header.width and header.height and header.is_complete):
        raise ImageRefused(f"{name} is damaged or incomplete. Save it again, or choose another file.")
    if max(header.width, header.height) > MAX_IMAGE_SIDE:
        size = f"{header.width:,} × {header.height:,} pixels"
        raise ImageRefused(f"{name} has {size}; at most {MAX_IMAGE_SIDE:,} per side can be sent. Shrink it.")
    if header.is_animated:
        raise ImageRefused(f"{name} is an animation, which models do not take. Send a still picture instead.")
    digest = sha256(data).hexdigest()
    return ImageBlock(header.media_type, data, digest, name, header.width, header.height)


def decode_image(name: str, text: str, media_type: str) -> ImageBlock:
    """Check an image that is encoded in base64. Raises ImageRefused like `parse_image`."""
    if len(text) > MAX_IMAGE_BYTES // 3 * 4 + 8:
        raise _build_size_error(name, len(text) // 4 * 3)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ImageRefused(f"{name} is not valid base64. Attach it again.") from None
    return parse_image(name, data, media_type)


def _build_size_error(name: str, size: int) -> ImageRefused:
    limit = f"at most {MAX_IMAGE_BYTES:,} can be sent. Shrink it, or save it as JPEG."
    return ImageRefused(f"{name} has {size:,} bytes; {limit}")


def check_totals(new: Collection[ImageBlock], earlier: Iterable[ImageBlock] = ()) -> None:
    """Raise ImageRefused if there are too many images in a prompt, or together with the earlier ones of a session."""
    if not new:
        return
    if len(new) > MAX_PROMPT_IMAGES:
        raise ImageRefused(f"The prompt has {len(new)} images; at most {MAX_PROMPT_IMAGES} can be sent at once.")
    images = (*earlier, *new)
    size = sum(len(image.data) for image in images)
    if len(images) > MAX_CONVERSATION_IMAGES or size > MAX_CONVERSATION_IMAGE_BYTES:
        raise ImageRefused(
            f"With this prompt, the session has {len(images)} images with {format_size(size)}; at most "
            f"{MAX_CONVERSATION_IMAGES} with {format_size(MAX_CONVERSATION_IMAGE_BYTES)} can be sent. "
            "Start a new session, compact this one, or send fewer images."
        )


def list_images(conversation: Conversation) -> tuple[ImageBlock, ...]:
    """Return all images of a conversation, in order."""
    return tuple(image for message in conversation if isinstance(message, UserMessage) for image in message.images)


def encode_base64(image: ImageBlock) -> str:
    """Return the bytes of an image in base64. The text is kept for as long as the block, because each step sends it."""
    text = _ENCODED.find(image)
    return _ENCODED.store(image, base64.b64encode(image.data).decode("ascii")) if text is None else text


def build_data_url(image: ImageBlock) -> str:
    return f"data:{image.media_type};base64,{encode_base64(image)}"


def describe_image(image: ImageBlock) -> str:
    """Return a description of an image, such as `shot.png (PNG, 800 × 600 pixels, 12 kB)`."""
    size = f"{image.width:,} × {image.height:,} pixels, {format_size(len(image.data))}"
    return f"{image.name} ({_TYPE_NAMES[image.media_type]}, {size})"


def format_placeholder(image: ImageBlock) -> str:
    """Return the text that stands for an image in transcripts and exports."""
    return f"[image: {describe_image(image)}]"


def format_type_names(media_types: Iterable[ImageType]) -> str:
    return ", ".join(_TYPE_NAMES[media_type] for media_type in media_types)


def estimate_image_tokens(image: ImageBlock) -> int:
    """Return the largest number of tokens that an image has at any provider."""
    return min(_MAX_TOKENS, image.width * image.height // _PIXELS_PER_TOKEN + 1)


def replace_images(conversation: Conversation, accepted: Collection[str]) -> Conversation:
    """Replace the images whose types are not in `accepted` with texts. Without such images, return the conversation.

    The same message always gives the same object, so that its encoded bytes can be reused.
    """
    if all(image.media_type in accepted for image in list_images(conversation)):
        return conversation
    return tuple(
        _replace_in_message(message, accepted) if isinstance(message, UserMessage) and message.images else message
        for message in conversation
    )


def _replace_in_message(message: UserMessage, accepted: Collection[str]) -> UserMessage:
    entry = _REPLACED.find(message)
    if entry is None or entry[0] != accepted:
        blocks = (
            TextBlock(f"[image: {describe_image(block)}; not sent, because this model cannot read it]")
            if isinstance(block, ImageBlock) and block.media_type not in accepted
            else block
            for block in message.blocks
        )
        entry = _REPLACED.store(message, (accepted, replace(message, blocks=tuple(blocks))))
    return entry[1]


def format_size(count: int) -> str:
    """Format a number of bytes, such as `12 kB` or `5.2 MB`."""
    if count < 1_000:
        return f"{count} bytes"
    return f"{count / 1_000_000:.1f} MB" if count >= 999_500 else f"{count / 1_000:.0f} kB"
