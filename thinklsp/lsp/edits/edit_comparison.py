"""The hunks of a change: which of them a text contains, and which of them the user kept.

A hunk is a block of changed lines. The comparison ignores line endings and the byte order mark, because editors may
change them when they open or save a file. For the user's choice, the hunks of a file are numbered from 0, in the order
of the text edits in the workspace edit. Creating or deleting a file is hunk 0. Renaming a file is the hunk after its
last text edit.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from thinklsp.core.edits import FileEdit, count_hunks, is_blank, split_comparable_lines
from thinklsp.core.errors import PathRefused
from thinklsp.core.lines import find_changed_blocks, find_matching_blocks, split_lines
from thinklsp.engine.merge_plan import MergedFile, build_sent_edit
from thinklsp.engine.results import HunkCounts
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.protocol.positions import count_common_ends
from thinklsp.workspace.merge import is_equal_ignoring_format
from thinklsp.workspace.uri import normalize_uri
from thinklsp.workspace.view import WorkspaceView

# The maximum number of alignments to try in parallel. Repeated lines can cause several alignments.
_MAX_ALIGNMENTS = 64
_MAX_LINES = 10

# The maximum time to wait for changes. Editors may report a change after they answer: Neovim waits for 0.15 s. Later
# changes are detected when the pending edit is next offered.
_MAX_WAIT_SECONDS = 1.5
# The maximum time between the first and the last report about an edit.
_REST_SECONDS = 0.4
_MAX_TEXTS = 8
_CHECK_INTERVAL_SECONDS = 0.1

_Block = tuple[int, int, int, int]
"""`(i1, i2, j1, j2)`: lines `[i1, i2)` of the old text became lines `[j1, j2)` of the new text."""


@dataclass(frozen=True, slots=True)
class ObservedFile:
    """The state of a file after an edit was sent.

    `text` is None if the file does not exist. `is_moved` is True if the file has been renamed as planned, and
    `text` is then the text at the new path.
    """

    text: str | None
    is_moved: bool = False


@dataclass(frozen=True, slots=True)
class SplitEdit:
    """A change in two parts: the hunks that are applied or kept, and the others. An empty part is None.

    The missing part is based on the applied part.
    """

    change: FileEdit
    hunks: HunkCounts
    applied_part: FileEdit | None
    missing_part: FileEdit | None


def _split_edit(change: FileEdit, accepted: int, total: int, part: str = "", *, is_moved: bool = False) -> SplitEdit:
    """Split a change with `total` hunks. `part` is the text with only the `accepted` hunks applied.

    `is_moved` is True if the rename is one of these.
    """
    hunks = HunkCounts(int(accepted), total - accepted)
    if not hunks.pending:
        return SplitEdit(change, hunks, change, None)
    if not accepted:
        return SplitEdit(change, hunks, None, change)
    if change.new_uri is None or not is_moved:
        applied, missing = replace(change, after=part, new_uri=None, new_path=None), replace(change, before=part)
        return SplitEdit(change, hunks, applied, replace(missing, version=None))
    rest = FileEdit(change.new_uri, change.new_path or change.path, part, change.after)
    return SplitEdit(change, hunks, replace(change, after=part), rest)


def describe_change(file: FileEdit) -> str:
    """Describe a change that was not applied. The description is for the model."""
    if file.before is None:
        return f"{file.path} (not created)"
    if file.after is None:
        return f"{file.path} (not deleted)"
    blocks = find_changed_blocks(split_comparable_lines(file.before), split_comparable_lines(file.after))
    parts = [] if file.new_path is None else [f"not renamed to {file.new_path}"]
    if blocks:
        lines = ", ".join(str(block[0] + 1) for block in blocks[:_MAX_LINES])
        more = ", …" if len(blocks) > _MAX_LINES else ""
        parts.append(f"{len(blocks)} change{'s' * (len(blocks) > 1)}, at line {lines}{more}")
    return f"{file.path} ({'; '.join(parts) or 'line ends only'})"


def compare_edit(change: FileEdit, observed: ObservedFile, *, exact: bool = False) -> SplitEdit:
    """Split a sent change into an applied part and a missing part.

    `change.before` is the text for which the change was made, including the user's own changes. If `exact` is True and
    the current text contains other changes, the whole change counts as missing.
    """
    before, after, now = change.before, change.after, observed.text
    if after is None:
        return _split_edit(change, now is None, 1)
    if before is None:
        return _compare_creation(change, after, now, exact=exact)
    if now is None:
        return _split_edit(change, 0, count_hunks(change))
    old, new = split_comparable_lines(before), split_comparable_lines(after)
    blocks = find_changed_blocks(old, new)
    if not blocks and before != after:
        accepted, total = frozenset({0} if now == after else ()), 1
        part = after if accepted else before
    else:
        accepted, total = _find_accepted(old, new, blocks, split_comparable_lines(now), exact=exact), len(blocks)
        part = _build_part(before, after, blocks, accepted)
    renames = change.new_uri is not None
    applied = len(accepted) + (renames and observed.is_moved)
    return _split_edit(change, applied, total + renames, part, is_moved=observed.is_moved)


def _compare_creation(change: FileEdit, after: str, now: str | None, *, exact: bool) -> SplitEdit:
    """Compare a created file. If Neovim creates a file without its text, the file contains one empty line."""
    if now == after or not is_blank(now):
        bodies, text = split_comparable_lines(after), split_comparable_lines(now or "")
        accepted = not bodies or bool(_find_accepted([], bodies, [(0, 0, 0, len(bodies))], text, exact=exact))
        return _split_edit(change, accepted, 1)
    missing = _split_edit(change, 0, 1)
    return missing if now is None else replace(missing, applied_part=replace(change, after=now))


def _build_part(before: str, after: str, blocks: Sequence[_Block], accepted: frozenset[int]) -> str:
    """Return the old text with only the accepted changes applied."""
    if len(accepted) == len(blocks):
        return after
    old, new = split_lines(before), split_lines(after)
    lines: list[str] = []
    end = 0
    for number, (i1, i2, j1, j2) in enumerate(blocks):
        lines += old[end:i1]
        lines += new[j1:j2] if number in accepted else old[i1:i2]
        end = i2
    return "".join((*lines, *old[end:]))


def _find_accepted(
    old: list[str], new: list[str], blocks: Sequence[_Block], now: list[str], *, exact: bool
) -> frozenset[int]:
    """Return the indexes of the changed blocks that the text contains."""
    parsed = _match_blocks(old, new, blocks, now)
    if parsed is not None or exact:
        return parsed or frozenset()
    return _estimate_accepted(old, new, blocks, now)


_Chosen = tuple[int, "_Chosen"] | None
"""A linked list of block numbers, the last one first."""


def _match_blocks(old: list[str], new: list[str], blocks: Sequence[_Block], now: list[str]) -> frozenset[int] | None:
    """Return the blocks that change the old text into `now`, or None if `now` also contains other changes."""
    # For each position in `now`, a linked list of the blocks accepted so far, newest first.
    reached: dict[int, _Chosen] = {0: None}
    end = 0
    for number, (i1, i2, j1, j2) in enumerate(blocks):
        further: dict[int, _Chosen] = {}
        for place, chosen in reached.items():
            start = place + i1 - end
            if now[place:start] != old[end:i1]:
                continue
            for lines, path in ((new[j1:j2], (number, chosen)), (old[i1:i2], chosen)):
                if len(further) < _MAX_ALIGNMENTS and now[start : start + len(lines)] == lines:
                    further.setdefault(start + len(lines), path)
        reached, end = further, i2
    for place, chosen in reached.items():
        if now[place:] == old[end:]:
            return frozenset(_list_numbers(chosen))
    return None


def _list_numbers(chosen: _Chosen) -> list[int]:
    numbers = []
    while chosen is not None:
        number, chosen = chosen
        numbers.append(number)
    return numbers


def _estimate_accepted(old: list[str], new: list[str], blocks: Sequence[_Block], now: list[str]) -> frozenset[int]:
    """Guess which changed blocks a text contains after the user has typed in the text.

    A block counts as applied if its new lines are unchanged, or if the current lines in that place are more similar to
    the new lines than to the old lines.
    """
    from_old, from_new = find_changed_blocks(old, now), find_changed_blocks(new, now)
    numbers = set()
    for number, (i1, i2, j1, j2) in enumerate(blocks):
        typed_on_old, typed_on_new = _find_touching(from_old, i1, i2), _find_touching(from_new, j1, j2)
        if not typed_on_new or (typed_on_old and _is_nearer(old, new, (i1, i2, j1, j2), typed_on_old, now)):
            numbers.add(number)
    return frozenset(numbers)


def _find_touching(changes: Sequence[_Block], start: int, end: int) -> list[_Block]:
    return [change for change in changes if change[0] <= end and change[1] >= start]


def _is_nearer(old: list[str], new: list[str], block: _Block, typed: Sequence[_Block], now: list[str]) -> bool:
    i1, i2, j1, j2 = block
    first, last = min(i1, typed[0][0]), max(i2, typed[-1][1])
    place = now[typed[0][2] - (typed[0][0] - first) : typed[-1][3] + (last - typed[-1][1])]
    as_old = old[first:last]
    as_new = [*old[first:i1], *new[j1:j2], *old[i2:last]]
    return _score_likeness(as_new, place) > _score_likeness(as_old, place)


def _score_likeness(left: Sequence[str], right: Sequence[str]) -> tuple[int, int]:
    """Return the number of common lines and, as a tie-breaker, the number of common characters at both ends."""
    common = sum(count for _, _, count in find_matching_blocks(left, right))
    return 2 * common - len(left), sum(count_common_ends("\n".join(left), "\n".join(right)))


HunkNumbers = Mapping[str, frozenset[int]]
"""The numbers of hunks by the URI of the file."""


def number_hunks(change: FileEdit) -> int:
    """Return the number of hunks in the workspace edit for this change."""
    if change.before is None or change.after is None:
        return 1
    return len(_find_blocks(change.before, change.after)) + (change.new_uri is not None)


def split_hunks(change: FileEdit, kept: Collection[int]) -> SplitEdit:
    """Split a change into the part with the kept hunks and the declined hunks."""
    count = number_hunks(change)
    accepted = frozenset(number for number in kept if 0 <= number < count)
    if change.before is None or change.after is None:
        return _split_edit(change, len(accepted), count)
    blocks = _find_blocks(change.before, change.after)
    part = _build_part(change.before, change.after, blocks, accepted & frozenset(range(len(blocks))))
    is_moved = change.new_uri is not None and count - 1 in accepted
    return _split_edit(change, len(accepted), count, part, is_moved=is_moved)


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


@dataclass(frozen=True, slots=True)
class UnsavedFile:
    """A file that the editor opened for an edit and has not saved.

    `is_whole` is True if the user has not typed in the file.
    """

    uri: str
    path: str
    is_whole: bool


class EditVerifier:
    """The verifier for sent edits. Call `watch` before sending an edit. Only one edit is sent at a time.

    The editor's answer is not sufficient, because some editors answer `applied: true` after applying only part of an
    edit or nothing.
    """

    def __init__(self, state: ConnectionState, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots
        # The texts of each document since the edit was sent, by normalized URI. Later texts may include the user's
        # changes.
        self._texts: dict[str, deque[str]] = {}
        # The documents that the editor opened for an edit.
        self._opened_documents: set[str] = set()
        state.documents.on_change.append(self._on_change)
        state.documents.on_close.append(lambda uri: self._opened_documents.discard(normalize_uri(uri)))

    def watch(self, files: Sequence[MergedFile]) -> None:
        self._texts = {normalize_uri(item.file.uri): deque(maxlen=_MAX_TEXTS) for item in files}

    def _on_change(self, uri: str) -> None:
        texts, document = self._texts.get(normalize_uri(uri)), self._state.documents.get(uri)
        if texts is not None and document is not None:
            texts.append(document.text)

    def find_unsaved(
        self, files: Sequence[MergedFile], comparisons: Mapping[str, SplitEdit]
    ) -> tuple[UnsavedFile, ...]:
        """Return the files that the editor opened for an edit and has not saved.

        A file with changes from before the edit is left out, because the user has to save these changes.
        """
        disk, unsaved = self._snapshots.create_disk_view(), []
        for item in files:
            comparison = comparisons[item.file.uri]
            part = comparison.applied_part
            document = None if part is None else self._state.documents.get(part.new_uri or part.uri)
            if part is None or document is None:
                continue
            if item.current.version is None:
                self._opened_documents.add(normalize_uri(document.uri))
            saved_text = self._snapshots.read_disk(document.uri, disk)
            had_changes = item.current.version is not None and not is_equal_ignoring_format(
                saved_text, item.current.text
            )
            is_saved = had_changes or is_equal_ignoring_format(saved_text, document.text)
            if not is_saved and normalize_uri(document.uri) in self._opened_documents:
                is_whole = comparison.missing_part is None and is_equal_ignoring_format(document.text, item.after)
                unsaved.append(UnsavedFile(document.uri, part.new_path or part.path, is_whole))
        return tuple(unsaved)

    async def check_applied(self, files: Sequence[MergedFile], *, exact: bool = False) -> dict[str, SplitEdit]:
        """Compare an edit with the current state of its files and return the comparisons by URI.

        The comparison runs in a thread. If `exact` is True, the result makes no allowance for the user's own changes.
        """
        view = self._snapshots.create_view()
        observed = [self._observe_file(item, view, exact=exact) for item in files]
        return await asyncio.to_thread(_compare_files, files, observed, exact=exact)

    async def wait_until_applied(
        self, files: Sequence[MergedFile], should_stop: Callable[[], bool]
    ) -> dict[str, SplitEdit]:
        """Wait until an edit is applied, `should_stop` returns True or a timeout expires.

        Return the comparisons by URI. To end the wait, set the event that documents have changed.
        """
        end = time.monotonic() + _MAX_WAIT_SECONDS
        comparisons: dict[str, SplitEdit] = {}
        waiting = tuple(files)
        applied_count = 0
        while True:
            self._state.documents.change_event.clear()
            comparisons |= await self.check_applied(waiting)
            waiting = tuple(item for item in waiting if comparisons[item.file.uri].missing_part is not None)
            count = sum(found.hunks.applied + (found.applied_part is not None) for found in comparisons.values())
            if count > applied_count:
                applied_count, end = count, min(end, time.monotonic() + _REST_SECONDS)
            if not waiting or should_stop() or time.monotonic() > end:
                return comparisons
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_INTERVAL_SECONDS):  # The disk reports no changes.
                    await self._state.documents.change_event.wait()

    def _observe_file(self, item: MergedFile, view: WorkspaceView, *, exact: bool) -> tuple[ObservedFile, ...]:
        file, disk = item.file, self._snapshots.create_disk_view()
        current_text = self._snapshots.read_text(file.uri, view)
        if file.after is None:
            return (ObservedFile((current_text or "") if _is_on_disk(disk, file.uri) else None),)
        if file.new_uri is not None:
            new_text = self._snapshots.read_text(file.new_uri, view)
            is_moved = new_text is not None and not _is_on_disk(disk, file.uri)
            return (ObservedFile(new_text if is_moved else current_text, is_moved),)
        earlier = () if exact else self._texts.get(normalize_uri(file.uri), ())
        return (ObservedFile(current_text), *map(ObservedFile, earlier))


def _compare_files(
    files: Sequence[MergedFile], observed: Sequence[Sequence[ObservedFile]], *, exact: bool
) -> dict[str, SplitEdit]:
    """Compare each file's recent texts with the edit. Return, by URI, the comparison with the most applied hunks."""
    return {
        item.file.uri: max(
            (compare_edit(build_sent_edit(item), text, exact=exact) for text in texts),
            key=lambda found: found.hunks.applied,
        )
        for item, texts in zip(files, observed, strict=True)
    }


def _is_on_disk(disk: WorkspaceView, uri: str) -> bool:
    try:
        return disk.find_kind(disk.locate(uri)) is not None
    except PathRefused:
        return False
