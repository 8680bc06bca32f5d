"""ripgrep as a process: found outside the workspace, started without configuration, stopped at the first chance.

It runs over the disk by path, so what it prints is a hint about where to look and nothing more: the caller reads
every file that it names through the gate and shows that text. On machines without ripgrep, Python's patterns match
texts in a worker process.
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
from typing import Any

from thinklsp.core.errors import ToolFailed
from thinklsp.tools.child import started
from thinklsp.tools.line_matcher import compile_fault, matching_lines
from thinklsp.tools.programs import find_program, runs
from thinklsp.workers.pool import WorkFailed, run_in_worker
from thinklsp.workspace.ignore import PRUNED, GlobFilter
from thinklsp.workspace.paths import READ_LIMIT

ONE_LINE = "The pattern holds a line end; the search goes line by line, so look for one line of it."
_CHUNK = 1 << 16
# The limits of one call of a worker; the search as a whole has a time limit of its own, which cancels the call.
_WORKER_SECONDS = 10.0
_MAX_BATCH_CHARACTERS = 2_000_000
_MOST_OUTPUT = 50 * 1024 * 1024
# A message holds the whole line, and 45 bytes for each match in it: 225 MB for a line of 5 MB that matches everywhere.
_LONG_MESSAGE_BYTES = 1024 * 1024
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
_MAX_COLUMNS_BYTES = 1 << 16
_COLUMNS = b'"submatches":['
# Quotes within a text are escaped, so that neither of them is found there.
_END_OF_COLUMN = re.compile(rb'"end":\d+\}')
_OPTIONS = (
    "--json",
    "--no-config",
    "--no-follow",
    "--no-messages",
    "--crlf",
    f"--max-filesize={READ_LIMIT}",
    # Looking for the user's own list, it would ask the system who the user is, over a socket on some.
    "--no-ignore-global",
    # Those of before 14.0 do not know it, and heed `.rgignore` whatever they are told.
    "--hyperlink-format=none",
)
# Exactly the rules of our own listings: hidden files too, .gitignore with or without git, no list from elsewhere.
_TREE_OPTIONS = (
    "--hidden",
    "--no-require-git",
    "--no-ignore-dot",
    "--no-ignore-exclude",
    "--no-ignore-parent",
)


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for in each line. `globs` as ripgrep takes them."""

    pattern: str
    literal: bool = False
    globs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """Line `number` counts ``\\n`` only. `columns`: where matches begin in `line`, in bytes of its UTF-8 form."""

    path: str
    number: int
    line: bytes
    columns: tuple[int, ...]


class UnknownOption(Exception):
    """This ripgrep is too old for the options that keep it within bounds."""


class BrokeOff(Exception):
    """The system ended it, as it does with one that wants too much memory."""


def find_ripgrep(folders: Iterable[str], path: str | None = None) -> Sequence[str]:
    """The system's program, then the one that was installed with us; never one that lies in a workspace folder.

    The folder of our own interpreter is trusted even there: an environment inside the project is what runs us."""
    system = find_program("rg", folders, path)
    own = os.path.join(os.path.dirname(sys.executable), "rg")
    return tuple(dict.fromkeys(program for program in (system, own) if program is not None and runs(program)))


def first_sieve(glob: GlobFilter | None, below: Sequence[str], above: tuple[str, ...]) -> Sequence[str]:
    """Globs as ripgrep takes them, the last one that fits wins: they keep every file that `glob` takes in a search that
    begins in the folder `below` the workspace folder, and more. `above`: as in `GlobFilter.takes`."""
    forms: list[str] = []
    if above and glob is not None and glob.takes((), above=(*above, "-")):
        # Whatever is in this folder.
        glob = None
    for pattern in () if glob is None or glob.leaves_out else glob.patterns:
        plain = pattern.strip("/")
        # At any depth, unless there is a slash in it.
        forms.append(f"/{plain}" if "/" in pattern.rstrip("/") else f"**/{plain}")
        forms += [f"/{_escaped('/'.join(below))}/{plain}"] if below else []
        if above and (rest := re.sub(r"^(\*\*/+)*[^/]*/+", "", plain)) != plain:
            forms.append(f"/{rest}")
    # With a folder all that is in it is meant, which ripgrep does not see so.
    return (*forms, *(f"{form}/**" for form in forms), *(f"!{name}" for name in PRUNED))


def _escaped(path: str) -> str:
    return re.sub(r"([][*?{}\\])", r"\\\1", path)


async def search_tree(
    program: str, folder: str, start: Sequence[str], query: Query, *, ignore_file: bool = False
) -> AsyncGenerator[Match, None]:
    """Matches below `start` in no particular order. Close the iterator to stop the process.

    `ignore_file`: the folder has a `.gitignore` that counts although the search begins below it.
    """
    argv = [program, *_OPTIONS, *_TREE_OPTIONS, *(("--ignore-file=.gitignore",) if ignore_file else ())]
    argv += [f"--glob={glob}" for glob in query.globs]
    argv += [*_pattern(query), "./" + "/".join(start)]
    async with started(argv, folder) as process, aclosing(_messages(process)) as messages:
        async for message in messages:
            if (match := _match(message)) is not None:
                yield match
        await _check_end(process)


