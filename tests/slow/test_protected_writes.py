"""A-22: protected names in every spelling, written by tool calls, by edits sent to the editor, and by edits on disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import Tally, refuse_question
from tests.support.in_process import InProcess, in_process
from tests.support.sizes import tries
from tests.workspace.test_protected import PROMISED, spellings
from thinklsp.core.edits import EditSet, FileEdit
from thinklsp.core.errors import PathRefused
from thinklsp.core.messages import ToolUseBlock, describe_text
from thinklsp.engine.merge_plan import plan_merge
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.tools.registry import TOOLS
from thinklsp.tools.tool import ToolContext, call
from thinklsp.workspace.overlay import EditOverlay, apply_to_disk
from thinklsp.workspace.paths import Root
from thinklsp.workspace.protected import ProtectedPaths, load_patterns
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import WorkspaceView

ALL_PATTERNS = (*load_patterns("secret"), *load_patterns("secret_files"), *load_patterns("guarded"))
OLD, NEW = "old\n", "new\n"
ALL = frozenset(("create", "rename", "delete"))

CALLS: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "write": lambda path: ("write_file", {"path": path, "content": NEW}),
    "edit": lambda path: ("edit_file", {"path": path, "old_text": "old", "new_text": "new"}),
    "delete": lambda path: ("delete_file", {"path": path}),
    "rename to": lambda path: ("rename_file", {"path": "free.txt", "new_path": path}),
    "rename from": lambda path: ("rename_file", {"path": path, "new_path": "taken.txt"}),
}
# Whether the file exists, and the made-up edit.
EDITS: dict[str, tuple[bool, Callable[[str, str], FileEdit]]] = {
    "create": (False, lambda uri, _: FileEdit(uri, "x", None, NEW)),
    "edit": (True, lambda uri, _: FileEdit(uri, "x", OLD, NEW)),
    "delete": (True, lambda uri, _: FileEdit(uri, "x", OLD, None)),
    "rename to": (False, lambda uri, free: FileEdit(free, "free.txt", OLD, OLD, None, uri, "x")),
    "rename from": (True, lambda uri, free: FileEdit(uri, "x", OLD, OLD, None, f"{free}.moved", "x")),
}


@dataclass
class Tries:
    """`through`: the ways that wrote something."""

    folder: Path
    rules: ProtectedPaths = field(default_factory=ProtectedPaths)
    count: int = 0
    through: list[tuple[str, str, str]] = field(default_factory=list)

    def note(self, way: str, how: str, form: str, written: object) -> None:
        self.count += 1
        if written:
            self.through.append((way, how, form))

    async def by_tools(self, form: str) -> None:
        with Root(str(self.folder), protected=self.rules) as root:
            for there in (False, True):
                self.put(form if there else None)
                for how, made in CALLS.items():
                    view = WorkspaceView([root], protected=self.rules)
                    overlay = EditOverlay(view)
                    with suppress(PathRefused):
                        overlay.sight.learn([describe_text(view.resolve(form).key, OLD, is_whole=True)])
                    await call(ToolUseBlock("1", *made(form)), TOOLS, ToolContext(overlay, refuse_question))
                    self.note("tools", how, form, overlay.build_edit_set())

    def by_disk(self, form: str) -> None:
        with Root(str(self.folder), protected=self.rules) as root:
            view = WorkspaceView([root], protected=self.rules)
            for how, (there, made) in EDITS.items():
                before = self.put(form if there else None)
                apply_to_disk(EditSet((made(self.uri(form), self.uri("free.txt")),)), view)
                self.note("disk", how, form, contents(self.folder) != before)

    def by_editor(self, form: str, editor: InProcess, snapshots: Snapshots) -> None:
        uri, free = self.uri(form), self.uri("free.txt")
        for how, (there, made) in EDITS.items():
            self.put(form if there else None)
            for is_open in (False, True)[: 1 + there]:
                if is_open:
                    item = {"uri": uri, "languageId": "x", "version": 1, "text": OLD}
                    editor.notify("textDocument/didOpen", {"textDocument": item})
                view, file = snapshots.create_view(), made(uri, free)
                uris = filter(None, (file.uri, file.new_uri))
                found = plan_merge([file], {each: snapshots.read_state(each, view) for each in uris}, ALL)
                self.note("editor, open" if is_open else "editor", how, form, found.mergeable)
                if is_open:
                    editor.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def uri(self, form: str) -> str:
        return path_to_uri(os.path.join(self.folder, form))

    def put(self, form: str | None) -> dict[str, bytes]:
        for entry in os.scandir(self.folder):
            shutil.rmtree(entry.path) if entry.is_dir() else os.unlink(entry.path)
        for name in filter(None, ("free.txt", form)):
            path = os.path.join(self.folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(OLD)
        return contents(self.folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def all_forms() -> Iterator[str]:
    for path in PROMISED:
        yield from dict.fromkeys(spellings(path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    return made


@pytest.fixture
async def editor(folder: Path) -> AsyncIterator[InProcess]:
    async with in_process() as made:
        await made.initialize(root=folder)
        yield made


async def test_nothing_protected_is_written(folder: Path, editor: InProcess, tally: Tally) -> None:
    taken, snapshots = Tries(folder), Snapshots(editor.server.state)
    for form in all_forms():
        await taken.by_tools(form)
        taken.by_disk(form)
        taken.by_editor(form, editor, snapshots)
    assert taken.through == []
    assert taken.count >= tries("A-22")
    tally("A-22", taken.count)


class LetterByLetter(ProtectedPaths):
    """Rules that know one spelling of each name."""

    def explain_write_refusal(self, parts: Any) -> str | None:
        known = [pattern for pattern in ALL_PATTERNS if "/" not in pattern]
        return "is protected." if any(fnmatchcase(part, pattern) for part in parts for pattern in known) else None

    explain_read_refusal = explain_write_refusal


@pytest.mark.parametrize("rules", [LetterByLetter(), ProtectedPaths(ALL_PATTERNS)], ids=["letters", "none"])
async def test_rules_with_a_hole_are_found_by_tools_and_on_disk(folder: Path, rules: ProtectedPaths) -> None:
    taken = Tries(folder, rules)
    for form in spellings(".vscode/settings.json"):
        await taken.by_tools(form)
        taken.by_disk(form)
    assert {("tools", how) for how in CALLS} | {("disk", how) for how in EDITS} == {
        (way, how) for way, how, _ in taken.through
    }


async def test_an_editor_that_is_sent_everything_is_found(folder: Path, editor: InProcess) -> None:
    taken, snapshots = Tries(folder), Snapshots(editor.server.state, ALL_PATTERNS)
    taken.by_editor(".vscode/settings.json", editor, snapshots)
    assert {("editor", how) for how in EDITS} | {("editor, open", "edit"), ("editor, open", "delete")} <= {
        (way, how) for way, how, _ in taken.through
    }
