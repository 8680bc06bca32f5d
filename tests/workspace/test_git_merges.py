"""The three-way merge against `git merge-file`, on generated merges full of repeated lines."""

import random
import shutil
from collections import Counter

import pytest

from tests.support.line_edits import compare_with_git
from tests.support.sizes import SEED, STEP

CASES = {"quick": 500, "commit": 2_000, "nightly": 10_000, "release": 100_000}[STEP]
REPEATED = ["}", "", "/*", " * x", "return", "a", "b", "c", "def f():", "    pass", "    return 1", "x = 1"]

Operation = tuple[int, int, list[str]]
"""Before line `at` of the base, remove so many lines and add these."""


def draw_lines(random_: random.Random, base: list[str]) -> list[str]:
    if base and random_.random() < 0.5:
        at = random_.randrange(len(base))
        return base[at : at + random_.randint(1, 4)]
    return [
        random_.choice(REPEATED) if random_.random() < 0.6 else f"new {random_.randint(0, 5)}"
        for _ in range(random_.randint(1, 4))
    ]


def draw_operation(random_: random.Random, base: list[str]) -> Operation:
    at = random_.randint(0, len(base))
    kind = random_.choice(["insert", "insert", "delete", "replace"])
    removed = 0 if kind == "insert" else random_.randint(1, 3)
    return at, removed, [] if kind == "delete" else draw_lines(random_, base)


def edit(base: list[str], operations: list[Operation]) -> list[str]:
    lines, at = [], 0
    for start, removed, added in sorted(operations, key=lambda operation: operation[0]):
        if start >= at:
            lines += base[at:start]
            at = min(start + removed, len(base))
        lines += added
    return lines + base[at:]


def draw_merge(seed: int) -> tuple[str, str, str]:
    """Return a base and two versions of it, which share some changes, and of others the place or the first lines."""
    random_ = random.Random(seed)
    repeated = REPEATED[: random_.choice([4, 8, 12])]
    base = [
        random_.choice(repeated) if random_.random() < 0.6 else f"line {number}"
        for number in range(random_.randint(0, 18))
    ]
    shared = [draw_operation(random_, base) for _ in range(random_.choice([0, 1, 1, 2]))]
    sides = []
    for _ in range(2):
        operations = list(shared) if random_.random() < 0.8 else []
        if random_.random() < 0.2:
            operations = [(at, count, added + draw_lines(random_, base)) for at, count, added in operations]
        operations += [draw_operation(random_, base) for _ in range(random_.choice([0, 1, 1, 2]))]
        sides.append(edit(base, operations))
    end = random_.choice(["\n", "\n", "\r\n"])
    last = random_.choice([end, end, ""])
    base_text, ours, theirs = (end.join(lines) + last if lines else "" for lines in (base, *sides))
    return base_text, ours, theirs


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_generated_merges_agree_with_git(tmp_path):
    """There are no exceptions: each text is git's, and each conflict of git's is a conflict."""
    found = Counter(compare_with_git(tmp_path, *draw_merge(seed)) for seed in range(SEED, SEED + CASES))
    assert found["needless conflict"] <= 0.01 * CASES, found
