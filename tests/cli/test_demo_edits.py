"""The demo's editor understands workspace edits as the specification says, whatever characters they are about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from thinklsp.cli.demo_client import make_converter
from thinklsp.cli.demo_edits import EditRefused, count_unconfirmed, edit_set_of, offset_in
from thinklsp.core.edits import hunks
from thinklsp.lsp.protocol.convert import Lines
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceFolder, WorkspaceView

URI = "untitled:Sheet-1"
TEXTS = st.text(alphabet="ab \t\r\n€é😀\u2028\x0c", max_size=40)
CONVERTER = make_converter()


def read(edit):
    return CONVERTER.structure(edit, types.WorkspaceEdit)


def after(before, edit):
    view = WorkspaceView(documents=[DocumentSnapshot(URI, 7, before)])
    files = edit_set_of(read(edit), view, {URI: 7}).files
    return files[0].after if files else before


@given(TEXTS, TEXTS)
def test_the_servers_hunks_arrive_as_meant(before, wanted):
    lines = Lines(before, "utf-16")
    edits = [{"range": lines.range(edit.start, edit.end), "newText": edit.new_text} for edit in hunks(before, wanted)]
    versioned = {"documentChanges": [{"textDocument": {"uri": URI, "version": 7}, "edits": edits}]}
    assert after(before, versioned) == wanted
    assert after(before, {"changes": {URI: edits}}) == wanted


@given(TEXTS, st.integers(0, 6), st.integers(0, 50))
def test_a_position_counts_utf_16_units_within_its_line(text, line, character):
    offset = offset_in(text, types.Position(line, character))
    rows = text.replace("\r\n", "\n\0").replace("\r", "\n").split("\n")  # the \0 keeps the length of \r\n
    if line >= len(rows):
        assert offset == len(text)
        return
    start = sum(len(row) + 1 for row in rows[:line]) + rows[line].startswith("\0")
    units = len(text[start:offset].encode("utf-16-le")) // 2
    rest = len(rows[line].lstrip("\0").encode("utf-16-le")) // 2
    assert units == min(character, rest) or (units == character - 1 and text[offset] == "😀")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "old.txt").write_text("one\ntwo\n")
    with Root(str(tmp_path)) as root:
        yield WorkspaceView([(WorkspaceFolder(path_to_uri(root.path), ""), root)]), path_to_uri(root.path) + "/"


def edit_at(uri, version, new_text, **more):
    start = {"line": 0, "character": 0}
    return {
        "textDocument": {"uri": uri, "version": version},
        "edits": [{"range": {"start": start, "end": start}, "newText": new_text, **more}],
    }


def test_files_are_made_moved_and_removed(folder):
    view, base = folder
    changes = [
        {"kind": "create", "uri": base + "new/a.txt"},
        edit_at(base + "new/a.txt", None, "made\n"),
        edit_at(base + "old.txt", None, "zero\n"),
        {"kind": "rename", "oldUri": base + "old.txt", "newUri": base + "moved.txt"},
    ]
    made, moved = edit_set_of(read({"documentChanges": changes}), view, {}).files
    assert (made.path, made.before, made.after) == ("new/a.txt", None, "made\n")
    assert (moved.path, moved.new_path, moved.after) == ("old.txt", "moved.txt", "zero\none\ntwo\n")
    (gone,) = edit_set_of(read({"documentChanges": [{"kind": "delete", "uri": base + "old.txt"}]}), view, {}).files
    assert gone.deletes


REFUSED = {
    "stale": lambda base: edit_at(base + "old.txt", 3, "x"),
    "absent": lambda base: edit_at(base + "absent.txt", None, "x"),
    "snippet": lambda base: edit_at(base + "old.txt", 4, "", snippet={"kind": "snippet", "value": "$1"}),
    "there already": lambda base: {"kind": "create", "uri": base + "old.txt"},
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_what_an_editor_would_refuse_is_refused(folder, make):
    view, base = folder
    with pytest.raises(EditRefused):
        edit_set_of(read({"documentChanges": [make(base)]}), view, {base + "old.txt": 4})


def test_overlapping_edits_are_refused():
    wide = {"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 2}}, "newText": "x"}
    with pytest.raises(EditRefused):
        after("abc", {"changes": {URI: [wide, wide]}})


def test_changes_to_be_confirmed_are_counted():
    marks = {"yes": {"label": "a", "needsConfirmation": True}, "no": {"label": "b"}}
    (plain,) = edit_at(URI, None, "")["edits"]
    edits = [{**plain, "annotationId": "yes"}, {**plain, "annotationId": "no"}, plain]
    changes = [
        {"textDocument": {"uri": URI, "version": None}, "edits": edits},
        {"kind": "delete", "uri": "x", "annotationId": "yes"},
    ]
    assert count_unconfirmed(read({"documentChanges": changes, "changeAnnotations": marks})) == 2
