"""Figure A-35: the tests take all branches of the security-relevant modules, measured in every process.

They are the default suite and slower tests of servers: `suites` of `branches.toml`.

`pytest tests/branches -n 0` says meanwhile what it does, and in the end what is lacking. `--basetemp` keeps the report.
`.ci/nightly branches` does this on the newest Python.

Python that measures itself: each process of a room says, when it ends, which branches of thinklsp it took; and what
the runs of a room have taken, against what `branches.toml` wants. A line that never ran counts as a branch.

Servers of tests get an environment of their own, often an empty one, and are started by `sys.executable`. So it is the
interpreter that measures: a virtual environment over the one that we run in, which begins with coverage.py. What is
killed with -9 says nothing; what only happens there would not count.
"""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import sysconfig
import tomllib
import venv
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage
from coverage.exceptions import CoverageWarning

ROOT = Path(__file__).parents[2]

# Nothing is measured by those that could not tell, such as commands in a sandbox. With `source` instead of `include`,
# each process would spend a quarter of a second to list the files that it has not run.
_BEGIN = """
import os
if os.access(os.path.dirname({data!r}), os.W_OK):
    import coverage
    measuring = coverage.Coverage(
        config_file={config!r}, data_file={data!r}, include=[{source!r}], data_suffix=True, auto_data=True
    )
    measuring.start()
"""


class Room:
    """`python` measures `source`, a folder, by the settings of `config`; `read` says what was found by all its runs."""

    def __init__(self, place: Path, source: Path, config: Path = ROOT / "pyproject.toml") -> None:
        self._source, self._config, self._data = source, config, place / "data" / "taken"
        self._data.parent.mkdir(parents=True)
        self.python = place / "bin" / "python"
        venv.EnvBuilder(symlinks=True).create(place)
        self._bring_programs()
        self._begin_with_coverage(place)

    def read(self) -> Coverage:
        """Return the combined data of all runs. Call it once, after the runs have ended."""
        found = Coverage(config_file=str(self._config), data_file=str(self._data), source=[str(self._source)])
        with warnings.catch_warnings():
            # What a server has written that was killed meanwhile, or might write no more, is half a file.
            warnings.simplefilter("ignore", CoverageWarning)
            found.combine(strict=True)
        found.get_data().touch_files(map(str, self._source.rglob("*.py")))
        return found

    def _bring_programs(self) -> None:
        """Link the programs beside the interpreter, such as ripgrep, because tests search for them there."""
        for program in Path(sysconfig.get_path("scripts")).iterdir():
            if not (here := self.python.with_name(program.name)).exists():
                here.symlink_to(program)

    def _begin_with_coverage(self, place: Path) -> None:
        (packages,) = place.glob("lib/python3*/site-packages")
        (packages / "measured.py").write_text(
            _BEGIN.format(config=str(self._config), data=str(self._data), source=str(self._source / "*")), "utf-8"
        )
        lines = [
            str(ROOT),  # Before an installed thinklsp.
            *(f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()),
            "import measured",
        ]
        (packages / "measured.pth").write_text("\n".join(lines) + "\n", "utf-8")


