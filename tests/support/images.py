"""Small images of all kinds, made by hand: one correct file of each, and the broken ones that each kind can be."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping

from thinklsp.core.images import parse_image
from thinklsp.core.messages import ImageBlock, ImageType


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width: int = 2, height: int = 3, *, shade: int = 0) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = (b"\0" + bytes([shade]) * min(width, 64)) * min(height, 64)
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def jpeg(width: int = 2, height: int = 3, *, frame: int = 0xC0) -> bytes:
    """With a thumbnail that has another size and its own end, in the segment before the frame."""
    thumbnail = segment(0xE1, b"Exif\0\0\xff\xd8\xff\xc0\0\x0b\x08\0\x63\0\x63\x01\x01\x11\0\xff\xd9")
    header = segment(frame, struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\0")
    return b"\xff\xd8" + thumbnail + b"\xff" + header + segment(0xDA, b"\x01\x01\0\0\x3f\0") + b"\x12\x34\xff\xd9"


def webp_file(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"WEBP" + b"".join(name + struct.pack("<I", len(content)) + content for name, content in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp(width: int = 2, height: int = 3) -> bytes:
    return webp_file((b"VP8 ", b"\x10\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height) + b"\0" * 6))


def webp_lossless(width: int = 2, height: int = 3) -> bytes:
    return webp_file((b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + b"\0" * 7))


def webp_extended(width: int = 2, height: int = 3, *, flags: int = 0) -> bytes:
    size = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    return webp_file((b"VP8X", bytes([flags, 0, 0, 0]) + size), (b"VP8L", b"\x2f" + b"\0" * 11))


GIF_PICTURE = b"\x2c" + struct.pack("<HHHHB", 0, 0, 2, 3, 0x80) + b"\0\0\0\xff\xff\xff" + b"\x02\x02\x44\x01\x00"
GIF_DELAY = b"\x21\xf9\x04\0\x0a\0\0\0"


def gif(width: int = 2, height: int = 3, *, pictures: int = 1) -> bytes:
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    return head + (GIF_DELAY + GIF_PICTURE) * pictures + b"\x3b"


MAKERS: Mapping[ImageType, Callable[..., bytes]] = {
    "image/png": png,
    "image/jpeg": jpeg,
    "image/webp": webp,
    "image/gif": gif,
}


def image(media_type: ImageType = "image/png", name: str = "shot.png") -> ImageBlock:
    return parse_image(name, MAKERS[media_type](), media_type)
