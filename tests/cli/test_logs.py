"""What a process leaves behind tells where something went wrong, and repeats nothing that it had at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.outside import ROOT

SECRET = "sk-ant-secret-0123456789abcdef"
BEGIN = f"""
import gc, logging, os, resource, threading
from thinklsp.cli.logs import {{}}
{{}}()
def faulty():
    try:
        raise ValueError("{SECRET}")
    except ValueError as error:
        raise KeyError("{SECRET}") from error
class Faulty:
    def __del__(self):
        faulty()
"""
FAULTS = {
    "logged": "try: faulty()\nexcept KeyError: logging.getLogger('x').exception('it failed')",
    "uncaught": "faulty()",
    "uncaught in a thread": "thread = threading.Thread(target=faulty); thread.start(); thread.join()",
    "uncaught while something goes": "it = Faulty(); del it; gc.collect()",
}


def left_behind(place: Path, code: str, function: str = "set_up_logs") -> tuple[str, str]:
    """What stands on standard error and in the log."""
    env = {"PYTHONPATH": str(ROOT), "HOME": str(place), "THINKLSP_STATE_DIR": str(place / "state")}
    argv = [sys.executable, "-c", BEGIN.format(function, function) + code]
    done = subprocess.run(argv, env=env, cwd=place, capture_output=True, text=True, umask=0, check=False)
    log = place / "state/thinklsp.log"
    return done.stderr, log.read_text() if log.exists() else ""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_by_its_kind_and_place(tmp_path: Path, fault: str) -> None:
    for told in left_behind(tmp_path, FAULTS[fault]):
        first, second = told.splitlines()[-2:]
        assert (first.partition(" ")[0], second.partition(" ")[0]) == ("ValueError", "KeyError")
        assert first.endswith(" faulty")
        assert second.endswith(" faulty")
        assert SECRET not in told
    told, _ = left_behind(tmp_path, FAULTS[fault], "log_to_stderr")
    assert ("KeyError in " in told, SECRET in told) == (True, False)


def test_a_recursion_without_end_is_a_short_line(tmp_path: Path) -> None:
    code = "def deep(): deep()\ntry: deep()\nexcept RecursionError: logging.getLogger('x').exception('it failed')"
    for told in left_behind(tmp_path, code):
        [line] = [line for line in told.splitlines() if line.startswith("RecursionError")]
        assert line.endswith(" deep")
        assert len(line) < 500


def test_nothing_is_open_to_others_and_nothing_is_left_of_the_memory(tmp_path: Path) -> None:
    told, log = left_behind(tmp_path, "logging.getLogger('x').warning('%s', resource.getrlimit(resource.RLIMIT_CORE))")
    assert told.endswith("(0, 0)\n")
    assert log == told
    modes = {name: os.stat(tmp_path / name).st_mode & 0o777 for name in ("state", "state/thinklsp.log")}
    assert modes == {"state": 0o700, "state/thinklsp.log": 0o600}
