"""Line matching, hunks, the unified diff and three-way merge: tables, properties, and git as a witness."""

import random
import re
import shutil
import subprocess
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.core.edits import EditSet, FileEdit, TextEdit, apply_edits, compute_hunks, format_diff
from thinklsp.core.lines import find_changed_blocks, find_matching_blocks, split_lines, split_without_ends
from thinklsp.workspace.merge import Conflict, MergedText, is_equal_ignoring_format, merge, merge_onto

GIT = shutil.which("git")
PATCH = shutil.which("patch")
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
    "same insert between repeated lines": (
        "1\n2\n/*\nA\n",
        "1\n2\n/*\nB\n/*\nA\n",
        "one\n2\n/*\nB\n/*\nA\n",
        "one\n2\n/*\nB\n/*\nA\n",
    ),
    "other insert between repeated lines": (
        "1\n2\n/*\nA\n",
        "1\n2\n/*\nB\n/*\nA\n",
        "one\n2\n/*\nC\n/*\nA\n",
        ((4, 3),),
    ),
    "same deletion between repeated lines": (
        "1\n2\n/*\nB\n/*\nA\n",
        "1\n2\n/*\nA\n",
        "one\n2\n/*\nA\n",
        "one\n2\n/*\nA\n",
    ),
    "an insertion of repeated lines twice": ("a\nb\n", "a\nc\na\nb\nb\na\n", "a\nb\nb\na\n", ((3, 2),)),
    "repeated lines before a change": ("a\na\nc\nb\n", "a\na\na\nc\nb\n", "Y\na\nc\nc\n", ((2, 2),)),
    "two conflicts": ("a\nb\nc\n", "1\nb\n3\n", "x\nb\nz\n", ((1, 1), (3, 3))),
}


@pytest.mark.parametrize("name", TABLE)
def test_table(name):
    base, ours, theirs, expected = TABLE[name]
    result = merge(base, ours, theirs)
    assert result == (MergedText(expected) if isinstance(expected, str) else Conflict(expected))
    assert result == merge(base, theirs, ours)


texts = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "d\r", "e"]), max_size=8).map("".join)


@given(texts, texts, texts)
def test_laws(base, ours, theirs):
    assert merge(base, ours, base) == MergedText(ours)
    assert merge(base, base, theirs) == MergedText(theirs)
    assert merge(base, ours, ours) == MergedText(ours)
    assert merge(base, ours, theirs) == merge(base, theirs, ours)


@pytest.fixture(scope="module")
def large_files():
    """A base and two versions of it."""
    base = "".join(f"line {n % 100}\n" for n in range(50_000))
    lines = base.splitlines(keepends=True)
    ours = "".join(["ours\n", *lines[:40_000], "ours\n", *lines[40_001:]])
    theirs = "".join([*lines[:10_000], "theirs\n", *lines[10_001:], "theirs\n"])
    return base, ours, theirs


def test_large_files_merge(large_files):
    result = merge(*large_files)
    assert isinstance(result, MergedText)
    assert (result.text.count("ours\n"), result.text.count("theirs\n")) == (2, 2)


@pytest.mark.timing
def test_large_files_merge_quickly(large_files):
    began = time.process_time()
    merge(*large_files)
    assert time.process_time() - began < 3


# What an editor changes of a text when it opens or saves it is no change of the user's.
BOM = "\ufeff"

