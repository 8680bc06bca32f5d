"""Which documents are cells of a notebook, and which show another version of a file."""

import pytest

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.documents import find_notebook, is_version
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

CELL, VERSION, OWN = "cell", "version", "a document of its own"
# The URI of a document, with `WS` for the workspace folder -> what the document is.
DOCUMENTS = {
    "vscode-notebook-cell:WS/nb.ipynb#W0sZmlsZQ%3D%3D": CELL,
    "vscode-notebook-cell://wsl%2Bubuntu/WS/nb.ipynb#W1": CELL,
    "notebook:WS/a%20b.md#1": CELL,
    "file:WS/nb.ipynb#cell-1": CELL,
    "vscode-notebook-cell-output:WS/nb.ipynb?x#W0": VERSION,
    "vscode-notebook-cell-metadata:WS/nb.ipynb#W0": VERSION,
    "git:WS/a.py?%7B%22ref%22%3A%22~%22%7D": VERSION,
    "git:/elsewhere/nb.ipynb?HEAD#W0": VERSION,
    "GIT:/elsewhere/a.py": VERSION,
    "gitlens://cafe/elsewhere/a.py": VERSION,
    "git-show:a.py": VERSION,
    "merge-conflict.conflict-diff:/elsewhere/a.py": VERSION,
    "conflictResolution:/elsewhere/a.py": VERSION,
    "chat-editing-snapshot-text-model:/elsewhere/a.py": VERSION,
    "review:/elsewhere/a.py": VERSION,
    "anything:WS/new.py": VERSION,
    "file:WS/a.py?version=1": VERSION,
    "untitled:WS/new.py": OWN,
    "untitled:Untitled-1": OWN,
    "untitled:Untitled-1.ipynb#x": OWN,
    "memfs:/elsewhere/a.py": OWN,
    "vscode-vfs://host/owner/a.py": OWN,
    "digital:/elsewhere/a.py": OWN,
    "file:///elsewhere/git/a.py": OWN,
}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "a.py").write_text("disk")
    with Root(str(tmp_path)) as root:
        yield root


@pytest.mark.parametrize("uri", DOCUMENTS)
def test_kinds_of_documents(root, uri):
    document = DocumentSnapshot(uri.replace("WS", root.path), 1, "text")
    view = WorkspaceView([root], [document])
    place = view.resolve(document.uri)
    assert view.read(place).text == "text"
    assert (find_notebook(document.uri) is not None) == (DOCUMENTS[uri] == CELL)
    if DOCUMENTS[uri] == VERSION:
        with pytest.raises(PathRefused, match="shows another version of a file"):
            view.check_writable(place)
    else:
        view.check_writable(place)
        assert not is_version(document.uri)


@pytest.mark.parametrize("uri", ["git:WS/.env?%7B%7D", "vscode-notebook-cell:WS/.ssh/id_rsa#W0", "x:WS/.env#y"])
def test_a_query_does_not_hide_a_protected_name(root, uri):
    document = DocumentSnapshot(uri.replace("WS", root.path), 1, "text")
    view = WorkspaceView([root], [document])
    with pytest.raises(PathRefused, match="secrets"):
        view.read(view.resolve(document.uri))
