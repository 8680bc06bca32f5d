"""The `search_text` tool, which searches files, open documents and this turn's edits with ripgrep.

ripgrep reads files by path, so its output only indicates which files to read. These files are read through the
workspace view, which checks whether the matches still exist. Documents that differ from the disk are searched in
memory.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.lines import split_lines
from thinklsp.core.text_safety import RESULT_LIMIT, clip_line, escape_invisible, format_path, take_fitting
from thinklsp.core.tool_type import ToolOutput
from thinklsp.sandbox.process import find_program, is_executable, run_child
from thinklsp.tools.read import FileWalk, GlobArgument, GlobFilter, find_start, read_existing
from thinklsp.tools.tool import Arguments, Tool, ToolContext, run_in_thread
from thinklsp.workspace.ignore import PRUNED_FOLDERS, IgnoreRules
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import MAX_READ_BYTES, Root
from thinklsp.workspace.uri import RelPath
from thinklsp.workspace.view import Place

MULTILINE_PATTERN = (
    "The pattern contains a line ending, but the search works line by line. Search for one of its lines."
)
_CHUNK_BYTES = 1 << 16
RIPGREP_REQUIREMENT = "ripgrep>=14.1,<15"
# The maximum number of files in the arguments of a process, which may take 2 MB.
_MAX_ARGUMENTS = 400
_MAX_OUTPUT_BYTES = 50 * 1024 * 1024
# A match in a long line produces a huge JSON message. A line of 5 MB that matches everywhere produces 225 MB.
_LONG_MESSAGE_BYTES = 1024 * 1024
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
# Quotes in JSON strings are escaped, so these bytes cannot be inside a string.
_COLUMNS = b'"submatches":['
_OPTIONS = (
    "--json",
    "--no-config",
    "--no-follow",
    "--no-messages",
    "--crlf",
    f"--max-filesize={MAX_READ_BYTES}",
    # Without this option, ripgrep looks up the home folder, which requires a socket on some systems.
    "--no-ignore-global",
    # Versions of ripgrep before 14.0 reject this option. This is intended, because they would read `.rgignore`.
    "--hyperlink-format=none",
)
# Search hidden files, and apply `.gitignore` even outside git repositories, as file listings do.
_TREE_OPTIONS = ("--hidden", "--no-require-git", "--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-parent")


@dataclass(frozen=True, slots=True)
class Query:
    """A pattern to search for in each line. `globs` uses ripgrep's syntax."""

    pattern: str
    literal: bool = False
    globs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """A matching line. `number` is the line number if only ``\\n`` ends a line."""

    path: str
    number: int
    line: bytes


class UnsupportedRipgrep(Exception):
    """Raised if the installed ripgrep does not support the required options."""


class RipgrepKilled(ToolFailed):
    """Raised if a signal killed ripgrep, for example because it used too much memory."""


def find_ripgrep(folders: Iterable[str], path: str | None = None) -> Sequence[str]:
    """Return the paths of ripgrep on the system and in thinklsp's Python environment, if installed.

    ripgrep on the system must be outside the workspace folders, but the Python environment may be inside one.
    """
    system = find_program("rg", folders, path)
    own = os.path.join(os.path.dirname(sys.executable), "rg")
    return tuple(dict.fromkeys(program for program in (system, own) if program is not None and is_executable(program)))


def build_globs(glob: GlobFilter | None, below: Sequence[str], above: tuple[str, ...]) -> Sequence[str]:
    """Build ripgrep globs that match at least every file that `glob` includes.

    `below` is the start folder, relative to the workspace folder. `above` is the same as in `GlobFilter.includes`. In
    ripgrep, the last matching glob has priority.
    """
    forms: list[str] = []
    start = re.sub(r"([][*?{}\\])", r"\\\1", "/".join(below))
    if above and glob is not None and glob.includes((), above=(*above, "-")):
        glob = None
    for pattern in () if glob is None or glob.is_negated else glob.patterns:
        plain = pattern.strip("/")
        # A pattern without a slash matches at any depth.
        forms.append(f"/{plain}" if "/" in pattern.rstrip("/") else f"**/{plain}")
        forms += [f"/{start}/{plain}"] if below else []
        if above and (rest := re.sub(r"^(\*\*/+)*[^/]*/+", "", plain)) != plain:
            forms.append(f"/{rest}")
    # A glob that matches a folder includes the folder's contents. ripgrep needs a separate glob for the contents.
    return (*forms, *(f"{form}/**" for form in forms), *(f"!{name}" for name in PRUNED_FOLDERS))


