"""Edits of other processes: looked up once per opening, again after they have written, and never against the user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import InProcess, in_process
from tests.support.stored_sessions import connection_of, full_session, opened
from tests.support.watching import HANG_SECONDS
from thinklsp.core.edits import FileEdit
from thinklsp.engine.merge_plan import plan_undo
from thinklsp.lsp.edits.pending_edits import PendingEdit
from thinklsp.sessions.ledger import PlannedWrite
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.workspace.paths import compute_workspace_key

OLD, NEW = "one\ntwo\nthree\n", "one\nTWO\nthree\n"


@dataclass(slots=True)
class Desk:
    """An editor with its server, and `other`, the store of another process."""

    editor: InProcess
    assistant: Any
    other: SqliteStore
    folder: Path
    session_id: str = ""

    @property
    def uri(self) -> str:
        return (self.folder / "a.py").as_uri()

    @property
    def workspace(self) -> str:
        return compute_workspace_key(self.folder.as_uri())

    def open(self, text: str) -> None:
        item = {"uri": self.uri, "languageId": "python", "version": 1, "text": text}
        self.editor.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, text: str) -> None:
        version = self.editor.server.workspace.text_documents[self.uri].version + 1
        document = {"uri": self.uri, "version": version}
        self.editor.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def close(self) -> None:
        self.editor.notify("textDocument/didClose", {"textDocument": {"uri": self.uri}})

    def find(self, line: int = 1) -> str | None:
        """The turn that is known for a line, without a request."""
        document = self.editor.server.workspace.text_documents[self.uri]
        origin = self.assistant.ledger.attribution.find_attribution(document, line, 0)
        return None if origin is None else str(origin.turn.turn_id)

    async def hover(self) -> None:
        self.editor.request(
            "h", "textDocument/hover", {"textDocument": {"uri": self.uri}, "position": {"line": 0, "character": 0}}
        )
        self.editor.received.remove(await self.editor.answer("h"))

    async def looked_up(self) -> None:
        """Wait until the lookups that were requested so far have ended."""
        await self.editor.settled()
        async with asyncio.timeout(HANG_SECONDS), self.assistant.ledger._lookup_lock:
            pass

    async def write_elsewhere(self, turn_id: str, before: str | None, after: str | None, **more: Any) -> None:
        write = PlannedWrite(more.get("uri", self.uri), "a.py", before, after)
        intent = await self.other.record_intent(self.session_id, self.workspace, turn_id, (write,))
        await self.other.settle_edit(intent, {write.uri: "applied"})

    async def undo_elsewhere(self, turn_id: str) -> None:
        turn = await self.other.find_written_turn(self.workspace, turn_id)
        assert turn is not None
        await self.other.mark_undone(turn)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    folder = tmp_path / "ws"
    folder.mkdir()
    environment = {"THINKLSP_CONFIG": "/nonexistent/config.toml", "THINKLSP_STATE_DIR": str(tmp_path / "state")}
    async with opened(tmp_path / "state") as other, in_process(environment) as editor:
        made = Desk(editor, None, other, folder)
        made.session_id = (await other.update((await other.create(made.workspace)).id, full_session)).id
        await editor.initialize(root=folder)
        made.assistant = await editor.server.load()
        await made.assistant.ledger.load()
        yield made


async def test_a_document_is_looked_up_once_until_others_write(desk: Desk) -> None:
    await desk.write_elsewhere("t1", OLD, NEW)
    statements: list[str] = []

    async def count_reads(act: Callable[[], Any]) -> int:
        statements.clear()
        connection_of(desk.assistant.engine.store).set_trace_callback(statements.append)
        if (made := act()) is not None:
            await made
        await desk.looked_up()
        return sum("FROM ledger WHERE coalesce" in statement for statement in statements)

    assert await count_reads(lambda: desk.open(NEW)) == 1
    assert desk.find() == "t1"
    assert await count_reads(desk.hover) == 0
    assert await count_reads(lambda: desk.change(NEW + "four\n")) == 0
    await desk.write_elsewhere("t2", NEW, NEW.replace("three", "THREE"))
    assert await count_reads(lambda: desk.change(NEW.replace("three", "THREE"))) == 0
    assert await count_reads(desk.hover) == 1
    assert (desk.find(1), desk.find(2)) == ("t1", "t2")
    assert await count_reads(desk.hover) == 0
    desk.close()
    assert await count_reads(lambda: desk.open(NEW.replace("three", "THREE"))) == 1
    assert (desk.find(0), desk.find(1), desk.find(2)) == (None, "t1", "t2")
    desk.close()
    await desk.write_elsewhere("t3", "b\n", "B\n", uri=f"{desk.uri}x")
    assert await count_reads(lambda: desk.open("one\nmine\nthree\n")) == 1
    assert (desk.find(1), desk.find(2)) == (None, None)


async def test_text_that_is_gone_or_too_long_is_not_attributed(desk: Desk) -> None:
    await desk.write_elsewhere("t1", None, NEW)
    await desk.write_elsewhere("t2", NEW, None)
    await desk.write_elsewhere("t3", OLD, NEW.replace("TWO", "2"))
    desk.open(OLD)
    await desk.looked_up()
    assert [desk.find(line) for line in range(3)] == ["t1", None, "t1"]
    desk.close()
    desk.open(NEW + "x" * 2_000_000)
    await desk.looked_up()
    assert desk.find() is None


@pytest.mark.parametrize("act", ["undo", "delete", "close", "type"])
async def test_what_happens_while_the_store_reads_wins(desk: Desk, act: str) -> None:
    await desk.write_elsewhere("t1", OLD, NEW)
    await desk.assistant.ledger.refresh()
    desk.open(NEW)
    ledger = desk.assistant.ledger
    if act == "undo":
        turn = await desk.other.find_written_turn(desk.workspace, "t1")
        assert turn is not None
        await ledger.record_undone(plan_undo(turn, ""), [desk.uri])
    elif act == "delete":
        ledger.forget(desk.session_id)
        await desk.other.delete(desk.session_id, desk.workspace)
    elif act == "close":
        desk.close()
        desk.open(NEW.replace("TWO", "mine"))
    else:
        desk.change("zero\n" + NEW)
    await desk.looked_up()
    await desk.hover()
    await desk.looked_up()
    assert [desk.find(line) for line in (1, 2)] == [None, "t1" if act == "type" else None]


async def test_an_undo_while_the_ledger_is_read_counts(desk: Desk) -> None:
    ledger = desk.assistant.ledger
    for steps in range(12):
        await desk.write_elsewhere(f"t{steps}", OLD, NEW)
        await ledger.refresh()
        turn = await desk.other.find_written_turn(desk.workspace, f"t{steps}")
        assert turn is not None
        assert ledger.has_written(turn.turn_id)
        await desk.write_elsewhere(f"u{steps}", OLD, NEW, uri=f"{desk.uri}x")
        reading = asyncio.create_task(ledger.refresh())
        for _ in range(steps):
            await asyncio.sleep(0)
        await ledger.record_undone(plan_undo(turn, ""), [desk.uri])
        await reading
        assert (ledger.has_written(turn.turn_id), ledger.has_written(f"u{steps}")) == (False, True)


async def test_the_connections_own_turns_are_attributed_once(desk: Desk) -> None:
    ledger, state = desk.assistant.ledger, desk.editor.server.state
    file = FileEdit(desk.uri, "a.py", OLD, NEW)
    await desk.write_elsewhere("t1", "one\n", OLD)
    desk.open(OLD)
    await desk.looked_up()
    session = await desk.assistant.engine.store.update(
        (await desk.assistant.engine.store.create(desk.workspace)).id, full_session
    )
    desk.change(NEW)
    await ledger.record_taken(PendingEdit("mine", session.id, "fix a.py", (file,)), (file,))
    await desk.write_elsewhere("t2", NEW, NEW + "four\n")
    desk.change(NEW + "four\n")
    await desk.hover()
    await desk.looked_up()
    assert [desk.find(line) for line in range(4)] == [None, "mine", "t1", "t2"]
    assert desk.assistant.ledger.find_undoable_turn(desk.uri).turn_id == "t2"
    [document] = state.documents.list_documents()
    assert ledger.attribution.find_newest(document)[0].turn.title == "fix a.py"

    await desk.undo_elsewhere("mine")
    await desk.undo_elsewhere("t2")
    await desk.hover()
    await desk.looked_up()
    assert [desk.find(line) for line in range(4)] == [None, None, "t1", None]
    assert not ledger.has_written("mine")
    assert ledger.find_undoable_turn(desk.uri).turn_id == "t1"


async def test_a_lookup_without_a_store_is_logged(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="thinklsp.lsp.edits.edit_ledger")
    await desk.assistant.engine.store.aclose()
    desk.open(NEW)
    await desk.looked_up()
    assert "cannot look up the edits of a document: The session store is closed." in caplog.text
    assert desk.find() is None
