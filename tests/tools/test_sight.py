"""Proof of sight: a file is replaced or deleted only if the model knows its present text."""

import pytest

from thinklsp.core.messages import FileSight, Sight, compute_digest

BASE = "def add(a, b):\n    return a - b\n"
CALLS = {"write_file": {"path": "f", "content": "new\n"}, "delete_file": {"path": "f"}}
EDIT = {"path": "f", "old_text": "a - b", "new_text": "a + b"}
UNREAD = "`f` exists, and you have not read it. Read the whole file with read_file, then repeat this call"
PART = "You have not read all of `f` as it is now. Read the whole file"
UNSHOWABLE = "`f` cannot be shown whole, because it is too long, or contains invisible characters and also texts"


@pytest.fixture(params=CALLS)
def attempt(request):
    return request.param, CALLS[request.param]


# What the model did before -> how its call is refused; nothing: the call is run.
VIEWS = {
    "nothing": ((), UNREAD),
    "a whole reading": ((("read_file", {"path": "f"}),), None),
    "a whole reading by lines": ((("read_file", {"path": "f", "start_line": 1, "end_line": 9}),), None),
    "a reading of lines": ((("read_file", {"path": "f", "end_line": 1}),), PART),
    "all lines in two readings": (
        (("read_file", {"path": "f", "end_line": 1}), ("read_file", {"path": "f", "start_line": 2})), PART,
    ),
    "a whole reading, then lines": ((("read_file", {"path": "f"}), ("read_file", {"path": "f", "end_line": 1})), None),
    "a search hit": ((("search_text", {"pattern": "return"}),), UNREAD),
    "a definition": ((("definition", {"symbol": "add"}),), UNREAD),
    "an outline": ((("outline", {"path": "f"}),), UNREAD),
    "a listing": ((("list_files", {}),), UNREAD),
    "an edit of an unread file": ((("edit_file", EDIT),), PART),
    "an edit of a read file": ((("read_file", {"path": "f"}), ("edit_file", EDIT)), None),
    "a rename of an unread file": ((("rename_file", {"path": "f", "new_path": "g"}),), PART.replace("`f`", "`g`")),
    "a rename of a read file": ((("read_file", {"path": "f"}), ("rename_file", {"path": "f", "new_path": "g"})), None),
    "an own file": ((("read_file", {"path": "f"}), ("write_file", {"path": "f", "content": "mine\n"})), None),
}  # fmt: skip


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("name", VIEWS)
async def test_views(bench, attempt, name, is_open):
    bench.start({"f": BASE}, {"f": BASE} if is_open else {})
    steps, refusal = VIEWS[name]
    for tool, arguments in steps:
        output = await bench.call(tool, **arguments)
        bench.overlay.sight.learn(output.sight)
    tool, arguments = attempt
    if "rename" in name:
        arguments = arguments | {"path": "g"}
    if refusal is None:
        await bench.ok(tool, **arguments)
    else:
        before = bench.overlay.build_edit_set()
        assert refusal in await bench.fails(tool, **arguments)
        assert bench.overlay.build_edit_set() == before


UNSHOWABLES = {
    "invisible characters and their escapes": "a\u200bb <U+200B>\n",
    "long line": f"x = '{'y' * 6_000}'\n",
    "too many lines": "".join(f"line {number} of a long file, which is cut\n" for number in range(3_000)),
}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("name", UNSHOWABLES)
async def test_a_file_that_cannot_be_shown_is_only_edited(bench, attempt, name, is_open):
    text = UNSHOWABLES[name]
    bench.start({"f": text}, {"f": text} if is_open else {})
    await bench.read("f")
    told = await bench.fails(attempt[0], **attempt[1])
    assert told.startswith(UNSHOWABLE)
    assert told.endswith("change it with edit_file.")
    assert not bench.overlay.build_edit_set()
    await bench.ok("edit_file", path="f", old_text=text[:1], new_text=text[:1] * 2, replace_all=True)
    assert (await bench.fails(attempt[0], **attempt[1])).startswith(UNSHOWABLE)


INVISIBLE = {
    "form feed": ("a\n\fb\n", "a\n<U+000C>b\nc\n", "a\n\fb\nc\n"),
    "zero-width space": ("a\u200bb\n", "a<U+200B>b\nc\n", "a\u200bb\nc\n"),
    "escapes alone": ("`<U+200B>`\n", "`<U+200B>`\nc\n", "`<U+200B>`\nc\n"),
    "an escape of no character": ("\f<U+110000>\n", "<U+000C><U+110000>\nc\n", "\f<U+110000>\nc\n"),
}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("name", INVISIBLE)
async def test_invisible_characters_are_seen_as_their_escapes(bench, name, is_open):
    text, content, after = INVISIBLE[name]
    bench.start({"f": text}, {"f": text} if is_open else {})
    await bench.read("f")
    known = bench.overlay.sight
    await bench.ok("write_file", path="f", content=content)
    assert [edit.after for edit in bench.overlay.build_edit_set().files] == [after]
    bench.start()
    bench.overlay.sight = known
    await bench.read("f")
    await bench.ok("delete_file", path="f")