def search_tree(
    program: str, folder: str, start: Sequence[str], query: Query, *, ignore_file: bool = False
) -> AsyncGenerator[Match, None]:
    """Return an iterator over the matches below the `start` folder in any order. Close the iterator to stop ripgrep.

    If `ignore_file` is true, the `.gitignore` in `folder` also applies.
    """
    argv = [program, *_OPTIONS, *_build_tree_arguments(query.globs, ignore_file=ignore_file)]
    argv += [*_build_pattern_arguments(query), "./" + "/".join(start)]
    return _run_search(argv, folder)


async def search_files(program: str, folder: str, paths: Sequence[str], query: Query) -> AsyncGenerator[Match, None]:
    """Yield the matches in files of a folder in any order. Close the iterator to stop ripgrep."""
    for first in range(0, len(paths), _MAX_ARGUMENTS):
        named = (f"./{path}" for path in paths[first : first + _MAX_ARGUMENTS])
        argv = [program, *_OPTIONS, "--no-ignore", *_build_pattern_arguments(query), *named]
        async with aclosing(_run_search(argv, folder)) as matches:
            async for match in matches:
                yield match


async def find_ignore_files(
    program: str, folder: str, start: Sequence[str], *, ignore_file: bool = False
) -> Sequence[str]:
    """Return the paths of the `.gitignore` files that `search_tree` uses below the `start` folder."""
    globs = ("**/.gitignore", *(f"!{name}" for name in PRUNED_FOLDERS))
    options = [option for option in _OPTIONS if option != "--json"]
    argv = [program, *options, *_build_tree_arguments(globs, ignore_file=ignore_file), "--files", "--null", "--"]
    async with run_child([*argv, "./" + "/".join(start)], folder) as process:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        output = await process.stdout.read(_MAX_OUTPUT_BYTES)
        await _check_end(process)
    return [os.fsdecode(path).removeprefix("./") for path in output.split(b"\0") if path]


def _build_tree_arguments(globs: Iterable[str], *, ignore_file: bool) -> list[str]:
    options = [*_TREE_OPTIONS, *(("--ignore-file=.gitignore",) if ignore_file else ())]
    return options + [f"--glob={glob}" for glob in globs]


async def _run_search(argv: Sequence[str], folder: str) -> AsyncGenerator[Match, None]:
    async with run_child(argv, folder) as process, aclosing(_read_matches(process)) as matches:
        async for match in matches:
            yield match


async def search_texts(program: str, texts: Sequence[str], query: Query, *, limit: int) -> list[tuple[int, Match]]:
    """Search texts that are not on disk. Return up to `limit` matches, each with the index of its text."""
    # Join the texts, so that one process can search all of them. Each text must end with a line ending.
    closed = [text if text.endswith("\n") or not text else text + "\n" for text in texts]
    options = ("--text", "--encoding=none", f"--max-count={limit}")
    argv = [program, *_OPTIONS, *options, *_build_pattern_arguments(query), "-"]
    async with run_child(argv, "/", has_stdin=True) as process:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        process.stdin.write("".join(closed).encode("utf-8", "replace"))
        process.stdin.close()
        matches = [match async for match in _read_matches(process)]
    starts = [0]
    for text in closed:
        starts.append(starts[-1] + text.count("\n"))
    results: list[tuple[int, Match]] = []
    index = 0
    for match in matches:
        while match.number > starts[index + 1]:
            index += 1
        results.append((index, Match("", match.number - starts[index], match.line)))
    return results


def _build_pattern_arguments(query: Query) -> list[str]:
    """Return ripgrep's arguments for the pattern, which two dashes separate, because it may begin with a dash."""
    return [*(("--fixed-strings",) if query.literal else ()), "--", query.pattern]


