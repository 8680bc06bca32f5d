"""The parts of the edit ledger that every front end needs: records of file edits, their titles and their outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from thinklsp.core.edits import FileEdit
from thinklsp.sessions.ledger import LedgerEntry, PlannedWrite, WriteOutcome
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


def format_names(names: Sequence[str]) -> str:
    """Join at most eight names, followed by the number of the other names."""
    listed = ", ".join(names[:_MAX_NAMES])
    return listed if len(names) <= _MAX_NAMES else f"{listed} and {len(names) - _MAX_NAMES} more"
