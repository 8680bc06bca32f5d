"""The chat document parser. It finds the headings, the code fences, the prompt and the session.

The parser looks only at the few lines that can contain a heading or a fence. It caches its results by text, because
code lenses, completion and commands read the same version of a document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from thinklsp.core.markdown import is_after_item, update_fence

YOU = "## You"
BLANK = " \t\r\n"
BOM = "\ufeff"

# The number of texts to cache, enough for a few documents before and after a change.
_CACHE_SIZE = 4
# Strings that occur in every heading and every code fence, but in few other lines.
_MARKERS = ("## You", "## thinklsp", "```", "~~~")
_BEFORE_MARKERS = " \\\t-+*.)0123456789"
_LINE = re.compile(r"[^\r\n]*+")
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK_LINES = re.compile(r"(?:[ \t]*+(?:\r\n|\r|\n))*+")
_SESSION = re.compile(r"<!-- thinklsp session:[ \t]*(?P<id>(?:(?!-->).)*?)[ \t]*-->[ \t]*", re.DOTALL)
HEADING = re.compile(r"(?P<escapes>\\*)(?P<heading>## (?:You|thinklsp))[ \t]*")
_HEADING_LINE = re.compile(HEADING.pattern + r"(?![^\r\n])")


@dataclass(frozen=True, slots=True)
class ParsedChat:
    """A parsed chat document, with its prompt and the session named in its first line.

    The prompt is the text below the last `## You`, without surrounding blank lines. `end` is the offset of the end of
    the prompt, or None if other text follows the prompt or the prompt ends inside a code fence.
    """

    session_id: str | None
    prompt: str
    end: int | None = field(default=None, compare=False)


def parse_chat(text: str) -> ParsedChat:
    _, begin, stop = _find_prompt_span(text)
    start, end = find_first_line(text)
    session_id = _normalize_session_id(parse_session_line(text[start:end]))
    prompt = text[begin:stop].rstrip(BLANK)
    if not prompt:
        return ParsedChat(session_id, "")
    first = _BLANK_LINES.match(text, begin).end()  # type: ignore[union-attr]  # The pattern also matches "".
    last = _find_end_of_line(text, begin + len(prompt))
    is_last = stop == len(text) and not parse_outline(text).fence
    return ParsedChat(session_id, _unescape(text, first, last), last if is_last else None)


@dataclass(frozen=True, slots=True)
class ChatSection:
    """The lines `[begin, end)` of the prompt, numbered from 0.

    `heading` is the number of the `## You` line above the prompt, or None if the document has no such line.
    """

    heading: int | None
    begin: int
    end: int


@lru_cache(maxsize=_CACHE_SIZE)
def find_prompt_section(text: str) -> ChatSection:
    """Return the lines of the prompt. The result is cached, because several features need it on every keystroke."""
    heading, begin, stop = _find_prompt_span(text)
    above = 0 if heading is None else heading.start
    number = _count_line_ends(text, 0, above)
    # The session line may be the last line and have no line ending.
    unended = heading is None and begin > find_first_line(text)[0] and text[begin - 1] not in "\r\n"
    first = _count_line_ends(text, 0, begin) + unended if heading is None else number + 1
    last = number + _count_line_ends(text, above, stop) + (stop == len(text))
    return ChatSection(None if heading is None else number, first, last)


def find_session_id(lines: Sequence[str]) -> str | None:
    """Return the id of the session named in the first line, or None for a document without a session."""
    return _normalize_session_id(parse_session_line(lines[0].lstrip(BOM).rstrip("\r\n")) if lines else None)


@dataclass(frozen=True, slots=True)
class Heading:
    """A chat document heading, with the offsets of its line excluding the line ending."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Outline:
    """The headings that delimit a document's prompt, and the offsets of its escaped headings.

    Headings inside code fences do not count.
    `prompt` is the last `## You` heading, `below` the heading that follows it, or the first heading if there is no
    prompt, and `last` the last heading of all. `fence` is the mark that closes the code fence at the end of the text.
    It is empty if no fence is open there.
    """

    prompt: Heading | None
    below: Heading | None
    last: Heading | None
    escaped: tuple[int, ...]
    fence: str