async def _read_matches(process: asyncio.subprocess.Process) -> AsyncGenerator[Match, None]:
    assert process.stdout is not None  # noqa: S101 - for the type checker
    rest, total = bytearray(), 0
    while total < _MAX_OUTPUT_BYTES and (chunk := await process.stdout.read(_CHUNK_BYTES)):
        total += len(chunk)
        # Scan each chunk only once, because a long JSON message arrives in many chunks.
        *lines, last = chunk.split(b"\n")
        for line in lines:
            if (match := _parse_match(rest + line)) is not None:
                yield match
            rest = bytearray()
        if len(rest) < _MAX_MESSAGE_BYTES:
            rest += last
    await _check_end(process)


def _parse_match(line: bytes | bytearray) -> Match | None:
    """Return the match in a JSON message, or None for another message. The columns of a long message are not parsed."""
    if not line.startswith(b'{"type":"match"'):
        return None
    if len(line) > _LONG_MESSAGE_BYTES:
        head, columns, _ = line.partition(_COLUMNS)
        line = head + columns + b"]}}" if columns else b'{"data":null}'
    if (data := json.loads(line)["data"]) is None:
        return None
    # A field contains either UTF-8 text or base64.
    path, text = (
        field["text"].encode() if "text" in field else base64.b64decode(field["bytes"])
        for field in (data["path"], data["lines"])
    )
    return Match(os.fsdecode(path), data["line_number"], text)


async def _check_end(process: asyncio.subprocess.Process) -> None:
    """Raise an exception if ripgrep failed, unless the caller stopped it early.

    ripgrep skips unreadable files without an error.
    """
    if process.stdout is not None and not process.stdout.at_eof():
        return
    _, errors = await process.communicate()
    status, text = process.returncode, errors[:1000].decode("utf-8", "replace").strip()
    if status is not None and status < 0:
        raise RipgrepKilled("The system stopped the search. Use a simpler pattern, or give a path.")
    if status != 2 or not text:
        return
    if "unrecognized flag" in text or "Found argument" in text:
        raise UnsupportedRipgrep(text)
    if text.startswith("rg: the literal "):
        raise ToolFailed(MULTILINE_PATTERN)
    # Remove the options that ripgrep recommends, because the model cannot set them.
    text = text.removeprefix("rg: ").partition("\nConsider")[0].strip()
    raise ToolFailed(f"The search failed: {text}")


_MAX_LINES = 1000
_TIMEOUT_SECONDS = 10.0
_MAX_LINE = 500
_NOTE_RESERVE = 400
# The maximum number of files that are listed for ripgrep.
_MAX_FILES = 50_000
# A part of a regular expression: an escaped character, a character set, or any other character.
_ELEMENT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|.", re.DOTALL)


class SearchTextArguments(Arguments):
    pattern: str = Field(min_length=1, max_length=1000, description="Regular expression, matched line by line.")
    path: str | None = Field(default=None, description="File or folder to search. Default: all folders.")
    glob: GlobArgument = None
    literal: bool = Field(default=False, description="Treat the pattern as plain text.")
    context: int = Field(default=0, ge=0, le=20, description="Lines to show before and after each match.")


class SearchedText:
    """A text with the numbers of its matching lines.

    Lines are numbered as in editors, unless a lone ``\\r`` ends a line, which ripgrep does not know.
    """

    def __init__(self, place: Place, text: str) -> None:
        self.place = place
        has_lone_returns = text.count("\r") != text.count("\r\n")
        self.lines = [f"{row}\n" for row in text.split("\n")] if has_lone_returns else split_lines(text)
        self.numbers: set[int] = set()

    def has_line(self, match: Match) -> bool:
        """Return True if the text still contains the matching line. The file may have changed during the search."""
        reported = match.line.decode("utf-8", "replace").rstrip("\r\n").removeprefix("\ufeff")
        return match.number <= len(self.lines) and self.lines[match.number - 1].rstrip("\r\n") == reported


@dataclass(slots=True)
class SearchResult:
    """The matches that a search has found so far."""

    texts: dict[str, SearchedText] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    total: int = 0

    @property
    def is_full(self) -> bool:
        return self.total >= _MAX_LINES

    def clear(self) -> None:
        self.texts, self.total = {}, 0

    def add(self, text: SearchedText, match: Match) -> None:
        self.total += match.number not in text.numbers
        text.numbers.add(match.number)
        self.texts[text.place.key] = text