Json = Any
TABLE: Json = tomllib.loads((Path(__file__).parent / "branches.toml").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Part:
    """A group of modules. `missing` contains FILE:LINE for lines and FILE:LINE->LINE for branches that never ran."""

    name: str
    branches: int
    taken: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    parts: tuple[Part, ...]
    whole: float

    def told(self) -> str:
        """Return a line for each part, followed by its missing branches."""
        lines = [f"{'branches':>28} {'taken':>8} {'lacking':>8}"]
        for part in self.parts:
            lines.append(f"{part.name:<19} {part.branches:>8} {part.taken:>8} {len(part.missing):>8}")
            lines += [f"  {place}" for place in part.missing]
        return "\n".join([*lines, f"the whole package, lines and branches: {self.whole:.2f} %"])


def judged(found: Coverage, root: Path, parts: Json, report: Path) -> Verdict:
    """Compare the coverage with the required parts. `report` is the path of the full report."""
    found.json_report(outfile=str(report))
    read = json.loads(report.read_text("utf-8"))
    files = {
        str((Path.cwd() / name).resolve().relative_to(root.resolve())): file for name, file in read["files"].items()
    }
    return Verdict(tuple(_part(part, files) for part in parts), read["totals"]["percent_covered"])


def _part(part: Json, files: Json) -> Part:
    branches = taken = 0
    missing: list[str] = []
    for name in part["modules"]:
        file = files[name]
        branches += file["summary"]["num_branches"]
        taken += file["summary"]["covered_branches"]
        missing += [f"{name}:{line}" for line in file["missing_lines"]]
        # Below zero is the way out of a function.
        missing += [f"{name}:{line}->{to if to > 0 else 'exit'}" for line, to in file["missing_branches"]]
    return Part(part["name"], branches, taken, tuple(missing))


PACKAGE = ROOT / "thinklsp"
PARTS = [part["name"] for part in TABLE["part"]]
LEFT_OUT = [f"--deselect={test}" for row in TABLE["left_out"] for test in row["tests"]]

# How a process that took the branch may end, and how it came to be; each is one that servers of tests have.
GUARD = "def passes(word):\n    if word == 'open':\n        return True\n    return False\n"
ENDS = {
    "by itself": "guard.passes('{}')",
    "forked, by the end of its main": "import os\nif os.fork() == 0:\n    guard.passes('{}')\nelse:\n    os.wait()",
    "forked, without a clean-up": (
        "import os\nif os.fork() == 0:\n    guard.passes('{}')\n    os._exit(0)\nelse:\n    os.wait()"
    ),
    "by a signal that it takes": (
        "import os, signal\nsignal.signal(15, lambda number, _: os._exit(143))\nguard.passes('{}')\n"
        "os.kill(os.getpid(), 15)"
    ),
    "in a thread": "import threading\nthread = threading.Thread(target=guard.passes, args=['{}'])\nthread.start()",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_branch_that_nobody_takes_is_noticed(tmp_path: Path, end: str) -> None:
    """The control: a planted module is measured without one of its branches, then with it."""
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "guard.py").write_text(GUARD, "utf-8")
    room = Room(tmp_path / "room", planted)

    def lacking(*words: str) -> tuple[str, ...]:
        for word in words:
            script = f"import sys\nsys.path.insert(0, {str(planted)!r})\nimport guard\n{ENDS[end].format(word)}"
            subprocess.run([room.python, "-c", script], env={}, check=False, timeout=120)
        [part] = judged(room.read(), planted, [{"name": "x", "modules": ["guard.py"]}], tmp_path / "report.json").parts
        assert (part.branches, part.taken) == (2, 2 - ("guard.py:2->3" in part.missing))
        return part.missing

    assert lacking("shut") == ("guard.py:3", "guard.py:2->3")
    assert lacking("shut", "open") == ()


def run_suites(room: Room, place: Path) -> None:
    """Run the suites in parallel. A test that fails under coverage must pass without it."""
    runs = []
    for number, suites in enumerate(TABLE["suites"]):
        words = ["-m", "pytest", "-q", "-m", "", "-o", f"cache_dir={place / f'cache{number}'}", *LEFT_OUT, *suites]
        base = f"--basetemp={place / f'base{number}'}"
        measured = subprocess.Popen([room.python, *words, base], cwd=ROOT, env={**os.environ, "SLOW": "quick"})
        runs.append((measured, [sys.executable, *words, "--last-failed", "--last-failed-no-failures=none"]))
    for measured, _ in runs:
        measured.wait()
    for measured, again in runs:
        assert measured.returncode in (0, 1)
        if measured.returncode:
            subprocess.run(again, cwd=ROOT, env={**os.environ, "SLOW": "quick"}, check=True)


@pytest.fixture(scope="module")
def verdict(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    place = tmp_path_factory.mktemp("measured")
    room = Room(place / "room", PACKAGE)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        run_suites(room, place)
        found = judged(room.read(), PACKAGE, TABLE["part"], place / "report.json")
        sys.stdout.write(f"\n{found.told()}\n")
    return found


def test_every_branch_of_the_guards_is_taken(verdict: Verdict, tally: Callable[[str, int], None]) -> None:
    assert {part.name: part.missing for part in verdict.parts if part.missing} == {}
    tally("A-35", 100 * sum(part.taken for part in verdict.parts) // sum(part.branches for part in verdict.parts))


def test_the_whole_package_is_taken(verdict: Verdict) -> None:
    assert verdict.whole >= TABLE["least"]