# name -> the text before the turn, after it, and as it is now; what comes of them.
FORMS = {
    "line ends": ("a\nb\n", "a\nB\n", "a\r\nb\r\n", "a\r\nB\r\n"),
    "line ends and typing": ("a\nb\nc\n", "a\nb\nC\n", "X\r\nb\r\nc\r\n", "X\r\nb\r\nC\r\n"),
    "mixed ends stay mixed": ("a\nb\r\nc\n", "a\nb\r\nC\n", "A\nb\r\nc\n", "A\nb\r\nC\n"),
    "an end for the last line": ("a\nb", "a\nB", "a\nb\n", "a\nB\n"),
    "none for the last line": ("a\nb\n", "a\nB\n", "a\nb", "a\nB"),
    "one line": ("b", "B", "b\r\n", "B\r\n"),
    "the turn ended the last line, too": ("a\nb", "a\nb\nc\n", "a\nb\n", "a\nb\nc\n"),
    "the turn's own line ends": ("a\nb\n", "a\r\nb\r\n", "a\nb\n", "a\r\nb\r\n"),
    "the turn's own last line": ("a\nb\n", "a\nb", "a\nb\n", "a\nb"),
    "a mark": ("a\nb\n", "a\nB\n", BOM + "a\nb\n", BOM + "a\nB\n"),
    "no mark": (BOM + "a\nb\n", BOM + "a\nB\n", "a\nb\n", "a\nB\n"),
    "a mark is no part of its line": (BOM + "b\n", BOM + "a\nb\n", BOM + "b\nc\n", BOM + "a\nb\nc\n"),
    "all at once": (BOM + "a\nb", BOM + "a\nB", "a\r\nb\r\n", "a\r\nB\r\n"),
    "typed at the same place": ("a\nb\n", "a\nB\n", "a\r\nc\r\n", None),
    "emptied": ("a\nb\n", "a\nB\n", "", None),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_merge_keeps_the_form_that_the_text_has_now(name):
    before, after, now, expected = FORMS[name]
    merged = merge_onto(now, before, after)
    assert (merged.text if isinstance(merged, MergedText) else None) == expected


lines = st.lists(st.sampled_from(["a", "b", "", "é"]), min_size=1, max_size=6)
plain = lines.map("\n".join).filter(lambda text: text.strip("\n"))
forms = st.tuples(st.sampled_from(["", BOM]), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())


def formed(text, form):
    mark, end, ended = form
    return mark + (text.rstrip("\n") + "\n" * ended).replace("\n", end)


@given(plain, plain, forms, forms)
def test_edit_and_undo_survive_any_text_format(before, after, old, new):
    now = formed(before, new)
    assert is_equal_ignoring_format(now, formed(before, old))
    merged = merge_onto(now, formed(before, old), formed(after, old))
    assert isinstance(merged, MergedText)
    assert is_equal_ignoring_format(merged.text, formed(after, old))
    back = merge_onto(merged.text, formed(after, old), formed(before, old))
    assert isinstance(back, MergedText)
    assert is_equal_ignoring_format(back.text, now)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(None, None, True), (None, "", False), ("", None, False), ("", "", True), ("a\n", "b\n", False), ("a", "", False)],
)
def test_texts_that_are_there_or_not(one, other, same):
    assert is_equal_ignoring_format(one, other) is same


line_texts = st.text(alphabet="ab\n\r\x0c\u2028😀", max_size=40) | st.text(alphabet="ab\n\r", max_size=40)
line_lists = st.lists(st.sampled_from("abcd"), max_size=30)


@given(line_texts)
def test_lines_end_where_editors_end_them(text):
    lines = split_lines(text)
    assert "".join(lines) == text
    assert all(re.fullmatch(r"[^\r\n]*(\r\n|\r|\n)", line) for line in lines[:-1])
    assert len(lines) == len(re.findall(r"\r\n|\r|\n", text)) + (bool(text) and text[-1] not in "\r\n")
    assert split_without_ends(text) == [line.rstrip("\r\n") for line in lines]


@given(line_lists, line_lists)
def test_blocks_are_common_rising_and_maximal(a, b):
    i = j = 0
    for x, y, n in find_matching_blocks(a, b):
        assert n > 0
        assert x >= i
        assert y >= j
        assert a[x : x + n] == b[y : y + n]
        assert not i or (x, y) != (i, j)
        i, j = x + n, y + n
    for i1, i2, j1, j2 in find_changed_blocks(a, b):
        assert not set(a[i1:i2][:1]) & set(b[j1:j2][:1])


def test_frequent_lines_do_not_cut_a_rewritten_passage():
    around = ["}\n", "\n"] * 20
    a = [*around, *(line for n in range(9) for line in (f"old {n}\n", f"old {n}, too\n")), *around]
    b = [*around, *(line for n in range(9) for line in (f"new {n}\n", f"new {n}, too\n")), *around]
    a.insert(46, "}\n")
    b.insert(52, "}\n")
    assert find_changed_blocks(a, b) == [(40, 59, 40, 59)]


def change_large_file(kind):
    """Return the lines of two versions of a large file."""
    if kind == "nothing in common":
        return [f"{n % 7}\n" for n in range(20_000)], [f"{n * n % 11 + 7}\n" for n in range(20_000)]
    a = [f"{n}\n" if kind == "different lines" else "x\n" for n in range(50_000)]
    return a, ["first\n", *a[:25_000], "middle\n", *a[25_000:-3], "last\n"]


@pytest.mark.parametrize("kind", ["equal lines", "different lines"])
def test_large_files_with_small_changes_have_few_hunks(kind):
    a, b = change_large_file(kind)
    assert len(find_changed_blocks(a, b)) <= 4
    assert apply_edits("".join(a), compute_hunks("".join(a), "".join(b))) == "".join(b)


@pytest.mark.timing
@pytest.mark.parametrize("kind", ["equal lines", "different lines", "nothing in common"])
def test_large_files_are_compared_quickly(kind):
    a, b = change_large_file(kind)
    began = time.process_time()
    find_changed_blocks(a, b)
    assert time.process_time() - began < 2


