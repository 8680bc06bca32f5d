"""Blocks of lines between two marks, inserted into a file of the user and taken out again, byte for byte.

A block goes to the end of a file. In JSON with comments it goes behind an opening brace. A file that did not exist gets
a mark that says so, so that a removal can delete it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import find_object

_BEGIN, _END = ">>> thinklsp setup", "<<< thinklsp setup <<<"
_NEW_FILE, _EMPTY_FILE = ", new file", ", empty file"
_SKELETON = b"{\n}\n"


@dataclass(frozen=True)
class ConfigPlace:
    """A file that can hold a block. `comment` begins a comment line. A removal never deletes the folder `root`.

    `keys` is None for a file of lines. For JSON with comments, it is the path of keys to the object of the block.
    """

    path: Path
    root: Path
    comment: str
    keys: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Block:
    """The lines to add to a file. In JSON, they are the members of an object, without a comma at the end."""

    place: ConfigPlace
    lines: tuple[str, ...]


class BrokenBlock(ThinkLspError):
    """A block whose end mark is missing."""


def insert_block(data: bytes | None, block: Block) -> bytes:
    """Return the file's content with the block; `data` is None if there is no file. A block in `data` is replaced.

    Raises ThinkLspError if the content is not UTF-8, or not JSON with an object at the place.
    """
    text, place = decode_text(data or b"", block.place.path), block.place
    base = remove_block(data, place)
    if place.keys is not None:
        return _insert_member(base, block)
    found = _find(data or b"", place)
    if found is not None and data is not None and base is not None:
        newline = select_newline(data[found.start :])
        return data[: found.start] + _mark(block, block.lines, found.origin, newline) + data[found.end :]
    head = base or b""
    newline = select_newline(head)
    if base is None or head.endswith(b"\n"):
        return head + _mark(block, block.lines, "" if base is not None else _NEW_FILE, newline) + newline.encode()
    # Without a line break at its end, the file gets none behind the block either.
    return head + (newline.encode() if text else b"") + _mark(block, block.lines, "", newline)


def remove_block(data: bytes | None, place: ConfigPlace) -> bytes | None:
    """Return the file's content without blocks, or None if the file was created for the block and holds nothing else.

    Raises BrokenBlock.
    """
    origin, skeleton = "", b"" if place.keys is None else _SKELETON
    while data is not None and (found := _find(data, place)) is not None:
        origin = origin or found.origin
        start, end = _widen(data, found, is_member=place.keys is not None)
        data = data[:start] + data[end:]
    if origin == _NEW_FILE and data == skeleton:
        return None
    return data.removesuffix(skeleton) if data is not None and origin == _EMPTY_FILE else data


@dataclass(frozen=True)
class _Found:
    """A block from its first mark to the end of its last one. `origin`: what the file was before, from the mark."""

    start: int
    end: int
    origin: str


def _mark(block: Block, lines: Sequence[str], origin: str, newline: str, indent: str = "") -> bytes:
    comment = block.place.comment
    marked = [f"{comment} {_BEGIN}{origin} >>>", *lines, f"{comment} {_END}"]
    return newline.join(indent + line for line in marked).encode()


def _find(data: bytes, place: ConfigPlace) -> _Found | None:
    """Return the first block. Raises BrokenBlock."""
    comment = re.escape(place.comment)
    begin = re.search(rf"^[ \t]*{comment} {_BEGIN}(.*?) >>>".encode(), data, re.MULTILINE)
    if begin is None:
        return None
    end = re.compile(rf"^[ \t]*{comment} {_END}".encode(), re.MULTILINE).search(data, begin.end())
    if end is None:
        raise BrokenBlock(
            f"The block of thinklsp in {place.path} has no end. Delete the block by hand from the line "
            f"`{begin[0].decode().strip()}`."
        )
    return _Found(begin.start(), end.end(), begin[1].decode())


def _widen(data: bytes, found: _Found, *, is_member: bool) -> tuple[int, int]:
    """Return the span of the block with the line breaks that were inserted with it."""
    start, end = found.start, found.end
    newline = select_newline(data[start:]).encode()
    is_last = end == len(data)
    end += next((len(each) for each in (b"\r\n", b"\n") if data.startswith(each, end)), 0)
    if (is_member or is_last) and data[:start].endswith(newline):
        start -= len(newline)
    return start, end


def _insert_member(data: bytes | None, block: Block) -> bytes:
    """Add the block behind the opening brace of its object. Objects that are missing become part of the block."""
    place, keys = block.place, block.place.keys or ()
    origin = _NEW_FILE if data is None else "" if data.strip() else _EMPTY_FILE
    text = decode_text((data or b"") + (_SKELETON if origin else b""), place.path)
    found = find_object(text, keys)
    if found is None:
        raise explain_wrong_json(place.path)
    missing = keys[found.depth :]
    lines = [f'{"    " * level}"{key}": {{' for level, key in enumerate(missing)]
    lines += ["    " * len(missing) + line for line in block.lines]
    lines += ["    " * level + "}" for level in reversed(range(len(missing)))]
    if not found.is_empty:
        lines[-1] += ","
    newline = select_newline(text.encode())
    marked = _mark(block, lines, origin, newline, "    " * (found.depth + 1))
    head, rest = text[: found.start].encode(), text[found.start :].encode()
    return head + newline.encode() + marked + newline.encode() + rest


def explain_wrong_json(path: Path) -> ThinkLspError:
    return ThinkLspError(f"{path} is not valid JSON with an object, so nothing was changed. Check the file.")


def select_newline(data: bytes) -> str:
    """Return the line break that the data uses first."""
    first = data.find(b"\n")
    return "\r\n" if first > 0 and data[first - 1 : first] == b"\r" else "\n"


def decode_text(data: bytes, path: Path) -> str:
    """Raises ThinkLspError if the data is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ThinkLspError(
            f"{path} is not encoded in UTF-8, so nothing was changed. Convert the file, then try again."
        ) from None
