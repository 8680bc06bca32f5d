"""The ledger of a connection: edits without an answer, races, a missing store, and the edits of other processes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import InProcess, in_process
from tests.support.stored_sessions import connection_of, full_session, opened
from tests.support.watching import HANG_SECONDS
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import SessionError
from thinklsp.engine.merge_plan import FileState, MergedFile, plan_undo
from thinklsp.lsp.edits.edit_applier import EditApplier
from thinklsp.lsp.edits.edit_ledger import EditLedger
from thinklsp.lsp.edits.pending_edits import PendingEdit
from thinklsp.sessions.ledger import EditIntent, PlannedWrite
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.workspace.paths import compute_workspace_key

OLD, NEW = "one\ntwo\nthree\n", "one\nTWO\nthree\n"


@dataclass(slots=True)
class Desk:
    """An editor with its server and a session of it, and the store of another process with a session of that."""

    editor: InProcess
    assistant: Any
    ledger: EditLedger
    other: SqliteStore
    folder: Path
    session_id: str
    other_session_id: str

    @property
    def uri(self) -> str:
        return (self.folder / "a.py").as_uri()

    @property
    def file(self) -> FileEdit:
        return FileEdit(self.uri, "a.py", OLD, NEW)

    @property
    def files(self) -> tuple[MergedFile, ...]:
        return (MergedFile(self.file, FileState(OLD), NEW),)

    def kept(self, turn_id: str = "t", **more: Any) -> PendingEdit:
        return PendingEdit(turn_id, self.session_id, "fix a.py", (self.file,), **more)

    def renew_ledger(self) -> None:
        """Replace the ledger by one that has not been loaded yet."""
        self.ledger = EditLedger(self.editor.server.state, self.assistant.snapshots, self.assistant.engine)

    def warnings(self) -> list[str]:
        shown = (message for message in self.editor.received if message.get("method") == "window/showMessage")
        return [message["params"]["message"] for message in shown]

    def edits(self) -> list[Any]:
        """Return the params of the edits that the editor was sent."""
        return [m["params"] for m in self.editor.received if m.get("method") == "workspace/applyEdit"]

    async def answer_edit(self, number: int, *, applied: bool) -> None:
        await self.editor.wait_for(lambda: len(self.edits()) > number, what="an edit")
        requests = [m for m in self.editor.received if m.get("method") == "workspace/applyEdit"]
        self.editor.send({"jsonrpc": "2.0", "id": requests[number]["id"], "result": {"applied": applied}})

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
        origin = self.ledger.attribution.find_attribution(document, line, 0)
        return None if origin is None else str(origin.turn.turn_id)

    async def hover(self) -> None:
        self.editor.request(
            "h", "textDocument/hover", {"textDocument": {"uri": self.uri}, "position": {"line": 0, "character": 0}}
        )
        self.editor.received.remove(await self.editor.answer("h"))

    async def looked_up(self) -> None:
        """Wait until the lookups that were requested so far have ended."""
        await self.editor.settled()
        async with asyncio.timeout(HANG_SECONDS), self.ledger._lookup_lock:
            pass

    async def write_elsewhere(self, turn_id: str, before: str | None, after: str | None, **more: Any) -> None:
        write = PlannedWrite(more.get("uri", self.uri), "a.py", before, after)
        intent = await self.other.record_intent(self.other_session_id, self.workspace, turn_id, (write,))
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
    (folder / "a.py").write_text(OLD)
    async with opened(tmp_path / "state") as other, in_process(environment) as editor:
        edits = {"applyEdit": True, "workspaceEdit": {"documentChanges": True}}
        await editor.initialize({"workspace": edits}, root=folder)
        assistant = await editor.server.load()
        await assistant.ledger.load()
        sessions = []
        for store in (assistant.engine.store, other):
            session = await store.create(compute_workspace_key(folder.as_uri()))
            sessions.append((await store.update(session.id, full_session)).id)
        yield Desk(editor, assistant, assistant.ledger, other, folder, *sessions)


async def test_an_edit_that_the_user_took_is_found_once(desk: Desk) -> None:
    kept = desk.kept()
    for _ in range(2):
        await desk.ledger.record_taken(kept, kept.files)
    turn = await desk.ledger.find_turn_to_undo("t")
    assert turn is not None
    assert [[one.write.uri for one in edit.entries] for edit in turn.edits] == [[desk.uri]]
    undo = plan_undo(turn, "fix a.py")
    await desk.ledger.record_taken(desk.kept("u", undo=undo), kept.files)
    assert not desk.ledger.has_written("u"), "an undo is nothing that could be undone"
    await desk.ledger.record_undone(undo, ["file:///elsewhere"])
    assert await desk.ledger.find_turn_to_undo("t") == turn
    await desk.ledger.record_undone(undo, [desk.uri])
    assert await desk.ledger.find_turn_to_undo("t") is None
    assert desk.ledger.find_undoable_turn(desk.uri) is None


async def test_what_was_written_while_it_was_read_is_the_newest(desk: Desk) -> None:
    desk.renew_ledger()
    loading = asyncio.create_task(desk.ledger.load())
    for turn_id in ("t1", "t2"):
        intent = await desk.ledger.record_intent(desk.kept(turn_id), desk.files)
        await desk.ledger.settle(intent, {desk.uri: "applied"})
        desk.ledger.record_written(desk.kept(turn_id), intent, (desk.file,))
    await loading
    newest = desk.ledger.find_undoable_turn(desk.uri)
    assert newest is not None
    assert newest.turn_id == "t2"
    assert desk.ledger.has_written("t1")


# What happens while an edit is recorded -> the versions of the document in the edits that are sent.
RACES: dict[str, list[int | None]] = {"cancelled": [], "closed": [None], "opened": [1], "typed in": [2]}


class RacingLedger(EditLedger):
    """A ledger during whose first entry something happens."""

    happen: Callable[[], object] | None = None

    async def record_intent(self, pending: PendingEdit, files: Sequence[MergedFile]) -> EditIntent:
        intent = await super().record_intent(pending, files)
        if (happen := self.happen) is not None:
            self.happen = None
            happen()
            await asyncio.sleep(0)
        return intent


@pytest.mark.parametrize("case", RACES)
async def test_an_edit_does_not_leave_for_an_earlier_text(desk: Desk, case: str) -> None:
    state, snapshots = desk.editor.server.state, desk.assistant.snapshots
    if case in ("closed", "typed in"):
        desk.open(OLD)
    ledger = RacingLedger(state, snapshots, desk.assistant.engine)
    task = asyncio.create_task(EditApplier(state, snapshots, ledger).apply(desk.kept()))
    ledger.happen = {
        "cancelled": task.cancel,
        "opened": lambda: desk.open(OLD),
        "closed": desk.close,
        "typed in": lambda: desk.change(OLD),
    }[case]
    for number in range(len(RACES[case])):
        await desk.answer_edit(number, applied=False)
    await asyncio.wait([task])
    await desk.editor.settled()
    versions = [edit["edit"]["documentChanges"][0]["textDocument"]["version"] for edit in desk.edits()]
    assert (versions, task.cancelled()) == (RACES[case], case == "cancelled")
    async with opened(desk.folder.parent / "state") as later:
        assert await later.list_unknown_edits(desk.workspace) == (), "every edit is settled"


async def test_a_late_answer_is_checked_before_the_edit_is_sent_again(desk: Desk) -> None:
    """The user asks for the edit again while the editor has answered and its changes may still arrive."""
    applier = desk.assistant.edit_applier
    task = asyncio.create_task(applier.apply(desk.kept()))
    await desk.editor.wait_for(desk.edits, what="the edit")
    task.cancel()
    await asyncio.wait([task])
    await desk.answer_edit(0, applied=True)
    for _ in range(2):
        [file] = (await applier.apply(desk.kept())).files
        assert (file.status, len(desk.edits())) == ("unknown", 1)
    (desk.folder / "a.py").write_text(NEW)
    [file] = (await applier.apply(desk.kept())).files
    assert (file.status, len(desk.edits())) == ("applied", 1)


@pytest.mark.parametrize("arrived", [True, False])
async def test_an_undo_that_was_on_its_way_when_its_process_died(desk: Desk, arrived: bool) -> None:
    change, back = (PlannedWrite(desk.uri, "a.py", *texts) for texts in ((OLD, NEW), (NEW, OLD)))
    async with opened(desk.folder.parent / "state") as gone:
        session = await gone.update((await gone.create(desk.workspace)).id, full_session)
        await gone.settle_edit(
            await gone.record_intent(session.id, desk.workspace, "t", [change]), {change.uri: "applied"}
        )
        await gone.record_intent(session.id, desk.workspace, "t", [back], is_undo=True)
    (desk.folder / "a.py").write_text(OLD if arrived else NEW)
    desk.renew_ledger()
    turn = await desk.ledger.find_turn_to_undo("t")
    await desk.editor.settled()
    [told] = desk.warnings()
    assert re.match(r"thinklsp stopped while the undo of “a\.py \(\d\d:\d\d\)” was being applied\. It ", told)
    assert ("appears to be applied in a.py" in told, turn is None) == (arrived, arrived)


async def test_without_its_store_the_ledger_costs_nothing_else(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    intent = await desk.ledger.record_intent(desk.kept(), desk.files)
    await desk.ledger.settle(intent, {desk.uri: "applied"})
    turn = await desk.assistant.engine.store.find_written_turn(desk.workspace)
    await desk.assistant.engine.store.aclose()
    desk.renew_ledger()
    await desk.ledger.load()
    with pytest.raises(SessionError):
        await desk.ledger.find_turn_to_undo("t")
    with pytest.raises(SessionError, match=r"The session store is closed\. Restart the server\."):
        await desk.ledger.record_intent(desk.kept(), desk.files)
    await desk.ledger.settle(EditIntent("e", desk.session_id), {desk.uri: "applied"})
    await desk.ledger.record_taken(desk.kept(), (desk.file,))
    assert desk.ledger.find_undoable_turn(desk.uri) is None
    assert desk.ledger.find_title(turn) == f"a.py ({turn.edits[0].entries[0].created.astimezone():%H:%M})"
    await desk.ledger.record_undone(plan_undo(turn, "it"), [desk.uri])
    await desk.editor.settled()
    assert desk.warnings()[-1].startswith("Could not record the undo in its session: ")
    for said in ("cannot read the edit ledger", "the outcome of an edit could not be", "that the user applied"):
        assert said in caplog.text


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


async def test_text_that_arrives_after_a_lookup_is_attributed(desk: Desk) -> None:
    """Another process records its edit before the editor reports the new text."""
    desk.open(OLD)
    await desk.write_elsewhere("t1", OLD, NEW)
    await desk.hover()
    await desk.looked_up()
    assert desk.find() is None
    desk.change(NEW)
    await desk.hover()
    await desk.looked_up()
    assert desk.find() == "t1"


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
    await desk.ledger.refresh()
    desk.open(NEW)
    ledger = desk.ledger
    if act == "undo":
        turn = await desk.other.find_written_turn(desk.workspace, "t1")
        assert turn is not None
        await ledger.record_undone(plan_undo(turn, ""), [desk.uri])
    elif act == "delete":
        ledger.forget(desk.other_session_id)
        await desk.other.delete(desk.other_session_id, desk.workspace)
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
    ledger = desk.ledger
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
    ledger, state = desk.ledger, desk.editor.server.state
    await desk.write_elsewhere("t1", "one\n", OLD)
    desk.open(OLD)
    await desk.looked_up()
    desk.change(NEW)
    await ledger.record_taken(desk.kept("mine"), (desk.file,))
    await desk.write_elsewhere("t2", NEW, NEW + "four\n")
    desk.change(NEW + "four\n")
    await desk.hover()
    await desk.looked_up()
    assert [desk.find(line) for line in range(4)] == [None, "mine", "t1", "t2"]
    assert desk.ledger.find_undoable_turn(desk.uri).turn_id == "t2"
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
