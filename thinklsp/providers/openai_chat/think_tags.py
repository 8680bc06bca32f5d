"""Takes `<think>…</think>` at the start of an answer apart from the answer, however the text is cut.

Only for servers that leave the model's thinking in its text, and only where the user says so: a model may speak about
such tags. Therefore an opening tag counts only in front of everything else, blanks aside, and only once.

Some templates write the opening tag into the prompt, so that the model sends nothing but the closing one. While text
arrives that cannot be told from an answer, and it is not held back. When the answer is whole, a closing tag that was
never opened counts if it stands alone on its line; a mention of it in a sentence does not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, assert_never

_OPEN = "<think>"
_CLOSE = "</think>"
_LONE_CLOSE = re.compile(r"^[ \t]*</think>[ \t]*\r?$", re.MULTILINE)
_LEADING_BLANKS = 64


@dataclass(frozen=True, slots=True)
class Piece:
    kind: Literal["thinking", "text"]
    text: str


class ThinkTagSplitter:
    """Lives with one answer. Blanks behind either tag belong to neither side."""

    def __init__(self) -> None:
        self._state: Literal["start", "thinking", "text"] = "start"
        self._held = ""
        self._at_border = False
        self.opened = False

    def feed(self, text: str) -> list[Piece]:
        """What can be told apart by now; at most a tag's length is held back."""
        pieces: list[Piece] = []
        text, self._held = self._held + text, ""
        while text:
            match self._state:
                case "start":
                    text = self._start(text)
                case "thinking":
                    text = self._think(text, pieces)
                case "text":
                    self._emit("text", text, pieces)
                    text = ""
                case _:
                    assert_never(self._state)
        return pieces

    def finish(self) -> list[Piece]:
        """The rest. Thinking that was never closed stays thinking."""
        pieces: list[Piece] = []
        self._emit("thinking" if self._state == "thinking" else "text", self._held, pieces)
        self._held = ""
        return pieces

    def _start(self, text: str) -> str:
        """What is left to look at; may be held back as a whole."""
        bare = text.lstrip()
        if len(text) - len(bare) <= _LEADING_BLANKS:
            if bare.startswith(_OPEN):
                self._state, self._at_border, self.opened = "thinking", True, True
                return bare.removeprefix(_OPEN)
            if _OPEN.startswith(bare):
                self._held = text
                return ""
        self._state = "text"
        return text

    def _think(self, text: str, pieces: list[Piece]) -> str:
        thought, closed, rest = text.partition(_CLOSE)
        if closed:
            self._emit("thinking", thought, pieces)
            self._state, self._at_border = "text", True
            return rest
        kept = next((size for size in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:size])), 0)
        self._emit("thinking", text[: len(text) - kept], pieces)
        self._held = text[len(text) - kept :]
        return ""

    def _emit(self, kind: Literal["thinking", "text"], text: str, pieces: list[Piece]) -> None:
        if self._at_border:
            text = text.lstrip()
        if text:
            self._at_border = False
            pieces.append(Piece(kind, text))


def split_unopened(text: str) -> tuple[str, str] | None:
    """Thinking and answer of a whole text in which a closing tag stands alone on its line; None where there is none."""
    closing = _LONE_CLOSE.search(text)
    return None if closing is None else (text[: closing.start()].strip(), text[closing.end() :].lstrip())
