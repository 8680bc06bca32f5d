"""Edits that a killed process has sent. Nobody knows whether they were applied, until the files show it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from thinklsp.engine.edit_records import classify_unconfirmed
from thinklsp.engine.merge_plan import FileState
from thinklsp.sessions.ledger import LedgerEdit, LedgerEntry, WriteOutcome
from thinklsp.sessions.store import SessionStore

ReadState = Callable[[str], Awaitable[FileState]]


async def settle_unconfirmed(
    store: SessionStore, workspace: str, edit: LedgerEdit, read_state: ReadState, *, only_applied: bool = False
) -> Mapping[str, WriteOutcome]:
    """Compare an edit with the current files, record its outcome, and return the outcomes by URI.

    With `only_applied`, the outcome is recorded only if all files were changed. If the edit is an undo, the files that
    it has restored are marked as undone. Raises SessionError.
    """
    outcomes = {entry.write.uri: await _find_outcome(entry, read_state) for entry in edit.entries}
    if only_applied and set(outcomes.values()) != {"applied"}:
        return outcomes
    await store.settle_edit(edit.intent, outcomes)
    if is_undo(edit):
        restored = [uri for uri, outcome in outcomes.items() if outcome == "applied"]
        await _mark_undone(store, workspace, edit.turn_id, restored)
    return outcomes


def is_undo(edit: LedgerEdit) -> bool:
    return all(entry.undone for entry in edit.entries)


async def _find_outcome(entry: LedgerEntry, read_state: ReadState) -> WriteOutcome:
    uris = [entry.write.uri] if entry.write.new_uri is None else [entry.write.uri, entry.write.new_uri]
    states = [await read_state(uri) for uri in uris]
    is_readable = all(state.refusal is None and not state.is_desynced for state in states)
    return classify_unconfirmed(entry, *(state.text for state in states)) if is_readable else "unknown"


async def _mark_undone(store: SessionStore, workspace: str, turn_id: str, restored: Iterable[str]) -> None:
    """Mark the changes of a turn as undone in these files, which may have been renamed by the turn."""
    uris = set(restored)
    turn = await store.find_written_turn(workspace, turn_id) if uris else None
    if turn is None:
        return
    current = {entry.write.uri: entry.write.new_uri or entry.write.uri for edit in turn.edits for entry in edit.entries}
    await store.mark_undone(turn, [uri for uri, now in current.items() if now in uris])
