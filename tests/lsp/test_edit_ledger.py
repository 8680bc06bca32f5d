"""The ledger of one connection: what it says of edits without an answer, and what it does without a store."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import InProcess, in_process
from tests.support.stored_sessions import full_session, opened
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import SessionError
from thinklsp.lsp.editor.present import Present
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.arrival import Arrivals
from thinklsp.lsp.edits.drafts import Draft, Proposal
from thinklsp.lsp.edits.ledger import EditLedger, standing
from thinklsp.lsp.edits.proposals import Kept
from thinklsp.lsp.edits.sent_edit import SentEdit
from thinklsp.lsp.edits.undoing import undo_of
from thinklsp.sessions.ledger import Intent, LedgerEntry, Outcome, PlannedWrite, sha256
from thinklsp.workspace.paths import workspace_key

OLD, NEW = "one\n", "two\n"


def entry(before: str | None, after: str | None, new_uri: str | None = None) -> LedgerEntry:
    write = PlannedWrite("file:///a", "a", before, after, new_uri=new_uri)
    return LedgerEntry(write, sha256(before), sha256(after), None, False, datetime.now(UTC))


# Before and after of an edit, the text that is there now (of a rename: under both names) -> what came of the edit.
STANDING: list[tuple[LedgerEntry, tuple[str | None, ...], Outcome]] = [
    (entry(OLD, NEW), (NEW,), "applied"),
    (entry(OLD, NEW), ("two\r\n",), "applied"),
    (entry(OLD, NEW), (OLD,), "refused"),
    (entry(OLD, NEW), ("one\r\n",), "refused"),
    (entry(OLD, NEW), ("three\n",), "unknown"),
    (entry(OLD, NEW), (None,), "unknown"),
    (entry(None, NEW), (None,), "refused"),
    (entry(OLD, None), (None,), "applied"),
    # An edit of nothing but the form cannot be told from an editor that changes it.
    (entry(OLD, "one\r\n"), ("one",), "unknown"),
    (entry(OLD, "one\r\n"), ("one\r\n",), "applied"),
    (entry(OLD, NEW, "file:///b"), (None, NEW), "applied"),
    (entry(OLD, NEW, "file:///b"), (OLD, None), "refused"),
    (entry(OLD, NEW, "file:///b"), (OLD, NEW), "unknown"),
    (entry(OLD, NEW, "file:///b"), (None, None), "unknown"),
]


@pytest.mark.parametrize(("written", "now", "outcome"), STANDING)
def test_what_the_files_say_about_an_edit(written: LedgerEntry, now: tuple[str | None, ...], outcome: Outcome) -> None:
    assert standing(written, *now) == outcome


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

    def kept(self, turn_id: str = "t", **more: Any) -> Kept:
        return Kept(turn_id, self.session_id, "fix a.py", (self.file,), **more)

    def sent(self, version: int | None = None) -> SentEdit:
        """Its edit, made for a document of this version, or for a file that is not open."""
        present = Present(OLD, version)
        made = Draft((Proposal(self.file, present, NEW),), ())
        state = self.editor.server.state

        def never(*_: object) -> Any:
            raise AssertionError("it was sent")

        arrivals = Arrivals(state, self.snapshots)
        return SentEdit(state, self.ledger, arrivals, self.kept(), made, {self.file.uri: present}, {}, never, never)

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
        face = await editor.server.state.load_face()
        # The server's own has begun by then, and says nothing any more.
        await face.begin()
        ledger = EditLedger(editor.server.state, face._snapshots, face.engine)
        made = Desk(editor, ledger, face._snapshots, face.engine.store, folder)
        session = await made.store.create(workspace_key(folder.as_uri()))
        made.session_id = (await made.store.update(session.id, full_session)).id
        yield made


async def test_an_edit_that_the_user_took_is_found_once(desk: Desk) -> None:
    await desk.ledger.begin()
    kept = desk.kept()
    for _ in range(2):
        await desk.ledger.found(kept, kept.files)
    turn = await desk.ledger.to_undo("t")
    assert turn is not None
    assert [[one.write.uri for one in edit.entries] for edit in turn.edits] == [[desk.file.uri]]
    undo = undo_of(turn, "fix a.py")
    await desk.ledger.found(desk.kept("u", undoes=undo), kept.files)
    assert not desk.ledger.has_written("u"), "an undo is nothing that could be undone"
    await desk.ledger.undone(undo, ["file:///elsewhere"])
    assert await desk.ledger.to_undo("t") == turn
    await desk.ledger.undone(undo, [desk.file.uri])
    assert await desk.ledger.to_undo("t") is None
    assert desk.ledger.written_for(desk.file.uri) is None


async def test_what_was_written_while_it_was_read_is_the_newest(desk: Desk) -> None:
    intent = await desk.ledger.intend(desk.kept("t1"), desk.sent().made.ready)
    await desk.ledger.settle(intent, {desk.file.uri: "applied"})
    desk.ledger.wrote(desk.kept("t2"), (desk.file,))
    await desk.ledger.begin()
    newest = desk.ledger.written_for(desk.file.uri)
    assert newest is not None
    assert newest.turn_id == "t2"
    assert desk.ledger.has_written("t1")


@pytest.mark.parametrize("case", ["abandoned", "closed", "opened", "typed in"])
async def test_an_edit_that_nobody_wants_as_it_is_does_not_leave(desk: Desk, case: str) -> None:
    opening = {"uri": desk.file.uri, "languageId": "python", "version": 1, "text": OLD}
    if case in ("opened", "typed in"):
        desk.editor.notify("textDocument/didOpen", {"textDocument": opening})
    if case == "typed in":
        change = {"textDocument": {"uri": desk.file.uri, "version": 2}, "contentChanges": [{"text": "typed"}]}
        desk.editor.notify("textDocument/didChange", change)
    sent = desk.sent(version=None if case in ("abandoned", "opened") else 1)
    sent.abandoned = case == "abandoned"
    assert await sent.run() is None
    await sent.abandon()
    assert await desk.ledger.to_undo(None) is None
    async with opened(desk.folder.parent / "state") as later:
        assert await later.unknown_edits(workspace_key(desk.folder.as_uri())) == (), "it is settled"


@pytest.mark.parametrize("arrived", [True, False])
async def test_an_undo_that_was_on_its_way_when_its_process_died(desk: Desk, arrived: bool) -> None:
    workspace = workspace_key(desk.folder.as_uri())
    change = PlannedWrite(desk.file.uri, "a.py", OLD, NEW)
    back = PlannedWrite(desk.file.uri, "a.py", NEW, OLD)
    async with opened(desk.folder.parent / "state") as gone:
        session = await gone.update((await gone.create(workspace)).id, full_session)
        await gone.settle(await gone.intend(session.id, workspace, "t", [change]), {change.uri: "applied"})
        await gone.intend(session.id, workspace, "t", [back], undo=True)
    (desk.folder / "a.py").write_text(OLD if arrived else NEW)
    turn = await desk.ledger.to_undo("t")
    await desk.editor.settled()
    [told] = desk.warnings()
    assert re.match(r"The undo of “a\.py \(\d\d:\d\d\)” was on its way when thinklsp ended: it ", told)
    assert ("looks applied in a.py" in told, turn is None) == (arrived, arrived)


async def test_without_its_store_the_ledger_costs_nothing_else(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    intent = await desk.ledger.intend(desk.kept(), desk.sent().made.ready)
    await desk.ledger.settle(intent, {desk.file.uri: "applied"})
    turn = await desk.store.last_written(workspace_key(desk.folder.as_uri()))
    await desk.store.aclose()
    await desk.ledger.begin()
    with pytest.raises(SessionError):
        await desk.ledger.to_undo("t")
    with pytest.raises(SessionError, match=r"The session store is closed\. Start the server again\."):
        await desk.sent().run()
    never_sent = desk.sent()
    await never_sent.settle({})
    assert never_sent.intent is None
    await desk.ledger.settle(Intent("e", desk.session_id), {desk.file.uri: "applied"})
    await desk.ledger.found(desk.kept(), (desk.file,))
    assert desk.ledger.written_for(desk.file.uri) is None
    assert desk.ledger.title_of(turn) == f"a.py ({turn.edits[0].entries[0].made.astimezone():%H:%M})"
    await desk.ledger.undone(undo_of(turn, "it"), [desk.file.uri])
    await desk.editor.settled()
    assert desk.warnings()[-1].startswith("The session of the undone turn could not be told of the undo: ")
    for said in ("the ledger of edits cannot be read", "the outcome of an edit could not be", "that the user took"):
        assert said in caplog.text
