"""Images in prompts: their headers, their checks, their texts, and their replacement for models that take none."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import get_args

from thinklsp.core.errors import ImageRefused
from thinklsp.core.messages import Conversation, IdentityMemo, ImageBlock, ImageType, TextBlock, UserMessage
from thinklsp.core.text_safety import format_size

# The parts of a file that a parser steps through. A file of 5 MiB with usual parts has about 20,000.
_MAX_PARTS = 100_000
_PNG_START = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_PNG_END = b"IEND\xaeB\x60\x82"
_JPEG_START, _JPEG_END = b"\xff\xd8\xff", b"\xff\xd9"
# The markers of a JPEG frame header, which contains the size. 0xC4, 0xC8 and 0xCC are other tables.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN = 0xDA
# Markers without a length: 0x01 and the restart markers.
_JPEG_BARE_MARKERS = frozenset((0x01, *range(0xD0, 0xD8)))
_GIF_STARTS = (b"GIF87a", b"GIF89a")
_GIF_DELAY, _GIF_END = b"\x21\xf9\x04", b";"
_WEBP_START_CODE, _WEBP_LOSSLESS_SIGNATURE, _WEBP_ANIMATED = b"\x9d\x01\x2a", 0x2F, 0x02


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The facts in an image's header. `is_complete` is False if the end of the file is missing.

    `width` and `height` are 0 if the header is damaged.
    """

    media_type: ImageType
    width: int = 0
    height: int = 0
    is_complete: bool = False
    is_animated: bool = False


def read_header(data: bytes) -> ImageHeader | None:
    """Read the header of an image. Return None if the first bytes belong to no supported format."""
    return next((header for read in _READERS if (header := read(data)) is not None), None)


def _read_png(data: bytes) -> ImageHeader | None:
    if not data.startswith(_PNG_START[:8]):
        return None
    if not data.startswith(_PNG_START) or len(data) < 24:
        return ImageHeader("image/png")
    return ImageHeader("image/png", _read_big(data, 16, 4), _read_big(data, 20, 4), _PNG_END in data[24:])


def _read_jpeg(data: bytes) -> ImageHeader | None:
    if not data.startswith(_JPEG_START):
        return None
    at, width, height = 2, 0, 0
    for _ in range(_MAX_PARTS):
        marker = _find_jpeg_marker(data, at)
        if marker is None or data[marker] == _JPEG_END[1]:
            break
        if data[marker] in _JPEG_BARE_MARKERS:
            at = marker + 1
            continue
        length = _read_big(data, marker + 1, 2)
        if length < 2:
            break
        if data[marker] in _JPEG_FRAMES:
            height, width = _read_big(data, marker + 4, 2), _read_big(data, marker + 6, 2)
        if data[marker] == _JPEG_SCAN:
            return ImageHeader("image/jpeg", width, height, data.rfind(_JPEG_END) >= marker + 1 + length)
        at = marker + 1 + length
    return ImageHeader("image/jpeg", width, height)


def _find_jpeg_marker(data: bytes, at: int) -> int | None:
    """Return the place of the marker's second byte, or None if there is no marker. Any number of 0xFF may precede."""
    if at >= len(data) or data[at] != 0xFF:
        return None
    end = at + 64
    while at < min(end, len(data)) and data[at] == 0xFF:
        at += 1
    return at if at < len(data) and data[at] not in (0x00, 0xFF) else None


def _read_webp(data: bytes) -> ImageHeader | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    is_complete = len(data) >= _read_little(data, 4, 4) + 8
    kind = data[12:16]
    width = height = 0
    is_animated = False
    if kind == b"VP8X" and len(data) >= 30:
        width, height = _read_little(data, 24, 3) + 1, _read_little(data, 27, 3) + 1
        is_animated = bool(data[20] & _WEBP_ANIMATED)
    elif kind == b"VP8L" and len(data) >= 25 and data[20] == _WEBP_LOSSLESS_SIGNATURE:
        bits = _read_little(data, 21, 4)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 " and len(data) >= 30 and data[23:26] == _WEBP_START_CODE:
        width, height = _read_little(data, 26, 2) & 0x3FFF, _read_little(data, 28, 2) & 0x3FFF
    return ImageHeader("image/webp", width, height, is_complete, is_animated)


def _read_gif(data: bytes) -> ImageHeader | None:
    if not data.startswith(_GIF_STARTS):
        return None
    if len(data) < 13:
        return ImageHeader("image/gif")
    width, height = _read_little(data, 6, 2), _read_little(data, 8, 2)
    # A block with a delay precedes each picture of an animation, and null bytes may follow the last block.
    pictures = data.count(_GIF_DELAY)
    is_complete = data.rstrip(b"\0").endswith(_GIF_END)
    return ImageHeader("image/gif", width, height, is_complete, is_animated=pictures > 1)


def _read_big(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "big")


def _read_little(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "little")


_READERS: tuple[Callable[[bytes], ImageHeader | None], ...] = (_read_png, _read_jpeg, _read_webp, _read_gif)


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
        raise _build_size_error(name)
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
        raise _build_size_error(name)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ImageRefused(f"{name} is not valid base64. Attach it again.") from None
    return parse_image(name, data, media_type)


def _build_size_error(name: str) -> ImageRefused:
    limit = f"{format_size(MAX_IMAGE_BYTES)}, the size limit for images"
    return ImageRefused(f"{name} is larger than {limit}. Shrink it, or save it as JPEG.")


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
    return tuple(
        block
        for message in conversation
        if message.role == "user"
        for block in message.blocks
        if isinstance(block, ImageBlock)
    )


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
