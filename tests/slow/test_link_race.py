"""A-21: another process swaps folders and files with links while they are read and written."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.slow.running import Tally
from tests.support.sizes import tries
from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import RelPath

pytestmark = pytest.mark.timing
CANARY, INSIDE, NEW = b"outside-canary", b"inside", b"inside, newly written"
PATIENCE = 120  # Seconds until the control must have lost.

# Swap a folder and a file with links to the outside. Files that a writer creates in between are moved away.
SWAPPER = """
import itertools, os, sys
os.chdir(sys.argv[1])
count = itertools.count()
def put(one, other):
    while True:
        try:
            return os.rename(one, other)
        except OSError:
            os.rename(other, f"made{next(count)}")
while True:
    for one, other in (("d", "link"), ("here/f", "here/link")):
        put(one, "spare")
        put(other, one)
        put(one, other)
        put("spare", one)
"""
PLACES = ("d/f", "here/f")

Try = Callable[[str], bytes | None]


class Ground:
    def __init__(self, folder: Path) -> None:
        self.ws, self.outside = folder / "ws", folder / "out"
        for made in (self.ws / "d", self.ws / "here", self.outside):
            made.mkdir(parents=True)
        for name in PLACES:
            (self.ws / name).write_bytes(INSIDE)
        (self.outside / "f").write_bytes(CANARY)
        (self.ws / "link").symlink_to(self.outside)
        (self.ws / "here/link").symlink_to(self.outside / "f")

    def is_whole(self) -> bool:
        return os.listdir(self.outside) == ["f"] and (self.outside / "f").read_bytes() == CANARY


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", SWAPPER, str(made.ws)]) as swapper:
        try:
            yield made
            assert swapper.poll() is None, "nobody raced"
        finally:
            swapper.kill()


@contextmanager
def by_gate(ground: Ground, how: str) -> Iterator[Try]:
    with Root(str(ground.ws)) as root:

        def attempt(name: str) -> bytes | None:
            path = RelPath.build(tuple(name.split("/")))
            if how == "read":
                return root.read(path)
            root.replace(path, NEW)
            # Create a new file, and remove it wherever it ended up.
            new = RelPath.build(("d", "new"))
            root.create(new, NEW)
            root.delete(new)
            return NEW

        yield attempt


@contextmanager
def by_name(ground: Ground, how: str) -> Iterator[Try]:
    def attempt(name: str) -> bytes | None:
        path = os.path.join(ground.ws, name)
        if os.path.realpath(path) != path:
            raise PathRefused("It leads elsewhere.")
        if how == "read":
            with open(path, "rb") as file:
                return file.read()
        with open(path, "r+b") as file:
            file.write(NEW)
        return NEW

    yield attempt


def race(ground: Ground, attempt: Try, seconds: float, *, until_lost: bool = False) -> tuple[int, int]:
    honest = escaped = number = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (until_lost and escaped):
        found = None
        with suppress(PathRefused, OSError):
            found = attempt(PLACES[number % len(PLACES)])
        number += 1
        honest += found in (INSIDE, NEW)
        escaped += found == CANARY or not ground.is_whole()
    return honest, escaped


@pytest.mark.parametrize("how", ["read", "write"])
def test_the_race_is_won(ground: Ground, how: str, tally: Tally) -> None:
    seconds = tries("A-21", 0.5)
    with by_gate(ground, how) as attempt:
        honest, escaped = race(ground, attempt, seconds)
    assert escaped == 0
    assert honest > 0, "nothing was reached at all"
    tally("A-21", seconds)


@pytest.mark.parametrize("how", ["read", "write"])
def test_who_looks_and_then_opens_loses_it(ground: Ground, how: str) -> None:
    with by_name(ground, how) as attempt:
        assert race(ground, attempt, PATIENCE, until_lost=True)[1] > 0
