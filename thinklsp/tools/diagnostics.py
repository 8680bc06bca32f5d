"""The `diagnostics` tool, which lists errors and warnings from the editor's language servers and linters.

Line numbers refer to the text that the model sees.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import Field

from thinklsp.core.check_results import EditorDiagnostic
from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.lines import find_matching_blocks, split_lines
from thinklsp.core.text_safety import format_path
from thinklsp.core.tool_type import ToolOutput
from thinklsp.sandbox.bubblewrap import is_same_or_parent
from thinklsp.tools.tool import Arguments, DiagnosedDocument, EditorDiagnostics, EditorFailure, Tool, ToolContext
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.uri import quote_path
from thinklsp.workspace.view import Place

_MAX_PROBLEMS = 200
_MAX_MESSAGE = 500
_SEVERITIES = ("error", "warning", "information", "hint")

_NO_EDITOR = (
    "No editor is connected, so the diagnostics are not available. Read the code, or run the project's own checks if "
    "you can."
)
_SERVERS = "according to all servers and linters of the editor"
_ACTIONS = "from code action requests only, so there may be others"
_OLDER = "reported for an earlier version of the text; problems in lines that changed since then are omitted"
_EDITS_NOT_SEEN = "the editor has not seen the edits from this turn; this describes the text before the edits"
_FAILED: dict[EditorFailure, str] = {
    "silent": "the editor did not answer the request for diagnostics",
    "refused": "the editor answered the request for diagnostics with an error",
    "unreadable": "the editor answered the request for diagnostics in an unexpected format",
}
_MAX_NAMED_FILES = 20


class DiagnosticsArguments(Arguments):
    path: str | None = Field(
        default=None, description="File or folder to check, relative to the workspace folder. Default: everything."
    )


class ReadDiagnostics(Tool[DiagnosticsArguments]):
    name: ClassVar[str] = "diagnostics"
    description: ClassVar[str] = (
        "List the errors and warnings from the editor's language servers and linters, grouped by file, the most severe "
        "first. Line numbers match read_file. The editor sees the edits from this turn only when the turn ends, so the "
        "result describes the code before the edits."
    )
    read_only: ClassVar[bool] = True
    arguments = DiagnosticsArguments

    def title(self, args: DiagnosticsArguments) -> str:
        return f"check diagnostics of {args.path}" if args.path else "check diagnostics"

    async def run(self, args: DiagnosticsArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        starts = None if args.path is None else overlay.view.resolve_folder(args.path)
        kinds = {} if starts is None else {start: overlay.find_kind(start) for start in starts}
        for start, kind in kinds.items():
            overlay.view.check_readable(start)
            if kind is None:
                raise ToolFailed(f"{quote_path(start.label)} does not exist; use list_files to find files.")
        file = next((start for start, kind in kinds.items() if kind != "directory"), None)
        diagnostics = await context.editor.fetch_diagnostics(None if file is None else file.uri)
        if diagnostics is None:
            return ToolOutput(_NO_EDITOR)
        # Build the report in a thread, because reading and comparing files blocks the event loop.
        return ToolOutput(await asyncio.to_thread(_build_report, diagnostics, overlay, starts, file))


@dataclass(frozen=True, slots=True)
class _File:
    """The diagnostics of a file, with line numbers in the text that the model sees, and notes about them.

    `is_complete` is true if the list is known to be complete for the present text.
    """

    name: str
    problems: Sequence[EditorDiagnostic]
    remarks: Sequence[str]
    is_complete: bool

    @property
    def heading(self) -> str:
        return self.name + "".join(f" [{remark}]" for remark in self.remarks)


def _build_report(
    diagnostics: EditorDiagnostics, overlay: EditOverlay, starts: Sequence[Place] | None, file: Place | None
) -> str:
    files, hidden = _collect_files(diagnostics.documents, overlay, starts)
    failing = [entry for entry in files if entry.problems]
    notes = [f"[omitted: {_format_count(hidden, 'file')} that tools may not read]"] if hidden else []
    if not failing:
        headings = [entry.heading for entry in files if entry.remarks]
        return "\n".join((_format_no_problems(diagnostics, files, file), *headings, *notes))
    notes += [f"[{_FAILED[diagnostics.failure]}]"] if diagnostics.failure else []
    count = _format_count(sum(len(entry.problems) for entry in failing), "problem")
    head = f"{count} in {_format_count(len(failing), 'file')}, {_SERVERS if diagnostics.is_complete else _ACTIONS}."
    return "\n".join((head, *_format_files(files), *notes))


def _format_no_problems(diagnostics: EditorDiagnostics, files: Sequence[_File], file: Place | None) -> str:
    """Return a message that the files have no problems, or that their diagnostics are not available."""
    checked = [entry.name for entry in files if diagnostics.is_complete and entry.is_complete]
    where = "here" if file is None else f"in {format_path(file.label)}"
    if not checked:
        why = "servers may still be checking"
        if diagnostics.failure:
            why = _FAILED[diagnostics.failure]
        elif any("unexpected format" in remark for entry in files for remark in entry.remarks):
            why = "the editor reported them in an unexpected format"
        elif not diagnostics.is_complete:
            why = "the editor reports them with code actions only"
        return f"The problems {where} are unknown: {why}. There may be some."
    if file is not None:
        return f"No problems {where}, {_SERVERS}."
    names = ", ".join(checked[:_MAX_NAMED_FILES]) + (" and others" if len(checked) > _MAX_NAMED_FILES else "")
    return f"No problems in these files, {_SERVERS}: {names}. Other files may have some."


def _format_files(files: Iterable[_File]) -> Iterator[str]:
    """Yield a line for each file that has diagnostics or notes, and a line for each diagnostic."""
    left_count = _MAX_PROBLEMS
    for file in files:
        if file.problems or file.remarks:
            yield file.heading
        for problem in file.problems[:left_count]:
            yield f"  {problem}"
        if (cut_count := len(file.problems) - left_count) > 0:
            yield f"  [cut: {_format_count(cut_count, 'more problem')} in this file; give a path to see other files]"
            return
        left_count -= len(file.problems)


def _collect_files(
    documents: Iterable[DiagnosedDocument], overlay: EditOverlay, starts: Sequence[Place] | None
) -> tuple[list[_File], int]:
    """Return the files in the start folders, sorted by severity, and the number of files that tools may not read."""
    files: list[_File] = []
    hidden = 0
    for document in documents:
        try:
            place = overlay.view.locate(document.uri)
        except PathRefused:
            # The document is neither open nor in a workspace folder.
            continue
        if starts is not None and not any(is_same_or_parent(start.key, place.key) for start in starts):
            continue
        try:
            overlay.view.check_readable(place)
            file = _build_file(document, place, overlay)
        except PathRefused:
            hidden += 1
        else:
            files += [] if file is None else [file]
    return sorted(files, key=lambda file: (min(map(_rank, file.problems), default=9), file.name)), hidden


def _build_file(document: DiagnosedDocument, place: Place, overlay: EditOverlay) -> _File | None:
    """Return the diagnostics of a file, or None if this turn deleted the file."""
    problems: Sequence[EditorDiagnostic] = document.problems
    is_edited = any(place.key == changed.key for changed in overlay.list_changed())
    if is_edited or document.text is not None:
        now = overlay.peek(place)
        if now is None:
            return None
        before = document.text
        if before is None:
            # For closed documents, the workspace view and the language servers read the same file on disk.
            on_disk = overlay.view.peek(place)
            before = "" if on_disk is None else on_disk.text
        problems = _map_to_lines(problems, before, now.text)
    ordered = sorted(map(_shorten, problems), key=lambda problem: (_rank(problem), problem.line))
    remarks = [_OLDER] if document.is_outdated else []
    remarks += [_EDITS_NOT_SEEN] if is_edited else []
    if dropped := len(document.problems) - len(ordered):
        by_whom = "this turn changed" if is_edited else "changed"
        remarks.append(f"omitted: {_format_count(dropped, 'problem')} in lines that {by_whom}")
    if document.unreadable_count:
        remarks.append(f"omitted: {_format_count(document.unreadable_count, 'problem')} in an unexpected format")
    is_complete = not document.is_outdated and not document.unreadable_count
    return _File(format_path(place.label), ordered, remarks, is_complete)


def _map_to_lines(problems: Sequence[EditorDiagnostic], before: str, now: str) -> Sequence[EditorDiagnostic]:
    """Convert line numbers in `before` to line numbers in `now`. Diagnostics on changed lines are dropped."""
    if before == now or not problems:
        return problems
    blocks = find_matching_blocks(split_lines(before), split_lines(now))
    begins = [block[0] for block in blocks]
    mapped: list[EditorDiagnostic] = []
    for problem in problems:
        i, j, count = blocks[at] if (at := bisect_right(begins, problem.line - 1) - 1) >= 0 else (0, 0, 0)
        if problem.line - 1 < i + count:
            mapped.append(replace(problem, line=problem.line - i + j))
    return mapped


def _shorten(problem: EditorDiagnostic) -> EditorDiagnostic:
    message = " ".join(problem.message.split())
    return replace(problem, message=message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…")


def _rank(problem: EditorDiagnostic) -> int:
    return _SEVERITIES.index(problem.severity) if problem.severity in _SEVERITIES else len(_SEVERITIES)


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
