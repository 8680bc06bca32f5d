"""Three-way merge: what both sides did is kept, what touches is a conflict; git agrees where it can be asked."""

import shutil
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thinklsp.workspace.merge import Conflict, Merged, merge

GIT = shutil.which("git")
TABLE = {
    "ours only": ("a\nb\n", "a\nB\n", "a\nb\n", "a\nB\n"),
    "theirs only": ("a\nb\n", "a\nb\n", "a\nB\n", "a\nB\n"),
    "one line apart": ("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"),
    "neighbours": ("a\nb\n", "A\nb\n", "a\nB\n", ((1, 2),)),
    "same line": ("a\nb\nc\n", "a\nX\nc\n", "a\nY\nc\n", ((2, 2),)),
    "same change": ("a\nb\nc\n", "a\nX\nc\n", "a\nX\nc\n", "a\nX\nc\n"),
    "same change and another": ("a\nb\nc\nd\n", "X\nb\nc\nD\n", "X\nb\nc\nd\n", "X\nb\nc\nD\n"),
    "inserts at one place": ("a\nb\n", "a\nx\nb\n", "a\ny\nb\n", ((2, 1),)),
    "same insert": ("a\nb\n", "a\nx\nb\n", "a\nx\nb\n", "a\nx\nb\n"),
    "delete and change": ("a\nb\nc\n", "a\nc\n", "a\nB\nc\n", ((2, 2),)),
    "insert at a deletion": ("a\nb\nc\n", "a\nc\n", "a\nb\nx\nc\n", ((2, 2),)),
    "all line ends": ("a\r\nb\rc\nd", "A\r\nb\rc\nd", "a\r\nb\rc\nD", "A\r\nb\rc\nD"),
    "form feed is no line end": ("a\x0cb\u2028c\n", "A\x0cb\u2028c\n", "a\x0cb\u2028C\n", ((1, 1),)),
    "append at both ends": ("a\n", "x\na\n", "a\ny\n", "x\na\ny\n"),
    "last line without end": ("a\nb\nc", "X\nb\nc", "a\nb\nc\nd", "X\nb\nc\nd"),
    "empty base": ("", "a\n", "b\n", ((1, 0),)),
    "two conflicts": ("a\nb\nc\n", "1\nb\n3\n", "x\nb\nz\n", ((1, 1), (3, 3))),
}


@pytest.mark.parametrize("name", TABLE)
def test_table(name):
    base, ours, theirs, expected = TABLE[name]
    result = merge(base, ours, theirs)
    assert result == (Merged(expected) if isinstance(expected, str) else Conflict(expected))
    assert result == merge(base, theirs, ours)


texts = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "d\r", "e"]), max_size=8).map("".join)


@given(texts, texts, texts)
def test_laws(base, ours, theirs):
    assert merge(base, ours, base) == Merged(ours)
    assert merge(base, base, theirs) == Merged(theirs)
    assert merge(base, ours, ours) == Merged(ours)
    assert merge(base, ours, theirs) == merge(base, theirs, ours)


@st.composite
def scripted(draw):
    """A base of distinct lines, and for each side what it does to each: the outcome is known without any diff."""
    size = draw(st.integers(1, 14))
    action = st.sampled_from(["keep"] * 6 + ["change", "delete", "insert", "both"])
    plan = [(draw(action), draw(action)) for _ in range(size)]
    base, sides = [], ([], [])
    for n, actions in enumerate(plan):
        base.append(f"base {n}\n")
        for side, what in enumerate(actions):
            # "both" is one change that the two sides share.
            mark = "shared" if "both" in actions and actions[0] == actions[1] else f"side {side}"
            new = {"keep": [f"base {n}\n"], "delete": [], "insert": [f"{mark} over {n}\n", f"base {n}\n"]}
            sides[side].extend(new.get(what, [f"{mark} {n}\n"]))
    return "".join(base), "".join(sides[0]), "".join(sides[1]), plan


def _git(base, ours, theirs, folder):
    for name, text in (("base", base), ("ours", ours), ("theirs", theirs)):
        (folder / name).write_bytes(text.encode())
    done = subprocess.run(
        [GIT, "merge-file", "-p", "--quiet", "ours", "base", "theirs"], cwd=folder, capture_output=True, check=False
    )
    assert 0 <= done.returncode < 128, done.stderr
    return done.stdout.decode() if done.returncode == 0 else None


@settings(max_examples=60, deadline=None)
@given(case=scripted())
def test_git_agrees(tmp_path_factory, case):
    if GIT is None:
        pytest.skip("git is not installed")
    base, ours, theirs, _ = case
    result = merge(base, ours, theirs)
    told = _git(base, ours, theirs, tmp_path_factory.mktemp("merge"))
    if told is None:
        assert isinstance(result, Conflict)
    elif isinstance(result, Merged):
        assert result.text == told


@given(scripted())
def test_changes_apart_both_appear_and_changes_that_touch_do_not_merge(case):
    base, ours, theirs, plan = case
    ours_at = [n for n, (mine, _) in enumerate(plan) if mine != "keep"]
    theirs_at = [n for n, (_, other) in enumerate(plan) if other != "keep"]
    result = merge(base, ours, theirs)
    if all(abs(a - b) > 1 for a in ours_at for b in theirs_at):
        assert isinstance(result, Merged)
        for side, at in ((ours, ours_at), (theirs, theirs_at)):
            new = set(side.splitlines()) - set(base.splitlines())
            assert new <= set(result.text.splitlines())
            gone = {n for n in at if plan[n][0] == "delete" or plan[n][1] == "delete"}
            assert not any(f"base {n}\n" in result.text for n in gone)
    changes = {n: plan[n] for n in range(len(plan)) if plan[n] in (("change", "delete"), ("change", "change"))}
    if changes:
        assert isinstance(result, Conflict)


def test_large_files_merge_quickly():
    base = "".join(f"line {n % 100}\n" for n in range(50_000))
    lines = base.splitlines(keepends=True)
    ours = "".join(["ours\n", *lines[:40_000], "ours\n", *lines[40_001:]])
    theirs = "".join([*lines[:10_000], "theirs\n", *lines[10_001:], "theirs\n"])
    began = time.process_time()
    result = merge(base, ours, theirs)
    assert time.process_time() - began < 3
    assert isinstance(result, Merged)
    assert (result.text.count("ours\n"), result.text.count("theirs\n")) == (2, 2)