async def search_texts(program: str, texts: Sequence[str], query: Query, *, most: int) -> list[tuple[int, Match]]:
    """Matches in texts that are not on disk, with the index of the text, in order; at most `most`."""
    # One process for all of them: the texts follow one another, each closed by a line end.
    closed = [text if text.endswith("\n") or not text else text + "\n" for text in texts]
    argv = [program, *_OPTIONS, "--text", "--encoding=none", f"--max-count={most}", *_pattern(query), "-"]
    async with started(argv, "/", fed=True) as process:
        assert process.stdin is not None  # noqa: S101 - states what `fed` means, for the type checker.
        process.stdin.write("".join(closed).encode("utf-8", "replace"))
        process.stdin.close()
        matches = [match async for message in _messages(process) if (match := _match(message)) is not None]
        await _check_end(process)
    starts = [0]
    for text in closed:
        starts.append(starts[-1] + text.count("\n"))
    found: list[tuple[int, Match]] = []
    index = 0
    for match in matches:
        while match.number > starts[index + 1]:
            index += 1
        found.append((index, Match("", match.number - starts[index], match.line, match.columns)))
    return found


def _pattern(query: Query) -> list[str]:
    """Everything behind the two dashes is data, whatever sign it begins with."""
    return [*(("--fixed-strings",) if query.literal else ()), "--", query.pattern]


async def _messages(process: asyncio.subprocess.Process) -> AsyncGenerator[Mapping[str, Any], None]:
    assert process.stdout is not None  # noqa: S101 - states what PIPE above means, for the type checker.
    rest, total = bytearray(), 0
    while total < _MOST_OUTPUT and (chunk := await process.stdout.read(_CHUNK)):
        total += len(chunk)
        # One message can have as many chunks as there are matches in a line: each is looked through once.
        *lines, last = chunk.split(b"\n")
        for line in lines:
            if (message := _parsed(rest + line)) is not None:
                yield message
            rest = bytearray()
        if len(rest) < _MAX_MESSAGE_BYTES:
            rest += last


def _parsed(line: bytes | bytearray) -> Mapping[str, Any] | None:
    """Return a message, a long one with its first columns only; None for one of which no column was kept."""
    if len(line) > _LONG_MESSAGE_BYTES:
        begin = line.find(_COLUMNS)
        ends = [end.end() for end in _END_OF_COLUMN.finditer(line, begin, begin + _MAX_COLUMNS_BYTES)]
        if begin < 0 or not ends:
            return None
        line = line[: ends[-1]] + b"]}}"
    message: Mapping[str, Any] = json.loads(line)
    return message


def _match(message: Mapping[str, Any]) -> Match | None:
    if message["type"] != "match":
        return None
    found = message["data"]
    columns = tuple(part["start"] for part in found["submatches"])
    return Match(os.fsdecode(_bytes(found["path"])), found["line_number"], _bytes(found["lines"]), columns)


def _bytes(value: Mapping[str, str]) -> bytes:
    """Text where it is UTF-8, else base64."""
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


async def _check_end(process: asyncio.subprocess.Process) -> None:
    """Raise what its end means, unless it was left before its end."""
    if process.stdout is not None and not process.stdout.at_eof():
        return
    _, errors = await process.communicate()
    _check(process.returncode, errors)


def _check(status: int | None, errors: bytes) -> None:
    """Files that cannot be read are passed over in silence; what is left on stderr is about the request."""
    if status is not None and status < 0:
        raise BrokeOff
    if status != 2 or not errors.strip():
        return
    text = errors[:1000].decode("utf-8", "replace").strip()
    if "unrecognized flag" in text or "Found argument" in text:
        raise UnknownOption(text)
    if text.startswith("rg: the literal "):
        raise ToolFailed(ONE_LINE)
    # It goes on to advise options that a model cannot give.
    text = text.removeprefix("rg: ").partition("\nConsider")[0].strip()
    raise ToolFailed(f"The search could not be made: {text}")


async def match_texts(texts: Sequence[str], query: Query, *, most: int) -> list[tuple[int, Match]]:
    """Match texts without ripgrep. Return at most `most` matches, each with the index of its text.

    Raises ToolFailed for a wrong pattern and TimeoutError if a batch takes too long.
    """
    pattern = re.escape(query.pattern) if query.literal else query.pattern
    found: list[tuple[int, Match]] = []
    try:
        if fault := await run_in_worker(_WORKER_SECONDS, compile_fault, pattern):
            raise ToolFailed(f"The pattern is not a regular expression: {fault}.")
        for first, batch in _split_batches(texts):
            rows = await run_in_worker(_WORKER_SECONDS, matching_lines, pattern, batch, most - len(found))
            found += [(first + index, Match("", number, b"", (column,))) for index, number, column in rows]
            if len(found) == most:
                break
    except WorkFailed:
        raise TimeoutError from None
    return found


def _split_batches(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the texts of each call of a worker, with the index of the first one."""
    first, batch, size = 0, list[str](), 0
    for index, text in enumerate(texts):
        if batch and size + len(text) > _MAX_BATCH_CHARACTERS:
            yield first, batch
            first, batch, size = index, [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield first, batch
