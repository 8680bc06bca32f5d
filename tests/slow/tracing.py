"""What a program does to the system, as strace saw it: processes started, addresses reached, files changed.

`traced(argv, folder)` is the command to run instead of `argv`; once that has ended, `read_trace(folder, cwd)` tells
what happened. Attempts count, whether or not they succeeded. Shares no code with the product.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

# Calls that change what a path names, with the places of their (folder, path) arguments; None: no folder is given.
_CHANGING: dict[str, tuple[tuple[int | None, int], ...]] = {
    "creat": ((None, 0),), "mknod": ((None, 0),), "mknodat": ((0, 1),), "mkdir": ((None, 0),), "mkdirat": ((0, 1),),
    "rename": ((None, 0), (None, 1)), "renameat": ((0, 1), (2, 3)), "renameat2": ((0, 1), (2, 3)),
    "unlink": ((None, 0),), "unlinkat": ((0, 1),), "rmdir": ((None, 0),),
    "link": ((None, 1),), "linkat": ((2, 3),), "symlink": ((None, 1),), "symlinkat": ((1, 2),),
    "chmod": ((None, 0),), "fchmodat": ((0, 1),), "fchmodat2": ((0, 1),),
    "chown": ((None, 0),), "lchown": ((None, 0),), "fchownat": ((0, 1),),
    "truncate": ((None, 0),), "utimensat": ((0, 1),), "setxattr": ((None, 0),), "lsetxattr": ((None, 0),),
}  # fmt: skip
# The same by an open descriptor, their first argument.
_CHANGING_OPEN = ("fchmod", "fchown", "ftruncate", "fsetxattr")
_OPENING: dict[str, tuple[int | None, int]] = {"open": (None, 0), "openat": (0, 1), "openat2": (0, 1)}
_WRITING = re.compile(r"O_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)")
_STARTING = {"execve": 0, "execveat": 1}
_FORKING = ("fork", "vfork", "clone", "clone3")
_REACHING = ("connect", "bind", "sendto", "sendmsg", "sendmmsg")
_MOVING = ("chdir", "fchdir")
_CALLS = (*_CHANGING, *_CHANGING_OPEN, *_OPENING, *_STARTING, *_FORKING, *_REACHING, *_MOVING)

_LINE = re.compile(r"(?:[\d.]+ )?(?P<name>\w+)\((?P<rest>.*)", re.DOTALL)
_READING = re.compile(rf"[\d.]+ open(?!.*{_WRITING.pattern})")
_PIECE = re.compile(r'"(?:\\.|[^"\\])*"(?:\.\.\.)?|<[^>]*>|[\[({]|[\])}]|,|[^",<\[({\])}]+', re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_STRING = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)
_ADDRESS = re.compile(
    r"sa_family=AF_INET6?, .*?sin6?_port=htons\((?P<port>\d+)\).*?"
    r'(?:inet_addr\("(?P<v4>[^"]+)"\)|inet_pton\(AF_INET6, "(?P<v6>[^"]+)")'
)


@dataclass(frozen=True)
class Call:
    """One system call: its arguments as strace writes them, and what it gave."""

    name: str
    arguments: tuple[str, ...]
    result: str


@dataclass(frozen=True)
class Started:
    """A program in place of the one that this process ran before. `environment`: as NAME=value."""

    process: int
    program: str
    argv: tuple[str, ...]
    environment: tuple[str, ...]


@dataclass(frozen=True)
class Reached:
    """`address`: host:port; or the kind of socket and what strace says of it."""

    process: int
    call: str
    address: str


@dataclass(frozen=True)
class Changed:
    """`path` is the real one where the system said it. Opening it to write is enough."""

    process: int
    call: str
    path: str


@dataclass
class Trace:
    """`forked`: how many processes came into being, threads not counted. The first of `started` is what was traced."""

    started: list[Started] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)
    forked: int = 0


def traced(argv: Sequence[str], folder: Path) -> list[str]:
    """`folder` takes one file for each thread, so that no two calls share a line."""
    folder.mkdir()
    calls = ",".join(f"?{name}" for name in _CALLS)
    options = ["-ff", "--seccomp-bpf", "-qq", "-y", "-ttt", "-s", "65536", "-o", str(folder / "thread")]
    shown = ["-e", f"trace={calls}", "-e", "signal=none", "-e", "abbrev=!execve,execveat"]
    return [shutil.which("strace") or "strace", *options, *shown, "--", *argv]


@cache
def why_not() -> str | None:
    """Why nothing can be traced on this machine, in words; None where it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False)  # noqa: S607
    return None if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.decode()[:200]}"


