"""The code fences of Markdown, which mark the lines of a text that are code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# Backticks that are followed by more backticks on the same line mark inline code and do not open a fence.
_OPENS = re.compile(r" {0,3}(?P<mark>`{3,}(?=[^`]*\Z)|~{3,})")
_MARKS = ("```", "~~~")
_CLOSES = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})[ \t]*")


def filter_outside_fences(bodies: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line outside code fences. The lines have no line endings."""
    for number, (body, before, after) in enumerate(track_fences(bodies)):
        if not before and not after:
            yield number, body


def find_open_fence(bodies: Sequence[str]) -> str:
    """Return the mark that closes the code fence still open after the last line, or an empty string if none is open."""
    return next(reversed([after for _, _, after in track_fences(bodies)]), "")


def track_fences(bodies: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each line with two marks: the code fence open before the line and the one open after the line."""
    fence = ""
    for body in bodies:
        before = fence
        fence = update_fence(fence, body)
        yield body, before, fence


def update_fence(fence: str, body: str) -> str:
    """Return the mark of the code fence that is open after a line. `fence` is the mark of the one open before it."""
    # Few lines begin with such a mark, and this look is faster than the patterns.
    mark = body.lstrip(" ")[:3]
    if mark != (fence[:3] or mark) or mark not in _MARKS:
        return fence
    if not fence:
        return opens["mark"] if (opens := _OPENS.match(body)) else ""
    return "" if (closes := _CLOSES.fullmatch(body)) and closes["mark"].startswith(fence) else fence


def wrap_in_fence(text: str) -> str:
    """Wrap the text in a code fence that is longer than any fence in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
