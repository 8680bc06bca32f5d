"""The text of chat documents. Pure functions turn a document's text and an answer into edits.

The first line names the session. `## You` and `## thinklsp` are headings only outside code fences. In inserted text,
thinklsp escapes such a line as `\\##`, so that the parser does not mistake it for a heading. Edits never change the
user's own text, and inserted text uses the document's line endings.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass

from thinklsp.core.edits import TextEdit
from thinklsp.core.lines import find_line_end, find_matching_blocks, split_lines, split_without_ends
from thinklsp.core.markdown import filter_outside_fences, find_open_fence, track_fences
from thinklsp.lsp.chats.chat_outline import (
    BLANK,
    BOM,
    HEADING,
    YOU,
    find_first_line,
    find_next_line,
    parse_outline,
    parse_session_line,
)
from thinklsp.tools.markdown_sanitizer import escape_all, find_fenced_lines, sanitize, sanitize_in_background

_FENCE = re.compile("`{3,}|~{3,}")
# The maximum number of ambiguous fences to escape one at a time. If there are more, the whole text is escaped.
_MAX_ESCAPED_FENCES = 8

# Editors show a longer document only slowly.
MAX_SHOWN_CHARACTERS = 1_000_000

FOLDER = ".thinklsp/chat"


NO_TEXT = "The turn ended without any text."


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """A turn's answer. `notices` are written below the text. `draft` is unsent text, which becomes the next prompt.

    `sanitize_answer` returns an answer whose texts can be written into a chat document as they are: their chat headings
    are escaped, their code fences closed, and no blank lines surround them. The fence of a draft may be open.
    """

    text: str
    notices: tuple[str, ...] = ()
    draft: str = ""

    def __bool__(self) -> bool:
        return bool(self.text.strip() or self.notices)


def prepare_text(text: str, *, is_draft: bool = False) -> str:
    """Prepare text for a chat document. A megabyte of short lines takes up to half a second.

    Its chat headings are escaped, and its code fences closed, except in a draft, which the user continues.
    """
    bodies = _escape_headings(_split_bodies(text))
    fence = "" if is_draft else find_open_fence(bodies)
    return "\n".join([*bodies, fence] if fence else bodies)


async def prepare_in_background(prompt: str) -> str:
    """Prepare a prompt or an answer for a chat document, and make its Markdown safe for the editor's preview."""
    return await asyncio.to_thread(prepare_text, await sanitize_in_background(prompt, sanitize_chat_text))


async def sanitize_answer(answer: ChatAnswer) -> ChatAnswer:
    """Return the answer limited to 1,000,000 characters, with its Markdown made safe for the editor's preview."""
    text, notices = answer.text, answer.notices
    if len(text) > MAX_SHOWN_CHARACTERS:
        notices += (f"Only the first {MAX_SHOWN_CHARACTERS:,} of {len(text):,} characters of the answer are shown.",)
        text = text[:MAX_SHOWN_CHARACTERS]
    inert_notices = tuple([await sanitize_in_background(_join_lines(notice)) for notice in notices])
    draft = await asyncio.to_thread(prepare_text, answer.draft, is_draft=True)
    return ChatAnswer(await prepare_in_background(text), inert_notices, draft)


def sanitize_chat_text(text: str) -> str:
    """Make Markdown text safe for the editor's preview.

    In a preview, a code fence inside a list ends with the list. The parser for chat documents does not follow this
    rule. A fence that the preview and the parser treat differently is escaped.
    """
    for _ in range(_MAX_ESCAPED_FENCES):
        lines = split_lines(text.lstrip(BOM))
        headings = [
            number
            for number, body in filter_outside_fences(split_without_ends("".join(lines)))
            if HEADING.fullmatch(body)
        ]
        for number in headings:
            lines[number] = f"\\{lines[number]}"
        inert_version = sanitize("".join(lines))
        lines = split_lines(inert_version)
        parser_fences, preview_fences = (
            [bool(after) for _, _, after in track_fences(split_without_ends(inert_version))],
            find_fenced_lines(inert_version),
        )
        for number in headings:
            lines[number] = lines[number].removeprefix("\\")
        ambiguous = next(
            (number for number, is_open in enumerate(parser_fences) if is_open != (number in preview_fences)), None
        )
        if ambiguous is None:
            return "".join(lines)
        while ambiguous > 0 and (
            parser_fences[ambiguous - 1] if parser_fences[ambiguous] else ambiguous - 1 in preview_fences
        ):
            ambiguous -= 1
        lines[ambiguous] = _FENCE.sub(r"\\\g<0>", lines[ambiguous], count=1)
        text = "".join(lines)
    return escape_all(text)


def build_document(session_id: str, prompt: str, answer: ChatAnswer) -> str:
    return "\n".join(
        [_format_session_line(session_id), "", *_build_exchange(prompt, answer), *_build_next_prompt(answer)]
    )


def build_blank_document(prompt: str) -> str:
    """Return the text of a new chat document that contains the prompt and does not name a session yet."""
    return "\n".join([_format_session_line("new"), "", YOU, "", prompt])


def plan_session_edit(text: str, session_id: str) -> tuple[TextEdit, ...]:
    """Return the edit that writes the session into the first line, or an empty list if the line already names it.

    A document without a session line, such as a document written by hand, gets a new first line.
    """
    start, end = find_first_line(text)
    named_session_id = parse_session_line(text[start:end])
    if named_session_id == session_id:
        return ()
    if named_session_id is None:
        return (TextEdit(start, start, _format_session_line(session_id) + 2 * find_line_end(text)),)
    return (TextEdit(start, end, _format_session_line(session_id)),)


