"""`edit_file`, `write_file`, `rename_file`, `delete_file`: into the turn's overlay, never to disk or editor."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import ToolFailed
from thinklsp.core.lines import split_lines
from thinklsp.tools.base import Arguments, Tool, ToolContext, ToolOutput
from thinklsp.tools.read import existing_text
from thinklsp.tools.shown import invisible, shown_name, unescaped, visible
from thinklsp.tools.threads import in_thread_if_long
from thinklsp.workspace.paths import EDIT_LIMIT
from thinklsp.workspace.relpath import quoted
from thinklsp.workspace.view import Place

_MAX_NAMED = 20
_WORD = re.compile(r"\w+")
_LIKE = 0.5
_PATH = "Path of the file, relative to the workspace folder, or the URI of an open document."


class EditFileArguments(Arguments):
    path: str = Field(description=_PATH)
    old_text: str = Field(
        min_length=1, description="Text to replace, exactly as in the file. It must occur once unless replace_all."
    )
    new_text: str = Field(description="Text to put in its place.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")


class EditFile(Tool[EditFileArguments]):
    name: ClassVar[str] = "edit_file"
    description: ClassVar[str] = (
        "Replace one exact piece of text in a file. old_text must be in the file exactly once, white space included; "
        "take enough lines around it to be sure. Line ends are adapted to the file's. The edit is collected and "
        "offered to the editor at the end of the turn."
    )
    edits: ClassVar[bool] = True
    arguments = EditFileArguments

    def title(self, args: EditFileArguments) -> str:
        return f"edit {args.path}"

    async def run(self, args: EditFileArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        place = overlay.view.resolve(args.path)
        text = existing_text(overlay, place).text
        if not text:
            raise ToolFailed(f"{quoted(place.shown)} is empty; write_file gives it a text.")
        length = len(text) + len(args.old_text) + len(args.new_text)
        new_text, done = await in_thread_if_long(length, _edited, place, text, args)
        overlay.write(place, new_text)
        return ToolOutput(done)


class WriteFileArguments(Arguments):
    path: str = Field(description="Path of the file, relative to the workspace folder, or the URI of an open document.")
    content: str = Field(description="The whole new text of the file.")


class WriteFile(Tool[WriteFileArguments]):
    name: ClassVar[str] = "write_file"
    description: ClassVar[str] = (
        "Create a file, or replace the whole text of one. For a change to a part of a file use edit_file. Folders are "
        "made as needed; line ends of an existing file are kept."
    )
    edits: ClassVar[bool] = True
    arguments = WriteFileArguments

    def title(self, args: WriteFileArguments) -> str:
        return f"write {args.path}"

    async def run(self, args: WriteFileArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        place = overlay.view.resolve(args.path)
        if overlay.kind(place) == "directory":
            raise ToolFailed(f"{quoted(place.shown)} is a folder; give the path of a file.")
        overlay.view.check_writable(place)
        known = overlay.read(place)
        old = None if known is None else known.text
        length = len(args.content) + len(old or "")
        content, done = await in_thread_if_long(length, _rewritten, place, old, args.content)
        overlay.write(place, content)
        return ToolOutput(done)


class RenameFileArguments(Arguments):
    path: str = Field(description="Path of the file.")
    new_path: str = Field(description="Its new path. No file may have it yet.")


class RenameFile(Tool[RenameFileArguments]):
    name: ClassVar[str] = "rename_file"
    description: ClassVar[str] = "Rename or move one file. References to it in other files are not changed."
    edits: ClassVar[bool] = True
    arguments = RenameFileArguments

    def title(self, args: RenameFileArguments) -> str:
        return f"rename {args.path} to {args.new_path}"

    async def run(self, args: RenameFileArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        old, new = overlay.view.resolve(args.path), overlay.view.resolve(args.new_path)
        existing_text(overlay, old)
        overlay.rename(old, new)
        return ToolOutput(f"Renamed {shown_name(old.shown)} to {shown_name(new.shown)}.")


class DeleteFileArguments(Arguments):
    path: str = Field(description="Path of the file.")


class DeleteFile(Tool[DeleteFileArguments]):
    name: ClassVar[str] = "delete_file"
    description: ClassVar[str] = "Delete one file."
    edits: ClassVar[bool] = True
    arguments = DeleteFileArguments

    def title(self, args: DeleteFileArguments) -> str:
        return f"delete {args.path}"

    async def run(self, args: DeleteFileArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        place = overlay.view.resolve(args.path)
        existing_text(overlay, place)
        overlay.delete(place)
        return ToolOutput(f"Deleted {shown_name(place.shown)}.")


def _edited(place: Place, text: str, args: EditFileArguments) -> tuple[str, str]:
    """Return the new text and the sentence about it. Raises ToolFailed; takes time by the length of the texts."""
    old, new = _as_in_file(text, args.old_text, args.new_text)
    starts = list(islice(_occurrences(text, old), 1 if args.replace_all else _MAX_NAMED + 1))
    if not starts:
        raise ToolFailed(_not_found(place, text, args.old_text))
    if len(starts) > 1:
        raise ToolFailed(_ambiguous(place, text, starts))
    if old == new:
        raise ToolFailed("old_text and new_text are the same, so nothing was changed.")
    count = text.count(old) if args.replace_all else 1
    if len(text) + count * (len(new) - len(old)) > EDIT_LIMIT:
        raise ToolFailed(
            f"After this edit {quoted(place.shown)} would hold more than {EDIT_LIMIT // 1024} KiB, the limit of tools."
        )
    where = f"at line {_line_numbers(text, starts)[0]}" if count == 1 else f"at {count} places"
    done = f"Edited {shown_name(place.shown)} {where}.{_warning(args.new_text, text)}"
    return text.replace(old, new, count), done


def _rewritten(place: Place, old: str | None, content: str) -> tuple[str, str]:
    """Return the text to write and the sentence about it."""
    content = content.removeprefix("\ufeff")
    if old is not None:
        content = _with_line_ends(content, _line_end(old))
        # A mark that the editor shows as part of its document is kept; one that it hides is kept for it.
        content = "\ufeff" + content if old.startswith("\ufeff") else content
    verb = "Created" if old is None else "Rewrote"
    count = len(split_lines(content))
    lines = f"{count} line{'' if count == 1 else 's'}"
    return content, f"{verb} {shown_name(place.shown)} ({lines}).{_warning(content, old or '')}"


def _ambiguous(place: Place, text: str, starts: list[int]) -> str:
    count = f"{len(starts)} times" if len(starts) <= _MAX_NAMED else f"more than {_MAX_NAMED} times"
    named = ", ".join(map(str, _line_numbers(text, starts[:_MAX_NAMED])))
    return (
        f"old_text occurs {count} in {quoted(place.shown)}, at lines {named}. Add lines around the one that you mean, "
        "or set replace_all."
    )


def _as_in_file(text: str, old: str, new: str) -> tuple[str, str]:
    """Both texts as the file would spell them: its line ends, and the characters that results spell out."""
    for spelled_old, spelled_new in ((old, new), (unescaped(old), unescaped(new))):
        ends = [end for end, count in _line_ends(spelled_old).items() if count]
        # A text that is in the file as it stands is taken so: a file may mix its line ends.
        if ends and spelled_old in text:
            return spelled_old, _with_line_ends(spelled_new, ends[0]) if len(ends) == 1 else spelled_new
        for end in (_line_end(text), *_line_ends(text)):
            adapted = _with_line_ends(spelled_old, end)
            if adapted in text:
                return adapted, _with_line_ends(spelled_new, end)
    return old, new


def _line_ends(text: str) -> dict[str, int]:
    """How many lines end in each way."""
    both = text.count("\r\n")
    return {"\n": text.count("\n") - both, "\r\n": both, "\r": text.count("\r") - both}


def _line_end(text: str) -> str:
    """The one that most lines of the text have."""
    ends = _line_ends(text)
    return max(ends, key=ends.__getitem__)


def _with_line_ends(text: str, end: str) -> str:
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return plain if end == "\n" else plain.replace("\n", end)


def _occurrences(text: str, old: str) -> Iterator[int]:
    """Offsets, overlapping ones included: two ways to read a text are not one."""
    at = text.find(old)
    while at >= 0:
        yield at
        at = text.find(old, at + 1)


def _line_numbers(text: str, starts: Sequence[int]) -> list[int]:
    ends = list(accumulate(map(len, split_lines(text))))
    return [bisect_right(ends, start) + 1 for start in starts]


def _not_found(place: Place, text: str, old: str) -> str:
    head = f"old_text is not in {quoted(place.shown)}."
    lines, wanted = split_lines(text), split_lines(old)
    if (first := _but_for_blanks(lines, wanted)) is not None:
        last = first + len(wanted)
        where = f"Line {last} differs" if len(wanted) == 1 else f"Lines {first + 1}-{last} differ"
        return f"{head} {where} from it in white space only; copy the text exactly."
    sought = next((set(_WORD.findall(line)) for line in wanted if line.strip()), set())
    score, number = max(
        ((_likeness(sought, set(_WORD.findall(line))), -n) for n, line in enumerate(lines, 1)), default=(0.0, 0)
    )
    if score < _LIKE:
        return f"{head} No line is like its first one; read the file again."
    return f"{head} The nearest line is {-number}: {lines[-number - 1].strip()[:200]}"


def _but_for_blanks(lines: list[str], wanted: list[str]) -> int | None:
    """Return the index of the first of `lines` from which they equal `wanted` except for white space.

    One search in a joined text, whose lines no other line contains: `str.find` is linear for any texts.
    """
    joined, sought = ("\n".join(("", *(" ".join(line.split()) for line in each), "")) for each in (lines, wanted))
    at = joined.find(sought) if wanted else -1
    return None if at < 0 else joined.count("\n", 0, at)


def _likeness(a: set[str], b: set[str]) -> float:
    """Share of common words, 0 to 1: linear, where a comparison by characters would hold everything up."""
    return 2 * len(a & b) / max(1, len(a) + len(b))


def _warning(new: str, old: str) -> str:
    """Said to the model and, through it, to the user: characters that nobody would see in the editor."""
    shown = invisible(new)
    known = ("<U+000D>", *(invisible(old) if shown else ()))
    added = [char for char in shown if char not in known]
    return f" Note: the new text holds invisible characters: {visible(' '.join(added[:10]))}." if added else ""
