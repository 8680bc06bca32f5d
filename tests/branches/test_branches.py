"""Figure A-35: the default suite, measured in every process that it starts, takes all branches of what guards the rest.

`pytest tests/branches -n 0` says meanwhile what it does, and in the end what is lacking. `--basetemp` keeps the report.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.branches.judging import TABLE, Verdict, judged
from tests.branches.measuring import ROOT, Room

PACKAGE = ROOT / "thinklsp"
PARTS = [part["name"] for part in TABLE["part"]]

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
    """The control: with a planted module, in an empty environment, first without one of its branches, then with it."""
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


@pytest.fixture(scope="module")
def verdict(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    place = tmp_path_factory.mktemp("measured")
    room = Room(place / "room", PACKAGE)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        left_out = [f"--deselect={row['test']}" for row in TABLE["left_out"]]
        command = [room.python, "-m", "pytest", "-q", f"--basetemp={place / 'base'}", *left_out, *TABLE["suites"]]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "SLOW": "quick"}, check=False)
        # What fails has failed in a suite of its own, too, or was too slow while it was measured.
        assert done.returncode in (0, 1)
        found = judged(room.read(), PACKAGE, TABLE["part"], place / "report.json")
        sys.stdout.write(f"\n{found.told()}\n")
    return found


def test_every_branch_of_the_guards_is_taken(verdict: Verdict, tally: Callable[[str, int], None]) -> None:
    assert {part.name: part.missing for part in verdict.parts if part.missing} == {}
    tally("A-35", 100 * sum(part.taken for part in verdict.parts) // sum(part.branches for part in verdict.parts))


def test_the_whole_package_is_taken(verdict: Verdict) -> None:
    assert verdict.whole >= TABLE["least"]
