"""`.ci/second_chance.py`: a test that fails once is named, a test that fails twice fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "second_chance.py"
TESTS = """
from pathlib import Path

def test_passes():
    pass

def test_passes_again():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError

def test_fails():
    assert Path("repaired").exists()
"""


def run_tests(folder: Path, text: str) -> int:
    (folder / "pytest.ini").touch()
    (folder / "test_it.py").write_text(text, "utf-8")
    return run(folder, "-m", "pytest", "-n", "0").returncode


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *argv], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("text", "repaired", "code", "lines"),
    [
        (TESTS, True, 0, ["unsteady: test_it.py::test_passes_again", "unsteady: test_it.py::test_fails"]),
        (TESTS, False, 1, ["unsteady: test_it.py::test_passes_again", "failed twice: test_it.py::test_fails"]),
        ("import nothing_of_this_name", False, 2, []),
    ],
    ids=["unsteady", "failed twice", "not collected"],
)
def test_failed_test_runs_once_more(tmp_path: Path, text: str, repaired: bool, code: int, lines: list[str]) -> None:
    assert run_tests(tmp_path, text) == max(code, 1)
    if repaired:
        (tmp_path / "repaired").touch()
    second = run(tmp_path, str(SCRIPT), str(max(code, 1)))
    assert second.returncode == code
    assert [line for line in second.stdout.splitlines() if line.startswith(("unsteady", "failed twice"))] == lines


def test_many_failures_get_no_second_chance(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.parametrize('number', range(21))\ndef test_fails(number): raise AssertionError"
    assert run_tests(tmp_path, text) == 1
    second = run(tmp_path, str(SCRIPT), "1")
    assert (second.returncode, second.stdout) == (1, "21 tests failed; at most 20 get a second chance.\n")
