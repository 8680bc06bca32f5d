"""`edit_file`, `write_file`, `rename_file`, `delete_file`: into the turn's overlay, never to disk or editor."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import ToolFailed
from thinklsp.core.lines import split_lines
from thinklsp.tools.base import Arguments, Tool, ToolContext, ToolOutput
from thinklsp.tools.read import existing_text
from thinklsp.tools.shown import invisible, shown_name, unescaped, visible
from thinklsp.workspace.relpath import quoted
from thinklsp.workspace.view import Place

_LINE_END = re.compile(r"\r\n|\r|\n")
_NUMBERS_NAMED = 20
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
        old, new = _as_in_file(text, args.old_text, args.new_text)
        starts = _occurrences(text, old)
        if not starts:
            raise ToolFailed(_not_found(place, text, args.old_text))
        if len(starts) > 1 and not args.replace_all:
            named = ", ".join(map(str, _line_numbers(text, starts[:_NUMBERS_NAMED])))
            raise ToolFailed(
                f"old_text occurs {len(starts)} times in {quoted(place.shown)}, at lines {named}. Add lines around "
                "the one that you mean, or set replace_all."
            )
        if old == new:
            raise ToolFailed("old_text and new_text are the same, so nothing was changed.")
        overlay.write(place, text.replace(old, new))
        count = text.count(old)
        where = f"at line {_line_numbers(text, starts)[0]}" if count == 1 else f"at {count} places"
        return ToolOutput(f"Edited {shown_name(place.shown)} {where}.{_warning(args.new_text, text)}")


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
        content = args.content.removeprefix("\ufeff")
        if known is not None:
            content = _with_line_ends(content, _line_end(known.text))
            # A mark that the editor shows as part of its document is kept; one that it hides is kept for it.
            content = "\ufeff" + content if known.text.startswith("\ufeff") else content
        overlay.write(place, content)
        verb = "Created" if known is None else "Rewrote"
        count = len(split_lines(content))
        old = "" if known is None else known.text
        return ToolOutput(
            f"{verb} {shown_name(place.shown)} ({count} line{'' if count == 1 else 's'}).{_warning(content, old)}"
        )


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


def _as_in_file(text: str, old: str, new: str) -> tuple[str, str]:
    """Both texts as the file would spell them: its line ends, and the characters that results spell out."""
    for spelled_old, spelled_new in ((old, new), (unescaped(old), unescaped(new))):
        # A text that is in the file as it stands is taken so: a file may mix its line ends.
        if spelled_old in text and _LINE_END.search(spelled_old):
            ends = set(_LINE_END.findall(spelled_old))
            return spelled_old, _with_line_ends(spelled_new, ends.pop()) if len(ends) == 1 else spelled_new
        for end in (_line_end(text), "\n", "\r\n", "\r"):
            adapted = _with_line_ends(spelled_old, end)
            if adapted in text:
                return adapted, _with_line_ends(spelled_new, end)
    return old, new


def _line_end(text: str) -> str:
    """The one that most lines of the text have."""
    ends = _LINE_END.findall(text)
    return max(("\n", "\r\n", "\r"), key=ends.count)


def _with_line_ends(text: str, end: str) -> str:
    return _LINE_END.sub(lambda _: end, text)


def _occurrences(text: str, old: str) -> list[int]:
    """Offsets, overlapping ones included: two ways to read a text are not one."""
    starts: list[int] = []
    at = text.find(old)
    while at >= 0:
        starts.append(at)
        at = text.find(old, at + 1)
    return starts


def _line_numbers(text: str, starts: list[int]) -> list[int]:
    return [len(split_lines(text[:start] + "x")) for start in starts]


def _not_found(place: Place, text: str, old: str) -> str:
    head = f"old_text is not in {quoted(place.shown)}."
    lines, wanted = split_lines(text), split_lines(old)
    stripped = [line.split() for line in lines]
    pieces = [line.split() for line in wanted]
    for first in range(len(lines) - len(wanted) + 1):
        if stripped[first : first + len(wanted)] == pieces:
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


def _likeness(a: set[str], b: set[str]) -> float:
    """Share of common words, 0 to 1: linear, where a comparison by characters would hold everything up."""
    return 2 * len(a & b) / max(1, len(a) + len(b))


def _warning(new: str, old: str) -> str:
    """Said to the model and, through it, to the user: characters that nobody would see in the editor."""
    known = ("<U+000D>", *invisible(old))
    added = [char for char in invisible(new) if char not in known]
    return f" Note: the new text holds invisible characters: {visible(' '.join(added[:10]))}." if added else ""
