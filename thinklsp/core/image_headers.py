"""Parsers for the headers of PNG, JPEG, WebP and GIF files.

The parsers read the format from the file's first bytes, and never decode pixels. They raise no error for any bytes, and
the number of their steps is limited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from thinklsp.core.messages import ImageType

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
_GIF_IMAGE, _GIF_EXTENSION, _GIF_END = 0x2C, 0x21, 0x3B
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
    images, is_complete = _count_gif_images(data, 13 + _measure_gif_colors(data[10]))
    return ImageHeader("image/gif", width, height, is_complete, images > 1)


def _count_gif_images(data: bytes, at: int) -> tuple[int, bool]:
    """Count the images of a GIF, up to two. The flag is True if at least one image is complete."""
    images, is_complete = 0, False
    parts = _MAX_PARTS
    while parts > 0 and at < len(data):
        kind = data[at]
        if kind == _GIF_END or images > 1:
            return images, is_complete
        if kind == _GIF_IMAGE and at + 10 < len(data):
            images += 1
            at += 10 + _measure_gif_colors(data[at + 9]) + 1
        elif kind == _GIF_EXTENSION:
            at += 2
        else:
            break
        # Sub-blocks follow, each with its length. The length 0 ends them.
        while parts > 0 and at < len(data) and data[at]:
            at += data[at] + 1
            parts -= 1
        is_complete = images > 0 and at < len(data) and parts > 0
        at, parts = at + 1, parts - 1
    return images, False


def _measure_gif_colors(flags: int) -> int:
    """Return the size of a color table in bytes, or 0 if there is no table."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _read_big(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "big")


def _read_little(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "little")


_READERS: tuple[Callable[[bytes], ImageHeader | None], ...] = (_read_png, _read_jpeg, _read_webp, _read_gif)