class SearchText(Tool[SearchTextArguments]):
    name: ClassVar[str] = "search_text"
    description: ClassVar[str] = (
        "Search the text of files with a regular expression (ripgrep syntax; (?i) ignores case), line by line. Open "
        "documents are searched as they are in the editor, and edits from this turn are visible. Ignored files "
        "(.gitignore) are searched only if path is inside an ignored folder. Results are grouped by file: `12: text` "
        "is a match, and `13- text` is a context line."
    )
    read_only: ClassVar[bool] = True
    arguments = SearchTextArguments

    def __init__(self, find: Callable[[Iterable[str]], Sequence[str]] = find_ripgrep) -> None:
        """Initialize the tool.

        The first supported ripgrep among the paths that `find` returns is used.
        """
        self._find = find

    def title(self, args: SearchTextArguments) -> str:
        place = f" in {args.path}" if args.path else ""
        return f'search "{args.pattern}"{place}'

    async def run(self, args: SearchTextArguments, context: ToolContext) -> ToolOutput:
        return ToolOutput(await run_in_thread(_format_result, await self.find(args, context.overlay), args.context))

    async def find(self, args: SearchTextArguments, overlay: EditOverlay) -> SearchResult:
        """Search within time and size limits. The result contains a note for each limit that was reached."""
        elements = () if args.literal else _ELEMENT.findall(args.pattern)
        if "\n" in args.pattern or "\r" in args.pattern or r"\n" in elements or r"\r" in elements:
            raise ToolFailed(MULTILINE_PATTERN)
        result = SearchResult()
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await self._search(args, overlay, result)
        except TimeoutError:
            result.notes.append(f"[stopped after {_TIMEOUT_SECONDS:.0f} s; narrow the search by path, glob or pattern]")
        return result

    async def _search(self, args: SearchTextArguments, overlay: EditOverlay, result: SearchResult) -> None:
        search = await run_in_thread(_Search, args, overlay, result)
        for program in self._find(folder.root.path for folder in overlay.view.folders):
            try:
                await search.run(program)
                return
            except UnsupportedRipgrep:
                result.clear()
            except OSError as error:
                if error.filename != program:
                    raise
                # The system cannot run this program, for example because it was built for another C library.
                result.clear()
        raise ToolFailed("The search needs ripgrep 14 or later, which the user can install with `pip install ripgrep`.")


