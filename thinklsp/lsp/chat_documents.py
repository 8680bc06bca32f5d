"""Chat documents: Markdown files in which a conversation stands, in any editor. Text in, edits and values out.

The first line names the session. `## You` and `## thinklsp` count outside code fences only; such a line in what is put
in by us is written `\\##`, so that it is not taken for a heading when the document is read again. What the user wrote
is never changed: it is read as it stands, and all that comes in gets the line ends of the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from thinklsp.core.edits import TextEdit
from thinklsp.core.lines import split_lines

FOLDER = ".thinklsp/chat"
IGNORE = "*\n"

_BOM = "\ufeff"
_BLANK = " \t\r\n"
NO_TEXT = "The turn has ended without a text."
_SESSION = re.compile(r"<!-- thinklsp session:[ \t]*(?P<id>(?:(?!-->).)*?)[ \t]*-->[ \t]*", re.DOTALL)
_HEADING = re.compile(r"(?P<escapes>\\*)(?P<heading>## (?:You|thinklsp))[ \t]*")
# Behind an opening fence of backticks there is none: that would be code within a line.
_OPENS = re.compile(r" {0,3}(?P<mark>`{3,}(?=[^`]*\Z)|~{3,})")
_CLOSES = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})[ \t]*")
_REFERENCE = re.compile(r"(?<![\w@])@(?P<path>[^\s:@]+)(?::L?(?P<first>\d+)(?:-L?(?P<last>\d+))?)?")


@dataclass(frozen=True, slots=True)
class Mention:
    """`@path` or `@path:10-20` in a prompt; lines count from 1."""

    path: str
    lines: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Chat:
    """What a document says: its session (None where the first line names none) and the text below the last `## You`,
    without the blank lines around it."""

    session_id: str | None
    prompt: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a turn says. `notices` are sentences for the user; they stand below the text."""

    text: str
    notices: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text.strip() or self.notices)


def file_name(session_id: str, suffix: str) -> str:
    return f"{session_id[:12]}{suffix}"


def new_document(session_id: str, prompt: str, answer: Answer) -> str:
    return "\n".join([_session_line(session_id), "", *_exchange(prompt, answer), *_FOR_THE_USER])


def blank_document(prompt: str) -> str:
    """A document that waits for the user's text; its session begins with the first answer."""
    return "\n".join([_session_line("new"), "", "## You", "", *_escaped(_bodies(prompt))])


def with_answer(text: str, session_id: str, answer: Answer) -> tuple[TextEdit, ...]:
    """Puts the answer below everything that stands in the document, and the session into its first line."""
    return (*_named(text, session_id), _below(text, [*_answer(answer), *_FOR_THE_USER]))


def with_exchange(text: str, session_id: str, prompt: str, answer: Answer) -> tuple[TextEdit, ...]:
    """Puts in what was asked elsewhere, with its answer: above the last `## You`, where the user may be writing."""
    lines = split_lines(text)
    number, heading = next(reversed(list(_headings(_bodies(text)))), (0, ""))
    if heading != "## You":
        return (*_named(text, session_id), _below(text, ["", *_exchange(prompt, answer), *_FOR_THE_USER]))
    at = len("".join(lines[:number]))
    exchange = _line_end(text).join([*_exchange(prompt, answer), "", ""])
    return (*_named(text, session_id), TextEdit(at, at, exchange))


def parse(text: str) -> Chat:
    text = text.removeprefix(_BOM)
    lines, bodies = split_lines(text.removeprefix(_BOM)), _bodies(text)
    session_id = _session_of(bodies[0]) if bodies else None
    headings = list(_headings(bodies))
    starts = [number for number, heading in headings if heading == "## You"]
    begin = starts[-1] + 1 if starts else (0 if session_id is None else 1)
    end = next((number for number, _ in headings if number >= begin), len(lines))
    prompt = _trimmed(_unescaped(lines[begin:end]))
    return Chat(None if session_id in ("", "new") else session_id, "".join(prompt).rstrip("\r\n"))


def mentions(prompt: str) -> tuple[Mention, ...]:
    found = []
    for match in _REFERENCE.finditer(prompt):
        path = match["path"].rstrip(".,;!?)")
        first = int(match["first"]) if match["first"] else None
        last = int(match["last"]) if match["last"] else first
        if path and path not in ("selection", "diagnostics"):
            found.append(Mention(path, None if first is None or last is None else (first, last)))
    return tuple(dict.fromkeys(found))


# Sections as lines without their ends. An answer is followed by an empty prompt, with the cursor's line.
_FOR_THE_USER = ("", "## You", "", "")


def _exchange(prompt: str, answer: Answer) -> list[str]:
    return ["## You", "", *_closed(_escaped(_bodies(prompt))), *_answer(answer)]


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


def _named(text: str, session_id: str) -> tuple[TextEdit, ...]:
    """What makes the first line name the session; nothing where it does. A document begun by hand gets such a line."""
    start = len(text) - len(text.removeprefix(_BOM))
    first = next(iter(_bodies(text[start:])), "")
    named = _session_of(first)
    if named == session_id:
        return ()
    if named is None:
        return (TextEdit(start, start, _session_line(session_id) + 2 * _line_end(text)),)
    return (TextEdit(start, start + len(first), _session_line(session_id)),)


def _below(text: str, lines: Sequence[str]) -> TextEdit:
    """At the end of the document, behind the end of its last line and of a code fence that would swallow the rest."""
    end = _line_end(text)
    seam = "" if not text or text[-1] in "\r\n" else end
    if fence := _open_fence(_bodies(text)):
        seam += f"{fence}{end}"
    return TextEdit(len(text), len(text), seam + end.join(lines))


def _line_end(text: str) -> str:
    """The one that most lines of the document have."""
    ends = [line[len(line.rstrip("\r\n")) :] for line in split_lines(text)]
    return max(("\n", "\r\n", "\r"), key=ends.count)


def _bodies(text: str) -> list[str]:
    """Lines without their ends, and without the byte order mark."""
    return [line.rstrip("\r\n") for line in split_lines(text.removeprefix(_BOM))]


def _headings(bodies: Sequence[str]) -> Iterator[tuple[int, str]]:
    for number, body in _outside_fences(bodies):
        if (match := _HEADING.fullmatch(body)) and not match["escapes"]:
            yield number, match["heading"]


def _outside_fences(bodies: Sequence[str]) -> Iterator[tuple[int, str]]:
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
        elif (closes := _CLOSES.fullmatch(body)) and closes["mark"].startswith(fence):
            fence = ""
        yield body, before, fence


def _escaped(bodies: Sequence[str]) -> list[str]:
    """Without headings of ours, and without the blank lines around."""
    lines = _trimmed(bodies)
    for number, body in _outside_fences(lines):
        if _HEADING.fullmatch(body):
            lines[number] = f"\\{body}"
    return lines


def _unescaped(lines: Sequence[str]) -> list[str]:
    """Lines with their ends, as they were before `_escaped`."""
    result = list(lines)
    for number, body in _outside_fences([line.rstrip("\r\n") for line in lines]):
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
