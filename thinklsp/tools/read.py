"""The `read_file` and `list_files` tools, which read from the workspace view."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.lines import split_lines
from thinklsp.core.messages import describe_text
from thinklsp.core.text_safety import RESULT_LIMIT, can_restore, clip_line, escape_invisible, format_path, take_fitting
from thinklsp.core.tool_type import ToolOutput, is_kept_path
from thinklsp.tools.tool import Arguments, Tool, ToolContext, run_in_thread, run_in_thread_if_long
from thinklsp.workspace.ignore import IgnoreRules, Pattern, parse_pattern
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.uri import quote_path
from thinklsp.workspace.view import FileText, Place

_NOTE_RESERVE = 300
_READING_HEADING = re.compile(r"(.+), lines (\d+)-\d+ of (\d+)")
_MAX_LINE = 4_000
_LISTING_SECONDS = 10.0
_MAX_NAMED_FOLDERS = 40


class ReadFileArguments(Arguments):
    path: str = Field(description="Path of the file, relative to the workspace folder, or the URI of an open document.")
    start_line: int | None = Field(default=None, ge=1, description="First line to show. Lines are numbered from 1.")
    end_line: int | None = Field(default=None, ge=1, description="Last line to show, inclusive.")


class ReadFile(Tool[ReadFileArguments]):
    name: ClassVar[str] = "read_file"
    description: ClassVar[str] = (
        "Read a text file with line numbers. Open documents are read as they are in the editor, and edits from this "
        "turn are visible. Long files are cut; continue with start_line. The number and the tab before each line are "
        "not part of the file. Invisible characters are shown as <U+XXXX>, and can be written so. Only a file that was "
        "shown whole, without cuts, can be replaced or deleted."
    )
    read_only: ClassVar[bool] = True
    arguments = ReadFileArguments

    def title(self, args: ReadFileArguments) -> str:
        if args.start_line is None and args.end_line is None:
            return f"read {args.path}"
        return f"read {args.path}:{args.start_line or 1}-{args.end_line or ''}"

    async def run(self, args: ReadFileArguments, context: ToolContext) -> ToolOutput:
        if is_kept_path(args.path):
            text = await _read_kept_text(args.path, context)
            shown, _ = await run_in_thread_if_long(len(text), _show_text, args.path, text, args)
            return ToolOutput(shown)
        place = context.overlay.view.resolve(args.path)
        text = read_existing(context.overlay, place).text
        shown, is_whole = await run_in_thread_if_long(len(text), _show_text, place.label, text, args)
        if (problem := context.overlay.view.explain_ambiguity(place)) is not None:
            shown = f"{shown}\n[{problem} This is the text of the first one.]"
        return ToolOutput(shown, sight=(describe_text(place.key, text, is_whole=is_whole),))

    def list_paths(self, args: ReadFileArguments) -> tuple[str, ...]:
        """Return no path for a text that the session keeps, because it is not a file of the workspace."""
        return () if is_kept_path(args.path) else super().list_paths(args)


def is_showable(label: str, text: str) -> bool:
    """Return True if one call can show the whole text without cuts and doubtful escapes."""
    return _show_text(label, text, ReadFileArguments(path=label))[1]


def _show_text(label: str, text: str, args: ReadFileArguments) -> tuple[str, bool]:
    """Return the lines that a call asks for, and True if they are the whole text, without cuts and doubtful escapes."""
    # `write_file` keeps a byte order mark, so the model does not need it.
    lines = split_lines(text.removeprefix("\ufeff"))
    first, last = args.start_line or 1, min(args.end_line or len(lines), len(lines))
    if not lines:
        return f"{format_path(label)} is empty.", True
    if first > len(lines):
        raise ToolFailed(f"{quote_path(label)} has {len(lines)} lines; line {first} does not exist.")
    if first > last:
        raise ToolFailed(f"start_line {first} is after end_line {last}; swap them.")
    return _number_lines(label, lines, first, last)


async def _read_kept_text(path: str, context: ToolContext) -> str:
    text = None if context.texts is None else await context.texts.read(path)
    if text is None:
        raise ToolFailed(f"{quote_path(path)} is no longer kept. Call the tool again that returned it.")
    return text


def read_existing(overlay: EditOverlay, place: Place) -> FileText:
    """Return the current text of a file. Raises ToolFailed with a message for the model if the file does not exist."""
    current = None if overlay.find_kind(place) == "directory" else overlay.read(place)
    if current is None:
        if overlay.find_kind(place) == "directory":
            raise ToolFailed(f"{quote_path(place.label)} is a folder; use list_files to list it.")
        raise ToolFailed(f"{quote_path(place.label)} does not exist; use list_files to find files.")
    return current


def _number_lines(label: str, lines: list[str], first: int, last: int) -> tuple[str, bool]:
    numbered = (f"{number:>5}\t{_clip_line(lines[number - 1])}" for number in range(first, last + 1))
    rows, is_cut = take_fitting(numbered, RESULT_LIMIT - _NOTE_RESERVE - len(escape_invisible(label)))
    plain = (f"{number:>5}\t{_strip_end(line)}" for number, line in enumerate(lines, 1))
    is_whole = len(rows) == len(lines) and can_restore("\n".join(rows), "\n".join(plain))
    return _format_reading(format_path(label), first, len(lines), rows, is_cut=is_cut), is_whole


def _format_reading(path: str, first: int, total: int, rows: Sequence[str], *, is_cut: bool) -> str:
    after = first + len(rows)
    note = [f"[cut at the length limit; continue with start_line {after}]"] if is_cut else []
    return "\n".join((f"{path}, lines {first}-{after - 1} of {total}", *rows, *note))


def cut_reading(text: str, size: int) -> str | None:
    """Return the first lines of a `read_file` result that fit into `size` bytes, with a note where to continue.

    Return None if no line fits, or if the text is not a result with lines.
    """
    heading, *rows = text.split("\n")
    match = _READING_HEADING.fullmatch(heading)
    if match is None:
        return None
    left, count = size - len(heading.encode()) - _NOTE_RESERVE // 3, 0
    for row in rows:
        left -= len(row.encode()) + 1
        if left < 0:
            break
        count += 1
    if not count:
        return None
    return _format_reading(match[1], int(match[2]), int(match[3]), rows[:count], is_cut=True)


def _strip_end(line: str) -> str:
    return line.rstrip("\r\n")


def _clip_line(line: str) -> str:
    line = _strip_end(line)
    return clip_line(line, _MAX_LINE, f"[line cut: {len(line)} characters]")


_MAX_ALTERNATIVES = 64
_BRACES = re.compile(r"(?<!\\)\{([^{}]*)\}")
# A part of a glob in which brackets and braces are literal: an escaped character or a character set.
_PLAIN_IN_GLOB = re.compile(r"\\.|\[[!^]?\]?[^]]*\]")


class GlobFilter:
    """A glob in the syntax that tools accept.

    `*.py` matches at any depth, while `src/**/*.ts` and `./*.py` are relative to the folder. `{a,b}` lists
    alternatives, and a leading `!` excludes files. A glob that names a folder includes all files in the folder, but
    `src/*` includes only the files directly in `src`.
    """

    def __init__(self, glob: str) -> None:
        """Parse a glob. Raises PathRefused if it is invalid."""
        self.is_negated = glob.startswith("!")
        self.patterns = tuple(re.sub(r"^(\./+)+", "/", each) for each in expand_braces(glob.removeprefix("!")))
        for pattern in self.patterns:
            if (fault := _find_problem(pattern)) is not None:
                raise PathRefused(
                    f"The glob {quote_path(glob)} cannot be used: {fault}. Use a form like `*.py` or `src/**/*.ts`."
                )
        self._parsed = [each for each in map(parse_pattern, self.patterns) if each is not None]

    def includes(self, parts: tuple[str, ...], *, below: int = 0, above: tuple[str, ...] = ()) -> bool:
        """Return True if the glob includes a file.

        The glob may be relative to the workspace folder, or to the subfolder formed by the first `below` components of
        the path. It may also begin with `above`, the prefix of all paths that the model sees.
        """
        paths = (tuple(parts), *((parts[below:],) if below else ()), *(((*above, *parts),) if above else ()))
        has_match = any(self._matches(pattern, path) for pattern in self._parsed for path in paths if path)
        return has_match != self.is_negated

    def _matches(self, pattern: Pattern, parts: tuple[str, ...]) -> bool:
        """Return True if the pattern matches the file or a folder that contains the file."""
        if not pattern.folders_only and pattern.matches(parts):
            return True
        # A name with wildcards matches only files.
        if pattern.is_wild and not (self.is_negated or pattern.folders_only):
            return False
        return any(pattern.matches(parts[:depth]) for depth in range(1, len(parts)))


def _find_problem(pattern: str) -> str | None:
    """Return the reason why a pattern in a glob is invalid, as the end of an error message, or None."""
    signs = _PLAIN_IN_GLOB.sub("", pattern)
    for sign, other in ("[]", "{}", "}{"):
        if sign in signs:
            return f"a `{sign}` in it has no `{other}`; write `\\{sign}` for the character itself"
    if not pattern.strip("/"):
        return "it is empty"
    if ".." in pattern.split("/"):
        return "it contains `..`, but paths above the workspace folder cannot be used"
    return None if parse_pattern(pattern) is not None else "no file can match it"


def expand_braces(glob: str) -> tuple[str, ...]:
    """Expand `*.{ts,tsx}` to `*.ts` and `*.tsx`. Raises PathRefused if there are more than 64 alternatives."""
    expanded: list[str] = []
    pending = [glob]
    while pending:
        pattern = pending.pop(0)
        braces = _BRACES.search(pattern)
        if braces is None:
            expanded.append(pattern)
        else:
            pending += [pattern[: braces.start()] + choice + pattern[braces.end() :] for choice in braces[1].split(",")]
        if len(expanded) + len(pending) > _MAX_ALTERNATIVES:
            raise PathRefused(f"The glob has more than {_MAX_ALTERNATIVES} alternatives; use a simpler one.")
    return tuple(dict.fromkeys(expanded))


GlobArgument = Annotated[
    str | None,
    Field(min_length=1, max_length=1000, description="Only files that match, e.g. *.py or src/**/*.{ts,tsx}."),
]


class ListFilesArguments(Arguments):
    path: str | None = Field(
        default=None, description="Folder to list, including its subfolders. Default: all folders."
    )
    glob: GlobArgument = None
    limit: int = Field(default=1000, ge=1, le=5000, description="Maximum number of files to list.")


class ListFiles(Tool[ListFilesArguments]):
    name: ClassVar[str] = "list_files"
    description: ClassVar[str] = (
        "List the files of the workspace recursively, one path per line. Ignored files (.gitignore) are omitted unless "
        "path is inside an ignored folder. If there are more files than limit, the result contains the files nearest "
        "to the top and the folders that were not opened."
    )
    read_only: ClassVar[bool] = True
    arguments = ListFilesArguments

    def title(self, args: ListFilesArguments) -> str:
        return " ".join(("list", args.path or "files", *((args.glob,) if args.glob else ())))

    async def run(self, args: ListFilesArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        starts = overlay.view.resolve_folder(args.path)
        for start in starts:
            if (kind := overlay.find_kind(start)) != "directory":
                reason = "does not exist" if kind is None else "is not a folder; use read_file to read a file"
                raise ToolFailed(f"{quote_path(start.label)} {reason}.")
        walk = FileWalk(overlay, starts, None if args.glob is None else GlobFilter(args.glob), args.limit)
        return ToolOutput(_format_listing(await walk.run(), walk))


def find_start(place: Place, starts: Iterable[Place]) -> Place | None:
    """Return the start folder that contains the place. Return None if no folder contains it or it is ignored."""
    for start in starts:
        if start.root is place.root and start.root is not None and start.path is not None and place.path is not None:
            parts, above = place.path.parts, start.path.parts
            if parts[: len(above)] == above and len(parts) > len(above):
                return None if IgnoreRules(start.root, above).is_ignored(parts) else start
    return None


class FileWalk:
    """A traversal of all files that are not ignored, in a thread.

    The traversal includes files that exist only in the editor or in this turn's edits, and skips files that the turn
    deleted.
    """

    def __init__(
        self, overlay: EditOverlay, starts: tuple[Place, ...], glob: GlobFilter | None = None, limit: int = 1_000_000
    ) -> None:
        self._overlay = overlay
        self._glob = glob
        self._limit = limit
        self._starts = starts
        self._stop_event = threading.Event()
        self.is_complete = True
        self.unopened_folders: list[str] = []

    async def run(self) -> list[Place]:
        """Return up to `limit` places. If the call is cancelled, the thread stops at the next folder."""
        try:
            return await run_in_thread(self._find)
        finally:
            self._stop_event.set()

    def _find(self) -> list[Place]:
        overlay = self._overlay
        changed = {place.key: place for place in (*overlay.view.list_open_places(), *overlay.list_changed())}
        found = [place for place in changed.values() if overlay.find_kind(place) == "file" and self._includes(place)]
        found = found[: self._limit]
        # Files that the turn deleted are not on disk for the model.
        return found + self._walk(self._limit - len(found), set(changed))

    def _includes(self, place: Place) -> bool:
        start = find_start(place, self._starts)
        if start is None or place.path is None:
            return False
        return bool(self._filter_names(start, place.path.parts[:-1], place.path.parts[-1:]))

    def _filter_names(self, start: Place, folder: tuple[str, ...], names: Sequence[str]) -> Sequence[str]:
        """Return the names in `folder` that match the glob."""
        if self._glob is None or start.root is None or start.path is None:
            return names
        depth, above = len(start.path.parts), self._overlay.view.find_label_prefix(start.root)
        return [name for name in names if self._glob.includes((*folder, name), below=depth, above=above)]

    def _walk(self, limit: int, visited_keys: set[str]) -> list[Place]:
        deadline = time.monotonic() + _LISTING_SECONDS

        def should_stop() -> bool:
            return time.monotonic() > deadline or self._stop_event.is_set()

        places: list[Place] = []
        roots = [(start, start.root, start.path) for start in self._starts]
        waiting = deque(
            (start, IgnoreRules(root, path.parts), start)
            for start, root, path in roots
            if root is not None and path is not None
        )
        own = {start.key for start in self._starts}
        while waiting:
            start, rules, folder = waiting.popleft()
            if len(places) > limit or should_stop():
                self.is_complete = False
                self.unopened_folders += [place.label for place in (folder, *(entry[2] for entry in waiting))]
                break
            listing = self._overlay.view.list_folder(folder)
            if listing is None or folder.path is None:
                continue
            included = rules.filter_listing(folder.path.parts, listing, should_stop)
            listed = self._build_places(folder, self._filter_names(start, folder.path.parts, included.files))
            places += (new := [place for place in listed if place.key not in visited_keys])
            if len(self._starts) > 1:  # Two starts may be one folder.
                visited_keys.update(place.key for place in new)
            # A nested workspace folder is traversed separately, under its own name.
            below = self._build_places(folder, included.directories)
            waiting += ((start, rules, place) for place in below if place.key not in own)
        self.is_complete = self.is_complete and len(places) <= limit and not should_stop()
        return places[:limit]

    def _build_places(self, folder: Place, names: Sequence[str]) -> list[Place]:
        """Return the places for the names in a folder, or an empty list if the folder is nested too deeply."""
        try:
            return self._overlay.view.build_places(folder, names) if names else []
        except PathRefused:
            self.is_complete = False
            self.unopened_folders += [f"{folder.label}/{name}" for name in names]
            return []


def _format_listing(places: list[Place], walk: FileWalk) -> str:
    names = (escape_invisible(format_path(place.label)) for place in sorted(places, key=lambda place: place.label))
    lines, is_cut = take_fitting(names, RESULT_LIMIT - _NOTE_RESERVE - _MAX_NAMED_FOLDERS * 100)
    if not lines:
        return "No files." if walk.is_complete else "No files were found within the time limit; give a path."
    if walk.is_complete and not is_cut:
        return "\n".join(lines)
    lines.append(f"[cut after {len(lines)} files; give a path or a glob to see others]")
    if walk.unopened_folders:
        folders = ", ".join(
            escape_invisible(format_path(name))[:90] + "/" for name in walk.unopened_folders[:_MAX_NAMED_FOLDERS]
        )
        lines.append(f"[{len(walk.unopened_folders)} folders were not opened: {folders}]")
    return "\n".join(lines)
