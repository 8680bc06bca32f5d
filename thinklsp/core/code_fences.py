"""The code fences of Markdown, which mark the lines of a text that are code.

A fence may begin on the line of a list item. It then ends at the latest with the item.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# The line of a list item, or of an item inside an item, may begin with a fence. Backticks that are followed by more
# backticks on the same line mark inline code and do not open a fence.
_OPENS = re.compile(
    r"(?:(?P<item>(?: {0,3}(?:[-+*]|\d{1,9}[.)])(?: {1,4}|\t))+)| {0,3})(?P<mark>`{3,}(?=[^`]*\Z)|~{3,})"
)
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
        before = "" if is_after_item(fence, body) else fence
        fence = update_fence(fence, body)
        yield body, before, fence


def update_fence(fence: str, body: str) -> str:
    """Return the mark of the code fence that is open after a line. `fence` is the mark of the one open before it.

    The mark of a fence in a list item is indented as the text of the item.
    """
    if fence and not is_after_item(fence, body):
        # Few lines contain such a mark, and this look is faster than the pattern.
        mark = fence.lstrip(" ")
        if mark[:3] not in body:
            return fence
        closes = _CLOSES.fullmatch(body.expandtabs(4)[len(fence) - len(mark) :])
        return "" if closes and closes["mark"].startswith(mark) else fence
    if "```" not in body and "~~~" not in body:
        return ""
    if (opens := _OPENS.match(body)) is None:
        return ""
    return " " * len((opens["item"] or "").expandtabs(4)) + opens["mark"]


def is_after_item(fence: str, body: str) -> bool:
    """Return True if a line is behind the list item of a code fence, because it is less indented than the item."""
    indentation = len(fence) - len(fence.lstrip(" "))
    return indentation > 0 and bool(body.strip()) and not body.expandtabs(4).startswith(" " * indentation)


def wrap_in_fence(text: str) -> str:
    """Wrap the text in a code fence that is longer than any fence in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
