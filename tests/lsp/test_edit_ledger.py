"""The ledger of one connection: edits without an answer, a missing store, and what takes a turn's edits back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import InProcess, in_process
from tests.support.stored_sessions import full_session, opened
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import SessionError
from thinklsp.engine.merge_plan import FileState, MergedFile, plan_undo
from thinklsp.lsp.editor.client import ApplyReply, ClientFeatures
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.edit_applier import EditApplier
from thinklsp.lsp.edits.edit_ledger import EditLedger
from thinklsp.lsp.edits.pending_edits import PendingEdit
from thinklsp.sessions.ledger import EditIntent, PlannedWrite
from thinklsp.workspace.paths import compute_workspace_key

OLD, NEW = "one\n", "two\n"


@dataclass(slots=True)
class Desk:
    editor: InProcess
    ledger: EditLedger
    snapshots: Snapshots
    store: Any
    folder: Path
    session_id: str = ""

    @property
    def file(self) -> FileEdit:
        return FileEdit((self.folder / "a.py").as_uri(), "a.py", OLD, NEW)

    @property
    def workspace(self) -> str:
        return compute_workspace_key(self.folder.as_uri())

    @property
    def files(self) -> tuple[MergedFile, ...]:
        return (MergedFile(self.file, FileState(OLD), NEW),)

    def kept(self, turn_id: str = "t", **more: Any) -> PendingEdit:
        return PendingEdit(turn_id, self.session_id, "fix a.py", (self.file,), **more)

    def warnings(self) -> list[str]:
        shown = (message for message in self.editor.received if message.get("method") == "window/showMessage")
        return [message["params"]["message"] for message in shown]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "a.py").write_text(OLD)
    environment = {"THINKLSP_CONFIG": "/nonexistent/config.toml", "THINKLSP_STATE_DIR": str(tmp_path / "state")}
    async with in_process(environment) as editor:
        await editor.initialize(root=folder)
        assistant = await editor.server.load()
        # The server's own has begun by then, and says nothing any more.
        await assistant.ledger.load()
        ledger = EditLedger(editor.server.state, assistant.snapshots, assistant.engine)
        made = Desk(editor, ledger, assistant.snapshots, assistant.engine.store, folder)
        session = await made.store.create(made.workspace)
        made.session_id = (await made.store.update(session.id, full_session)).id
        yield made


async def test_an_edit_that_the_user_took_is_found_once(desk: Desk) -> None:
    await desk.ledger.load()
    kept = desk.kept()
    for _ in range(2):
        await desk.ledger.record_taken(kept, kept.files)
    turn = await desk.ledger.find_turn_to_undo("t")
    assert turn is not None
    assert [[one.write.uri for one in edit.entries] for edit in turn.edits] == [[desk.file.uri]]
    undo = plan_undo(turn, "fix a.py")
    await desk.ledger.record_taken(desk.kept("u", undo=undo), kept.files)
    assert not desk.ledger.has_written("u"), "an undo is nothing that could be undone"
    await desk.ledger.record_undone(undo, ["file:///elsewhere"])
    assert await desk.ledger.find_turn_to_undo("t") == turn
    await desk.ledger.record_undone(undo, [desk.file.uri])
    assert await desk.ledger.find_turn_to_undo("t") is None
    assert desk.ledger.find_undoable_turn(desk.file.uri) is None


async def test_what_was_written_while_it_was_read_is_the_newest(desk: Desk) -> None:
    loading = asyncio.create_task(desk.ledger.load())
    for turn_id in ("t1", "t2"):
        intent = await desk.ledger.record_intent(desk.kept(turn_id), desk.files)
        await desk.ledger.settle(intent, {desk.file.uri: "applied"})
        desk.ledger.record_written(desk.kept(turn_id), intent, (desk.file,))
    await loading
    newest = desk.ledger.find_undoable_turn(desk.file.uri)
    assert newest is not None
    assert newest.turn_id == "t2"
    assert desk.ledger.has_written("t1")


# What happens while an edit is recorded -> the versions of the document in the edits that are sent.
RACES: dict[str, list[int | None]] = {"cancelled": [], "closed": [None], "opened": [1], "typed in": [2]}


@pytest.mark.parametrize("case", RACES)
async def test_an_edit_does_not_leave_for_an_earlier_text(
    desk: Desk, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, sent, recorded = desk.editor.server, [], []
    opening = {"uri": desk.file.uri, "languageId": "python", "version": 1, "text": OLD}
    if case in ("closed", "typed in"):
        desk.editor.notify("textDocument/didOpen", {"textDocument": opening})

    def act() -> None:
        if case == "cancelled":
            task.cancel()
        elif case == "opened":
            desk.editor.notify("textDocument/didOpen", {"textDocument": opening})
        elif case == "closed":
            desk.editor.notify("textDocument/didClose", {"textDocument": {"uri": desk.file.uri}})
        else:
            change = {"textDocument": {"uri": desk.file.uri, "version": 2}, "contentChanges": [{"text": OLD}]}
            desk.editor.notify("textDocument/didChange", change)

    async def record_intent(*given: Any) -> Any:
        recorded.append(await EditLedger.record_intent(desk.ledger, *given))
        if len(recorded) == 1:
            act()
            await asyncio.sleep(0)
        return recorded[-1]

    async def apply_edit(_label: str, edit: Any, _on_request_id: Any) -> ApplyReply:
        sent.append(edit.document_changes[0].text_document.version)
        return ApplyReply(False)

    monkeypatch.setattr(desk.ledger, "record_intent", record_intent)
    monkeypatch.setattr(server.state.client, "apply_edit", apply_edit)
    monkeypatch.setattr(server.state.client, "features", ClientFeatures(apply_edit=True, document_changes=True))
    task = asyncio.create_task(EditApplier(server.state, desk.snapshots, desk.ledger).apply(desk.kept()))
    await asyncio.wait([task])
    await desk.editor.settled()
    assert (sent, task.cancelled()) == (RACES[case], case == "cancelled")
    async with opened(desk.folder.parent / "state") as later:
        assert await later.list_unknown_edits(desk.workspace) == (), "every edit is settled"


async def test_a_late_answer_is_checked_before_the_edit_is_sent_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user asks for the edit again while the editor has answered and its changes may still arrive."""
    client, has_come, may_answer, sent = desk.editor.server.state.client, asyncio.Event(), asyncio.Event(), []

    async def apply_edit(_label: str, edit: Any, _on_request_id: Any) -> ApplyReply:
        sent.append(edit)
        has_come.set()
        await may_answer.wait()
        return ApplyReply(True)

    monkeypatch.setattr(client, "apply_edit", apply_edit)
    monkeypatch.setattr(client, "features", ClientFeatures(apply_edit=True, document_changes=True))
    applier = EditApplier(desk.editor.server.state, desk.snapshots, desk.ledger)
    task = asyncio.create_task(applier.apply(desk.kept()))
    await has_come.wait()
    task.cancel()
    await asyncio.wait([task])
    may_answer.set()
    for _ in range(2):
        [file] = (await applier.apply(desk.kept())).files
        assert (file.status, len(sent)) == ("unknown", 1)
    (desk.folder / "a.py").write_text(NEW)
    [file] = (await applier.apply(desk.kept())).files
    assert (file.status, len(sent)) == ("applied", 1)


