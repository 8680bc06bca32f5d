"""Which command tests a workspace: found from the files of its build, as the turn sees them. Pure but for reading."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import Place

Words = tuple[str, ...]

_MOST_TEST_FILES = 40
_TEST_FOLDERS = ("tests", "test")
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")
_INTERPRETERS = (".venv/bin/python", "venv/bin/python")
# The endings of files that a language's tests speak for.
_PYTHON = frozenset(("py", "pyi", "pyx", "toml", "cfg"))
_SCRIPT = frozenset(("js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts", "vue", "svelte", "json"))


@dataclass(frozen=True, slots=True)
class Tests:
    """A command that tests what lies below a folder. `spellings`: the argv, the best first; the others do the same
    where they are what the user has permitted. `folder`: as a model writes it, None for the first folder's root."""

    spellings: tuple[Words, ...]
    folder: str | None
    endings: frozenset[str] = frozenset()


def recognised(overlay: EditOverlay) -> Tests | None:
    """The tests of what the turn has changed: those of the nearest folder above it that has any."""
    for place in overlay.changed():
        ending = place.shown.rpartition(".")[2]
        for folder in _above(overlay, place):
            if found := list(_of_folder(overlay, folder)):
                return next((tests for tests in found if ending in tests.endings), found[0])
    return None


def _above(overlay: EditOverlay, place: Place) -> Iterator[Place]:
    """The folders that hold it, the innermost first."""
    if place.root is not None and place.path is not None:
        for length in range(len(place.path.parts) - 1, -1, -1):
            yield overlay.view.place_in(place.root, place.path.parts[:length])


def _of_folder(overlay: EditOverlay, folder: Place) -> Iterator[Tests]:
    look = _Look(overlay, folder)
    where = None if folder.shown == "." else folder.shown
    if (python := _python(look)) is not None:
        yield Tests(python, where, _PYTHON)
    if look.has("Cargo.toml"):
        yield Tests((("cargo", "test"),), where, frozenset(("rs", "toml")))
    if look.has("go.mod"):
        yield Tests((("go", "test", "./..."),), where, frozenset(("go", "mod")))
    if _has_script(look.text("package.json")):
        manager = next((name for lock, name in _LOCKS if look.has(lock)), "npm")
        yield Tests(((manager, "test"),), where, _SCRIPT)
    if re.search(r"^test\s*:(?!=)", look.text("Makefile"), re.MULTILINE):
        yield Tests((("make", "test"),), where)


_LOCKS = (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"))


def _python(look: _Look) -> tuple[Words, ...] | None:
    runner = _python_runner(look)
    if runner is None:
        return None
    own = next((path for path in _INTERPRETERS if look.has(path)), None)
    if own is not None:
        return ((own, *runner),)
    alone = (("pytest",),) if runner == ("-m", "pytest") else ()
    return (("python3", *runner), ("python", *runner), *alone)


def _python_runner(look: _Look) -> Words | None:
    pytest = ("-m", "pytest")
    if look.has("pytest.ini") or look.has("conftest.py") or _has_pytest(look):
        return pytest
    for folder in (*_TEST_FOLDERS, ""):
        names = look.names(folder, _TEST_FILE)
        if not names:
            continue
        texts = [look.text(f"{folder}/{name}".lstrip("/")) for name in names[:_MOST_TEST_FILES]]
        if not all(re.search(r"^\s*(?:import|from) unittest", text, re.MULTILINE) for text in texts):
            return pytest
        if any(re.search(r"^\s*(?:import|from) pytest", text, re.MULTILINE) for text in texts):
            return pytest
        if folder and not look.has(f"{folder}/__init__.py"):
            return ("-m", "unittest", "discover", "-s", folder)
        return ("-m", "unittest")
    return None


def _has_pytest(look: _Look) -> bool:
    with suppress(tomllib.TOMLDecodeError):
        tool = tomllib.loads(look.text("pyproject.toml")).get("tool")
        if isinstance(tool, dict) and "pytest" in tool:
            return True
    return "[tool:pytest]" in look.text("setup.cfg") or "[pytest]" in look.text("tox.ini")


def _has_script(text: str) -> bool:
    """Not the one that npm writes into new packages, which only fails."""
    try:
        script = json.loads(text)["scripts"]["test"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(script, str) and bool(script.strip()) and "no test specified" not in script


@dataclass(frozen=True, slots=True)
class _Look:
    """Into one folder, as the turn sees it; what may not be read is not there."""

    overlay: EditOverlay
    folder: Place

    def has(self, name: str) -> bool:
        place = self._at(name)
        with suppress(PathRefused):
            return place is not None and self.overlay.kind(place) in ("file", "link")
        return False

    def text(self, name: str) -> str:
        place = self._at(name)
        with suppress(PathRefused):
            found = None if place is None or not self.has(name) else self.overlay.peek(place)
            return "" if found is None else found.text
        return ""

    def names(self, folder: str, pattern: re.Pattern[str]) -> list[str]:
        """Of the files on disk and those of the turn and of open documents, sorted."""
        below = self._at(folder) if folder else self.folder
        names: set[str] = set()
        with suppress(PathRefused):
            listing = None if below is None else self.overlay.view.listing(below)
            names |= set() if listing is None else {*listing.files}
        for place in (*self.overlay.changed(), *self.overlay.view.unlike_disk()):
            if below is not None and place.root is below.root and place.path is not None and below.path is not None:
                *above, name = place.path.parts
                names |= {name} if tuple(above) == below.path.parts else set()
        return sorted(n for n in names if pattern.fullmatch(n) and self.has(f"{folder}/{n}".lstrip("/")))

    def _at(self, name: str) -> Place | None:
        if self.folder.root is None or self.folder.path is None:
            return None
        with suppress(PathRefused):
            return self.overlay.view.place_in(self.folder.root, (*self.folder.path.parts, *name.split("/")))
        return None
