"""`read_file` and `list_files`."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.lines import split_lines
from thinklsp.tools.base import Arguments, Tool, ToolContext, ToolOutput
from thinklsp.tools.shown import RESULT_LIMIT, shown_name, visible
from thinklsp.tools.threads import in_thread, in_thread_if_long
from thinklsp.workspace.ignore import GlobFilter, IgnoreRules
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.relpath import quoted
from thinklsp.workspace.view import FileText, Place

_NOTE_ROOM = 300
_LONGEST_LINE = 4_000
_LISTING_SECONDS = 10.0
_FOLDERS_NAMED = 40


class ReadFileArguments(Arguments):
    path: str = Field(description="Path of the file, relative to the workspace folder, or the URI of an open document.")
    start_line: int | None = Field(default=None, ge=1, description="First line to show, counted from 1.")
    end_line: int | None = Field(default=None, ge=1, description="Last line to show, included.")


class ReadFile(Tool[ReadFileArguments]):
    name: ClassVar[str] = "read_file"
    description: ClassVar[str] = (
        "Read a text file with line numbers. An open document is read as it stands in the editor, and edits of this "
        "turn are visible. Long files are cut; ask for the rest with start_line. The number and the tab before each "
        "line are not part of the file. Invisible characters are shown as <U+XXXX>."
    )
    read_only: ClassVar[bool] = True
    arguments = ReadFileArguments

    def title(self, args: ReadFileArguments) -> str:
        if args.start_line is None and args.end_line is None:
            return f"read {args.path}"
        return f"read {args.path}:{args.start_line or 1}-{args.end_line or ''}"

    async def run(self, args: ReadFileArguments, context: ToolContext) -> ToolOutput:
        place = context.overlay.view.resolve(args.path)
        text = existing_text(context.overlay, place).text
        return ToolOutput(await in_thread_if_long(len(text), self._shown, place, text, args))

    def _shown(self, place: Place, text: str, args: ReadFileArguments) -> str:
        lines = split_lines(text)
        first, last = args.start_line or 1, min(args.end_line or len(lines), len(lines))
        if not lines:
            return f"{shown_name(place.shown)} is empty."
        if first > len(lines):
            raise ToolFailed(f"{quoted(place.shown)} has {len(lines)} lines; line {first} does not exist.")
        if first > last:
            raise ToolFailed(f"start_line {first} is behind end_line {last}; give them the other way round.")
        return _numbered(place, lines, first, last)


def existing_text(overlay: EditOverlay, place: Place) -> FileText:
    """The present text of a file. Raises with a sentence that says what to do where there is none."""
    found = None if overlay.kind(place) == "directory" else overlay.read(place)
    if found is None:
        if overlay.kind(place) == "directory":
            raise ToolFailed(f"{quoted(place.shown)} is a folder; list_files shows what is in it.")
        raise ToolFailed(f"{quoted(place.shown)} does not exist; list_files shows the files that do.")
    return found


def _numbered(place: Place, lines: list[str], first: int, last: int) -> str:
    shown: list[str] = []
    room = RESULT_LIMIT - _NOTE_ROOM - len(visible(place.shown))
    number = first
    while number <= last:
        raw = lines[number - 1].rstrip("\r\n")
        line = visible(raw[: _LONGEST_LINE + 1])
        if len(line) > _LONGEST_LINE:
            line = f"{line[:_LONGEST_LINE]} [line cut: {len(raw)} characters]"
        line = f"{number:>5}\t{line}"
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
        number += 1
    head = f"{shown_name(place.shown)}, lines {first}-{number - 1} of {len(lines)}"
    if number <= last:
        shown.append(f"[cut at the length limit; go on with start_line {number}]")
    return "\n".join((head, *shown))


class ListFilesArguments(Arguments):
    path: str | None = Field(
        default=None, description="Folder to list, with everything below it. Default: all folders."
    )
    glob: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Only files that match, e.g. *.py or src/**/*.{ts,tsx}.",
    )
    limit: int = Field(default=1000, ge=1, le=5000, description="Most files to name.")


class ListFiles(Tool[ListFilesArguments]):
    name: ClassVar[str] = "list_files"
    description: ClassVar[str] = (
        "List files of the workspace, recursively, one path per line. Files that .gitignore leaves out are not named "
        "unless path is inside an ignored folder. Where there are more files than limit, those nearest to the top are "
        "named, and the folders that were not opened."
    )
    read_only: ClassVar[bool] = True
    arguments = ListFilesArguments

    def title(self, args: ListFilesArguments) -> str:
        return " ".join(("list", args.path or "files", *((args.glob,) if args.glob else ())))

    async def run(self, args: ListFilesArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        starts = overlay.view.resolve_folder(args.path)
        for start in starts:
            if (kind := overlay.kind(start)) != "directory":
                reason = "does not exist" if kind is None else "is not a folder; read_file shows a file"
                raise ToolFailed(f"{quoted(start.shown)} {reason}.")
        walk = FileWalk(overlay, starts, None if args.glob is None else GlobFilter(args.glob), args.limit)
        return ToolOutput(_listed(await walk.run(), walk))


class FileWalk:
    """One pass over files that are not ignored, from the top down, in a thread. Owned by one call.

    Files that exist only in the editor or in this turn's edits are included, deleted ones are not.
    """

    def __init__(
        self, overlay: EditOverlay, starts: tuple[Place, ...], glob: GlobFilter | None = None, limit: int = 1_000_000
    ) -> None:
        self._overlay = overlay
        self._glob = glob
        self._limit = limit
        self._starts = starts
        self._stopped = threading.Event()
        self._seen: set[str] = set()
        self.complete = True
        self.unopened: list[str] = []

    async def run(self) -> list[Place]:
        """At most `limit` places. A cancelled call stops its thread at the next folder."""
        try:
            return await in_thread(self._found)
        finally:
            self._stopped.set()

    def _found(self) -> list[Place]:
        found = [place for place in self._afloat() if self._takes(place)][: self._limit]
        return found + self._walk(self._limit - len(found))

    def _afloat(self) -> list[Place]:
        places = {place.key: place for place in (*self._overlay.view.unlike_disk(), *self._overlay.changed())}
        # Deleted ones are marked as seen, so that the walk leaves them out.
        self._seen = set(places)
        return [place for place in places.values() if self._overlay.kind(place) == "file"]

    def _takes(self, place: Place) -> bool:
        """Below one of the folders to list, not ignored there, and matching the glob."""
        for start in self._starts:
            if start.root is place.root and start.path is not None and place.path is not None and start.root:
                parts, depth = place.path.parts, len(start.path.parts)
                if parts[:depth] == start.path.parts and len(parts) > depth:
                    ignored = IgnoreRules(start.root, start.path.parts).ignored(parts)
                    return not ignored and bool(self._matching(start, parts[:-1], parts[-1:]))
        return False

    def _matching(self, start: Place, folder: tuple[str, ...], names: Sequence[str]) -> Sequence[str]:
        """The names in a folder below the start that the glob takes."""
        if self._glob is None or start.root is None or start.path is None:
            return names
        depth, above = len(start.path.parts), self._overlay.view.shown_above(start.root)
        return [name for name in names if self._glob.takes((*folder, name), below=depth, above=above)]

    def _walk(self, limit: int) -> list[Place]:
        view, deadline = self._overlay.view, time.monotonic() + _LISTING_SECONDS

        def stopped() -> bool:
            return time.monotonic() > deadline or self._stopped.is_set()

        found: list[Place] = []
        rules = {
            start.key: IgnoreRules(start.root, start.path.parts)
            for start in self._starts
            if start.root is not None and start.path is not None
        }
        own = {start.key for start in self._starts}
        waiting = deque((start, start) for start in self._starts)
        while waiting:
            start, folder = waiting.popleft()
            if len(found) > limit or stopped():
                self.complete = False
                self.unopened += [place.shown for place in (folder, *(entry[1] for entry in waiting))]
                break
            listing = view.listing(folder)
            if listing is None or folder.path is None or start.path is None:
                continue
            above = folder.path.parts
            kept = rules[start.key].kept(above, listing, stopped)
            for place in self._places(folder, self._matching(start, above, kept.files)):
                if place.key not in self._seen:
                    self._seen.add(place.key)
                    found.append(place)
            # A workspace folder inside another one is walked under its own name.
            waiting += ((start, below) for below in self._places(folder, kept.directories) if below.key not in own)
        self.complete = self.complete and len(found) <= limit and not stopped()
        return found[:limit]

    def _places(self, folder: Place, names: Sequence[str]) -> list[Place]:
        """Empty where no path may lead: that one folder is too deep does not hide the others."""
        try:
            return self._overlay.view.places_below(folder, names) if names else []
        except PathRefused:
            self.complete = False
            self.unopened += [f"{folder.shown}/{name}" for name in names]
            return []


def _listed(places: list[Place], walk: FileWalk) -> str:
    lines: list[str] = []
    room = RESULT_LIMIT - _NOTE_ROOM - _FOLDERS_NAMED * 100
    for place in sorted(places, key=lambda place: place.shown):
        line = visible(shown_name(place.shown))
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    if not lines:
        return "No files." if walk.complete else "No files were found before the time was up; give a path."
    if walk.complete and len(lines) == len(places):
        return "\n".join(lines)
    lines.append(f"[cut: {len(lines)} files of more; give a path or a glob to see others]")
    if walk.unopened:
        named = ", ".join(visible(shown_name(name))[:90] + "/" for name in walk.unopened[:_FOLDERS_NAMED])
        lines.append(f"[{len(walk.unopened)} folders were not opened: {named}]")
    return "\n".join(lines)
