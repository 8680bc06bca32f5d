"""Line matching, minimal hunks, mapping through changes and the unified diff: properties, and git as a witness."""

import re
import shutil
import subprocess
import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from thinklsp.core.edits import EditSet, FileEdit, TextEdit, apply_edits, hunks
from thinklsp.core.lines import changed_blocks, line_bodies, matching_blocks, split_lines
from thinklsp.core.unified import diff

texts = st.text(alphabet="ab\n\r\x0c\u2028😀", max_size=40) | st.text(alphabet="ab\n\r", max_size=40)
line_lists = st.lists(st.sampled_from("abcd"), max_size=30)


@given(texts)
def test_lines_end_where_editors_end_them(text):
    lines = split_lines(text)
    assert "".join(lines) == text
    assert all(re.fullmatch(r"[^\r\n]*(\r\n|\r|\n)", line) for line in lines[:-1])
    assert len(lines) == len(re.findall(r"\r\n|\r|\n", text)) + (bool(text) and text[-1] not in "\r\n")
    assert line_bodies(text) == [line.rstrip("\r\n") for line in lines]


@given(line_lists, line_lists)
def test_blocks_are_common_rising_and_maximal(a, b):
    i = j = 0
    for x, y, n in matching_blocks(a, b):
        assert n > 0
        assert x >= i
        assert y >= j
        assert a[x : x + n] == b[y : y + n]
        assert not i or (x, y) != (i, j)
        i, j = x + n, y + n
    for i1, i2, j1, j2 in changed_blocks(a, b):
        assert not set(a[i1:i2][:1]) & set(b[j1:j2][:1])


@given(line_lists, line_lists)
def test_short_scripts_are_shortest(a, b):
    """Against the textbook table for the longest common subsequence."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    assert sum(n for _, _, n in matching_blocks(a, b)) == table[-1][-1]


@given(st.integers(0, 2**32), st.integers(400, 900))
@settings(max_examples=15, deadline=None)
@example(0, 451)  # Every line of the old text is the same.
def test_long_scripts_are_right_too(seed, size):
    """Past the bound of the step-by-step search, lines that occur once lead the way; without any, it goes on."""
    a = [str(seed * 31 * n % 7919) for n in range(size)]
    b = [line if n % 3 else f"new {line}" for n, line in enumerate(a)]
    common = [n for n in range(size) if n % 3]
    assert sum(n for *_, n in matching_blocks(a, b)) >= len(common) * 0.9
    i = [a[x : x + n] == b[y : y + n] for x, y, n in matching_blocks(a, b)]
    assert all(i)


@pytest.mark.parametrize("line", ["x\n", "{n}\n"])
def test_large_files_with_small_changes_are_quick(line):
    a = [line.format(n=n) for n in range(50_000)]
    b = ["first\n", *a[:25_000], "middle\n", *a[25_000:-3], "last\n"]
    began = time.process_time()
    changed = changed_blocks(a, b)
    assert time.process_time() - began < 2
    assert len(changed) <= 4
    assert apply_edits("".join(a), hunks("".join(a), "".join(b))) == "".join(b)


def test_large_files_without_anything_in_common_are_quick():
    a, b = [f"{n % 7}\n" for n in range(20_000)], [f"{n * n % 11 + 7}\n" for n in range(20_000)]
    began = time.process_time()
    assert changed_blocks(a, b) == [(0, 20_000, 0, 20_000)]
    assert time.process_time() - began < 2


@given(texts, texts)
def test_hunks_lead_from_one_text_to_the_other(before, after):
    edits = hunks(before, after)
    assert apply_edits(before, edits) == after
    assert (before == after) == (not edits)
    for left, right in pairwise(edits):
        assert left.end < right.start
    for edit in edits:
        for at in (edit.start, edit.end):
            assert before[at - 1 : at + 1] != "\r\n" or at == 0
        assert edit.new_text != before[edit.start : edit.end]


def test_hunks_are_small():
    before = "def f():\r\n    return 1\r\n\r\nend\r\n"
    after = "def f():\r\n    return 21\r\n\r\nend\n"
    assert hunks(before, after) == (TextEdit(21, 21, "2"), TextEdit(29, 31, "\n"))
    assert hunks("a\nb\nc\n", "a\nb\nx\nc\n") == (TextEdit(4, 4, "x\n"),)
    assert hunks("", "new") == (TextEdit(0, 0, "new"),)
    assert hunks("a\r", "a\r\n") == (TextEdit(1, 2, "\r\n"),)


def test_edits_that_overlap_are_a_fault():
    with pytest.raises(ValueError, match="overlap"):
        apply_edits("abc", [TextEdit(0, 2, ""), TextEdit(1, 3, "")])
    with pytest.raises(ValueError, match="outside"):
        apply_edits("abc", [TextEdit(2, 4, "")])


def test_the_diff_reads_well():
    edits = EditSet((
        FileEdit("file:///w/a.py", "a.py", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9"),
        FileEdit("file:///w/new.py", "new.py", None, "x\n"),
        FileEdit("file:///w/old.py", "old.py", "x", None),
        FileEdit("file:///w/m.py", "m.py", "x\n", "x\n", new_uri="file:///w/n.py", new_path="n.py"),
    ))  # fmt: skip
    assert diff(edits) == (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -2,8 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n-9\n+9\n"
        "\\ No newline at end of file\n"
        "diff --git a/new.py b/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,1 @@\n+x\n"
        "diff --git a/old.py b/old.py\ndeleted file mode 100644\n--- a/old.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n"
        "\\ No newline at end of file\n"
        "diff --git a/m.py b/n.py\nrename from m.py\nrename to n.py\n"
    )
    assert diff(EditSet()) == ""


GIT = shutil.which("git")
git_texts = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\x0c\n", "é\r", "\n"]), max_size=25).map("".join)


@pytest.mark.skipif(GIT is None, reason="git is not installed")
@settings(max_examples=25, deadline=None)
@given(before=git_texts, after=git_texts)
def test_git_applies_our_diff(tmp_path_factory, before, after):
    if before == after:
        return
    folder = tmp_path_factory.mktemp("apply")
    (folder / "f").write_bytes(before.encode())
    patch = diff(EditSet((FileEdit("file:///f", "f", before, after),)))
    command = [GIT, "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"]
    subprocess.run(command, cwd=folder, input=patch.encode(), check=True, capture_output=True)
    assert (folder / "f").read_bytes().decode() == after
