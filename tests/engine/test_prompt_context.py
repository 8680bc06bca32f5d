"""What the mentions in a prompt add to it: files and open documents, and a notice about each one that is neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.test_project_instructions import view
from thinklsp.engine import Reference
from thinklsp.engine.turn_request import find_file_references, format_mention
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

DRAFT = "untitled:Untitled-1"
NEITHER = "is neither a workspace file nor an open document."


@pytest.fixture
def opened(tmp_path: Path) -> WorkspaceView:
    (tmp_path / "a b.py").write_text("x\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "c.py").write_text("y\n")
    return view(tmp_path, DocumentSnapshot(DRAFT, 1, "draft\n"))


# A prompt -> the files that are added, and the mentions that the user is told about.
PROMPTS: dict[str, tuple[str, list[Reference], list[str]]] = {
    "files": ('@src/c.py:3-7 and @"a b.py"', [Reference("src/c.py", (3, 7)), Reference("a b.py")], []),
    "a document": (f'@"{DRAFT}":1', [Reference(DRAFT, (1, 1))], []),
    "twice": ("@src/c.py @src/c.py", [Reference("src/c.py")], []),
    "a folder": ("@src", [], []),
    "lines of no file": ("@d.py:3 and @src/c.py", [Reference("src/c.py")], [f"@d.py:3 {NEITHER}"]),
    "a word": ("@someone", [], []),
    "in code": ("```\n@d.py:3\n@src/c.py\n```", [Reference("src/c.py")], []),
    "outside": ("@../d.py:3", [], [f"@../d.py:3 {NEITHER}"]),
    "hidden characters": ("@d\u202e.py:3", [], [f"@d<U+202E>.py:3 {NEITHER}"]),
    "not files": ("@selection @diagnostics", [], []),
}


@pytest.mark.parametrize("case", PROMPTS)
def test_mentions_add_files(opened: WorkspaceView, case: str) -> None:
    prompt, references, notices = PROMPTS[case]
    assert find_file_references(prompt, opened) == (tuple(references), tuple(notices))


def test_a_few_notices_are_enough(opened: WorkspaceView) -> None:
    _, notices = find_file_references(" ".join(f"@no{number}.py:1" for number in range(9)), opened)
    assert [notice.partition(" ")[0] for notice in notices] == [f"@no{number}.py:1" for number in range(5)]


def test_a_document_is_mentioned_as_tools_name_it(opened: WorkspaceView, tmp_path: Path) -> None:
    assert format_mention(path_to_uri(str(tmp_path / "src" / "c.py")), opened, (1, 2)) == "@src/c.py:1-2"
    assert format_mention(path_to_uri(str(tmp_path / "a b.py")), opened, None) == '@"a b.py"'
    assert format_mention("file:///elsewhere/secret.py", opened, None) == "@secret.py"