class _Search:
    """A running search, with its start folders and the texts that differ from the disk."""

    def __init__(self, args: SearchTextArguments, overlay: EditOverlay, result: SearchResult) -> None:
        self._overlay = overlay
        self._result = result
        self._query = Query(args.pattern, args.literal)
        self._glob = None if args.glob is None else GlobFilter(args.glob)
        view = overlay.view
        notebooks = view.list_notebooks()
        changed = {place.key: place for place in (*view.list_open_places(), *overlay.list_changed(), *notebooks)}
        self._changed_keys = frozenset(changed)
        if args.path is None and not view.folders:
            self._starts: tuple[Place, ...] = ()
            self._texts = self._read_places(view.list_documents())
            return
        starts = view.resolve_folder(args.path)
        self._starts = tuple(start for start in starts if overlay.find_kind(start) == "directory")
        if starts != self._starts:
            places = [place for start in starts for place in view.list_cells(start) or (start,)]
            self._texts = [SearchedText(place, read_existing(overlay, place).text) for place in places]
        else:
            searched = [place for place in changed.values() if self._should_search(place)]
            self._texts = self._read_places(cell for place in searched for cell in view.list_cells(place) or (place,))

    async def run(self, program: str) -> None:
        texts = ["".join(text.lines) for text in self._texts]
        for index, match in await search_texts(program, texts, self._query, limit=_MAX_LINES) if texts else ():
            self._result.add(self._texts[index], match)
        for start in self._starts:
            if not self._result.is_full:
                await self._search_folder(program, start)
        if self._result.is_full:
            self._result.notes.append(f"[stopped at {_MAX_LINES} lines; narrow the search by path, glob or pattern]")

    async def _search_folder(self, program: str, start: Place) -> None:
        root, below = start.root, start.path
        if root is None or below is None:
            return
        globs = build_globs(self._glob, below.parts, self._overlay.view.find_label_prefix(root))
        query = Query(self._query.pattern, self._query.literal, globs)
        rules = await run_in_thread(IgnoreRules, root, below.parts)
        ignore_stat = root.stat(RelPath.build((".gitignore",))) if below.parts and not rules.is_start_ignored else None
        ignore_file = ignore_stat is not None and ignore_stat.kind == "file"
        if await self._has_ambiguous_rules(program, start, rules, ignore_file=ignore_file):
            places = await FileWalk(self._overlay, (start,), self._glob, _MAX_FILES).run()
            paths = ["/".join(place.path.parts) for place in places if place.path is not None]
            matches = search_files(program, root.path, paths, query)
        else:
            matches = search_tree(program, root.path, below.parts, query, ignore_file=ignore_file)
        texts: dict[str, SearchedText | None] = {}
        async with aclosing(matches) as stream:
            async for match in stream:
                name = match.path.removeprefix("./")
                if name not in texts:
                    texts[name] = await run_in_thread(self._read_match, start, tuple(name.split("/")), rules)
                text = texts[name]
                if text is not None and text.has_line(match):
                    self._result.add(text, match)
                if self._result.is_full:
                    return

    async def _has_ambiguous_rules(self, program: str, start: Place, rules: IgnoreRules, *, ignore_file: bool) -> bool:
        """Return True if ripgrep may ignore other files than `list_files` below a folder."""
        if start.root is None or start.path is None:
            return False
        try:
            paths = await find_ignore_files(program, start.root.path, start.path.parts, ignore_file=ignore_file)
        except RipgrepKilled:
            # A `.gitignore` can be a link to an endless file, which ripgrep follows.
            return True
        folders = [tuple(path.split("/")[:-1]) for path in paths] + [()] * ignore_file
        return await run_in_thread(lambda: any(map(rules.is_ambiguous, folders)))

    def _read_match(self, start: Place, parts: tuple[str, ...], rules: IgnoreRules) -> SearchedText | None:
        """Read a file that ripgrep reported, or return None if the file is ignored or not readable."""
        depth = len(start.path.parts) if start.path is not None else 0
        if start.root is None or rules.is_ignored(parts) or not self._is_in_glob(start.root, parts, depth):
            return None
        try:
            place = self._overlay.view.build_place(start.root, parts)
            text = None if place.key in self._changed_keys else self._overlay.peek(place)
        except PathRefused:
            return None
        return None if text is None or "\0" in text.text else SearchedText(place, text.text)

    def _is_in_glob(self, root: Root, parts: tuple[str, ...], depth: int) -> bool:
        above = self._overlay.view.find_label_prefix(root)
        return self._glob is None or self._glob.includes(parts, below=depth, above=above)

    def _should_search(self, place: Place) -> bool:
        """Return True if a search on disk would include the file."""
        start = find_start(place, self._starts) if self._overlay.find_kind(place) == "file" else None
        if start is None or start.root is None or start.path is None or place.path is None:
            return False
        return self._is_in_glob(start.root, place.path.parts, len(start.path.parts))

    def _read_places(self, places: Iterable[Place]) -> list[SearchedText]:
        texts = []
        for place in places:
            try:
                text = self._overlay.peek(place)
            except PathRefused:
                continue
            if text is not None:
                texts.append(SearchedText(place, text.text))
        return texts


def _format_result(result: SearchResult, context: int) -> str:
    if not result.texts:
        return "\n".join(("No matches.", *result.notes))
    texts = sorted(result.texts.values(), key=lambda text: text.place.label)
    lines, is_cut = take_fitting(
        (line for text in texts for line in _format_block(text, context)), RESULT_LIMIT - _NOTE_RESERVE
    )
    if is_cut:
        result.notes.insert(0, f"[cut: {result.total} matching lines in {len(texts)} files]")
    return "\n".join((*lines, *result.notes)).strip("\n")


def _format_block(text: SearchedText, context: int) -> list[str]:
    near = {n for number in text.numbers for n in range(number - context, number + context + 1)}
    lines = ["", escape_invisible(format_path(text.place.label))]
    last = 0
    for number in sorted(n for n in near if 1 <= n <= len(text.lines)):
        if context and last and number != last + 1:
            lines.append("--")
        line = clip_line(text.lines[number - 1].rstrip("\r\n"), _MAX_LINE)
        lines.append(f"{number}{':' if number in text.numbers else '-'} {line}")
        last = number
    return lines
