"""The titles of sessions, derived from prompts. The server imports this module early, so it must load quickly."""

from __future__ import annotations

import re

from thinklsp.core.markdown import track_fences
from thinklsp.core.prompt_syntax import shorten_mentions

MAX_TITLE_LENGTH = 60
# A title comes from the beginning of a line, so the rest of a long line is not read.
_MAX_LINE_CHARACTERS = 1_000
_LINE_MARK = re.compile(r"\s*(?:#{1,6}\s+|>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?|\d{1,3}[.)]\s+)+")
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*\)")
_EMPHASIS = re.compile(r"(\*\*|\*|`+|~~)(?=\S)(.+?)(?<=\S)\1")


def derive_title(prompt: str) -> str:
    """Derive a title from the first line of the prompt that contains words.

    The title of an empty prompt is empty.
    """
    plain = (_strip_markup(line[:_MAX_LINE_CHARACTERS]) for line in _list_title_lines(prompt))
    lines = (line.strip() for line in prompt.splitlines())
    title_line = next((line for line in plain if any(letter.isalnum() for letter in line)), None)
    return truncate_title(title_line or next(filter(None, lines), ""))


def _list_title_lines(prompt: str) -> list[str]:
    """Return the lines outside code blocks, followed by the lines inside code blocks."""
    lines = list(track_fences(prompt.splitlines()))
    outside = [line for line, before, after in lines if not before and not after]
    return outside + [line for line, before, after in lines if before and after]


def _strip_markup(line: str) -> str:
    line = _LINE_MARK.sub("", line, count=1) if _LINE_MARK.match(line) else line
    line = _LINK.sub(r"\1", line)
    line = shorten_mentions(line)
    for _ in range(2):
        line = _EMPHASIS.sub(r"\2", line)
    return " ".join(line.split())


def truncate_title(line: str, length: int = MAX_TITLE_LENGTH) -> str:
    """Truncate a line to `length` characters, at a word boundary if possible."""
    if len(line) <= length:
        return line
    beginning = line[: length - 1]
    words = beginning.rpartition(" ")[0]
    return (words if len(words) > length * 2 // 3 else beginning).rstrip() + "…"
