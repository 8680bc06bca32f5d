"""A hostile folder: its name, the function that creates it, and its use.

A trap is a program or module that leaves a mark outside of the folder. `careless` is a command that trusts the folder
and so springs the trap, which shows that the trap works.
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
HIDDEN = "\u200b\u202e\u2066\ufeff\u00ad\U000e0041\U000e0042\u180e\u3164"


@dataclass(frozen=True)
class Ground:
    """`root` is the folder, `home` the user's (never to be touched), `marks` the folder for marks of traps, and `decoy`
    the address of a listener that nobody may call."""

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
        return self.write(name, f"#!/bin/sh\n: > '{self.mark(name)}'\nexit 0\n", mode=0o755)

    def python_trap(self, name: str) -> None:
        self.write(name, f"open({str(self.mark(name))!r}, 'w').close()\nraise SystemExit('imported {name}')\n")

    def mark(self, name: str) -> Path:
        return self.marks / name.replace("/", "-")

    def git(self, config: str, *, below: str = ".git") -> None:
        for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (self.root / below / folder).mkdir(parents=True, exist_ok=True)
        self.write(f"{below}/HEAD", "ref: refs/heads/main\n")
        self.write(f"{below}/config", f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n{config}")


@dataclass(frozen=True)
class Hostile:
    """`reads` and `writes`: the files that the model tries. `opens`: documents that the user opens besides `main.py`.
    `module`: the server is started as `python -m thinklsp`."""

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
    """Return the place for a folder. `empty`: the caller creates the folders before `make`."""
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