def plan_answer_edits(
    text: str, session_id: str, answer: ChatAnswer, prompt_end: int | None = None
) -> tuple[TextEdit, ...]:
    """Return the edits that append an answer to the document and name the session in its first line.

    `prompt_end` is the offset of the end of the answered prompt. If the user has typed more text after that offset, the
    answer is inserted before the new text, which becomes the next prompt.
    """
    if prompt_end is not None and _is_between_prompts(text, prompt_end):
        return (*plan_session_edit(text, session_id), _insert_answer(text, prompt_end, answer))
    return (
        *plan_session_edit(text, session_id),
        _append_lines(text, [*_build_answer(answer), *_build_next_prompt(answer)]),
    )


def find_same_line_end(before: str, at: int, after: str) -> int | None:
    """Return the offset in `after` at which a line of `before` ends, or None if the line no longer exists.

    `at` is an offset at the end of the line in `before`.
    """
    lines = split_lines(after)
    number = len(split_lines(before[:at])) - 1
    for i, j, count in find_matching_blocks(_split_bodies(before), _split_bodies(after)):
        if i <= number < i + count:
            line = j + number - i
            return len("".join(lines[:line])) + len(lines[line].rstrip("\r\n"))
    return None


def plan_exchange_edits(text: str, session_id: str, prompt: str, answer: ChatAnswer) -> tuple[TextEdit, ...]:
    """Return the edits that insert a prompt sent from outside the document, followed by its answer.

    The text is inserted above the last `## You`, because the user may be writing below that heading.
    """
    last = parse_outline(text).last
    if last is None or last.kind != YOU:
        return (
            *plan_session_edit(text, session_id),
            _append_lines(text, ["", *_build_exchange(prompt, answer), *_build_next_prompt(answer)]),
        )
    exchange = _join([*_build_exchange(prompt, answer), "", ""], find_line_end(text))
    return (*plan_session_edit(text, session_id), TextEdit(last.start, last.start, exchange))


def _build_next_prompt(answer: ChatAnswer) -> list[str]:
    """Return the lines for the next prompt. The prompt is empty or contains the unsent text."""
    return ["", YOU, "", *([answer.draft] if answer.draft else []), ""]


def _build_exchange(prompt: str, answer: ChatAnswer) -> list[str]:
    return [YOU, "", *([prompt] if prompt else []), *_build_answer(answer)]


def _build_answer(answer: ChatAnswer) -> list[str]:
    lines = ["", "## thinklsp"]
    if answer.text:
        lines += ["", answer.text]
    if notices := answer.notices or (() if answer.text else (NO_TEXT,)):
        # Each notice becomes a quoted line, so that a file name in it cannot start a heading or a code fence.
        lines += ["", *(f"> - {_join_lines(notice)}" for notice in notices)]
    return lines


def _join_lines(notice: str) -> str:
    return " ".join(notice.split())


def _format_session_line(session_id: str) -> str:
    return f"<!-- thinklsp session: {session_id} -->"


def _append_lines(text: str, lines: Sequence[str]) -> TextEdit:
    """Return the edit that appends lines to the document. An open code fence is closed first."""
    end = find_line_end(text)
    seam = "" if not text or text[-1] in "\r\n" else end
    if fence := parse_outline(text).fence:
        seam += f"{fence}{end}"
    return TextEdit(len(text), len(text), seam + _join(lines, end))


def _is_between_prompts(text: str, at: int) -> bool:
    """Return True if the document contains text both before and after an offset.

    Code fences and the session line do not count as text.
    """
    start, end = find_first_line(text)
    begin = find_next_line(text, end) if parse_session_line(text[start:end]) is not None else start
    has_prompt = bool(text[begin:at].strip(BLANK))
    return has_prompt and bool(text[at:].strip(BLANK + BOM)) and not parse_outline(text[:at]).fence


def _insert_answer(text: str, at: int, answer: ChatAnswer) -> TextEdit:
    """Return the edit that inserts an answer between its prompt and the text that the user has typed after the prompt.

    The later text gets a `## You` heading unless it already begins with one.
    """
    end, tail = find_line_end(text), text[at:]
    first = next(body for body in _split_bodies(tail) if body.strip(BLANK + BOM))
    lines = _build_answer(answer)
    if answer.draft or not ((match := HEADING.fullmatch(first)) and match[0].rstrip(" \t") == YOU):
        lines += ["", YOU, *(("", answer.draft) if answer.draft else ())]
        # If the user has continued the last line of the prompt, the new text moves to a separate line.
        lines += [] if tail[0] in "\r\n" else ["", ""]
    return TextEdit(at, at, end + _join(lines, end))


def _join(texts: Sequence[str], end: str) -> str:
    """Join lines and prepared texts with the document's line ending."""
    return "\n".join(texts).replace("\n", end)


def _split_bodies(text: str) -> list[str]:
    return split_without_ends(text.lstrip(BOM))


def _escape_headings(bodies: Sequence[str]) -> list[str]:
    """Escape chat document headings, and remove leading and trailing blank lines."""
    lines = _trim_blank_lines(bodies)
    for number, body in filter_outside_fences(lines):
        if "## " in body and HEADING.fullmatch(body):
            lines[number] = f"\\{body}"
    return lines


def _trim_blank_lines(lines: Sequence[str]) -> list[str]:
    text_lines = [number for number, line in enumerate(lines) if line.strip(BLANK)]
    return list(lines[text_lines[0] : text_lines[-1] + 1]) if text_lines else []
