"""`edit_file` and its kind: exact, within the file's own line ends, and helpful when they refuse."""

import pytest

EDITS = {
    "plain": ("a\nb\nc\n", "b", "B", "a\nB\nc\n"),
    "several lines": ("a\nb\nc\n", "a\nb\n", "x\n", "x\nc\n"),
    "line ends of the file": ("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", "x\r\ny\r\nz\r\nc\r\n"),
    "line ends in new text only": ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n"),
    "crlf given for lf": ("a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"),
    "old macs": ("a\rb\r", "a\nb", "x\ny", "x\ry\r"),
    "mixed, as it stands": ("a\r\nb\nc\r\n", "b\nc", "x\ny", "a\r\nx\ny\r\n"),
    "shown characters": ("a\u202eb\n", "a<U+202E>b", "c<U+202E>d", "c\u202ed\n"),
    "shown characters that are text": ("a<U+202E>b\n", "a<U+202E>b", "<U+200B>", "<U+200B>\n"),
    "no last line end": ("a\nb", "b", "b\n", "a\nb\n"),
    "group signs are text": ("a.b\n", "a.b", r"\1\g<0>", "\\1\\g<0>\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
async def test_edits(bench, name):
    before, old, new, after = EDITS[name]
    bench.start({"f": before})
    text = await bench.ok("edit_file", path="f", old_text=old, new_text=new)
    assert text.startswith("Edited f at line ")
    (edit,) = bench.overlay.build_edit_set().files
    assert (edit.before, edit.after) == (before, after)
    assert (bench.path / "f").read_bytes() == before.encode()


async def test_replace_all(bench):
    bench.start({"f": "x\nx\nxx\n"})
    assert "occurs 4 times in `f`, at lines 1, 2, 3, 3" in await bench.fails(
        "edit_file", path="f", old_text="x", new_text="y"
    )
    assert (
        await bench.ok("edit_file", path="f", old_text="x", new_text="y", replace_all=True) == "Edited f at 4 places."
    )
    assert bench.overlay.build_edit_set().files[0].after == "y\ny\nyy\n"


HINTS = {
    "    return 1": "Line 2 differs from it only in whitespace",
    "def f():\n  return 1\n": "Lines 1-2 differ from it only in whitespace",
    "\n    return 1\n": "Line 2 differs from it only in whitespace",
    "\n \ndef f():\n\n\treturn 1\n\n": "Lines 1-2 differ from it only in whitespace",
    "return 1\ndef g():\n\treturn 2 + 3\n\n": "Lines 2-6 differ from it only in whitespace",
    "\n \n": "Lines 3-4 differ from it only in whitespace",
    "return  2 + 2": "The nearest line is 6: return 2 + 3",
    "nothing like this anywhere": "No line resembles its first line",
}


@pytest.mark.parametrize("old", HINTS)
async def test_what_is_not_there_gets_a_hint(bench, old):
    bench.start({"f": "def f():\n\treturn 1\n\n\ndef g():\n\treturn 2 + 3\n"})
    assert HINTS[old] in await bench.fails("edit_file", path="f", old_text=old, new_text="x")
    assert not bench.overlay.build_edit_set()


async def test_invisible_characters_are_told(bench):
    bench.start({"f": "a\u200bb\n"})
    text = await bench.ok("edit_file", path="f", old_text="b", new_text="b\u202e\u200b")
    assert text == "Edited f at line 1. Note: the new text contains invisible characters: <U+202E>."


async def test_half_a_character_is_refused(bench):
    """As JSON can bring it, and as results spell it out; what an editor has in its document stays."""
    bench.start({"f": "a\n"}, {"open": "x\ud83d y\n"})
    await bench.read("f")
    calls = [
        ("write_file", {"path": "new", "content": "x\ud83d y"}),
        ("write_file", {"path": "f", "content": "a\n\ude00"}),
        ("edit_file", {"path": "f", "old_text": "a", "new_text": "\ud83d"}),
        ("edit_file", {"path": "open", "old_text": "x<U+D83D>", "new_text": "x<U+D83D><U+DE00>"}),
    ]
    for name, arguments in calls:
        text = await bench.fails(name, **arguments)
        assert text.startswith(f"`{arguments['path']}` was not changed: the new text contains a lone surrogate, ")
        assert text.endswith("Send the text again without it.")
    assert not bench.overlay.list_changed()
    assert await bench.ok("write_file", path="new", content="x\U0001f600 y") == "Created new (1 line)."
    await bench.ok("edit_file", path="open", old_text="y", new_text="z")
    assert bench.overlay.read(bench.overlay.view.resolve("open")).text == "x\ud83d z\n"


async def test_writing(bench):
    bench.start({"crlf": "a\r\nb\r\n", "mark": b"\xef\xbb\xbfa\r\n", "latin": b"\xe9"}, {"marked": "\ufeffa\n"})
    await bench.read("crlf", "mark", "marked")
    assert await bench.ok("write_file", path="new/file", content="x\r\ny") == "Created new/file (2 lines)."
    assert await bench.ok("write_file", path="crlf", content="1\n2\n3\n") == "Rewrote crlf (3 lines)."
    assert await bench.ok("write_file", path="mark", content="\ufeffb\n") == "Rewrote mark (1 line)."
    await bench.ok("write_file", path="marked", content="b\n")
    after = {edit.path: edit.after for edit in bench.overlay.build_edit_set().files}
    assert after == {"new/file": "x\r\ny", "crlf": "1\r\n2\r\n3\r\n", "mark": "b\r\n", "marked": "\ufeffb\n"}
    assert "not UTF-8" in await bench.fails("write_file", path="latin", content="x")
    assert "folder" in await bench.fails("write_file", path="new", content="x")
    assert "larger than" in await bench.fails("write_file", path="big", content="x" * (1 << 20) + "x")


async def test_renaming_and_deleting(bench):
    bench.start({"a": "x\n", "b": "y\n", "d/c": "z\n"})
    assert await bench.ok("rename_file", path="a", new_path="e/f") == "Renamed a to e/f."
    assert "already exists" in await bench.fails("rename_file", path="b", new_path="d/c")
    assert "already has that name" in await bench.fails("rename_file", path="b", new_path="./b")
    await bench.read("b")
    assert await bench.ok("delete_file", path="b") == "Deleted b."
    for name, arguments in (("delete_file", {"path": "d"}), ("rename_file", {"path": "d", "new_path": "q"})):
        assert "is a folder" in await bench.fails(name, **arguments)
    assert "does not exist" in await bench.fails("delete_file", path="b")
    assert {(edit.path, edit.new_path, edit.after) for edit in bench.overlay.build_edit_set().files} == {
        ("a", "e/f", "x\n"), ("b", None, None),
    }  # fmt: skip
