"""A workspace full of ways out, and paths in every form that has led out of a folder elsewhere."""

from __future__ import annotations

import os
import random
import shutil
import socket
import stat
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

INSIDE, OUTSIDE = "inside", "outside-canary"
Snapshot = dict[str, tuple[int, ...] | bytes]


class Farm:
    """`ws` is the workspace; everything beside it is outside. `reset` restores all of it."""

    def __init__(self, ground: Path) -> None:
        self.ground = ground
        self.ws = ground / "ws"
        self.reset()

    def reset(self) -> None:
        shutil.rmtree(self.ground, ignore_errors=True)
        for name in ("ws/dir/deep", "ws/a", "ws/Große", "ws-evil/sub/outside-canary", "other", "WS"):
            (self.ground / name).mkdir(parents=True)
        for name in ("ws-evil/secret.txt", "ws-evil/sub/secret.txt", "secret.txt", "other/open.py", "WS/secret.txt"):
            (self.ground / name).write_text(f"{OUTSIDE} {name}\n")
        # A hard link is inside by name: reads are permitted, writes would change the file outside.
        (self.ground / "ws-evil/linked.txt").write_text(f"{INSIDE}, by a second name\n")
        os.link(self.ground / "ws-evil/linked.txt", self.ws / "hard.txt")
        os.link(self.ground / "ws-evil/linked.txt", self.ws / "dir/hard.txt")
        for name in ("plain.txt", "dir/deep/x.txt", "dir/secret.txt", "Große/café.txt", "a/%2e%2e", "a/x:y", "a/ b. "):
            (self.ws / name).write_text(f"{INSIDE} {name}\n")
        for name, target in LINKS.items():
            (self.ws / name).symlink_to(str(target).replace("GROUND", str(self.ground)))
        os.mkfifo(self.ws / "fifo")
        with suppress(PermissionError):
            os.mknod(self.ws / "device", 0o644 | stat.S_IFCHR, os.makedev(1, 5))
        with socket.socket(socket.AF_UNIX) as listener:
            # The path of a socket is limited to about a hundred bytes.
            folder = os.open(self.ws, os.O_RDONLY | os.O_DIRECTORY)
            try:
                listener.bind(f"/proc/self/fd/{folder}/socket")
            except OSError:
                (self.ws / "socket").symlink_to("/run")
            finally:
                os.close(folder)

    def outside(self) -> Snapshot:
        found: Snapshot = {}
        for above, folders, files in os.walk(self.ground):
            if above == str(self.ground):
                folders.remove("ws")
            for name in (*folders, *files):
                path = os.path.join(above, name)
                status = os.lstat(path)
                found[path] = (status.st_ino, status.st_mode, status.st_nlink, status.st_size, status.st_mtime_ns)
        for path in [path for path in found if path.endswith(".txt")]:
            with open(path, "rb") as file:
                found[f"{path}:content"] = file.read()
        return found

    def holds(self, path: str) -> bool:
        real = os.path.realpath(path)
        return real == str(self.ws) or real.startswith(f"{self.ws}/")


LINKS = {
    "abs_file": "GROUND/ws-evil/secret.txt", "rel_file": "../ws-evil/secret.txt", "abs_dir": "GROUND/ws-evil",
    "rel_dir": "../ws-evil", "up": "..", "root": "/", "self": ".", "loop": "loop", "loop1": "loop2", "loop2": "loop1",
    "inner_file": "plain.txt", "inner_dir": "dir", "dangling": "../ws-evil/made.txt", "proc": "/proc/self/root",
    "fd": "/proc/self/fd", "cwd": "/proc/self/cwd", "environ": "/proc/self/environ", "dir/out": "../../ws-evil",
    "dir/deep/out": "GROUND/ws-evil/sub", "a/b": "../../ws-evil/sub", "a/up": "../..", "chain1": "chain2",
    "chain2": "chain3", "chain3": "../ws-evil/secret.txt", "dev": "/dev/zero", "null": "/dev/null",
    "trailing": "../ws-evil/", "double": "..//ws-evil//secret.txt", "mixed": "dir/../../ws-evil/secret.txt",
    "middle": "dir/out/../secret.txt", "tilde": "~", "long": "./" * 400 + "../secret.txt", ".hidden": "../secret.txt",
}  # fmt: skip

Shape = Callable[[random.Random, str], str]
"""A written path out of the absolute path of something outside."""


def _folder(path: str) -> str:
    return f"{path.partition('/ground/')[0]}/ground/ws"


