"""The `edit_file`, `write_file`, `rename_file` and `delete_file` tools, which change only the turn's overlay."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import ToolFailed
from thinklsp.core.lines import count_line_ends, find_line_end, split_lines
from thinklsp.core.messages import FileSight, compute_digest, describe_text
from thinklsp.core.text_safety import (
    escape_invisible,
    find_cut_mark,
    find_invisible,
    format_path,
    format_size,
    holds_escapes,
    unescape_invisible,
)
from thinklsp.core.tool_type import ToolOutput
from thinklsp.tools.read import is_showable, read_existing
from thinklsp.tools.tool import Arguments, Tool, ToolContext, run_in_thread_if_long
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import MAX_EDIT_BYTES
from thinklsp.workspace.uri import quote_path
from thinklsp.workspace.view import FileText, Place, Source

_MAX_NAMED = 20
_WORD = re.compile(r"\w+")
_MIN_SIMILARITY = 0.5
_SOURCES: Mapping[Source, str] = {"document": "in the editor ", "disk": "on disk ", "turn": ""}
_PATH = "Path of the file, relative to the workspace folder, or the URI of an open document."


class EditFileArguments(Arguments):
    path: str = Field(description=_PATH)
    old_text: str = Field(
        min_length=1,
        description="Text to replace, exactly as in the file. It must occur once unless replace_all is set.",
    )
    new_text: str = Field(description="Text to insert instead.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")


class EditFile(Tool[EditFileArguments]):
    name: ClassVar[str] = "edit_file"
    title_template: ClassVar[str] = "edit {path}"
    description: ClassVar[str] = (
        "Replace an exact piece of text in a file. old_text must occur exactly once, including whitespace; include "
        "enough surrounding lines. Line endings are adapted to the file. The edit is sent to the editor at the end of "
        "the turn."
    )
    edits: ClassVar[bool] = True
    arguments = EditFileArguments

    async def run(self, args: EditFileArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        place = overlay.view.resolve(args.path)
        text = read_existing(overlay, place).text
        overlay.view.check_writable(place)
        if not text:
            raise ToolFailed(f"{quote_path(place.label)} is empty; use write_file to write it.")
        length = len(text) + len(args.old_text) + len(args.new_text)
        new_text, message = await run_in_thread_if_long(length, _apply_edit, place, text, args)
        overlay.write(place, new_text)
        is_whole = overlay.sight.knows_whole(place.key, text)
        return _report(overlay, message, describe_text(place.key, new_text, is_whole=is_whole, is_own=True))


class WriteFileArguments(Arguments):
    path: str = Field(description="Path of the file, relative to the workspace folder, or the URI of an open document.")
    content: str = Field(description="The entire new contents of the file.")


class WriteFile(Tool[WriteFileArguments]):
    name: ClassVar[str] = "write_file"
    title_template: ClassVar[str] = "write {path}"
    description: ClassVar[str] = (
        "Create a file, or replace the entire contents of a file. An existing file must first be read whole with "
        "read_file, and read again if it has changed. To change part of a file, use edit_file. Missing folders are "
        "created, and the line endings of an existing file are kept."
    )
    edits: ClassVar[bool] = True
    arguments = WriteFileArguments

    async def run(self, args: WriteFileArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        place = overlay.view.resolve(args.path)
        if overlay.find_kind(place) == "directory":
            raise ToolFailed(f"{quote_path(place.label)} is a folder; give the path of a file.")
        overlay.view.check_writable(place)
        current = overlay.read(place)
        if current is not None and current.text:
            _check_seen(overlay, place, current)
        elif current is None and (moved := overlay.find_moved(place)) is not None:
            _check_seen(overlay, moved, read_existing(overlay, moved))
        old = None if current is None else current.text
        length = len(args.content) + len(old or "")
        content, message = await run_in_thread_if_long(length, _prepare_rewrite, place, old, args.content)
        overlay.write(place, content)
        return _report(overlay, message, describe_text(place.key, content, is_whole=True, is_own=True))


class RenameFileArguments(Arguments):
    path: str = Field(description="Path of the file.")
    new_path: str = Field(description="The new path, which must not exist yet.")


class RenameFile(Tool[RenameFileArguments]):
    name: ClassVar[str] = "rename_file"
    title_template: ClassVar[str] = "rename {path} to {new_path}"
    description: ClassVar[str] = "Rename or move one file. References to it in other files are not changed."
    edits: ClassVar[bool] = True
    arguments = RenameFileArguments

    async def run(self, args: RenameFileArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        old, new = overlay.view.resolve(args.path), overlay.view.resolve(args.new_path)
        text = read_existing(overlay, old).text
        is_taken = overlay.find_kind(new) is None and overlay.view.find_kind(new) is not None
        if is_taken and overlay.find_origin(old).key != new.key:
            # The edits of the two files are independent. If one of them is in conflict, the other must lose no text.
            raise ToolFailed(
                f"{quote_path(new.label)} existed when this turn began, so no other file can take its name in this "
                "turn. To replace its text, use write_file."
            )
        overlay.rename(old, new)
        is_whole = overlay.sight.knows_whole(old.key, text)
        return _report(
            overlay,
            f"Renamed {format_path(old.label)} to {format_path(new.label)}.",
            describe_text(old.key, None, is_whole=True, is_own=True),
            describe_text(new.key, text, is_whole=is_whole, is_own=True),
        )


class DeleteFileArguments(Arguments):
    path: str = Field(description="Path of the file.")


class DeleteFile(Tool[DeleteFileArguments]):
    name: ClassVar[str] = "delete_file"
    title_template: ClassVar[str] = "delete {path}"
    description: ClassVar[str] = "Delete one file, which must first be read whole with read_file."
    edits: ClassVar[bool] = True
    arguments = DeleteFileArguments

    async def run(self, args: DeleteFileArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        place = overlay.view.resolve(args.path)
        current = read_existing(overlay, place)
        overlay.view.check_writable(place)
        _check_seen(overlay, place, current)
        overlay.delete(place)
        message = f"Deleted {format_path(place.label)}."
        return _report(overlay, message, describe_text(place.key, None, is_whole=True, is_own=True))


def _check_seen(overlay: EditOverlay, place: Place, current: FileText) -> None:
    """Raise ToolFailed unless the model knows the whole present text of a file that it replaces or deletes."""
    if overlay.sight.knows_whole(place.key, current.text):
        return
    name, known = quote_path(place.label), overlay.sight.find(place.key)
    if not is_showable(place.label, current.text):
        raise ToolFailed(
            f"{name} cannot be shown whole, because it is too long, or contains invisible characters and also texts "
            "like `<U+200B>`. So it cannot be replaced or deleted; change it with edit_file."
        )
    if known is None:
        reason = f"{name} exists, and you have not read it."
    elif known.digest == compute_digest(current.text):
        reason = f"You have not read all of {name} as it is now."
    elif known.is_own:
        reason = f"{name} is not as you wrote it: your edit was not applied, or the file was changed since."
    else:
        reason = f"{name} changed {_SOURCES[current.source]}since you last read it."
    raise ToolFailed(f"{reason} Read the whole file with read_file, then repeat this call in your next message.")


def _report(overlay: EditOverlay, message: str, *sight: FileSight) -> ToolOutput:
    """Return the result of a change. The model knows its own text at once."""
    overlay.sight.learn(sight)
    return ToolOutput(message, sight=sight)


def _apply_edit(place: Place, text: str, args: EditFileArguments) -> tuple[str, str]:
    """Apply an edit in linear time. Return the new text and a message about the edit. Raises ToolFailed."""
    old, new = _adapt_to_file(text, args.old_text, _resolve_marks(args.new_text, text))
    starts = list(islice(_find_occurrences(text, old), 1 if args.replace_all else _MAX_NAMED + 1))
    if not starts:
        raise ToolFailed(_explain_missing_text(place, text, args.old_text))
    if len(starts) > 1:
        raise ToolFailed(_explain_ambiguity(place, text, starts))
    if old == new:
        raise ToolFailed("old_text and new_text are the same, so nothing was changed.")
    count = text.count(old) if args.replace_all else 1
    if len(text) + count * (len(new) - len(old)) > MAX_EDIT_BYTES:
        limit = f"{format_size(MAX_EDIT_BYTES)}, the size limit for tools"
        raise ToolFailed(f"With this edit, {quote_path(place.label)} would exceed {limit}.")
    where = f"at line {_compute_line_numbers(text, starts)[0]}" if count == 1 else f"at {count} places"
    message = f"Edited {format_path(place.label)} {where}.{_describe_invisible(new, text)}"
    return text.replace(old, new, count), message


def _prepare_rewrite(place: Place, old: str | None, content: str) -> tuple[str, str]:
    """Return the text to write and a message that describes the change."""
    content = _resolve_marks(content, old or "").removeprefix("\ufeff")
    if old is not None:
        content = _convert_line_ends(content, find_line_end(old))
        # Keep a byte order mark that is part of the editor's document. The overlay restores marks that editors hide.
        content = "\ufeff" + content if old.startswith("\ufeff") else content
    verb = "Created" if old is None else "Rewrote"
    count = len(split_lines(content))
    lines = f"{count} line{'' if count == 1 else 's'}"
    return content, f"{verb} {format_path(place.label)} ({lines}).{_describe_invisible(content, old or '')}"


def _resolve_marks(new: str, old: str) -> str:
    """Return a new text without marks of tool results, which models copy, unless the old text of the file has them.

    Escapes become their characters. Raises ToolFailed for the mark of a cut, because the text behind it is missing.
    """
    mark = find_cut_mark(new)
    if mark is not None and find_cut_mark(old) is None:
        raise ToolFailed(
            f"The new text contains `{mark}`, which a tool result added and which is not part of any file. Send the "
            "text without it. To change a line or a file that was cut, use edit_file on the parts that you have read."
        )
    return new if holds_escapes(old) else unescape_invisible(new)


def _explain_ambiguity(place: Place, text: str, starts: list[int]) -> str:
    count = f"{len(starts)} times" if len(starts) <= _MAX_NAMED else f"more than {_MAX_NAMED} times"
    numbers = ", ".join(map(str, _compute_line_numbers(text, starts[:_MAX_NAMED])))
    return (
        f"old_text occurs {count} in {quote_path(place.label)}, at lines {numbers}. Add surrounding lines to make it "
        "unique, or set replace_all."
    )


def _adapt_to_file(text: str, old: str, new: str) -> tuple[str, str]:
    """Adapt `old` and `new` to the file's line endings, and unescape characters such as <U+202E> if necessary."""
    for spelled_old, spelled_new in ((old, new), (unescape_invisible(old), unescape_invisible(new))):
        ends = [end for end, count in count_line_ends(spelled_old).items() if count]
        # Try an exact match first, because the file may contain mixed line endings.
        if ends and spelled_old in text:
            return spelled_old, _convert_line_ends(spelled_new, ends[0]) if len(ends) == 1 else spelled_new
        for end in (find_line_end(text), *count_line_ends(text)):
            adapted = _convert_line_ends(spelled_old, end)
            if adapted in text:
                return adapted, _convert_line_ends(spelled_new, end)
    return old, new