CHANGES = {
    "on disk": ({"f": f"{BASE}\n# by another program\n"}, {}, "`f` changed on disk since you last read it."),
    "in the editor": ({"f": BASE}, {"f": f"{BASE}# typed"}, "`f` changed in the editor since you last read it."),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_file_that_changed_is_read_again(bench, attempt, name):
    bench.start({"f": BASE})
    await bench.read("f")
    known = bench.overlay.sight
    disk, documents, reason = CHANGES[name]
    bench.start(disk, documents)
    bench.overlay.sight = known
    assert (await bench.fails(attempt[0], **attempt[1])).startswith(reason)
    await bench.read("f")
    await bench.ok(attempt[0], **attempt[1])


async def test_an_own_edit_that_is_not_there(bench, attempt):
    bench.start({"f": BASE})
    await bench.read("f")
    await bench.ok("edit_file", **EDIT)
    known = bench.overlay.sight
    bench.start()
    bench.overlay.sight = known
    told = await bench.fails(attempt[0], **attempt[1])
    assert told.startswith("`f` is not as you wrote it: your edit was not applied, or the file was changed since.")


SAME = {
    "byte order mark": ({"f": b"\xef\xbb\xbfa\n"}, {"f": "\ufeffa\n"}),
    "line ends": ({"f": "a\r\nb\r\n"}, {"f": "a\nb\n"}),
    "empty": ({"f": ""}, {"f": ""}),
}


@pytest.mark.parametrize("name", SAME)
async def test_what_is_not_shown_does_not_count(bench, attempt, name):
    """A document may have other line ends than the disk, and its byte order mark."""
    disk, documents = SAME[name]
    bench.start(disk, documents)
    await bench.read("f")
    known = bench.overlay.sight
    bench.start(disk)
    bench.overlay.sight = known
    await bench.ok(attempt[0], **attempt[1])


@pytest.mark.parametrize("is_open", [False, True])
async def test_no_rename_replaces_an_unread_file(bench, is_open):
    """The edits of two files can fail one without the other, so the text of an unread file must not move alone."""
    bench.start({"f": BASE, "g": "g\n"}, {"f": BASE} if is_open else {})
    await bench.read("g")
    await bench.ok("delete_file", path="g")
    refused = await bench.fails("rename_file", path="f", new_path="g")
    assert "`g` existed when this turn began, so no other file can take its name in this turn." in refused
    await bench.ok("rename_file", path="f", new_path="h")
    assert PART.replace("`f`", "`h`") in await bench.fails("write_file", path="f", content="shim\n")
    await bench.ok("rename_file", path="h", new_path="f")
    await bench.ok("rename_file", path="f", new_path="h")
    await bench.read("h")
    await bench.ok("write_file", path="f", content="shim\n")
    after = {edit.path: edit.after for edit in bench.overlay.build_edit_set().files}
    assert after == {"f": "shim\n", "g": None, "h": BASE}


MARKED = {
    "line cut": "x = 'y [line cut: 6008 characters]\n",
    "search cut": "x [line cut]\n",
    "file cut": "x\n[cut at the length limit; continue with start_line 1106]\n",
    "result cut": "x\n[cut: 60000 characters; this is the beginning]\n",
    "message cut": "x\n[truncated: the results of one message are limited to 1 MB; repeat this call]\n",
}


@pytest.mark.parametrize("name", MARKED)
async def test_marks_of_cuts_reach_no_file(bench, name):
    text = MARKED[name]
    bench.start({"f": BASE, "marked": text})
    await bench.read("f", "marked")
    for tool, arguments in (
        ("write_file", {"path": "f", "content": text}),
        ("write_file", {"path": "new", "content": text}),
        ("edit_file", EDIT | {"new_text": text}),
    ):
        assert "which a tool result added" in await bench.fails(tool, **arguments)
    assert not bench.overlay.build_edit_set()
    await bench.ok("write_file", path="marked", content=f"{text}more\n")


async def test_escapes_become_their_characters(bench):
    bench.start({"f": BASE, "about": "`<U+202E>` is an escape.\n"})
    await bench.read("f", "about")
    text = await bench.ok("write_file", path="new", content="a<U+000C>b<U+0041>c<U+110000>")
    assert text == "Created new (1 line). Note: the new text contains invisible characters: <U+000C>."
    await bench.ok("edit_file", path="f", old_text="a - b", new_text="a<U+200B>")
    await bench.ok("write_file", path="f", content="<U+FEFF>x<U+000C>\n")
    await bench.ok("write_file", path="about", content="`<U+200B>` is an escape.\n")
    after = {edit.path: edit.after for edit in bench.overlay.build_edit_set().files}
    assert after == {
        "new": "a\fb<U+0041>c<U+110000>", "f": "x\f\n", "about": "`<U+200B>` is an escape.\n",
    }  # fmt: skip


def test_sight_keeps_the_latest_files():
    sight = Sight(FileSight(str(number), None) for number in range(1_200))
    sight.learn([FileSight("200", "d", is_whole=True)])
    sight.learn([FileSight("new", "d")])
    assert len(sight.files) == 1_000
    assert sight.find("200") == FileSight("200", "d", is_whole=True)
    assert sight.find("201") is None


def test_digests_ignore_what_is_not_shown():
    assert compute_digest("\ufeffa\r\nb\rc\n") == compute_digest("a\nb\nc\n") != compute_digest("a\nb\nc")
    assert compute_digest(None) is None
    assert compute_digest("\ud83d") is not None
