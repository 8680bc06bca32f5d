"""Chat documents: Markdown files in which a conversation stands, in any editor. Text in, edits and values out.

The first line names the session. `## You` and `## thinklsp` count outside code fences only; such a line in what is put
in by us is written `\\##`, so that it is not taken for a heading when the document is read again. What the user wrote
is never changed: it is read as it stands, and all that comes in gets the line ends of the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from thinklsp.core.edits import TextEdit
from thinklsp.core.lines import matching_blocks, split_lines

FOLDER = ".thinklsp/chat"
IGNORE = "*\n"

YOU = "## You"

_BOM = "\ufeff"
# What a heading, its escape or a fence begins with, perhaps behind blanks or a byte order mark.
_TELLING = frozenset("#\\`~\ufeff")
_BLANK = " \t\r\n"
NO_TEXT = "The turn has ended without a text."
_SESSION = re.compile(r"<!-- thinklsp session:[ \t]*(?P<id>(?:(?!-->).)*?)[ \t]*-->[ \t]*", re.DOTALL)
_HEADING = re.compile(r"(?P<escapes>\\*)(?P<heading>## (?:You|thinklsp))[ \t]*")
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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a turn says. `notices` are sentences for the user; they stand below the text. `draft` is what could not be
    sent: it becomes the next prompt."""

    text: str
    notices: tuple[str, ...] = ()
    draft: str = ""

    def __bool__(self) -> bool:
        return bool(self.text.strip() or self.notices)


def file_name(session_id: str, suffix: str) -> str:
    return f"{session_id[:12]}{suffix}"


def new_document(session_id: str, prompt: str, answer: Answer) -> str:
    return "\n".join([_session_line(session_id), "", *_exchange(prompt, answer), *_for_the_user(answer)])


def blank_document(prompt: str) -> str:
    """A document that waits for the user's text; its session begins with the first answer."""
    return "\n".join([_session_line("new"), "", "## You", "", *_escaped(_bodies(prompt))])


def with_session(text: str, session_id: str) -> tuple[TextEdit, ...]:
    """What makes the first line name the session; nothing where it does. A document begun by hand gets such a line."""
    start = len(text) - len(text.lstrip(_BOM))
    first = next(iter(_bodies(text[start:])), "")
    named = _session_of(first)
    if named == session_id:
        return ()
    if named is None:
        return (TextEdit(start, start, _session_line(session_id) + 2 * _line_end(text)),)
    return (TextEdit(start, start + len(first), _session_line(session_id)),)


def with_answer(text: str, session_id: str, answer: Answer, at: int | None = None) -> tuple[TextEdit, ...]:
    """Puts the answer below everything that stands in the document, and the session into its first line.

    `at`: behind the prompt that is answered. What the user has written there since becomes the next prompt.
    """
    if at is not None and _parts_prompts(text, at):
        return (*with_session(text, session_id), _between(text, at, answer))
    return (*with_session(text, session_id), _below(text, [*_answer(answer), *_for_the_user(answer)]))


def end_of_same_line(before: str, at: int, after: str) -> int | None:
    """Where the line of `before` that ends at this offset ends in `after`; None where it is not there any more."""
    lines = split_lines(after)
    number = len(split_lines(before[:at])) - 1
    for i, j, count in matching_blocks(_bodies(before), _bodies(after)):
        if i <= number < i + count:
            line = j + number - i
            return len("".join(lines[:line])) + len(lines[line].rstrip("\r\n"))
    return None


def with_exchange(text: str, session_id: str, prompt: str, answer: Answer) -> tuple[TextEdit, ...]:
    """Puts in what was asked elsewhere, with its answer: above the last `## You`, where the user may be writing."""
    lines = split_lines(text)
    number, heading = next(reversed(list(_headings(lines))), (0, ""))
    if heading != YOU:
        return (*with_session(text, session_id), _below(text, ["", *_exchange(prompt, answer), *_for_the_user(answer)]))
    at = len("".join(lines[:number]))
    exchange = _line_end(text).join([*_exchange(prompt, answer), "", ""])
    return (*with_session(text, session_id), TextEdit(at, at, exchange))


def parse(text: str) -> Chat:
    start = len(text) - len(text.lstrip(_BOM))
    lines = split_lines(text[start:])
    section = prompt_section(lines)
    prompt = _trimmed(_unescaped(lines[section.begin : section.end]))
    session_id = _session_of(lines[0].rstrip("\r\n")) if lines else None
    named = None if session_id in ("", "new") else session_id
    end: int | None = None
    if prompt and section.end == len(lines) and not _open_fence(_bodies(text)):
        end = len(text) - len(_blank_tail(lines))
    return Chat(named, "".join(prompt).rstrip("\r\n"), end)


@dataclass(frozen=True, slots=True)
class Section:
    """Lines `[begin, end)` that will be sent, counted from 0. `heading`: the line of their `## You`, None without."""

    heading: int | None
    begin: int
    end: int


def prompt_section(lines: Sequence[str]) -> Section:
    """Where the prompt stands. Fast enough to be asked at every keystroke of a large document."""
    headings = list(_headings(lines))
    heading = next((number for number, kind in reversed(headings) if kind == YOU), None)
    named = bool(lines) and _session_of(lines[0].lstrip(_BOM).rstrip("\r\n")) is not None
    begin = int(named) if heading is None else heading + 1
    return Section(heading, begin, next((number for number, _ in headings if number >= begin), len(lines)))


def session_named(lines: Sequence[str]) -> str | None:
    """The session that the first line names, as `parse` tells it."""
    named = _session_of(lines[0].lstrip(_BOM).rstrip("\r\n")) if lines else None
    return None if named in ("", "new") else named


