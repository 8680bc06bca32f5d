"""The checks of images that all simulated services share. Each service has its own error messages."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Literal

from tests.stand_ins.rejections import reject, reject_type
from thinklsp.core.images import read_header

ImageFault = Literal["base64", "size", "type", "content"]
_MAX_URL_CHARS = 27 << 20
_DATA_URL = re.compile(r"data:(?P<type>[\w.+/-]*);base64,", re.ASCII)


def find_image_fault(data: str, media_type: str, max_chars: int) -> ImageFault | None:
    """Return the fault of an image in base64, or None for a valid image.

    `size`: the text is longer than `max_chars`. `base64`: the text cannot be decoded. `content`: the bytes are not a
    complete image. `type`: the bytes are an image of another type.
    """
    if len(data) > max_chars:
        return "size"
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return "base64"
    header = read_header(content)
    if header is None or not (header.width and header.height and header.is_complete):
        return "content"
    return None if header.media_type == media_type else "type"


def _split_data_url(url: str) -> tuple[str, str] | None:
    """Return the media type and the base64 text of a data URL, or None for another URL."""
    match = _DATA_URL.match(url)
    return None if match is None else (match["type"].replace("image/jpg", "image/jpeg"), url[match.end() :])


def check_image_url(url: Any, place: str) -> None:
    """Check the image in a data URL, as the OpenAI service and compatible servers do.

    The service fetches the image of any other URL.
    """
    if not isinstance(url, str):
        reject_type(place, "a string", url)
    if not url.startswith("data:"):
        return
    parts = _split_data_url(url)
    if parts is None or not parts[0].startswith("image/"):
        reject(
            f"Invalid '{place}'. Expected a base64-encoded data URL with an image MIME type.", place, "invalid_value"
        )
    match find_image_fault(parts[1], parts[0], _MAX_URL_CHARS):
        case "size":
            reject("The image is too large.", place, "image_too_large")
        case "base64":
            reject("The image data is not valid base64.", place, "invalid_base64_image")
        case "type":
            reject(f"The image data is not of the type {parts[0]}.", place, "unsupported_image_media_type")
        case "content":
            reject("The image data you provided does not represent a valid image.", place, "invalid_image")
        case None:
            pass