def read_trace(folder: Path, cwd: Path) -> Trace:
    """`cwd`: where the traced program was started."""
    trace = Trace()
    texts = [(file.read_text("utf-8", "surrogateescape"), int(file.suffix[1:])) for file in folder.iterdir()]
    # Every line begins with its time; numbers of processes begin anew at some point.
    for text, process in sorted(texts):
        _Thread(process, str(cwd), trace).read(text)
    return trace


class _Thread:
    """Reads what one thread did. It is taken to begin in `cwd`, where every call by a relative path says otherwise."""

    def __init__(self, number: int, cwd: str, trace: Trace) -> None:
        self._number, self._cwd, self._trace = number, cwd, trace

    def read(self, text: str) -> None:
        for line in text.split("\n"):
            # Most lines are about files that are read: a look has to be enough for them.
            if not _READING.match(line) and (call := parse(line)) is not None:
                self._take(call)

    def _take(self, call: Call) -> None:
        name, arguments, trace = call.name, call.arguments, self._trace
        if name in _STARTING:
            at = _STARTING[name]
            argv, environment = (tuple(strings(arguments[at + n])) for n in (1, 2))
            trace.started.append(Started(self._number, text_of(arguments[at]), argv, environment))
        elif name in _FORKING:
            trace.forked += "CLONE_THREAD" not in ",".join(arguments)
        elif name in _REACHING:
            if (address := _address(call)) is not None:
                trace.reached.append(Reached(self._number, name, address))
        elif name in _MOVING:
            self._cwd = _described(arguments[0]) or os.path.join(self._cwd, text_of(arguments[0]))
        elif name in _CHANGING_OPEN:
            self._note(name, _described(arguments[0]) or arguments[0])
        elif name in _OPENING:
            if _WRITING.search(",".join(arguments[_OPENING[name][1] + 1 :])):
                self._note(name, _described(call.result) or self._path(call, *_OPENING[name]))
        else:
            for at in _CHANGING[name]:
                self._note(name, self._path(call, *at))

    def _note(self, call: str, path: str) -> None:
        self._trace.changed.append(Changed(self._number, call, path))

    def _path(self, call: Call, folder: int | None, at: int) -> str:
        above = self._cwd if folder is None else (_described(call.arguments[folder]) or self._cwd)
        written = call.arguments[at]
        return os.path.normpath(os.path.join(above, text_of(written))) if written.startswith('"') else above


def parse(line: str) -> Call | None:
    """A line of `strace -y`; None where it is not about a call."""
    found = _LINE.match(line)
    if found is None:
        return None
    arguments, piece, depth, end = [], "", 0, len(line)
    for token in _PIECE.finditer(found["rest"]):
        text = token[0]
        if depth == 0 and text in (",", ")"):
            if piece or text == ",":
                arguments.append(piece.strip())
            piece = ""
            if text == ")":
                end = token.end()
                break
            continue
        depth += (text in ("[", "(", "{")) - (text in ("]", ")", "}"))
        piece += text
    if piece:
        arguments.append(piece.strip())
    return Call(found["name"], tuple(arguments), found["rest"][end:].strip().removeprefix("=").strip())


def strings(argument: str) -> Iterator[str]:
    """All strings of an array."""
    return (_unescaped(found[1]) for found in _STRING.finditer(argument))


def text_of(argument: str) -> str:
    """A string argument, empty where it is none."""
    return next(strings(argument), "")


def _described(argument: str) -> str | None:
    """The path that stands behind a descriptor."""
    found = re.search(r"<([^>]*)>", "" if argument.startswith('"') else argument)
    return _unescaped(found[1]) if found else None


def _address(call: Call) -> str | None:
    """Where to; None for what goes to the other end of a socket that is connected already."""
    # What is sent stands before the address, and may read like one.
    whole = ", ".join(call.arguments[4:] if call.name == "sendto" else call.arguments[1:])
    if call.name == "sendto" and "sa_family" not in whole:
        return None
    found = _ADDRESS.search(whole)
    return f"{found['v4'] or found['v6']}:{found['port']}" if found else whole


def _unescaped(text: str) -> str:
    """C's escapes, the bytes being UTF-8 where they can be."""

    def one(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if code[:1] == b"x" and len(code) == 3:
            return bytes([int(code[1:], 16)])
        return bytes([int(code, 8) & 0xFF]) if code.isdigit() else _LETTERS.get(code, code)

    return _ESCAPE.sub(one, text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
