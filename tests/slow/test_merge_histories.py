"""The three-way merge against `git merge-file`, on the merges of a public history.

The test clones a repository from GitHub. `MERGE_HISTORY` names a Git directory to use instead of the clone.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.line_edits import compare_with_git

URL = "https://github.com/pallets/flask"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if local := os.environ.get("MERGE_HISTORY"):
        return Path(local)
    folder = tmp_path_factory.mktemp("history")
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    argv = ["git", "clone", "--quiet", "--bare", URL, str(folder)]
    clone = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if clone.returncode:
        pytest.skip(f"{URL} cannot be cloned: {clone.stderr.strip()}")
    return folder


def run_git(history: Path, *args: str) -> bytes:
    argv = ["git", "--git-dir", str(history), *args]
    return subprocess.run(argv, capture_output=True, check=True).stdout


def find_changed_files(history: Path, base: str, side: str) -> dict[bytes, tuple[str, str]]:
    """Return the old and the new object of each file that changed, by its path."""
    fields = run_git(history, "diff-tree", "-r", "-z", "--no-renames", "--diff-filter=M", base, side).split(b"\0")
    objects = [tuple(field.decode().split()[2:4]) for field in fields[:-1:2]]
    return {path: (old, new) for path, (old, new) in zip(fields[1::2], objects, strict=True)}


def find_merged_files(history: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the objects of the base and both sides of each file that both sides of a merge changed."""
    merges = run_git(history, "rev-list", "--parents", "--min-parents=2", "--max-parents=2", "--all").decode()
    for line in merges.splitlines():
        _, mine, yours = line.split()
        try:
            [base, *_] = run_git(history, "merge-base", mine, yours).decode().split()
        except subprocess.CalledProcessError:  # The histories have nothing in common.
            continue
        ours, theirs = (find_changed_files(history, base, side) for side in (mine, yours))
        for path in ours.keys() & theirs.keys():
            yield (*ours[path], theirs[path][1])


def test_merges_of_a_history_agree_with_git(history: Path, tmp_path: Path) -> None:
    """No line is doubled or lost: each text is Git's, and each conflict of Git's is a conflict."""
    found = Counter[str]()
    for objects in dict.fromkeys(find_merged_files(history)):
        try:
            base, ours, theirs = (run_git(history, "cat-file", "blob", each).decode() for each in objects)
        except UnicodeDecodeError:
            continue
        found[compare_with_git(tmp_path, base, ours, theirs)] += 1
    assert found.total() > 500
    assert found["needless conflict"] <= 0.01 * found.total(), found
