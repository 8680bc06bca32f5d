"""Reads chat documents: where headings, code fences and the prompt stand, and which session they name.

A text is searched for the few lines that tell something, and what was found is remembered with it: lenses, completion
and whoever sends or answers look at the same version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

YOU = "## You"
BLANK = " \t\r\n"
BOM = "\ufeff"

# Texts whose outline is remembered: those that are looked at, before and after a change.
_REMEMBERED = 4
# What every heading and every fence holds. Most lines hold nothing of it, and need no look.
_TELLING = ("## You", "## thinklsp", "```", "~~~")
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK_LINES = re.compile(r"(?:[ \t]*+(?:\r\n|\r|\n))*+")
_SESSION = re.compile(r"<!-- thinklsp session:[ \t]*(?P<id>(?:(?!-->).)*?)[ \t]*-->[ \t]*", re.DOTALL)
HEADING = re.compile(r"(?P<escapes>\\*)(?P<heading>## (?:You|thinklsp))[ \t]*")
# Behind an opening fence of backticks there is none: that would be code within a line.
_OPENS = re.compile(r" {0,3}(?P<mark>`{3,}(?=[^`]*\Z)|~{3,})")
_CLOSES = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})[ \t]*")


@dataclass(frozen=True, slots=True)
class Chat:
    """What a document says: its session (None where the first line names none) and the text below the last `## You`,
    without the blank lines around it.

    `end`: the offset behind the prompt; None where more than blank lines follow, or a code fence is left open there.
    """

    session_id: str | None
    prompt: str
    end: int | None = field(default=None, compare=False)


def parse(text: str) -> Chat:
    _, begin, stop = _prompt_span(text)
    start, end = first_line(text)
    named = _known(session_of(text[start:end]))
    written = text[begin:stop].rstrip(BLANK)
    if not written:
        return Chat(named, "")
    first = _BLANK_LINES.match(text, begin).end()  # type: ignore[union-attr]  # It matches nothing, too.
    last = _end_of_line(text, begin + len(written))
    whole = stop == len(text) and not outline(text).fence
    return Chat(named, _unescaped(text, first, last), last if whole else None)


@dataclass(frozen=True, slots=True)
class Section:
    """Lines `[begin, end)` that will be sent, counted from 0. `heading`: the line of their `## You`, None without."""

    heading: int | None
    begin: int
    end: int


@lru_cache(maxsize=_REMEMBERED)
def prompt_section(text: str) -> Section:
    """Where the prompt stands. Asked at every keystroke of a large document, and by several at each."""
    heading, begin, stop = _prompt_span(text)
    above = 0 if heading is None else heading.start
    number = _line_ends(text, 0, above)
    # The first line names the session and may have no end yet.
    unended = heading is None and begin > first_line(text)[0] and text[begin - 1] not in "\r\n"
    first = _line_ends(text, 0, begin) + unended if heading is None else number + 1
    last = number + _line_ends(text, above, stop) + (stop == len(text))
    return Section(None if heading is None else number, first, last)


def session_named(lines: Sequence[str]) -> str | None:
    """The session that the first line names, as `parse` tells it."""
    return _known(session_of(lines[0].lstrip(BOM).rstrip("\r\n")) if lines else None)


@dataclass(frozen=True, slots=True)
class Heading:
    """From the beginning to the end of its line, the line end left out."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Outline:
    """What counts in a text: headings outside of code fences, and where one is escaped, the offset of its line.
    `fence`: the mark that closes the code fence in which the text ends; empty outside of one."""

    headings: tuple[Heading, ...]
    escaped: tuple[int, ...]
    fence: str


@lru_cache(maxsize=_REMEMBERED)
def outline(text: str) -> Outline:
    headings: list[Heading] = []
    escaped: list[int] = []
    fence = ""
    for start, body in _telling_lines(text):
        if fence:
            fence = _fence_after(fence, body)
        elif opens := _OPENS.match(body):
            fence = opens["mark"]
        elif match := HEADING.fullmatch(body):
            if match["escapes"]:
                escaped.append(start)
            else:
                headings.append(Heading(start, start + len(body), match["heading"]))
    return Outline(tuple(headings), tuple(escaped), fence)


def _telling_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that begin with a heading or a fence, behind blanks or escapes at most: offset, and line without end."""
    first = first_line(text)[0]
    for start in sorted(at for word in _TELLING for at in _places(text, word)):
        while start > first and text[start - 1] in " \\":
            start -= 1
        if start == first or text[start - 1] in "\r\n":
            yield start, text[start : _end_of_line(text, start)]


def _places(text: str, word: str) -> Iterator[int]:
    # Finding words one after the other is many times faster than one pattern for all of them.
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def _prompt_span(text: str) -> tuple[Heading | None, int, int]:
    """The last `## You`, and from where to where the prompt below it goes."""
    headings = outline(text).headings
    heading = next((each for each in reversed(headings) if each.kind == YOU), None)
    if heading is not None:
        begin = next_line(text, heading.end)
    else:
        start, end = first_line(text)
        begin = start if session_of(text[start:end]) is None else next_line(text, end)
    return heading, begin, next((each.start for each in headings if each.start >= begin), len(text))


def first_line(text: str) -> tuple[int, int]:
    """Behind a byte order mark."""
    start = len(text) - len(text.lstrip(BOM))
    return start, _end_of_line(text, start)


def _end_of_line(text: str, at: int) -> int:
    return found.start() if (found := _LINE_END.search(text, at)) else len(text)


def next_line(text: str, end: int) -> int:
    return found.end() if (found := _LINE_END.match(text, end)) else end


def _line_ends(text: str, begin: int, end: int) -> int:
    """How many lines end between two beginnings of lines."""
    others = text.count("\r", begin, end)
    return text.count("\n", begin, end) + (others and others - text.count("\r\n", begin, end))


def _unescaped(text: str, begin: int, end: int) -> str:
    """A part of a text, as it was before `_escaped`."""
    cuts = [at for at in outline(text).escaped if begin <= at < end]
    return "".join(text[a:b] for a, b in zip([begin, *(at + 1 for at in cuts)], [*cuts, end], strict=True))


def session_of(line: str) -> str | None:
    match = _SESSION.fullmatch(line)
    return None if match is None else match["id"]


def _known(named: str | None) -> str | None:
    return None if named in ("", "new") else named


def outside_fences(bodies: Sequence[str]) -> Iterator[tuple[int, str]]:
    for number, (body, before, after) in enumerate(fences(bodies)):
        if not before and not after:
            yield number, body


def open_fence(bodies: Sequence[str]) -> str:
    """The mark that closes the code fence in which the lines end; empty outside of one."""
    return next(reversed([after for _, _, after in fences(bodies)]), "")


def fences(bodies: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Every line with the mark of the fence that is open before and after it."""
    fence = ""
    for body in bodies:
        before = fence
        if not fence:
            opens = _OPENS.match(body)
            fence = opens["mark"] if opens else ""
        else:
            fence = _fence_after(fence, body)
        yield body, before, fence


def _fence_after(fence: str, body: str) -> str:
    """The open fence, or nothing where this line closes it."""
    return "" if (closes := _CLOSES.fullmatch(body)) and closes["mark"].startswith(fence) else fence
