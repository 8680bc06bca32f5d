"""Text search with ripgrep, which runs as a child process without a configuration file.

ripgrep reads files by path, so its output only indicates which files to read. The caller reads these files through the
workspace view. Without ripgrep, a worker process searches with Python's `re`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from thinklsp.core.errors import ToolFailed
from thinklsp.tools.programs import find_program, is_executable, run_child
from thinklsp.workers import WorkFailed, run_in_worker
from thinklsp.workspace.ignore import PRUNED_FOLDERS, GlobFilter
from thinklsp.workspace.paths import MAX_READ_BYTES

MULTILINE_PATTERN = (
    "The pattern contains a line ending, but the search works line by line. Search for one of its lines."
)
_CHUNK_BYTES = 1 << 16
# The limits of a single worker call. The whole search has a separate time limit.
_WORKER_SECONDS = 10.0
_MAX_BATCH_CHARACTERS = 2_000_000
# The maximum number of files in the arguments of a process, which may take 2 MB.
_MAX_ARGUMENTS = 400
_MAX_OUTPUT_BYTES = 50 * 1024 * 1024
# A match in a long line produces a huge JSON message. A line of 5 MB that matches everywhere produces 225 MB.
_LONG_MESSAGE_BYTES = 1024 * 1024
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
_MAX_COLUMNS_BYTES = 1 << 16
_COLUMNS = b'"submatches":['
# Quotes in JSON strings are escaped, so this pattern cannot match inside a string.
_END_OF_COLUMN = re.compile(rb'"end":\d+\}')
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
_TREE_OPTIONS = (
    "--hidden",
    "--no-require-git",
    "--no-ignore-dot",
    "--no-ignore-exclude",
    "--no-ignore-parent",
)


@dataclass(frozen=True, slots=True)
class Query:
    """A pattern to search for in each line. `globs` uses ripgrep's syntax."""

    pattern: str
    literal: bool = False
    globs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """A matching line.

    `number` is the line number if only ``\\n`` ends a line. `columns` contains the byte offset of each match in the
    UTF-8 line.
    """

    path: str
    number: int
    line: bytes
    columns: tuple[int, ...]


class UnsupportedRipgrep(Exception):
    """Raised if the installed ripgrep does not support the required options."""


class RipgrepKilled(Exception):
    """Raised if a signal killed ripgrep, for example because it used too much memory."""


def find_ripgrep(folders: Iterable[str], path: str | None = None) -> Sequence[str]:
    """Return the paths of ripgrep on the system and in thinklsp's Python environment, if installed. ripgrep on the
    system must be outside the workspace folders. The Python environment may be inside a workspace folder."""
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
        argv = [program, *_OPTIONS, *_build_pattern_arguments(query), *named]
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
    async with run_child(argv, folder) as process, aclosing(_read_messages(process)) as messages:
        async for message in messages:
            if (match := _parse_match(message)) is not None:
                yield match
        await _check_end(process)


async def search_texts(program: str, texts: Sequence[str], query: Query, *, limit: int) -> list[tuple[int, Match]]:
    """Search texts that are not on disk. Return up to `limit` matches, each with the index of its text."""
    # Join the texts, so that one process can search all of them. Each text must end with a line ending.
    closed = [text if text.endswith("\n") or not text else text + "\n" for text in texts]
    argv = [
        program,
        *_OPTIONS,
        "--text",
        "--encoding=none",
        f"--max-count={limit}",
        *_build_pattern_arguments(query),
        "-",
    ]
    async with run_child(argv, "/", has_stdin=True) as process:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        process.stdin.write("".join(closed).encode("utf-8", "replace"))
        process.stdin.close()
        matches = [match async for message in _read_messages(process) if (match := _parse_match(message)) is not None]
        await _check_end(process)
    starts = [0]
    for text in closed:
        starts.append(starts[-1] + text.count("\n"))
    results: list[tuple[int, Match]] = []
    index = 0
    for match in matches:
        while match.number > starts[index + 1]:
            index += 1
        results.append((index, Match("", match.number - starts[index], match.line, match.columns)))
    return results


def _build_pattern_arguments(query: Query) -> list[str]:
    """Return ripgrep's arguments for the pattern.

    Two dashes separate the pattern from the options, because the pattern may begin with a dash.
    """
    return [*(("--fixed-strings",) if query.literal else ()), "--", query.pattern]


