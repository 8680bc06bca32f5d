"""What a folder that attacks is made of: a row with its name, a function that makes it and how it is used.

What a folder wants to be run is a trap: a program or a module that leaves a mark outside of the folder and calls a
decoy that listens. `careless` is a command of a program that believes the folder; it springs the trap, which shows
that the trap works.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Any
MAIN = "def greet(name):\n    return 'Hello ' + nmae\n"
SECRET = "canary-of-a-private-key-3f9a1c77"
# Every sort of character that an eye does not see.
HIDDEN = "\u200b\u202e\u2066\ufeff\u00ad\U000e0041\U000e0042\u180e\u3164"


@dataclass(frozen=True)
class Ground:
    """Where a folder is made: `root` is it, `home` the user's (not to be touched), `marks` where traps leave theirs,
    `decoy` the address of a listener that nobody should call."""

    root: Path
    home: Path
    marks: Path
    decoy: str = "http://127.0.0.1:9"

    def write(self, name: str, text: str | bytes = "", *, mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return path

    def json(self, name: str, value: Json) -> None:
        self.write(name, json.dumps(value, indent=1))

    def trap(self, name: str) -> Path:
        """A program that leaves a mark. It takes any arguments and any input."""
        return self.write(name, f"#!/bin/sh\n: > '{self.mark(name)}'\nexit 0\n", mode=0o755)

    def python_trap(self, name: str) -> None:
        """A module that leaves a mark when it is imported."""
        self.write(name, f"open({str(self.mark(name))!r}, 'w').close()\nraise SystemExit('imported {name}')\n")

    def mark(self, name: str) -> Path:
        return self.marks / name.replace("/", "-")

    def git(self, config: str, *, below: str = ".git") -> None:
        """A repository without a commit, as `git init` would leave it, with these lines in its settings."""
        for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (self.root / below / folder).mkdir(parents=True, exist_ok=True)
        self.write(f"{below}/HEAD", "ref: refs/heads/main\n")
        self.write(f"{below}/config", f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n{config}")


@dataclass(frozen=True)
class Hostile:
    """`reads`: what the model is led to read. `opens`: documents that the user opens besides `main.py`. `writes`: what
    the model is led to write. `environment` and `settings`: of the server and of the editor, made for the place.
    `module`: the server is started as `python -m thinklsp`, not by its own command."""

    name: str
    make: Callable[[Ground], None]
    careless: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    environment: Callable[[Ground], Mapping[str, str]] = lambda ground: {}
    settings: Callable[[Ground], Json] = lambda ground: {}
    module: bool = False


Maker = Callable[[Ground], None]


def rows_of(rows: list[Hostile]) -> Callable[..., Callable[[Maker], Maker]]:
    """A decorator for makers: `@hostile(name, *careless, **how)` adds a row."""

    def hostile(name: str, *careless: str, **how: Any) -> Callable[[Maker], Maker]:
        def add(make: Maker) -> Maker:
            rows.append(Hostile(name, make, careless, **how))
            return make

        return add

    return hostile


def ground(place: Path, decoy: str = "http://127.0.0.1:9", *, empty: bool = False) -> Ground:
    """`empty`: somebody else makes the folders, before the rest is filled in by `make`."""
    at = Ground(place / "work", place / "home", place / "marks", decoy)
    at.marks.mkdir(parents=True)
    if not empty:
        at.root.mkdir()
        at.home.mkdir()
    return at


def make(row: Hostile, at: Ground) -> None:
    (at.home / ".ssh").mkdir()
    (at.home / ".ssh/id_rsa").write_text(f"{SECRET}\n")
    at.write("main.py", MAIN)
    row.make(at)
