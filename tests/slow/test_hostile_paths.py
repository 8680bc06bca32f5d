"""A-20: paths and URIs in every form that has led out of a folder elsewhere, judged by content."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

import pytest

from tests.slow.link_farm import INSIDE, OUTSIDE, SHAPES, Farm, hostile_path
from tests.slow.running import Tally
from tests.support.sizes import SEED, lots, tries
from thinklsp.core.errors import PathRefused
from thinklsp.workspace.overlay import EditOverlay, apply_to_disk
from thinklsp.workspace.paths import Root
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

LOT = 1_000
RULES = ProtectedPaths()  # Made once: that takes longer than many tries.
NEW = f"{INSIDE}, newly written\n"


class Gate(AbstractContextManager["Gate"], Protocol):
    """Reads and writes a written path. Raises PathRefused or OSError, or ValueError for what is no path."""

    def __init__(self, farm: Farm) -> None: ...
    def read(self, written: str) -> str | None: ...
    def names(self, written: str) -> tuple[str, ...]: ...
    def change(self, written: str, how: str) -> None: ...


class Ours(Gate):
    """The gate of the product, as a turn uses it, and as the terminal writes."""

    def __init__(self, farm: Farm) -> None:
        self.farm = farm
        self.root = Root(str(farm.ws), protected=RULES)

    def __exit__(self, *_: object) -> None:
        self.root.close()

    def view(self) -> WorkspaceView:
        """A document is open outside: its text may be used, its file not."""
        opened = DocumentSnapshot((self.farm.ground / "other/open.py").as_uri(), 1, f"{INSIDE} the editor\n")
        return WorkspaceView([self.root], [opened], protected=RULES)

    def read(self, written: str) -> str | None:
        view = self.view()
        place = view.resolve(written)
        if place.root is not None and view.find_kind(place) in ("file", "directory"):
            self.check_address(place.uri)
        found = view.read(place)
        return None if found is None else found.text

    def names(self, written: str) -> tuple[str, ...]:
        view = self.view()
        listings = [view.list_folder(place) for place in view.resolve_folder(written)]
        return tuple(name for found in listings if found is not None for name in (*found.directories, *found.files))

    def change(self, written: str, how: str) -> None:
        view = self.view()
        overlay = EditOverlay(view)
        place, plain = view.resolve(written), view.resolve("plain.txt")
        if how == "write":
            overlay.write(place, NEW)
        elif how == "delete":
            overlay.delete(place)
        else:
            overlay.rename(*((plain, place) if how == "rename to" else (place, view.resolve("taken.txt"))))
        for edit in overlay.build_edit_set().files:
            for uri in filter(None, (edit.uri, edit.new_uri)):
                if not uri.endswith("/other/open.py"):
                    self.check_address(uri)
        apply_to_disk(overlay.build_edit_set(), view)

    def check_address(self, uri: str) -> None:
        """T-2: the editor opens the URI itself and follows links."""
        path = unquote(uri.removeprefix("file://"), errors="surrogateescape")
        assert self.farm.holds(path), uri
        assert os.path.realpath(path) == os.path.normpath(path), uri


class Hopeful(Gate):
    """A gate as it is often written: it joins, compares the beginning, and opens by name."""

    decode = staticmethod(lambda written: written)

    def __init__(self, farm: Farm) -> None:
        self.ws = str(farm.ws)

    def __exit__(self, *_: object) -> None: ...

    def allowed(self, path: str) -> bool:
        return os.path.normpath(path).startswith(f"{self.ws}/")

    def place(self, written: str) -> str:
        path = os.path.join(self.ws, written.removeprefix("file://"))
        if not self.allowed(path):
            raise PathRefused("no")
        return self.decode(path)

    def read(self, written: str) -> str | None:
        path = self.place(written)
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                return file.read(1 << 16)
        return None

    def names(self, written: str) -> tuple[str, ...]:
        return tuple(os.listdir(self.place(written)))

    def change(self, written: str, how: str) -> None:
        path = self.place(written)
        if how == "write" and (os.path.isfile(path) or not os.path.exists(path)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(NEW)


class ByBeginning(Hopeful):
    def allowed(self, path: str) -> bool:
        return os.path.realpath(path).startswith(self.ws)


class ByRealPath(Hopeful):
    """Correct about links, wrong about hard links."""

    def allowed(self, path: str) -> bool:
        return os.path.realpath(path).startswith(f"{self.ws}/")


class DecodesLate(ByRealPath):
    decode = staticmethod(unquote)


def escapes(count: int, rng: random.Random, ground: Path, make: type[Gate] = Ours) -> Iterator[tuple[str, str, str]]:
    farm = Farm(ground)
    for lot in lots(count, LOT):
        farm.reset()
        before = farm.outside()
        with make(farm) as gate:
            for _ in range(lot):
                shape, written = hostile_path(rng, farm)
                how = rng.choice(OPERATIONS)
                with suppress(PathRefused, OSError, ValueError):
                    if (fault := attempt(gate, how, written)) is not None:
                        yield shape, written, fault
                    if how in CHANGES and farm.outside() != before:
                        yield shape, written, how
        if farm.outside() != before:
            yield "any", "of this lot", "changed something outside"


READS = ("read", "read", "read", "names")
CHANGES = ("write", "delete", "rename to", "rename from")
OPERATIONS = (*READS, *READS, *CHANGES)
NAMES_OUTSIDE = {OUTSIDE, "ws-evil", "linked.txt", "etc", "cpuinfo"}


def attempt(gate: Gate, how: str, written: str) -> str | None:
    match how:
        case "read":
            text = gate.read(written)
            return None if text is None or text.startswith(INSIDE) else f"read {text[:40]!r}"
        case "names":
            return "listed" if NAMES_OUTSIDE & {*gate.names(written)} else None
        case _:
            gate.change(written, how)
            return None


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    return tmp_path / "ground"


def test_no_path_leads_out(ground: Path, tally: Tally) -> None:
    count = tries("A-20")
    assert next(escapes(count, random.Random(SEED), ground), None) is None
    tally("A-20", count)


@pytest.mark.parametrize("gate", [Hopeful, ByBeginning, ByRealPath, DecodesLate])
def test_a_hopeful_gate_is_found(ground: Path, gate: type[Gate]) -> None:
    assert next(escapes(2_000, random.Random(SEED), ground, gate), None) is not None


def test_the_shapes_reach_what_is_there(ground: Path) -> None:
    """A suite whose paths were all refused by mistake would prove nothing."""
    assert len(SHAPES) >= 60
    farm, rng = Farm(ground), random.Random(SEED)
    reached = Counter[str]()
    with Ours(farm) as gate:
        for _ in range(3_000):
            shape, written = hostile_path(rng, farm)
            with suppress(PathRefused):
                reached[shape] += gate.read(written) is not None
    assert reached["what lies within"] > 10
    assert reached["file"] > 0
    assert reached["a second name"] > 10