async def _read_messages(process: asyncio.subprocess.Process) -> AsyncGenerator[Mapping[str, Any], None]:
    assert process.stdout is not None  # noqa: S101 - for the type checker
    rest, total = bytearray(), 0
    while total < _MAX_OUTPUT_BYTES and (chunk := await process.stdout.read(_CHUNK_BYTES)):
        total += len(chunk)
        # Scan each chunk only once, because a long JSON message arrives in many chunks.
        *lines, last = chunk.split(b"\n")
        for line in lines:
            if (message := _parse_message(rest + line)) is not None:
                yield message
            rest = bytearray()
        if len(rest) < _MAX_MESSAGE_BYTES:
            rest += last


def _parse_message(line: bytes | bytearray) -> Mapping[str, Any] | None:
    """Parse a JSON message, truncated to the first columns if it is long. Returns None if a long message contains no
    complete column."""
    if len(line) > _LONG_MESSAGE_BYTES:
        begin = line.find(_COLUMNS)
        ends = [end.end() for end in _END_OF_COLUMN.finditer(line, begin, begin + _MAX_COLUMNS_BYTES)]
        if begin < 0 or not ends:
            return None
        line = line[: ends[-1]] + b"]}}"
    message: Mapping[str, Any] = json.loads(line)
    return message


def _parse_match(message: Mapping[str, Any]) -> Match | None:
    if message["type"] != "match":
        return None
    data = message["data"]
    columns = tuple(part["start"] for part in data["submatches"])
    return Match(os.fsdecode(_decode_bytes(data["path"])), data["line_number"], _decode_bytes(data["lines"]), columns)


def _decode_bytes(value: Mapping[str, str]) -> bytes:
    """Decode a field that contains either UTF-8 text or base64."""
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


async def _check_end(process: asyncio.subprocess.Process) -> None:
    """Raise an exception if ripgrep failed, unless the caller stopped it early.

    ripgrep skips unreadable files without an error.
    """
    if process.stdout is not None and not process.stdout.at_eof():
        return
    _, errors = await process.communicate()
    status, text = process.returncode, errors[:1000].decode("utf-8", "replace").strip()
    if status is not None and status < 0:
        raise RipgrepKilled
    if status != 2 or not text:
        return
    if "unrecognized flag" in text or "Found argument" in text:
        raise UnsupportedRipgrep(text)
    if text.startswith("rg: the literal "):
        raise ToolFailed(MULTILINE_PATTERN)
    # Remove the options that ripgrep recommends, because the model cannot set them.
    text = text.removeprefix("rg: ").partition("\nConsider")[0].strip()
    raise ToolFailed(f"The search failed: {text}")


async def match_texts(texts: Sequence[str], query: Query, *, limit: int) -> list[tuple[int, Match]]:
    """Search texts without ripgrep. Return up to `limit` matches, each with the index of its text.

    Raises ToolFailed if the pattern is invalid, and TimeoutError if a worker call takes too long.
    """
    pattern = re.escape(query.pattern) if query.literal else query.pattern
    results: list[tuple[int, Match]] = []
    try:
        if fault := await run_in_worker(_WORKER_SECONDS, find_pattern_error, pattern):
            raise ToolFailed(f"The pattern is not a valid regular expression: {fault}.")
        for first, batch in _split_batches(texts):
            rows = await run_in_worker(_WORKER_SECONDS, find_matching_lines, pattern, batch, limit - len(results))
            results += [(first + index, Match("", number, b"", (column,))) for index, number, column in rows]
            if len(results) == limit:
                break
    except WorkFailed:
        raise TimeoutError from None
    return results


def _split_batches(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Split the texts into batches for worker calls. Yield each batch with the index of its first text."""
    first, batch, size = 0, list[str](), 0
    for index, text in enumerate(texts):
        if batch and size + len(text) > _MAX_BATCH_CHARACTERS:
            yield first, batch
            first, batch, size = index, [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield first, batch


def find_pattern_error(pattern: str) -> str:
    """Return the error message for an invalid regular expression, or an empty string."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return ""


def find_matching_lines(pattern: str, texts: list[str], limit: int) -> list[list[int]]:
    """Return `[text, line, column]` for each of the first matches.

    Lines end at ``\\n`` and are numbered from 1. Columns are byte offsets.
    """
    regex = re.compile(pattern)
    rows = ([index, *place] for index, text in enumerate(texts) for place in _find_matches(regex, text))
    return list(islice(rows, limit))


def _find_matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        for match in pattern.finditer(line.removesuffix("\r")):
            yield number, len(line[: match.start()].encode("utf-8", "replace"))
            # One match per line is enough, unless a lone `\r` splits the line into several lines in editors.
            if "\r" not in line[:-1]:
                break
