"""Chat documents: Markdown files in which a conversation stands, in any editor. Text in, edits and values out.

The first line names the session. `## You` and `## thinklsp` count outside code fences only; such a line in what is put
in by us is written `\\##`, so that it is not taken for a heading when the document is read again. What the user wrote
is never changed: it is read as it stands, and all that comes in gets the line ends of the document.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from thinklsp.core.edits import TextEdit
from thinklsp.core.lines import line_bodies, matching_blocks, split_lines
from thinklsp.lsp.chats.chat_outline import (
    BLANK,
    BOM,
    HEADING,
    YOU,
    fences,
    first_line,
    next_line,
    open_fence,
    outline,
    outside_fences,
    session_of,
)
from thinklsp.tools.inert import fenced_lines, inert, make_inert, plain

_FENCE = re.compile("`{3,}|~{3,}")
# More of them that are odd are no mistake.
_FENCES = 8

# Lines, headings and fences of an answer are looked for while the event loop waits: 0.2 s for as many as these.
MAX_SHOWN_CHARACTERS = 1_000_000

FOLDER = ".thinklsp/chat"


NO_TEXT = "The turn has ended without a text."


@dataclass(frozen=True, slots=True)
class Answer:
    """What a turn says. `notices` are sentences for the user; they stand below the text. `draft` is what could not be
    sent: it becomes the next prompt."""

    text: str
    notices: tuple[str, ...] = ()
    draft: str = ""

    def __bool__(self) -> bool:
        return bool(self.text.strip() or self.notices)


async def make_answer_inert(answer: Answer) -> Answer:
    """Return the answer as it may stand in a document that is previewed, and its first 1,000,000 characters at most."""
    text, notices = answer.text, answer.notices
    if len(text) > MAX_SHOWN_CHARACTERS:
        notices += (f"This is only the beginning of the answer, which has {len(text):,} characters.",)
        text = text[:MAX_SHOWN_CHARACTERS]
    inert_notices = tuple([await make_inert(_one_line(notice)) for notice in notices])
    return replace(answer, text=await make_inert(text, inert_text), notices=inert_notices)


def inert_text(text: str) -> str:
    """The same for one text, looked at as it will stand there, with its headings escaped. Previews end a fence with the
    list that it stands in, and we do not: a fence that only one of us sees would part what stands below it from its
    meaning, so it is spelled out."""
    for _ in range(_FENCES):
        lines = split_lines(text.lstrip(BOM))
        headings = [number for number, body in outside_fences(line_bodies("".join(lines))) if HEADING.fullmatch(body)]
        for number in headings:
            lines[number] = f"\\{lines[number]}"
        stands = inert("".join(lines))
        lines = split_lines(stands)
        ours, theirs = [bool(after) for _, _, after in fences(line_bodies(stands))], fenced_lines(stands)
        for number in headings:
            lines[number] = lines[number].removeprefix("\\")
        odd = next((number for number, is_open in enumerate(ours) if is_open != (number in theirs)), None)
        if odd is None:
            return "".join(lines)
        while odd > 0 and (ours[odd - 1] if ours[odd] else odd - 1 in theirs):
            odd -= 1
        lines[odd] = _FENCE.sub(r"\\\g<0>", lines[odd], count=1)
        text = "".join(lines)
    return plain(text)


def new_document(session_id: str, prompt: str, answer: Answer) -> str:
    return "\n".join([_session_line(session_id), "", *_exchange(prompt, answer), *_for_the_user(answer)])


def blank_document(prompt: str) -> str:
    """A document that waits for the user's text; its session begins with the first answer."""
    return "\n".join([_session_line("new"), "", "## You", "", *_escaped(_bodies(prompt))])


def with_session(text: str, session_id: str) -> tuple[TextEdit, ...]:
    """What makes the first line name the session; nothing where it does. A document begun by hand gets such a line."""
    start, end = first_line(text)
    named = session_of(text[start:end])
    if named == session_id:
        return ()
    if named is None:
        return (TextEdit(start, start, _session_line(session_id) + 2 * _line_end(text)),)
    return (TextEdit(start, end, _session_line(session_id)),)


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
    last = next(reversed(outline(text).headings), None)
    if last is None or last.kind != YOU:
        return (*with_session(text, session_id), _below(text, ["", *_exchange(prompt, answer), *_for_the_user(answer)]))
    exchange = _line_end(text).join([*_exchange(prompt, answer), "", ""])
    return (*with_session(text, session_id), TextEdit(last.start, last.start, exchange))


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
        lines += ["", *(f"> - {_one_line(notice)}" for notice in notices)]
    return lines


def _one_line(notice: str) -> str:
    return " ".join(notice.split())


def _session_line(session_id: str) -> str:
    return f"<!-- thinklsp session: {session_id} -->"


def _below(text: str, lines: Sequence[str]) -> TextEdit:
    """At the end of the document, behind the end of its last line and of a code fence that would swallow the rest."""
    end = _line_end(text)
    seam = "" if not text or text[-1] in "\r\n" else end
    if fence := outline(text).fence:
        seam += f"{fence}{end}"
    return TextEdit(len(text), len(text), seam + end.join(lines))


def _parts_prompts(text: str, at: int) -> bool:
    """Whether there is a prompt before and another one after; an open fence or the first line is no place to part."""
    start, end = first_line(text)
    begin = next_line(text, end) if session_of(text[start:end]) is not None else start
    asked = bool(text[begin:at].strip(BLANK))
    return asked and bool(text[at:].strip(BLANK + BOM)) and not outline(text[:at]).fence


def _between(text: str, at: int, answer: Answer) -> TextEdit:
    """Behind a prompt that text was written below of since. That text keeps its own `## You`, if it begins with one."""
    end, tail = _line_end(text), text[at:]
    first = next(body for body in _bodies(tail) if body.strip(BLANK + BOM))
    lines = _answer(answer)
    if answer.draft or not ((match := HEADING.fullmatch(first)) and match[0].rstrip(" \t") == YOU):
        lines += ["", YOU, *(("", *_escaped(_bodies(answer.draft))) if answer.draft else ())]
        # What was typed behind the prompt, on its own line, begins a line of its own.
        lines += [] if tail[0] in "\r\n" else ["", ""]
    return TextEdit(at, at, end + end.join(lines))


def _line_end(text: str) -> str:
    """The one that most lines of the document have."""
    both = text.count("\r\n")
    counts = {"\n": text.count("\n") - both, "\r\n": both, "\r": text.count("\r") - both}
    return max(counts, key=lambda end: counts[end])


def _bodies(text: str) -> list[str]:
    """Lines without their ends, and without the byte order mark."""
    return line_bodies(text.lstrip(BOM))


# Lines without their ends.


def _escaped(bodies: Sequence[str]) -> list[str]:
    """Without headings of ours, and without the blank lines around."""
    lines = _trimmed(bodies)
    for number, body in outside_fences(lines):
        if HEADING.fullmatch(body):
            lines[number] = f"\\{body}"
    return lines


def _closed(bodies: list[str]) -> list[str]:
    """A text that ends inside a code fence would swallow the headings after it."""
    fence = open_fence(bodies)
    return [*bodies, fence] if fence else bodies


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without the blank lines at both ends."""
    written = [number for number, line in enumerate(lines) if line.strip(BLANK)]
    return list(lines[written[0] : written[-1] + 1]) if written else []
