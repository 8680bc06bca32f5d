"""The three-way merge against `git merge-file`, on generated merges full of repeated and moved lines."""

import random
import shutil
from collections import Counter

import pytest

from tests.support.line_edits import compare_with_git
from tests.support.sizes import SEED, STEP
from thinklsp.workspace.merge import MergedText, merge

NEEDS_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
CASES = {"quick": 150, "commit": 2_000, "nightly": 10_000, "release": 100_000}[STEP]
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


@NEEDS_GIT
def test_generated_merges_agree_with_git(tmp_path):
    """Each text is Git's, and each conflict of Git's is a conflict."""
    found = Counter(compare_with_git(tmp_path, *draw_merge(seed)) for seed in range(SEED, SEED + CASES))
    assert found["needless conflict"] <= 0.01 * CASES, found


def draw_code(random_: random.Random, size: int) -> list[str]:
    """Return functions of some lines each. Most lines occur several times."""
    lines: list[str] = []
    while len(lines) < size:
        body = ["    x = 1", "    return", "    y()", f"    call{random_.randrange(size)}()", "    if x:"]
        lines += [f"def f{len(lines)}():", *random_.choices(body, k=random_.randint(2, 9)), ""]
    return lines


def reorder(random_: random.Random, lines: list[str]) -> list[str]:
    """Move a passage of at least 600 lines, double it, or change the order of its functions."""
    start = random_.randrange(len(lines) // 2)
    end = start + random_.randint(600, len(lines) // 2)
    passage, others = lines[start:end], [*lines[:start], *lines[end:]]
    kind = random_.choice(["move", "double", "shuffle"])
    if kind == "shuffle":
        functions = "\n".join(passage).split("\n\n")
        random_.shuffle(functions)
        return [*lines[:start], *"\n\n".join(functions).split("\n"), *lines[end:]]
    rest = others if kind == "move" else lines
    at = random_.randrange(len(rest))
    return [*rest[:at], *passage, *rest[at:]]


def draw_reordering(seed: int, size: int) -> tuple[str, str, str]:
    """Return a base and two versions of it, at least one of which has a passage in another order."""
    random_ = random.Random(seed)
    base = draw_code(random_, size)
    sides = [reorder(random_, base), reorder(random_, base) if random_.random() < 0.3 else base]
    sides = [edit(side, [draw_operation(random_, side) for _ in range(random_.randint(1, 4))]) for side in sides]
    base_text, ours, theirs = ("".join(f"{line}\n" for line in lines) for lines in (base, *sides))
    return base_text, ours, theirs


@NEEDS_GIT
def test_merges_of_reordered_passages_agree_with_git(tmp_path):
    for seed in range(SEED, SEED + max(1, CASES // 250)):
        compare_with_git(tmp_path, *draw_reordering(seed, random.Random(seed).choice([1500, 3000, 5000])))


@pytest.mark.parametrize("seed", range(SEED, SEED + CASES // 2000))
def test_merges_of_very_large_changes_lose_nothing(seed):
    """The exception. The search for such changes is cut short, so Git finds others.

    Each side is still merged as a script that leads from the base to its text. So a line occurs as often as one of the
    sides has it, or as often as both changes together explain.
    """
    base, ours, theirs = draw_reordering(seed, 30_000)
    result = merge(base, ours, theirs)
    if isinstance(result, MergedText):
        before, mine, yours, merged = (Counter(text.splitlines()) for text in (base, ours, theirs, result.text))
        for line in {*before, *mine, *yours, *merged}:
            counts = (mine[line], yours[line], mine[line] + yours[line] - before[line])
            assert min(counts) <= merged[line] <= max(counts), line
