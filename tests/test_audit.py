"""What is made of the answers of pip-audit: a fault fails, and nobody to ask is not taken for a good answer."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location("audit", Path(__file__).parents[1] / ".ci/audit.py")
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
