"""Chat documents: Markdown files in which a conversation stands, in any editor. Text in, text out.

The first line names the session. `## You` and `## thinklsp` count outside code fences only; such a line inside an
answer is written `\\##`, so that it is not taken for a heading when the document is read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FOLDER = ".thinklsp/chat"
IGNORE = "*\n"

_SESSION = re.compile(r"^<!-- thinklsp session: (?P<id>[^\s>]*) -->\s*$")
_FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,}|~{3,})")
_HEADINGS = ("## You", "## thinklsp")
_REFERENCE = re.compile(r"(?<![\w@])@(?P<path>[^\s:@]+)(?::L?(?P<first>\d+)(?:-L?(?P<last>\d+))?)?")


@dataclass(frozen=True, slots=True)
class Mention:
    """`@path` or `@path:10-20` in a prompt; lines count from 1."""

    path: str
    lines: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Chat:
    """What a document says: its session (None where the first line names none) and the text below the last `## You`."""

    session_id: str | None
    prompt: str


def file_name(session_id: str, suffix: str) -> str:
    return f"{session_id[:12]}{suffix}"


def new_document(session_id: str, prompt: str, answer: str) -> str:
    return f"<!-- thinklsp session: {session_id} -->\n\n## You\n\n{_escaped(prompt)}\n{answer_section(answer)}"


def blank_document(prompt: str) -> str:
    """A document that waits for the user's text; its session begins with the first answer."""
    return f"<!-- thinklsp session: new -->\n\n## You\n\n{prompt}"


def answer_section(answer: str) -> str:
    """What is put below the user's text: the answer, and an empty heading to go on."""
    return f"\n## thinklsp\n\n{_escaped(answer)}\n\n## You\n\n"


def parse(text: str) -> Chat:
    lines = text.splitlines() if "\r" not in text else text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    match = _SESSION.match(lines[0]) if lines else None
    session_id = match["id"] if match and match["id"] != "new" else None
    starts = [number for number, line in _headings(lines) if line == "## You"]
    begin = starts[-1] + 1 if starts else (1 if match else 0)
    later = [number for number, line in _headings(lines) if number >= begin]
    end = later[0] if later else len(lines)
    return Chat(session_id, _unescaped("\n".join(lines[begin:end])).strip())


def mentions(prompt: str) -> tuple[Mention, ...]:
    found = []
    for match in _REFERENCE.finditer(prompt):
        path = match["path"].rstrip(".,;!?)")
        first = int(match["first"]) if match["first"] else None
        last = int(match["last"]) if match["last"] else first
        if path and path not in ("selection", "diagnostics"):
            found.append(Mention(path, None if first is None or last is None else (first, last)))
    return tuple(dict.fromkeys(found))


def _headings(lines: list[str]) -> Iterator[tuple[int, str]]:
    for number, line in _outside_fences(lines):
        if line.rstrip() in _HEADINGS:
            yield number, line.rstrip()


def _outside_fences(lines: list[str]) -> Iterator[tuple[int, str]]:
    fence = ""
    for number, line in enumerate(lines):
        match = _FENCE.match(line)
        if fence:
            closes = match and match["mark"].startswith(fence) and not line.strip().strip(fence[0])
            fence = "" if closes else fence
        elif match:
            fence = match["mark"]
        else:
            yield number, line


def _escaped(text: str) -> str:
    lines = text.strip("\n").split("\n")
    for number, line in _outside_fences(lines):
        if line.lstrip("\\").rstrip() in _HEADINGS:
            lines[number] = f"\\{line}"
    return "\n".join(_with_closed_fence(lines))


def _with_closed_fence(lines: list[str]) -> list[str]:
    """An answer that was cut inside a code fence would swallow the headings after it."""
    probe = "\0end"
    if any(line == probe for _, line in _outside_fences([*lines, probe])):
        return lines
    opened = next(line for line in reversed(lines) if _FENCE.match(line))
    match = _FENCE.match(opened)
    return [*lines, match["mark"] if match else "```"]


def _unescaped(text: str) -> str:
    lines = text.split("\n")
    for number, line in _outside_fences(lines):
        if line.startswith("\\") and line.lstrip("\\").rstrip() in _HEADINGS:
            lines[number] = line[1:]
    return "\n".join(lines)
