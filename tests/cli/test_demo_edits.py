"""The demo's editor: edits as the specification says, and requests without an answer."""

import asyncio
import os
import subprocess
import sys
from tempfile import TemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.cli.demo_editor import (
    DemoFailed,
    LanguageClient,
    ServerExited,
    build_edit_set,
    count_unconfirmed,
)
from thinklsp.core.edits import compute_hunks
from thinklsp.lsp.protocol.positions import PositionMap
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

URI = "untitled:Sheet-1"
TEXTS = st.text(alphabet="ab \t\r\n€é😀\u2028\x0c", max_size=40)


def after(before, edit):
    view = WorkspaceView(documents=[DocumentSnapshot(URI, 7, before)])
    files = build_edit_set(edit, view, {URI: 7}).files
    return files[0].after if files else before


def vars_of(position):
    return {"line": position.line, "character": position.character}


@given(TEXTS, TEXTS)
def test_the_servers_hunks_arrive_as_meant(before, wanted):
    lines = PositionMap(before, "utf-32")
    hunks = compute_hunks(before, wanted)
    spans = [(lines.to_range(hunk.start, hunk.end), hunk.new_text) for hunk in hunks]
    edits = [{"range": {"start": vars_of(r.start), "end": vars_of(r.end)}, "newText": text} for r, text in spans]
    versioned = {"documentChanges": [{"textDocument": {"uri": URI, "version": 7}, "edits": edits}]}
    assert after(before, versioned) == wanted


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "old.txt").write_text("one\ntwo\n")
    with Root(str(tmp_path)) as root:
        yield WorkspaceView([root]), path_to_uri(root.path) + "/"


def edit_at(uri, version, new_text, **more):
    start = {"line": 0, "character": 0}
    edit = {"range": {"start": start, "end": start}, "newText": new_text, **more}
    return {"textDocument": {"uri": uri, "version": version}, "edits": [edit]}


def test_a_new_file_is_created_and_edited(folder):
    view, base = folder
    changes = [{"kind": "create", "uri": base + "new/a.txt"}, edit_at(base + "new/a.txt", None, "made\n")]
    (made,) = build_edit_set({"documentChanges": changes}, view, {}).files
    assert (made.path, made.before, made.after) == ("new/a.txt", None, "made\n")


REFUSED = {
    "stale": lambda base: edit_at(base + "old.txt", 3, "x"),
    "absent": lambda base: edit_at(base + "absent.txt", None, "x"),
    "there already": lambda base: {"kind": "create", "uri": base + "old.txt"},
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_what_an_editor_would_refuse_is_refused(folder, make):
    view, base = folder
    with pytest.raises(DemoFailed):
        build_edit_set({"documentChanges": [make(base)]}, view, {base + "old.txt": 4})


def test_overlapping_edits_are_refused():
    wide = {"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 2}}, "newText": "x"}
    with pytest.raises(DemoFailed):
        after("abc", {"documentChanges": [{"textDocument": {"uri": URI, "version": 7}, "edits": [wide, wide]}]})


def test_changes_to_be_confirmed_are_counted():
    marks = {"yes": {"label": "a", "needsConfirmation": True}, "no": {"label": "b"}}
    (plain,) = edit_at(URI, None, "")["edits"]
    edits = [{**plain, "annotationId": "yes"}, {**plain, "annotationId": "no"}, plain]
    deletion = {"kind": "delete", "uri": "x", "annotationId": "yes"}
    changes = [{"textDocument": {"uri": URI, "version": None}, "edits": edits}, deletion]
    assert count_unconfirmed({"documentChanges": changes, "changeAnnotations": marks}) == 2


# A server that reads a request and then does this.
SERVER = "import os, sys\nsys.stdin.buffer.readline()\n"
FAILURES = {
    "an error": (b'{"jsonrpc":"2.0","id":0,"error":{"code":-32001,"message":"No."}}', DemoFailed, "No."),
    "half a message": (b"{", ServerExited, "exited before"),
    "no JSON": (b"{]", ServerExited, "exited before"),
}


@pytest.mark.parametrize(("body", "error", "sentence"), FAILURES.values(), ids=FAILURES)
async def test_a_request_without_a_usable_answer_fails(tmp_path, body, error, sentence):
    frame = b"Content-Length: %d\r\n\r\n%s" % (2 if body == b"{" else len(body), body)
    argv = (sys.executable, "-c", f"{SERVER}os.write(1, {frame!r})")
    client = LanguageClient({})
    with TemporaryFile() as log, pytest.raises(DemoFailed, match=sentence) as raised:
        async with client.run_process(argv, environment=os.environ, folder=str(tmp_path), log=log):
            await asyncio.wait_for(client.request("initialize", {}), 60)
    assert raised.type is error


def test_the_help_and_a_wrong_scenario_need_no_protocol():
    seen = "import sys, thinklsp.cli.demo; print({'pygls', 'lsprotocol', 'cattrs'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
