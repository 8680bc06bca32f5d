"""What is made of the answers of pip-audit: a fault fails, and without an answer the nightly shows a skipped step."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

CI = Path(__file__).parents[1] / ".ci"
_SPEC = importlib.util.spec_from_file_location("audit", CI / "audit.py")
assert _SPEC is not None
assert _SPEC.loader is not None
audit = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(audit)

GOOD = {"name": "h11", "version": "0.16.0", "vulns": []}
BAD = {"name": "h11", "version": "0.14.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["0.16.0"], "aliases": []}]}
UNKNOWN = {"name": "rich", "skip_reason": "Dependency not found on PyPI and could not be audited: rich (15.0.0)"}
OURSELVES = {"name": "thinklsp", "skip_reason": "not found"}

ANSWERS: dict[str, tuple[Any, int | None, str]] = {
    "none": ([GOOD, OURSELVES], 0, "no known fault in 1 packages"),
    "one": ([GOOD, BAD, UNKNOWN], 1, "VULNERABLE: h11 0.14.0: PYSEC-1 (mended in ['0.16.0'])"),
    "some are not known": ([GOOD, UNKNOWN], 0, "not known to it: rich"),
    "nobody knows anything": ([UNKNOWN, OURSELVES], None, "knows none of 2 packages"),
    "nothing": ([], None, "knows none of 0 packages"),
}


@pytest.mark.parametrize(("packages", "code", "words"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer(packages: Any, code: int | None, words: str) -> None:
    found, said = audit.verdict("pypi", json.dumps({"dependencies": packages, "fixes": []}))
    assert found == code
    assert words in said


@pytest.mark.parametrize("output", ["", "Traceback (most recent call last):", "[]", "null", '{"dependencies": 1'])
def test_no_answer(output: str) -> None:
    assert audit.verdict("pypi", output) == (None, "pypi: the database cannot be reached")


# The functions that print a row of the table of `.ci/nightly`, with its last line of the log and the step's exit code.
REPORT = """
eval "$(sed -n '/^minutes() /,/^}/p' "$1/common.sh"; sed -n '/^count() /,/^}/p; /^report() /,/^}/p' "$1/nightly")"
logs=$2 && report step 65 "$3"
"""
ROWS = [
    ("8 passed in 3s\n", 0, "step  1:05  8  0  0  ok"),
    ("1 failed, 8 passed in 3s\n", 1, "step  1:05  8  1  0  failed (1)"),
    ("osv: ...\nskipped: nobody to ask\n", 0, "step  1:05  0  0  0  skipped: nobody to ask"),
    ("skipped: nobody to ask\n8 passed in 3s\n", 0, "step  1:05  8  0  0  ok"),
    ("skipped: nobody to ask\n", 2, "step  1:05  0  0  0  failed (2)"),
    ("", 0, "step  1:05  0  0  0  ok"),
]


@pytest.mark.parametrize(("log", "code", "row"), ROWS)
def test_row_of_the_nightly(tmp_path: Path, log: str, code: int, row: str) -> None:
    (tmp_path / "step.log").write_text(log)
    argv = ["bash", "-euo", "pipefail", "-c", REPORT, "bash", str(CI), str(tmp_path), str(code)]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert shown.split() == row.split()


@pytest.mark.skipif(importlib.util.find_spec("pip_audit") is not None, reason="pip-audit is installed")
def test_without_a_database_the_step_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main() == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("skipped: not audited")
