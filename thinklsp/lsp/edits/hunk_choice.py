"""Splitting an edit into the hunks that the user kept and the hunks that the user declined.

The hunks of a file are numbered from 0, in the order of the text edits in the workspace edit. Creating or deleting a
file is hunk 0. Renaming a file is the hunk after its last text edit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from thinklsp.core.edits import FileEdit
from thinklsp.core.lines import find_changed_blocks, split_lines
from thinklsp.engine.results import FileStatus, HunkCounts
from thinklsp.lsp.edits.edit_comparison import build_part, split_parts

HunkNumbers = Mapping[str, frozenset[int]]
"""The numbers of hunks by the URI of the file."""

_DECLINED = "you did not keep this change; the code action `thinklsp: apply` offers it again"


@dataclass(frozen=True, slots=True)
class DeclinedHunks:
    """The hunks of a file that the user declined.

    `whole` is the file's entire change, and `rest` is the change that remains after the kept hunks are applied.
    """

    whole: FileEdit
    rest: FileEdit
    count: int

    def extend(self, missing: FileEdit) -> FileEdit:
        """Return the remaining change if `missing`, a part of the kept hunks, was not applied either."""
        return replace(missing, after=self.whole.after, new_uri=self.whole.new_uri, new_path=self.whole.new_path)

    def build_status(self, kept: FileStatus | None) -> FileStatus:
        """Return the file's status. `kept` is the status of the kept hunks, or None if the user kept none."""
        if kept is None:
            return FileStatus(self.whole.uri, "held", _DECLINED, HunkCounts(0, self.count))
        hunks = HunkCounts(kept.hunks.applied, kept.hunks.pending + self.count)
        if kept.status != "applied":
            return replace(kept, hunks=hunks)
        reason = f"you kept {hunks.applied} of {hunks.applied + hunks.pending} changes"
        return replace(kept, status="some", reason=reason, hunks=hunks)


def number_hunks(change: FileEdit) -> int:
    """Return the number of hunks in the workspace edit for this change."""
    if change.before is None or change.after is None:
        return 1
    return len(_find_blocks(change.before, change.after)) + (change.new_uri is not None)


def split_hunks(change: FileEdit, kept: Collection[int]) -> tuple[FileEdit | None, DeclinedHunks | None]:
    """Split a change into the part with the kept hunks and the declined hunks. An empty part is None."""
    count = number_hunks(change)
    accepted = frozenset(number for number in kept if 0 <= number < count)
    if len(accepted) == count:
        return change, None
    if not accepted or change.before is None or change.after is None:
        return None, DeclinedHunks(change, change, count)
    blocks = _find_blocks(change.before, change.after)
    part = build_part(change.before, change.after, blocks, accepted & frozenset(range(len(blocks))))
    applied_part, rest = split_parts(change, part, is_moved=change.new_uri is not None and count - 1 in accepted)
    return applied_part, DeclinedHunks(change, rest, count - len(accepted))


def _find_blocks(before: str, after: str) -> list[tuple[int, int, int, int]]:
    # The same blocks as in `compute_hunks`, from which the workspace edit is built.
    return list(find_changed_blocks(split_lines(before), split_lines(after)))


def parse_hunks(message: object, key: str) -> HunkNumbers:
    """Parse the hunk numbers in the `files` of an editor's message. Invalid entries are skipped."""
    files = message.get("files") if isinstance(message, Mapping) else None
    hunks: dict[str, frozenset[int]] = {}
    for file in files if isinstance(files, list) else ():
        uri, numbers = (file.get("uri"), file.get(key)) if isinstance(file, Mapping) else (None, None)
        if isinstance(uri, str) and isinstance(numbers, list):
            hunks[uri] = frozenset(number for number in numbers if type(number) is int)
    return hunks


def build_reasons(uri: str, reasons: Iterable[str | None]) -> list[dict[str, Any]]:
    """Return the JSON form of the reasons why a file's hunks need a review, in the order of the hunks."""
    return [{"uri": uri, "hunk": number, "reason": reason} for number, reason in enumerate(reasons) if reason]