def _up(path: str, dots: str = "..", slash: str = "/") -> str:
    return slash.join((dots, *path.rpartition("/ground/")[2].split("/")))


def _below_link(rng: random.Random, path: str) -> str:
    tail = rng.choice(("", "secret.txt", "sub/secret.txt", "sub", "x.txt", "made.txt", "ws-evil/secret.txt", path[1:]))
    return f"{rng.choice(list(LINKS))}/{tail}".rstrip("/")


DOTS: dict[str, Shape] = {
    "up": lambda _, path: _up(path),
    "up from below": lambda _, path: f"dir/../{_up(path)}",
    "up from what is not there": lambda _, path: f"none/../{_up(path)}",
    "up from a file": lambda _, path: f"plain.txt/../{_up(path)}",
    "up behind a dot": lambda _, path: f"./{_up(path)}",
    "up with two slashes": lambda _, path: _up(path, slash="//"),
    "up very far": lambda rng, path: "../" * rng.choice((5, 50, 2_000)) + path[1:],
    "up by backslashes": lambda _, path: _up(path, slash="\\"),
    "up by either": lambda _, path: _up(path, slash="\\/"),
    "dots doubled": lambda _, path: _up(path, "....", "//"),
    "dots and a semicolon": lambda _, path: _up(path, "..;"),
    "dots in one character": lambda _, path: _up(path, "\u2025"),
    "wide dots": lambda _, path: _up(path, "\uff0e\uff0e", "\uff0f"),
    "dots with something invisible": lambda rng, path: _up(path, rng.choice((".\u200b.", "..\u00ad", "\ufeff.."))),
    "dots and a blank": lambda rng, path: _up(path, rng.choice((".. ", " ..", "..\t", ".. ."))),
    "escaped dots": lambda _, path: _up(path, "%2e%2e"),
    "escaped slash": lambda rng, path: _up(path, slash=rng.choice(("%2f", "%2F", "%5c"))),
    "escaped twice": lambda rng, path: _up(path, "%252e%252e", rng.choice(("/", "%252f"))),
    "overlong": lambda _, path: _up(path, "%c0%ae%c0%ae", "%c0%af"),
    "cut by NUL": lambda _, path: f"plain.txt\0/../{_up(path)}",
    "NUL behind": lambda _, path: f"{_up(path)}\0.txt",
    "a line end within": lambda rng, path: f"plain.txt{rng.choice(chr(10) + chr(13))}{_up(path)}",
}  # fmt: skip

ROOTS: dict[str, Shape] = {
    "absolute": lambda _, path: path,
    "two slashes": lambda _, path: f"/{path}",
    "three slashes": lambda _, path: f"//{path}",
    "the same beginning": lambda _, path: f"{_folder(path)}-evil/secret.txt",
    "up from the folder": lambda _, path: f"{_folder(path)}/{_up(path)}",
    "through proc": lambda rng, path: f"/proc/{rng.choice(('self', 'thread-self', '1'))}/root{path}",
    "through cwd": lambda _, path: f"/proc/self/cwd{path}",
    "a descriptor": lambda rng, _: rng.choice(("/dev/fd/", "/proc/self/fd/")) + str(rng.randrange(20)),
    "a device": lambda rng, _: rng.choice(("/dev/zero", "/dev/stdin", "/dev/tty", "/dev/random", "/dev/mem")),
    "the system": lambda rng, _: rng.choice(("/etc/passwd", "/proc/self/environ", "/proc/kcore", "/sys/power/state")),
    "home": lambda rng, path: rng.choice(("~", "~root", "$HOME", "${HOME}", "%USERPROFILE%")) + path,
    "a drive": lambda rng, path: rng.choice(("C:", "C:\\", "c:/", "C|/")) + path,
    "a share": lambda rng, path: rng.choice(("\\\\evil\\share", "//evil/share", "\\\\?\\C:", "\\\\.\\pipe")) + path,
    "an object name": lambda rng, path: rng.choice(("\\??\\", "\\Device\\", "//?/", "//./")) + path,
    "a stream": lambda rng, path: _up(path) + rng.choice(("::$DATA", ":x", "::$INDEX_ALLOCATION")),
    "a reserved name": lambda rng, _: rng.choice(("CON", "nul.txt", "COM1", "aux.h", "PROGRA~1", "dir/LPT1")),
}  # fmt: skip

