"""What a turn sees: the values of the moment in which it began."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.in_process import InProcess, in_process
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.workspace.view import WorkspaceView


@pytest.fixture
async def editor(tmp_path: Path) -> AsyncIterator[InProcess]:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "a.py").write_text("disk\n")
    async with in_process() as made:
        await made.initialize(root=folder)
        yield made


def folder_of(editor: InProcess) -> Path:
    [uri] = editor.server.state.documents.folders
    return Path(uri.removeprefix("file://"))


def read(view: WorkspaceView, name: str) -> str | None:
    found = view.read(view.resolve(name))
    return None if found is None else found.text


def open_document(editor: InProcess, name: str, text: str) -> str:
    uri = (folder_of(editor) / name).as_uri()
    item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    editor.notify("textDocument/didOpen", {"textDocument": item})
    return uri


async def test_a_snapshot_taken_before_the_first_await_stays_as_it_was(editor: InProcess) -> None:
    snapshots = Snapshots(editor.server.state)
    uri = open_document(editor, "a.py", "buffer\n")
    view = snapshots.create_view()
    change = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": "typed meanwhile\n"}]}
    editor.notify("textDocument/didChange", change)
    assert read(view, "a.py") == "buffer\n"
    assert [document.version for document in view.documents] == [1]
    assert read(snapshots.create_view(), "a.py") == "typed meanwhile\n"
    editor.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    assert read(view, "a.py") == "buffer\n"
    assert read(snapshots.create_view(), "a.py") == "disk\n"


async def test_unusable_folder_is_reported_once(editor: InProcess, tmp_path: Path) -> None:
    snapshots = Snapshots(editor.server.state)
    key = snapshots.key
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "b.py").write_text("b\n")
    added = [
        {"uri": (tmp_path / "more").as_uri(), "name": "more"},
        {"uri": "http://example.org/x", "name": "far"},
        {"uri": "file:///", "name": "all"},
    ]
    editor.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": added, "removed": []}})
    assert read(snapshots.create_view(), "more/b.py") == "b\n"
    snapshots.create_view()
    told = [m for m in await editor.settled() if m.get("method") == "window/showMessage"]
    assert len(told) == 2
    assert snapshots.key == key
    editor.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [], "removed": added[:1]}})
    assert [folder.name for folder in snapshots.create_view().folders] == ["ws"]
    assert snapshots.key == key
