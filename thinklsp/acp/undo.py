"""The undo of a turn, through the same writer as its edit, and the edits that a killed process has left."""

from __future__ import annotations

from collections.abc import Sequence

from thinklsp.acp.edit_writer import EditOrigin, EditWriter
from thinklsp.acp.session_folders import ClientFiles
from thinklsp.core.errors import TurnRefused
from thinklsp.engine import Engine
from thinklsp.engine.edit_records import build_files_title, settle_unconfirmed
from thinklsp.engine.merge_plan import UndoPlan, plan_undo
from thinklsp.engine.results import FileStatus
from thinklsp.sessions.ledger import WrittenTurn

_NOTHING_TO_UNDO = "Nothing to undo: no turn of this session has changed a file, or every change was undone already."


async def settle_killed_edits(engine: Engine, files: ClientFiles, workspace: str, *, asks_client: bool = True) -> None:
    """Record whether the edits that killed processes have sent were applied. Raises SessionError.

    A client answers only during a prompt. Without its texts, only edits that the files on disk contain are recorded.
    """
    read_state = files.read_state if asks_client else files.read_disk_state
    for edit in await engine.store.list_unknown_edits(workspace):
        await settle_unconfirmed(engine.store, workspace, edit, read_state, only_applied=not asks_client)


async def undo_last_turn(
    engine: Engine, writer: EditWriter, files: ClientFiles, workspace: str, session_id: str
) -> tuple[FileStatus, ...]:
    """Undo the newest turn of the session that wrote files. Later changes of the user are kept.

    Raises TurnRefused if there is nothing to undo.
    """
    await settle_killed_edits(engine, files, workspace)
    turn = await engine.store.find_written_turn(workspace, None, session_id)
    if turn is None:
        raise TurnRefused(_NOTHING_TO_UNDO)
    entries = [entry for edit in turn.edits for entry in edit.entries]
    plan = plan_undo(turn, build_files_title([entry.write.path for entry in entries], entries[-1].created))
    origin = EditOrigin(turn.turn_id, session_id, is_undo=True)
    statuses: list[FileStatus] = []
    try:
        await writer.write(origin, plan.files, lambda _: False, statuses)
    finally:
        await _record(engine, session_id, turn, plan, statuses)
    return (*statuses, *plan.rejected)


async def _record(
    engine: Engine, session_id: str, turn: WrittenTurn, plan: UndoPlan, statuses: Sequence[FileStatus]
) -> None:
    """Record the files that have their earlier text again, also after a cancel."""
    undone = [uri for status in statuses if status.status == "applied" for uri in plan.ledger_uris.get(status.uri, ())]
    if undone:
        await engine.store.mark_undone(turn, undone)
        await engine.record_undo(session_id)
