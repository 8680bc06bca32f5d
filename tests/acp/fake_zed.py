"""Clients as they are in the field, by what their sources do with files: Zed, codecompanion.nvim, Toad, and others.

`FakeZed` holds buffers with unsaved text, applies a write as the difference to the agent's last read, so that what the
user types meanwhile stays, and saves. Shares no code with the product.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from tests.acp.buffers import Buffer
from tests.acp.client import NoAnswer, Peer, Refuse

Json = Any
FILES: Json = {"fs": {"readTextFile": True, "writeTextFile": True}}
INVALID_PARAMS, NOT_FOUND = -32602, -32002


class FilePeer(Peer):
    """A client with files below `root`. `on_read` and `on_write` are called before each request, with its path.

    `reads` and `writes`: the paths, and what was asked or written, in their order.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.buffers: dict[str, Buffer] = {}
        self.reads: list[Json] = []
        self.writes: list[tuple[str, str]] = []
        self.on_read: Callable[[str], None] = lambda path: None
        self.on_write: Callable[[str], None] = lambda path: None
        if self.announced.get("fs", {}).get("readTextFile"):
            self.handlers["fs/read_text_file"] = self._read
        if self.announced.get("fs", {}).get("writeTextFile"):
            self.handlers["fs/write_text_file"] = self._write

    # What the user does

    def path(self, name: str) -> str:
        return str(self.root / name)

    def open(self, name: str, text: str | None = None) -> Buffer:
        """Open a file with unsaved text, or with what is on disk."""
        if text is None:
            text = (self.root / name).read_bytes().decode()
        return self.buffers.setdefault(self.path(name), Buffer(text))

    def text(self, name: str) -> str:
        """Return what the user sees of a file."""
        path = self.path(name)
        return self.buffers[path].text if path in self.buffers else Path(path).read_bytes().decode()

    # What the agent asks for

    def _read(self, params: Json) -> Json:
        path = params["path"]
        self.reads.append(params)
        self.on_read(path)
        return {"content": _part(self.read(path), params.get("line"), params.get("limit"))}

    def _write(self, params: Json) -> Json:
        path = params["path"]
        self.writes.append((path, params["content"]))
        self.on_write(path)
        return self.write(path, params["content"])

    def read(self, path: str) -> str:
        raise NotImplementedError

    def write(self, path: str, content: str) -> Json:
        raise NotImplementedError


def _part(text: str, line: int | None, limit: int | None) -> str:
    """`line` is 1-based. Raises Refuse beyond the end, as Zed does."""
    if line is None and limit is None:
        return text
    lines = text.splitlines(keepends=True)
    first = (line or 1) - 1
    if first < 0 or first > len(lines):
        raise Refuse(INVALID_PARAMS, "Attempting to read beyond the end of the file")
    return "".join(lines[first : None if limit is None else first + limit])


def _disk(path: str) -> str:
    """Raises Refuse."""
    try:
        return Path(path).read_bytes().decode()
    except FileNotFoundError:
        raise Refuse(NOT_FOUND, "Resource not found") from None
    except (OSError, UnicodeDecodeError):
        raise Refuse(-32603, "Internal error") from None


class FakeZed(FilePeer):
    """`formats`: what saving makes of the text."""

    name = "zed"
    capabilities: ClassVar[Json] = FILES | {
        "terminal": True,
        "auth": {"terminal": True},
        "session": {"configOptions": {"boolean": {}}},
        "elicitation": {"form": {}, "url": {}},
    }

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.formats: Callable[[str], str] = lambda text: text
        self.handlers["elicitation/create"] = lambda params: {"action": "cancel"}

    def read(self, path: str) -> str:
        if path not in self.buffers:
            self.buffers[path] = Buffer(_disk(path))
        return self.buffers[path].take_snapshot()

    def write(self, path: str, content: str) -> Json:
        if path not in self.buffers:
            self.buffers[path] = Buffer(_disk(path) if os.path.exists(path) else "")
        buffer = self.buffers[path]
        buffer.write(content)
        self._format(buffer)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(buffer.text.encode())
        return {}

    def _format(self, buffer: Buffer) -> None:
        text = self.formats(buffer.text)
        if text != buffer.text:
            buffer.replace(0, len(buffer.text), text)


def strip_trailing(text: str) -> str:
    """Format as many editors do on save."""
    lines = [line.rstrip() for line in text.split("\n")]
    return "\n".join(lines).rstrip("\n") + "\n" if text.strip() else text


class CodeCompanion(FilePeer):
    """Reads the disk with line feeds, also for open files. A missing file is empty; unknown requests have no answer.

    A write replaces the lines of an open file by the text cut at its line breaks, so that the text's last line break
    becomes an empty line, and saves. A file that is not open gets the very text.
    """

    name = "CodeCompanion.nvim"
    capabilities: ClassVar[Json] = FILES

    def read(self, path: str) -> str:
        return _disk(path).replace("\r\n", "\n") if os.path.exists(path) else ""

    def write(self, path: str, content: str) -> Json:
        if path in self.buffers:
            content += "\n"
            self.buffers[path] = Buffer(content)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(content.encode())
        return None

    async def answer(self, method: str, params: Json) -> Json:
        if method not in self.handlers:
            raise NoAnswer
        return await super().answer(method, params)


class Toad(FilePeer):
    """Reads and writes the disk alone, and makes no folders."""

    name = "toad"
    capabilities: ClassVar[Json] = FILES | {"terminal": True}

    def read(self, path: str) -> str:
        return _disk(path) if os.path.exists(path) else ""

    def write(self, path: str, content: str) -> Json:
        try:
            Path(path).write_bytes(content.encode())
        except OSError:
            raise Refuse(-32603, "Failed to write file") from None
        return {}


class Avante(FilePeer):
    """Joins the lines of an open file by line feeds, without the last one. It writes the disk and opens it again.

    A write that fails has a result, too. Neovim does not open an unsaved file again; then a write has no answer.
    """

    name = "avante.nvim"
    capabilities: ClassVar[Json] = FILES

    def read(self, path: str) -> str:
        text = self.buffers[path].text.removesuffix("\n") if path in self.buffers else _disk(path)
        return text.replace("\r", "")

    def write(self, path: str, content: str) -> Json:
        is_unsaved = path in self.buffers and self.buffers[path].text != _disk(path)
        try:
            Path(path).write_bytes(content.encode())
        except OSError:
            return f"Failed to write file: {path}"
        if is_unsaved:
            raise NoAnswer
        if path in self.buffers:
            self.buffers[path] = Buffer(content)
        return None


class ReadOnly(FakeZed):
    """A client without `writeTextFile`."""

    name = "reader"
    capabilities: ClassVar[Json] = {"fs": {"readTextFile": True}}


class NoFiles(FakeZed):
    """A client without files."""

    name = "bare"
    capabilities: ClassVar[Json] = {}


class Silent(FakeZed):
    """A client that announces everything and answers nothing."""

    name = "silent"

    async def answer(self, method: str, params: Json) -> Json:
        await asyncio.sleep(0)
        raise NoAnswer