@lru_cache(maxsize=_CACHE_SIZE)
def parse_outline(text: str) -> Outline:
    """Parse a document. A megabyte of nothing but headings or fences takes 0.2 to 0.7 seconds."""
    prompt = below = last = None
    escaped: list[int] = []
    fence, at = "", 0
    for start in _find_marked_lines(text):
        fence, at = _end_with_item(text, fence, at, start), start
        if fence or (match := _HEADING_LINE.match(text, start)) is None:
            fence = update_fence(fence, _LINE.match(text, start)[0])  # type: ignore[index]  # It matches any line.
        elif match["escapes"]:
            escaped.append(start)
        elif match["heading"] == YOU:
            prompt, below, last = match, None, match
        else:
            below, last = below or match, match
    fence = _end_with_item(text, fence, at, len(text))
    return Outline(_build_heading(prompt), _build_heading(below), _build_heading(last), tuple(escaped), fence)


def _end_with_item(text: str, fence: str, begin: int, end: int) -> str:
    """Return an empty string if the list item of a code fence ends between two lines.

    `begin` is the line above, `end` the last line that can end it.
    """
    if not fence.startswith(" "):
        return fence
    bodies = _LINE.findall(text, _find_end_of_line(text, begin), _find_end_of_line(text, end))
    return "" if any(is_after_item(fence, body) for body in bodies) else fence


def _build_heading(match: re.Match[str] | None) -> Heading | None:
    return None if match is None else Heading(match.start(), match.end(), match["heading"])


def _find_marked_lines(text: str) -> Iterator[int]:
    """Yield the offset of each line that may be a heading or a code fence.

    Spaces, backslashes or the marks of list items may precede the heading or fence.
    """
    first = find_first_line(text)[0]
    for start in sorted(chain.from_iterable(_find_all(text, word) for word in _MARKERS)):
        while start > first and text[start - 1] in _BEFORE_MARKERS:
            start -= 1
        if start == first or text[start - 1] in "\r\n":
            yield start


def _find_all(text: str, word: str) -> list[int]:
    """Return the offsets of a word. Searching with `find` is many times faster than one expression for all words."""
    found, find, size = [], text.find, len(word)
    at = find(word)
    while at >= 0:
        found.append(at)
        at = find(word, at + size)
    return found


def _find_prompt_span(text: str) -> tuple[Heading | None, int, int]:
    outline = parse_outline(text)
    heading = outline.prompt
    if heading is not None:
        begin = find_next_line(text, heading.end)
    else:
        start, end = find_first_line(text)
        begin = start if parse_session_line(text[start:end]) is None else find_next_line(text, end)
    return heading, begin, len(text) if outline.below is None else outline.below.start


def find_first_line(text: str) -> tuple[int, int]:
    """Return the offsets of the first line, excluding a byte order mark."""
    start = len(text) - len(text.lstrip(BOM))
    return start, _find_end_of_line(text, start)


def _find_end_of_line(text: str, at: int) -> int:
    return match.start() if (match := _LINE_END.search(text, at)) else len(text)


def find_next_line(text: str, end: int) -> int:
    return match.end() if (match := _LINE_END.match(text, end)) else end


def _count_line_ends(text: str, begin: int, end: int) -> int:
    """Return the number of line endings between two offsets."""
    carriage_returns = text.count("\r", begin, end)
    return text.count("\n", begin, end) + (carriage_returns and carriage_returns - text.count("\r\n", begin, end))


def _unescape(text: str, begin: int, end: int) -> str:
    """Return part of a text, with its escaped headings restored."""
    cuts = [at for at in parse_outline(text).escaped if begin <= at < end]
    return "".join(text[a:b] for a, b in zip([begin, *(at + 1 for at in cuts)], [*cuts, end], strict=True))


def parse_session_line(line: str) -> str | None:
    match = _SESSION.fullmatch(line)
    return None if match is None else match["id"]


def _normalize_session_id(session_id: str | None) -> str | None:
    return None if session_id in ("", "new") else session_id