def _convert_line_ends(text: str, end: str) -> str:
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return plain if end == "\n" else plain.replace("\n", end)


def _find_occurrences(text: str, old: str) -> Iterator[int]:
    """Yield the offset of each occurrence, including overlapping ones, because they make the edit ambiguous."""
    at = text.find(old)
    while at >= 0:
        yield at
        at = text.find(old, at + 1)


def _compute_line_numbers(text: str, starts: Sequence[int]) -> list[int]:
    ends = list(accumulate(map(len, split_lines(text))))
    return [bisect_right(ends, start) + 1 for start in starts]


def _explain_missing_text(place: Place, text: str, old: str) -> str:
    head = f"old_text is not in {quote_path(place.label)}."
    lines, expected = split_lines(text), split_lines(old)
    if (numbers := _find_ignoring_white_space(lines, expected)) is not None:
        where = "Line {} differs" if numbers[0] == numbers[1] else "Lines {}-{} differ"
        return f"{head} {where.format(*numbers)} from it only in whitespace; copy the text exactly."
    first_words = next((set(_WORD.findall(line)) for line in expected if line.strip()), set())
    score, number = max(
        ((_measure_similarity(first_words, set(_WORD.findall(line))), -n) for n, line in enumerate(lines, 1)),
        default=(0.0, 0),
    )
    if score < _MIN_SIMILARITY:
        return f"{head} No line resembles its first line; reread the file."
    return f"{head} The nearest line is {-number}: {lines[-number - 1].strip()[:200]}"


