"""The files of a random session and what each must hold, kept beside the editor by plain work on texts.

Turns change the first line, people what stands below a gap, so that each of the two can be told from the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.outside import Outside

NAMES = ("a.py", "deep/b.py")
_GAP = "\n\n\n\n# é🙂\n"


@dataclass
class Side:
    first: str = "x = 0"
    below: str = ""

    @property
    def text(self) -> str:
        return f"{self.first}{_GAP}{self.below}"


@dataclass
class File:
    """On disk, and in the editor while it is open there."""

    disk: Side
    buffer: Side | None = None


class Files:
    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._files = {name: File(Side()) for name in NAMES}

    def now(self, name: str) -> Side:
        """As the person sees it."""
        return self._files[name].buffer or self._files[name].disk

    def is_open(self, name: str) -> bool:
        return self._files[name].buffer is not None

    def open(self, name: str) -> None:
        file = self._files[name]
        file.buffer = Side(file.disk.first, file.disk.below)
        self._outside.open(name)

    def close(self, name: str) -> None:
        """What was not saved is gone."""
        self._files[name].buffer = None
        self._outside.client.close_document(self._outside.uri(name))

    def save(self, name: str) -> None:
        now = self.now(name)
        self._files[name].disk = Side(now.first, now.below)
        (self._outside.root / name).write_bytes(now.text.encode())
        self._outside.client.notify("textDocument/didSave", {"textDocument": {"uri": self._outside.uri(name)}})

    def type(self, name: str, at: float, length: int, new: str) -> None:
        """A part of what stands below the gap becomes `new`, told as an incremental change."""
        now = self.now(name)
        start = _between(now.below, round(at * len(now.below)))
        end = _between(now.below, min(len(now.below), start + length))
        now.below = now.below[:start] + new + now.below[end:]
        offset = len(now.first) + len(_GAP)
        self._outside.client.replace(self._outside.uri(name), offset + start, offset + end, new)

    def check(self) -> None:
        for name, file in self._files.items():
            found = (self._outside.root / name).read_bytes().decode()
            assert found == file.disk.text, (name, found, file.disk.text)
            seen = self._outside.client.text(self._outside.uri(name))
            assert file.buffer is None or seen == file.buffer.text, (name, seen, file.buffer.text)


def _between(text: str, place: int) -> int:
    """Not inside of a line end: such a place is none."""
    return place - 1 if text[max(0, place - 1) : place + 1] == "\r\n" else place