@pytest.mark.parametrize("arrived", [True, False])
async def test_an_undo_that_was_on_its_way_when_its_process_died(desk: Desk, arrived: bool) -> None:
    change, back = (PlannedWrite(desk.file.uri, "a.py", *texts) for texts in ((OLD, NEW), (NEW, OLD)))
    async with opened(desk.folder.parent / "state") as gone:
        session = await gone.update((await gone.create(desk.workspace)).id, full_session)
        await gone.settle_edit(
            await gone.record_intent(session.id, desk.workspace, "t", [change]), {change.uri: "applied"}
        )
        await gone.record_intent(session.id, desk.workspace, "t", [back], is_undo=True)
    (desk.folder / "a.py").write_text(OLD if arrived else NEW)
    turn = await desk.ledger.find_turn_to_undo("t")
    await desk.editor.settled()
    [told] = desk.warnings()
    assert re.match(r"thinklsp stopped while the undo of “a\.py \(\d\d:\d\d\)” was being applied\. It ", told)
    assert ("appears to be applied in a.py" in told, turn is None) == (arrived, arrived)


async def test_without_its_store_the_ledger_costs_nothing_else(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    intent = await desk.ledger.record_intent(desk.kept(), desk.files)
    await desk.ledger.settle(intent, {desk.file.uri: "applied"})
    turn = await desk.store.find_written_turn(desk.workspace)
    await desk.store.aclose()
    await desk.ledger.load()
    with pytest.raises(SessionError):
        await desk.ledger.find_turn_to_undo("t")
    with pytest.raises(SessionError, match=r"The session store is closed\. Restart the server\."):
        await desk.ledger.record_intent(desk.kept(), desk.files)
    await desk.ledger.settle(EditIntent("e", desk.session_id), {desk.file.uri: "applied"})
    await desk.ledger.record_taken(desk.kept(), (desk.file,))
    assert desk.ledger.find_undoable_turn(desk.file.uri) is None
    assert desk.ledger.find_title(turn) == f"a.py ({turn.edits[0].entries[0].created.astimezone():%H:%M})"
    await desk.ledger.record_undone(plan_undo(turn, "it"), [desk.file.uri])
    await desk.editor.settled()
    assert desk.warnings()[-1].startswith("Could not record the undo in its session: ")
    for said in ("cannot read the edit ledger", "the outcome of an edit could not be", "that the user applied"):
        assert said in caplog.text
