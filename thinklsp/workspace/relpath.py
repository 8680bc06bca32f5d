"""Paths below a workspace folder as values: components that a walk can take one by one. Touches no disk."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from thinklsp.core.errors import PathRefused

_LONGEST_NAME = 255
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class RelPath:
    """A place below a root, in components that can be walked one by one. `shown` is what messages call it."""

    parts: tuple[str, ...]
    shown: str

    @staticmethod
    def of(parts: tuple[str, ...], shown: str | None = None) -> RelPath:
        """Raises PathRefused for a component that no walk may take."""
        shown = "/".join(parts) if shown is None else shown
        for part in parts:
            if part in ("", ".", "..") or "/" in part or "\0" in part:
                raise PathRefused(f"{quoted(shown)} is not a plain path: components may not be empty, `.` or `..`.")
            if not nameable(part):
                raise PathRefused(f"{quoted(shown)} holds half of a character, which is in no name of a file.")
            if len(os.fsencode(part)) > _LONGEST_NAME:
                raise PathRefused("The path holds a name longer than 255 bytes.")
        if len(parts) > _DEEPEST:
            raise PathRefused(f"The path is deeper than {_DEEPEST} folders.")
        return RelPath(parts, shown)

    def child(self, name: str) -> RelPath:
        return RelPath((*self.parts, name), f"{self.shown}/{name}" if self.parts else name)


def nameable(text: str) -> bool:
    """False with half of a character in it that stands for no byte: nothing of that name can be asked for."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def quoted(path: str) -> str:
    """A path inside a sentence: on one line, whatever its name holds."""
    return f"`{path}`" if path.isprintable() and "`" not in path else json.dumps(path)