# Sections as lines without their ends.


def _for_the_user(answer: Answer) -> list[str]:
    """An answer is followed by an empty prompt, with the cursor's line, or by what is still to be sent."""
    return ["", YOU, "", *_escaped(_bodies(answer.draft)), ""]


def _exchange(prompt: str, answer: Answer) -> list[str]:
    return [YOU, "", *_closed(_escaped(_bodies(prompt))), *_answer(answer)]


def _answer(answer: Answer) -> list[str]:
    lines = ["", "## thinklsp"]
    if text := _closed(_escaped(_bodies(answer.text))):
        lines += ["", *text]
    if notices := answer.notices or (() if text else (NO_TEXT,)):
        # In one line each, whatever a file is called: a quote can be neither a heading nor a fence.
        lines += ["", *(f"> - {' '.join(notice.split())}" for notice in notices)]
    return lines


def _session_line(session_id: str) -> str:
    return f"<!-- thinklsp session: {session_id} -->"


def _session_of(line: str) -> str | None:
    match = _SESSION.fullmatch(line)
    return None if match is None else match["id"]


def _below(text: str, lines: Sequence[str]) -> TextEdit:
    """At the end of the document, behind the end of its last line and of a code fence that would swallow the rest."""
    end = _line_end(text)
    seam = "" if not text or text[-1] in "\r\n" else end
    if fence := _open_fence(_bodies(text)):
        seam += f"{fence}{end}"
    return TextEdit(len(text), len(text), seam + end.join(lines))


def _parts_prompts(text: str, at: int) -> bool:
    """Whether there is a prompt before and another one after; an open fence or the first line is no place to part."""
    head = _bodies(text[:at])
    named = bool(head) and _session_of(_bodies(text)[0]) is not None
    asked = any(body.strip(_BLANK) for body in head[int(named) :])
    return asked and bool(text[at:].strip(_BLANK + _BOM)) and not _open_fence(head)


def _between(text: str, at: int, answer: Answer) -> TextEdit:
    """Behind a prompt that text was written below of since. That text keeps its own `## You`, if it begins with one."""
    end, tail = _line_end(text), text[at:]
    first = next(body for body in _bodies(tail) if body.strip(_BLANK + _BOM))
    lines = _answer(answer)
    if answer.draft or not ((match := _HEADING.fullmatch(first)) and match[0].rstrip(" \t") == YOU):
        lines += ["", YOU, *(("", *_escaped(_bodies(answer.draft))) if answer.draft else ())]
        # What was typed behind the prompt, on its own line, begins a line of its own.
        lines += [] if tail[0] in "\r\n" else ["", ""]
    return TextEdit(at, at, end + end.join(lines))


def _line_end(text: str) -> str:
    """The one that most lines of the document have."""
    ends = [line[len(line.rstrip("\r\n")) :] for line in split_lines(text)]
    return max(("\n", "\r\n", "\r"), key=ends.count)


def _bodies(text: str) -> list[str]:
    """Lines without their ends, and without the byte order mark."""
    return [line.rstrip("\r\n") for line in split_lines(text.lstrip(_BOM))]


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Number and kind of every heading, from lines with or without their ends."""
    fence = ""
    for number, line in enumerate(lines):
        # Most lines can be neither heading nor fence, which their beginning tells.
        if (line[:1] if line[:1] != " " else line[:4].lstrip(" ")[:1]) not in _TELLING:
            continue
        body = (line if number else line.lstrip(_BOM)).rstrip("\r\n")
        if fence:
            fence = _fence_after(fence, body)
        elif opens := _OPENS.match(body):
            fence = opens["mark"]
        elif (match := _HEADING.fullmatch(body)) and not match["escapes"]:
            yield number, match["heading"]


def outside_fences(bodies: Sequence[str]) -> Iterator[tuple[int, str]]:
    for number, (body, before, after) in enumerate(_fences(bodies)):
        if not before and not after:
            yield number, body


def _open_fence(bodies: Sequence[str]) -> str:
    """The mark that closes the code fence in which the lines end; empty outside of one."""
    return next(reversed([after for _, _, after in _fences(bodies)]), "")


def _fences(bodies: Sequence[str]) -> Iterator[tuple[str, str, str]]:
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


def _escaped(bodies: Sequence[str]) -> list[str]:
    """Without headings of ours, and without the blank lines around."""
    lines = _trimmed(bodies)
    for number, body in outside_fences(lines):
        if _HEADING.fullmatch(body):
            lines[number] = f"\\{body}"
    return lines


def _unescaped(lines: Sequence[str]) -> list[str]:
    """Lines with their ends, as they were before `_escaped`."""
    result = list(lines)
    for number, body in outside_fences([line.rstrip("\r\n") for line in lines]):
        if (match := _HEADING.fullmatch(body)) and match["escapes"]:
            result[number] = lines[number][1:]
    return result


def _closed(bodies: list[str]) -> list[str]:
    """A text that ends inside a code fence would swallow the headings after it."""
    fence = _open_fence(bodies)
    return [*bodies, fence] if fence else bodies


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without the blank lines at both ends."""
    written = [number for number, line in enumerate(lines) if line.strip(_BLANK)]
    return list(lines[written[0] : written[-1] + 1]) if written else []


def _blank_tail(lines: Sequence[str]) -> str:
    """The end of the last line that is not blank, and all that follows it."""
    last = max(number for number, line in enumerate(lines) if line.strip(_BLANK))
    return lines[last][len(lines[last].rstrip("\r\n")) :] + "".join(lines[last + 1 :])
