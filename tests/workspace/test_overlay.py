"""The overlay against a plain dictionary: any sequence of operations, then the net edits applied to the start."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.shadowing import tree
from tests.support.sizes import examples
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import PathRefused
from thinklsp.workspace.overlay import EditOverlay, apply_to_disk
from thinklsp.workspace.paths import MAX_EDIT_BYTES, Root
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

START = {"a": "text a", "b": "text b", "d/c": "text c", "open": "on disk"}
NAMES = ["a", "b", "d/c", "open", "x", "d/y", "new/z"]


@pytest.fixture
def ws(tmp_path):
    tree(tmp_path, START)
    with Root(str(tmp_path)) as root:
        yield tmp_path, root


def overlay_of(ws, documents=()):
    return EditOverlay(WorkspaceView([ws[1]], documents))


def present(overlay):
    texts = {name: overlay.read(overlay.view.resolve(name)) for name in NAMES}
    return {name: found.text for name, found in texts.items() if found is not None}


names = st.sampled_from(NAMES)
writes = st.tuples(st.just("write"), names, st.sampled_from(["one", "two", *START.values()]))
moves = st.tuples(st.just("rename"), names, names) | st.tuples(st.just("delete"), names, st.none())
operations = st.lists(writes | moves, max_size=12)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=operations, order=st.randoms(use_true_random=False))
def test_any_sequence_equals_a_dictionary(ws, steps, order):
    """Tools change the overlay; what leaves is the difference, and nothing was written meanwhile."""
    overlay = overlay_of(ws, [DocumentSnapshot((ws[0] / "open").as_uri(), 3, "in the editor")])
    start = model = START | {"open": "in the editor"}
    for kind, name, more in steps:
        after = _modelled(model, kind, name, more)
        try:
            _performed(overlay, kind, name, more)
        except PathRefused:
            assert after is None
        else:
            assert after is not None
            model = after
        assert present(overlay) == model
    edits = list(overlay.build_edit_set().files)
    order.shuffle(edits)
    assert _replayed(start, edits, ws[0]) == model
    assert all(edit.version == (3 if edit.path == "open" and edit.before is not None else None) for edit in edits)
    assert all(edit.before != edit.after or edit.new_uri for edit in edits)
    assert {name: (ws[0] / name).read_text() for name in START} == START
    assert sorted(os.listdir(ws[0])) == ["a", "b", "d", "open"]


def _modelled(model, kind, name, more):
    """The dictionary afterwards, None where the operation must be refused."""
    if kind == "write":
        return model | {name: more}
    if name not in model or (kind == "rename" and more in model):
        return None
    rest = {key: text for key, text in model.items() if key != name}
    return rest | {more: model[name]} if kind == "rename" else rest


def _performed(overlay, kind, name, more):
    more = overlay.view.resolve(more) if kind == "rename" else more
    arguments = () if kind == "delete" else (more,)
    getattr(overlay, kind)(overlay.view.resolve(name), *arguments)


def _replayed(start, edits, folder):
    """Edits are independent of one another: any order gives the same."""
    files = dict(start)
    for edit in edits:
        assert start.get(edit.path) == edit.before
        if edit.new_uri is not None:
            assert edit.new_uri == (folder / edit.new_path).as_uri()
            assert edit.new_path not in start
        files.pop(edit.path, None)
    for edit in edits:
        if edit.after is not None:
            files[edit.new_path or edit.path] = edit.after
    return files


def test_names_of_folders_and_files_do_not_mix(ws):
    overlay = overlay_of(ws)
    at = overlay.view.resolve
    overlay.write(at("p/q"), "made")
    for name in ("p", "p/q/r", "d", "a/x"):
        with pytest.raises(PathRefused, match=r"folder|below"):
            overlay.write(at(name), "x")
        with pytest.raises(PathRefused):
            overlay.rename(at("b"), at(name))
    assert [edit.path for edit in overlay.build_edit_set().files] == ["p/q"]


def test_untitled_documents_have_text_and_nothing_else(ws):
    overlay = overlay_of(ws, [DocumentSnapshot("untitled:1", 2, "old")])
    place = overlay.view.resolve("untitled:1")
    overlay.write(place, "new")
    for refused in (lambda: overlay.delete(place), lambda: overlay.rename(place, overlay.view.resolve("x"))):
        with pytest.raises(PathRefused, match="can only be edited"):
            refused()
    assert overlay.build_edit_set().files == (FileEdit("untitled:1", "untitled:1", "old", "new", 2),)


def test_what_is_too_large_or_no_text_is_not_edited(ws):
    (ws[0] / "big").write_text("x" * (MAX_EDIT_BYTES + 1))
    (ws[0] / "latin").write_bytes(b"\xe9")
    overlay = overlay_of(ws)
    at = overlay.view.resolve
    for refused in (
        lambda: overlay.write(at("big"), "small"),
        lambda: overlay.write(at("x"), "é" * MAX_EDIT_BYTES),
        lambda: overlay.write(at("latin"), "x"),
        lambda: overlay.delete(at("latin")),
        lambda: overlay.rename(at("latin"), at("x")),
    ):
        with pytest.raises(PathRefused, match=r"larger than|UTF-8"):
            refused()
    assert not overlay.build_edit_set()


def test_a_terminal_command_brings_the_edits_to_disk(ws):
    path, _ = ws
    (path / "mark").write_bytes(b"\xef\xbb\xbfone\r\n")
    (path / "a").chmod(0o754)
    overlay = overlay_of(ws)
    at = overlay.view.resolve
    overlay.write(at("a"), "new a")
    overlay.write(at("mark"), "two\r\n")
    overlay.write(at("new/z"), "made")
    overlay.rename(at("b"), at("moved/b"))
    overlay.delete(at("d/c"))
    overlay.write(at("open"), "mine")
    edits = overlay.build_edit_set()
    (path / "open").write_text("the user's")
    outcomes = {outcome.uri: outcome.reason for outcome in apply_to_disk(edits, overlay.view)}
    assert outcomes.pop((path / "open").as_uri()).endswith("changed on disk in the meantime and was not written.")
    assert set(outcomes.values()) == {None}
    files = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert files == {
        "a": b"new a", "mark": b"\xef\xbb\xbftwo\r\n", "new/z": b"made", "moved/b": b"text b", "open": b"the user's",
    }  # fmt: skip
    assert (path / "a").stat().st_mode & 0o777 == 0o754