WORST = {
    "equal lines": lambda n: (["x"] * n, ["x", "y"] * (n // 2)),
    "alternations": lambda n: (["x", "y", "z"] * (n // 3), ["x", "z", "y"] * (n // 3)),
    "two lines at random": lambda n: (random.Random(1).choices("xy", k=n), random.Random(2).choices("xy", k=n)),
    "different order": lambda n: ([str(k) for k in range(n)], [str(k) for k in reversed(range(n))]),
}


@pytest.mark.timing
@pytest.mark.parametrize("kind", WORST)
def test_the_cost_grows_with_the_number_of_lines(kind):
    seconds = []
    for size in (20_000, 80_000):
        texts = WORST[kind](size)
        began = time.process_time()
        find_changed_blocks(*texts)
        seconds.append(time.process_time() - began)
    assert seconds[1] < 8 * seconds[0], seconds


@given(line_texts, line_texts)
def test_hunks_lead_from_one_text_to_the_other(before, after):
    edits = compute_hunks(before, after)
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
    assert compute_hunks(before, after) == (TextEdit(21, 21, "2"), TextEdit(29, 31, "\n"))
    assert compute_hunks("a\nb\nc\n", "a\nb\nx\nc\n") == (TextEdit(4, 4, "x\n"),)
    assert compute_hunks("", "new") == (TextEdit(0, 0, "new"),)
    assert compute_hunks("a\r", "a\r\n") == (TextEdit(1, 2, "\r\n"),)


def test_the_diff_reads_well():
    edits = EditSet((
        FileEdit("file:///w/a.py", "a.py", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9"),
        FileEdit("file:///w/new.py", "new.py", None, "x\n"),
        FileEdit("file:///w/old.py", "old.py", "x", None),
        FileEdit("file:///w/m.py", "m.py", "x\n", "x\n", new_uri="file:///w/n.py", new_path="n.py"),
    ))  # fmt: skip
    assert format_diff(edits) == (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -2,8 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n-9\n+9\n"
        "\\ No newline at end of file\n"
        "diff --git a/new.py b/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,1 @@\n+x\n"
        "diff --git a/old.py b/old.py\ndeleted file mode 100644\n--- a/old.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n"
        "\\ No newline at end of file\n"
        "diff --git a/m.py b/n.py\nrename from m.py\nrename to n.py\n"
    )
    assert format_diff(EditSet()) == ""


git_texts = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\x0c\n", "é\r", "\n"]), max_size=25).map("".join)


@pytest.mark.skipif(GIT is None, reason="git is not installed")
@settings(max_examples=examples(25), deadline=None)
@given(before=git_texts, after=git_texts)
def test_git_applies_our_diff(tmp_path_factory, before, after):
    if before == after:
        return
    folder = tmp_path_factory.mktemp("apply")
    (folder / "f").write_bytes(before.encode())
    patch = format_diff(EditSet((FileEdit("file:///f", "f", before, after),)))
    command = [GIT, "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"]
    subprocess.run(command, cwd=folder, input=patch.encode(), check=True, capture_output=True)
    assert (folder / "f").read_bytes().decode() == after


letters = st.sampled_from("ab .-~'\"\\\t\r\n\x01\x7fü€日\xa0\u200b\U0001f600\udcff")
file_names = st.text(letters, min_size=1, max_size=6).filter(lambda name: name.strip(".") != "")
GIT_APPLY = (GIT, "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-")
APPLYING = {"git": GIT_APPLY, "patch": (PATCH, "-p1", "--binary", "--no-backup-if-mismatch")}


@pytest.mark.parametrize("program", APPLYING)
@settings(max_examples=examples(40), deadline=None)
@given(name=file_names, other=file_names, change=st.sampled_from(["edit", "create", "delete", "rename"]))
def test_git_and_patch_find_the_files_of_our_diff(tmp_path_factory, program, name, other, change):
    argv = APPLYING[program]
    if argv[0] is None:
        pytest.skip(f"{program} is not installed")
    folder = tmp_path_factory.mktemp("names")
    (folder / "d e").mkdir()
    before, after = (None if change == "create" else "a\n"), (None if change == "delete" else "b\n")
    new = f"d e/{other}" if change == "rename" else None
    if before is not None:
        (folder / "d e" / name).write_text(before)
    diff = format_diff(EditSet((FileEdit("file:///f", f"d e/{name}", before, after, new_uri=new, new_path=new),)))
    subprocess.run(argv, cwd=folder, input=diff.encode(), check=True, capture_output=True)
    files = {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert files == ({} if after is None else {other if new else name: after})
