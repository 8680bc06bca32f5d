"""A folder on disk, a view and an overlay over it, and calls as a model makes them."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from thinklsp.core.messages import ToolUseBlock
from thinklsp.tools.registry import TOOLS
from thinklsp.tools.tool import Editor, NoEditor, ToolContext, call
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView


@dataclass
class Bench:
    path: Path
    root: Root
    tools: tuple = TOOLS
    answer: str | None = None
    asked: list = field(default_factory=list)
    overlay: EditOverlay | None = None
    editor: Editor = field(default_factory=NoEditor)

    def start(self, files=None, documents=None, language_ids=None, **more):
        """Files on disk, open documents and their languages by name (names with a colon are URIs); a new overlay over
        them."""
        for name, text in (files or {}).items():
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text if isinstance(text, bytes) else text.encode())
        ids = language_ids or {}
        snapshots = [
            DocumentSnapshot(name if ":" in name else (self.path / name).as_uri(), 5, text, ids.get(name, ""))
            for name, text in (documents or {}).items()
        ]
        self.overlay = EditOverlay(WorkspaceView([self.root], snapshots, **more))
        return self

    async def call(self, name, **arguments):
        context = ToolContext(self.overlay, self._ask, self.editor)
        return await call(ToolUseBlock("call-1", name, arguments), self.tools, context)

    async def ok(self, name, **arguments):
        output = await self.call(name, **arguments)
        assert not output.is_error, output.text
        return output.text

    async def fails(self, name, **arguments):
        output = await self.call(name, **arguments)
        assert output.is_error, output.text
        return output.text

    async def read(self, *names):
        """The model reads these files, and the next call knows it."""
        for name in names:
            output = await self.call("read_file", path=name)
            assert not output.is_error, output.text
            self.overlay.sight.learn(output.sight)

    async def _ask(self, question, options):
        self.asked.append((question, options))
        return self.answer


@pytest.fixture
def bench(tmp_path):
    path = tmp_path / "ws"
    path.mkdir()
    with Root(str(path)) as root:
        yield Bench(path, root)
