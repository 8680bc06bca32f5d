"""The demo's editor and client of pygls: edits as the specification says; every request and process ends."""

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
    find_offset,
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
    lines = PositionMap(before, "utf-16")
    hunks = compute_hunks(before, wanted)
    spans = [(lines.to_range(hunk.start, hunk.end), hunk.new_text) for hunk in hunks]
    edits = [{"range": {"start": vars_of(r.start), "end": vars_of(r.end)}, "newText": text} for r, text in spans]
    versioned = {"documentChanges": [{"textDocument": {"uri": URI, "version": 7}, "edits": edits}]}
    assert after(before, versioned) == wanted


@given(TEXTS, st.integers(0, 6), st.integers(0, 50))
def test_a_position_counts_utf_16_units_within_its_line(text, line, character):
    offset = find_offset(text, {"line": line, "character": character})
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


# A server of a few lines. SERVE and EXIT stand for its code after a request and after `exit`, which each case brings.
SERVER = """
import json, os, sys
def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    os.write(1, b"Content-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
while head := sys.stdin.buffer.readline():
    length = int(head.split(b":")[1])
    while sys.stdin.buffer.readline().strip():
        pass
    message = json.loads(sys.stdin.buffer.read(length))
    if "method" not in message:
        continue
    if message["method"] == "exit":
        EXIT
    if message["method"] == "shutdown":
        send({"id": message["id"], "result": None})
        continue
    SERVE
"""
CAPABILITIES = {"capabilities": {}}
ANSWER = 'send({"id": message["id"], "result": {"capabilities": {}}})'


async def initialize(client, tmp_path, serve, leave="sys.exit(0)"):
    argv = (sys.executable, "-c", SERVER.replace("SERVE", serve).replace("EXIT", leave))
    with TemporaryFile() as log:
        async with client.run_process(argv, environment=os.environ, folder=str(tmp_path), log=log):
            return await client.request("initialize", {})


FAILURES = {
    "an error": ('send({"id": message["id"], "error": {"code": -32001, "message": "No."}})', DemoFailed, "No."),
    "an end": ("os._exit(3)", ServerExited, "exited before"),
    "half a message": ("os.write(1, b'Content-Length: 90\\r\\n\\r\\n{'); os._exit(0)", ServerExited, "exited before"),
    "output closed": ("os.close(1)", ServerExited, "exited before"),
    "no JSON": ("os.write(1, b'Content-Length: 2\\r\\n\\r\\n{]')", ServerExited, "exited before"),
}


@pytest.mark.parametrize(("serve", "error", "sentence"), FAILURES.values(), ids=FAILURES)
async def test_a_request_without_a_usable_answer_fails(tmp_path, serve, error, sentence):
    client = LanguageClient({})
    with pytest.raises(DemoFailed, match=sentence) as raised:
        await asyncio.wait_for(initialize(client, tmp_path, serve), 60)
    assert raised.type is error


async def test_a_request_after_the_servers_end_fails(tmp_path):
    client = LanguageClient({})
    await initialize(client, tmp_path, ANSWER)
    with pytest.raises(ServerExited):
        await client.request("initialize", {})


async def test_much_standard_error_stops_nothing(tmp_path):
    loud = f"os.write(2, b'x' * 1_000_000); {ANSWER}"
    assert (await asyncio.wait_for(initialize(LanguageClient({}), tmp_path, loud), 60)) == CAPABILITIES


LEAVING = {
    "with an error": ("sys.exit(4)", "exited with code 4", 60),
    "never": ("continue", "did not exit", 0.3),
}


@pytest.mark.parametrize(("leave", "sentence", "seconds"), LEAVING.values(), ids=LEAVING)
async def test_server_without_clean_exit_is_reported_and_killed(tmp_path, leave, sentence, seconds):
    said = f"open('pid', 'w').write(str(os.getpid())); {ANSWER}"
    with pytest.raises(DemoFailed, match=sentence):
        await initialize(LanguageClient({}, shutdown_seconds=seconds), tmp_path, said, leave)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_an_unknown_request_of_the_server_stops_nothing(tmp_path):
    serve = f"send({{'id': 7, 'method': 'window/none', 'params': {{}}}}); {ANSWER}"
    answer = await asyncio.wait_for(initialize(LanguageClient({}), tmp_path, serve), 60)
    assert answer == CAPABILITIES


def test_the_help_and_a_wrong_scenario_need_no_protocol():
    seen = "import sys, thinklsp.cli.demo; print({'pygls', 'lsprotocol', 'cattrs'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