def _find_ignoring_white_space(lines: list[str], expected: list[str]) -> tuple[int, int] | None:
    """Return the numbers of the first and the last line in `lines` that differ from `expected` only in whitespace.

    Blank lines are ignored, too, unless only they are expected. A single search in the joined lines keeps the running
    time linear.
    """
    is_blank = not "".join(expected).strip()
    rows, sought_rows = (
        [(number, words) for number, line in enumerate(side, 1) if (words := " ".join(line.split())) or is_blank]
        for side in (lines, expected)
    )
    text, sought = ("\n".join(("", *(words for _, words in side), "")) for side in (rows, sought_rows))
    at = text.find(sought) if sought_rows else -1
    if at < 0:
        return None
    first = text.count("\n", 0, at)
    return rows[first][0], rows[first + len(sought_rows) - 1][0]


def _measure_similarity(a: set[str], b: set[str]) -> float:
    """Return the similarity of two sets of words, from 0 to 1, in linear time."""
    return 2 * len(a & b) / max(1, len(a) + len(b))


def _describe_invisible(new: str, old: str) -> str:
    """Return a note about invisible characters that the edit added, because editors do not show them."""
    characters = find_invisible(new)
    old_characters = ("<U+000D>", *(find_invisible(old) if characters else ()))
    added = [char for char in characters if char not in old_characters]
    return (
        f" Note: the new text contains invisible characters: {escape_invisible(' '.join(added[:10]))}." if added else ""
    )
