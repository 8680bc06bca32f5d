"""Ordinary sessions: what real editors announce, and how they name their folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.capabilities import get_capability
from pytest_lsp import client_capabilities

from tests.e2e.acting import chat, edit_file, say, send, write_file
from tests.e2e.conftest import Begin
from tests.support.client.lsp import diagnostic, named
from tests.support.outside import MODEL, Outside, statuses
from tests.support.signing_server import Text, Thinking, answer, tool

EDITORS = ["visual-studio-code", "neovim@v0.6.1", "neovim@v0.9.1", "neovim@v0.11.0", "emacs"]
TEXT = "def greet(name):\n    return '🙂, ' + nmae\n"
FIX = edit_file("app.py", "nmae", "name")
NEW = write_file("test_app.py", "from app import greet\n")
LOOK = (answer(tool("list_files", path=".")), say("Done."))
PROGRESS = types.ClientCapabilities(
    workspace=types.WorkspaceClientCapabilities(workspace_folders=True),
    window=types.WindowClientCapabilities(work_done_progress=True),
)


@pytest.fixture(params=EDITORS)
def announced(request: pytest.FixtureRequest) -> types.ClientCapabilities:
    return client_capabilities(request.param)


async def test_an_ordinary_session(begin: Begin, announced: types.ClientCapabilities) -> None:
    """What an editor does not announce is not sent to it: its client would blame that."""
    script = (answer(Thinking(), FIX, NEW), say("Fixed."), answer(Thinking(), Text("It greets.")))
    outside = await begin(*script, files={"app.py": TEXT}, announce=announced)
    client = outside.client
    offered = get_capability(announced, "general.position_encodings", ("utf-16",))
    assert client.server.position_encoding == offered[0]
    makes_files = bool(announced.workspace.workspace_edit.resource_operations)
    if makes_files:
        # Neovim announces operations alone. They exist within document changes only: it takes these, too.
        client.editor.capabilities["workspace"]["workspaceEdit"]["documentChanges"] = True
    # Where changes cannot be annotated the user is asked.
    client.editor.message_answers = ["Apply"]
    uri = outside.open("app.py")
    problem = diagnostic(TEXT, "nmae", "not defined")
    [fix] = named(await client.code_actions(uri, "nmae", diagnostics=[problem]), "fix")
    result = await outside.result(client.run_action(fix, token="fix"))
    assert statuses(result) == {"app.py": "applied", "test_app.py": "applied" if makes_files else "refused"}
    assert client.text(uri) == TEXT.replace("nmae", "name")
    first, *_, last = client.connection.progress_reports["fix"]
    assert isinstance(first, types.WorkDoneProgressBegin)
    assert isinstance(last, types.WorkDoneProgressEnd)
    told = await client.hover(uri, "name\n")
    assert told.contents.kind == announced.text_document.hover.content_format[0]
    chat = client.open(outside.uri("talk.chat.md"), "## You\n\nWhat does it do? /e\n")
    assert not (await client.complete(chat, "/e")).items
    assert (await send(outside, chat))["text"] == "It greets."
    assert "## thinklsp\n\nIt greets." in client.text(chat)
    assert outside.told() == []


async def begun(begin: Begin, *, root: Path | None = None, folders: list[types.WorkspaceFolder] | None) -> Outside:
    """Begin a session with a root and folders that may differ."""
    outside = await begin(*LOOK, files={"a.py": "x = 1\n"}, initialize=False)
    root_uri = (root or outside.root).as_uri()
    params = types.InitializeParams(
        PROGRESS, root_uri=root_uri, workspace_folders=folders, initialization_options={"model": MODEL}
    )
    await outside.client.connection.initialize_session(params)
    return outside


async def list_files(outside: Outside, *added: Path) -> str:
    """Return what the model is told of the files, after folders were added."""
    if added:
        folders = [types.WorkspaceFolder(folder.as_uri(), folder.name) for folder in added]
        event = types.DidChangeWorkspaceFoldersParams(types.WorkspaceFoldersChangeEvent(folders, []))
        outside.client.connection.workspace_did_change_workspace_folders(event)
    await chat(outside, "Look.")
    assert "does not accept edits" in " ".join(outside.told())
    return json.dumps(outside.provider.requests[-1].body["messages"][-1])


@pytest.mark.parametrize("editor", ["Kate", "no folder"])
async def test_an_empty_list_of_folders_means_that_none_is_open(begin: Begin, tmp_path: Path, editor: str) -> None:
    """`rootUri` is the home folder, the project comes by `didChangeWorkspaceFolders`."""
    outside = await begun(begin, root=tmp_path, folders=[])
    listed = await list_files(outside, *([outside.root] if editor == "Kate" else []))
    assert ("a.py" in listed) == (editor == "Kate")


async def test_the_root_is_dropped_once_a_folder_is_added(begin: Begin, tmp_path: Path) -> None:
    """A client that names only `rootUri` and later adds its folder."""
    outside = await begun(begin, folders=None)
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.py").write_text("y = 1\n")
    listed = await list_files(outside, other)
    assert "b.py" in listed
    assert "a.py" not in listed
