"""Run the tests that failed once more, each in a fresh process: `pytest ARGUMENTS || python .ci/second_chance.py $?`.

A test that passes now is unsteady, and its name is printed. Exit code 0 if all of them pass. Pytest's cache names the
tests; options after the exit code, such as `-m ''`, are passed on to pytest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
TESTS_FAILED = 1
"""Pytest's exit code. The others mean that it was interrupted or could not start."""
MAX_FAILED = 20
"""More failures than this have a common cause in the code or on the machine."""


def main(code: int, options: list[str]) -> int:
    if code != TESTS_FAILED or not FAILED.exists():
        return code
    names = list(json.loads(FAILED.read_text("utf-8")))
    FAILED.unlink()
    if not names or len(names) > MAX_FAILED:
        print(f"{len(names)} tests failed; at most {MAX_FAILED} get a second chance.", flush=True)
        return code
    print(f"\n=== second chance for {len(names)} of the tests", flush=True)
    failed = [name for name in names if not passes(name, options)]
    for name in names:
        print(f"failed twice: {name}" if name in failed else f"unsteady: {name}", flush=True)
    return code if failed else 0


def passes(name: str, options: list[str]) -> bool:
    argv = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *options, name]
    return subprocess.run(argv, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