OBJECTS: dict[str, Shape] = {
    "a link": lambda rng, _: rng.choice(list(LINKS)),
    "below a link": _below_link,
    "below a link, by its absolute path": lambda rng, path: f"{_folder(path)}/{_below_link(rng, path)}",
    "up from a link": lambda rng, path: f"{rng.choice(list(LINKS))}/../{_up(path)}",
    "a second name": lambda rng, _: rng.choice(("hard.txt", "dir/hard.txt", "./hard.txt")),
    "no regular file": lambda rng, _: rng.choice(("fifo", "socket", "device", "dir", "a", "")),
    "below no folder": lambda rng, path: rng.choice(("fifo", "socket", "plain.txt", "device")) + f"/{path}",
    "what lies within": lambda rng, _: rng.choice(("plain.txt", "dir/deep/x.txt", "a/%2e%2e", "a/x:y", "a/ b. ")),
    "what could lie within": lambda rng, _: f"{rng.choice(('', 'dir/', 'new/'))}made{rng.randrange(9)}.txt",
    "a long name": lambda rng, path: "x" * rng.choice((255, 256, 4_096, 70_000)) + path,
    "a deep path": lambda rng, path: "dir/" * rng.choice((60, 65, 3_000)) + path,
    "a deep one through links": lambda rng, path: "self/" * rng.choice((3, 41, 200)) + _up(path),
}  # fmt: skip

URIS: dict[str, Shape] = {
    "file": lambda _, path: f"file://{path}",
    "localhost": lambda _, path: f"file://localhost{path}",
    "one slash": lambda _, path: f"file:{path}",
    "four slashes": lambda _, path: f"file:///{path}",
    "a machine": lambda rng, path: f"file://{rng.choice(('evil', '127.0.0.1', 'a@localhost', 'localhost:80'))}{path}",
    "all escaped": lambda _, path: "file://" + "".join(c if c == "/" else f"%{ord(c):02x}" for c in path),
    "escaped up": lambda rng, path: f"file://{_folder(path)}/"
    + _up(path, rng.choice(("..", "%2e%2e", ".%2E", "%252e%252e")), rng.choice(("/", "%2f", "%5C", "\\"))),
    "a query": lambda rng, path: f"file://{path}{rng.choice(('?x', '#x', '%3fx', ';x', '%23'))}",
    "NUL in it": lambda _, path: f"file://{_folder(path)}/plain.txt%00{_up(path)}",
    "a drive in it": lambda rng, path: f"file:///{rng.choice(('C:', 'c%3A', 'C|'))}{path}",
    "another scheme": lambda rng, path: rng.choice(
        ("FILE://", "file+x://", "git:", "http://x", "untitled:", "vscode-remote://ssh", "jar:file:", "view-source:")
    ) + path,
    "no URI": lambda rng, path: rng.choice(("file:", "file://", "file:///", "file", "file:x", ":", "//")) + path[9:],
}  # fmt: skip

SHAPES = {**DOTS, **ROOTS, **OBJECTS, **URIS}


def _somewhere(rng: random.Random, text: str, piece: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + piece + text[at:]


def _escaped(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) or 1)
    return text[:at] + quote(text[at : at + 1], safe="") + text[at + 1 :]


TWISTS: tuple[Shape, ...] = (
    lambda _, text: text,
    lambda _, text: text,
    lambda rng, text: text.replace("/", rng.choice(("//", "/./", "\\", "/.//")), rng.randrange(1, 3)),
    lambda rng, text: text + rng.choice(("/", "/.", "/..", ".", " ", "\0", "//", "\n", "/x/..")),
    lambda rng, text: rng.choice(("./", "/", " ", "\ufeff", "//", "ws/", "../ws/")) + text,
    lambda _, text: text.swapcase(),
    lambda _, text: unicodedata.normalize("NFD", text),
    lambda _, text: unicodedata.normalize("NFKC", text),
    lambda rng, text: _somewhere(rng, text, rng.choice(("\u200d", "\0", "..", "/", "%", "\udc80", "\u202e"))),
    _escaped,
    lambda rng, text: "".join(_escaped(rng, part) if part == "." else part for part in text),
)


def hostile_path(rng: random.Random, farm: Farm) -> tuple[str, str]:
    aim = rng.choice(("ws-evil/secret.txt", "ws-evil", "secret.txt", "other/open.py", "WS/secret.txt", "ws/plain.txt"))
    name = rng.choice(list(SHAPES))
    return name, rng.choice(TWISTS)(rng, SHAPES[name](rng, str(farm.ground / aim)))
