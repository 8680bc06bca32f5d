"""The parts of the edit ledger that every front end needs: records of file edits, their titles and their outcome.

An edit that a killed process has sent may or may not have been applied, until the files show it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime

from thinklsp.core.edits import FileEdit
from thinklsp.engine.merge_plan import FileState
from thinklsp.sessions.ledger import LedgerEdit, LedgerEntry, PlannedWrite, WriteOutcome, WrittenTurn
from thinklsp.sessions.store import SessionStore
from thinklsp.workspace.merge import is_equal_ignoring_format

_MAX_NAMES = 8


def to_planned_write(file: FileEdit) -> PlannedWrite:
    return PlannedWrite(file.uri, file.path, file.before, file.after, file.version, file.new_uri)


def classify_unconfirmed(entry: LedgerEntry, text: str | None, new_text: str | None = None) -> WriteOutcome:
    """Return the outcome of an edit that the editor has not confirmed, based on the text of the file.

    `new_text` is the text at the path after a rename.
    """
    write = entry.write
    if write.new_uri is not None:
        if text is None and is_equal_ignoring_format(new_text, write.after):
            return "applied"
        return "refused" if new_text is None and is_equal_ignoring_format(text, write.before) else "unknown"
    file_state = entry.compare_text(text)
    if file_state == "other" and is_equal_ignoring_format(write.before, write.after):
        return "unknown"
    if file_state == "as after" or (file_state == "other" and is_equal_ignoring_format(text, write.after)):
        return "applied"
    return "refused" if file_state == "as before" or is_equal_ignoring_format(text, write.before) else "unknown"


def build_files_title(paths: Iterable[str], time: datetime) -> str:
    """Return a title for a turn that has none, based on the names of the files that it wrote."""
    names = dict.fromkeys(path.rpartition("/")[2] for path in paths)
    return f"{format_names(list(names))} ({time.astimezone():%H:%M})"


def build_turn_title(turn: WrittenTurn) -> str:
    """Return a title for a turn in the ledger, based on the names of its files."""
    entries = [entry for edit in turn.edits for entry in edit.entries]
    return build_files_title([entry.write.path for entry in entries], entries[-1].created)


def format_names(names: Sequence[str]) -> str:
    """Join at most eight names, followed by the number of the other names."""
    listed = ", ".join(names[:_MAX_NAMES])
    return listed if len(names) <= _MAX_NAMES else f"{listed} and {len(names) - _MAX_NAMES} more"


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
