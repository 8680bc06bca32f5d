"""`diagnostics`: what the editor's servers and linters say about the code, on the lines that this turn reads."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import Field

from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.core.lines import matching_blocks, split_lines
from thinklsp.core.problems import Problem
from thinklsp.tools.base import Arguments, Tool, ToolContext, ToolOutput
from thinklsp.tools.editor import DiagnosedDocument, Diagnostics, Failure
from thinklsp.tools.shown import shown_name
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.relpath import quoted
from thinklsp.workspace.view import Place

_MOST_PROBLEMS = 200
_LONGEST_MESSAGE = 500
_SEVERITIES = ("error", "warning", "information", "hint")

_NO_EDITOR = (
    "There is no editor here, so nobody tells of diagnostics: whether there are problems is unknown. Read the code, or "
    "run the project's own checks where you can."
)
_SERVERS = "by all servers and linters that the editor runs"
_ACTIONS = "seen when the user asked for code actions there, so there may be others"
_OLDER = "told for an earlier version of the text, without what stood in lines that have changed since"
_UNSEEN = "the editor has not seen the edits of this turn; this is about the text before them"
_FAILED: dict[Failure, str] = {
    "silent": "the editor did not answer when it was asked",
    "refused": "the editor answered with an error when it was asked",
    "unreadable": "the editor answered with something that cannot be read",
}
_FILES_NAMED = 20


class DiagnosticsArguments(Arguments):
    path: str | None = Field(
        default=None, description="File or folder to ask about, relative to the workspace folder. Default: everything."
    )


class ReadDiagnostics(Tool[DiagnosticsArguments]):
    name: ClassVar[str] = "diagnostics"
    description: ClassVar[str] = (
        "Errors and warnings that the editor has for the code, from the language servers and linters that run there, "
        "grouped by file, the severe ones first. Line numbers are those of read_file. The editor does not see edits of "
        "this turn before the turn ends, so the result tells what was wrong before them and not what they have mended."
    )
    read_only: ClassVar[bool] = True
    arguments = DiagnosticsArguments

    def title(self, args: DiagnosticsArguments) -> str:
        return f"check diagnostics of {args.path}" if args.path else "check diagnostics"

    async def run(self, args: DiagnosticsArguments, context: ToolContext) -> ToolOutput:
        overlay = context.overlay
        starts = None if args.path is None else overlay.view.resolve_folder(args.path)
        kinds = {} if starts is None else {start: overlay.kind(start) for start in starts}
        for start, kind in kinds.items():
            overlay.view.check_readable(start)
            if kind is None:
                raise ToolFailed(f"{quoted(start.shown)} does not exist; list_files shows the files that do.")
        file = next((start for start, kind in kinds.items() if kind != "directory"), None)
        found = await context.editor.diagnostics(None if file is None else file.uri)
        if found is None:
            return ToolOutput(_NO_EDITOR)
        # In a thread: texts are read and compared.
        return ToolOutput(await asyncio.to_thread(_report, found, overlay, starts, file))


@dataclass(frozen=True, slots=True)
class _File:
    """What is known of one file, on the lines that this turn reads. `gone`: problems whose lines it does not read any
    more. `edited`: by this turn. `older` and `unread`: as in `DiagnosedDocument`."""

    place: Place
    problems: Sequence[Problem]
    gone: int
    edited: bool
    older: bool
    unread: int

    @property
    def name(self) -> str:
        return shown_name(self.place.shown)

    @property
    def remarks(self) -> str:
        """In brackets behind its name."""
        by_whom = "this turn has changed" if self.edited else "have changed"
        gone = f"{_counted(self.gone, 'more problem')} stood in lines that {by_whom}" if self.gone else ""
        unread = f"left out: {_counted(self.unread, 'problem')} in a form that cannot be read" if self.unread else ""
        said = (_OLDER if self.older else "", _UNSEEN if self.edited else "", gone, unread)
        return "".join(f" [{remark}]" for remark in said if remark)


def _report(found: Diagnostics, overlay: EditOverlay, starts: Sequence[Place] | None, file: Place | None) -> str:
    files, hidden = _files(found.documents, overlay, starts)
    wrong = [one for one in files if one.problems]
    lines = [f"[left out: {_counted(hidden, 'file')} that tools may not read]"] if hidden else []
    failed = [f"[{_FAILED[found.failed]}]"] if found.failed else []
    if not wrong:
        remarked = [f"{one.name}{one.remarks}" for one in files if one.remarks]
        return "\n".join((_none(found, files, file), *remarked, *lines))
    count = _counted(sum(len(one.problems) for one in wrong), "problem")
    head = f"{count} in {_counted(len(wrong), 'file')}, {_SERVERS if found.complete else _ACTIONS}."
    return "\n".join((head, *_listed(files), *lines, *failed))


def _none(found: Diagnostics, files: Sequence[_File], file: Place | None) -> str:
    """That there are no problems, or that nobody knows whether there are any."""
    looked_at = [one.name for one in files if found.complete and not one.older and not one.unread]
    where = "here" if file is None else f"in {shown_name(file.shown)}"
    if not looked_at:
        why = "no server may have looked yet" if found.complete else "the editor tells of them with code actions only"
        if found.failed:
            why = _FAILED[found.failed]
        elif any(one.unread for one in files):
            why = "what the editor has told cannot be read"
        return f"Nothing is known about problems {where}: {why}. There may be some all the same."
    if file is not None:
        return f"No problems {where}, {_SERVERS}."
    named = ", ".join(looked_at[:_FILES_NAMED]) + (" and others" if len(looked_at) > _FILES_NAMED else "")
    return f"No problems in what has been looked at, {_SERVERS}: {named}. Other files may have some."


def _listed(files: Iterable[_File]) -> Iterator[str]:
    """A line for each file that has something to tell, and one for each of its problems."""
    room = _MOST_PROBLEMS
    for file in files:
        if file.problems or file.remarks:
            yield f"{file.name}{file.remarks}"
        for problem in file.problems[:room]:
            yield f"  {problem}"
        if (cut := len(file.problems) - room) > 0:
            yield f"  [cut: {_counted(cut, 'more problem')} in this file; give a path to see those of others]"
            return
        room -= len(file.problems)


def _files(
    documents: Iterable[DiagnosedDocument], overlay: EditOverlay, starts: Sequence[Place] | None
) -> tuple[list[_File], int]:
    """Those below the starts, the severe ones first, and how many others may not be read."""
    files: list[_File] = []
    hidden = 0
    edited = {place.key for place in overlay.changed()}
    for document in documents:
        place = _place(document.uri, overlay)
        if place is None or not (starts is None or any(_holds(start, place) for start in starts)):
            continue
        try:
            overlay.view.check_readable(place)
            file = _file(document, place, overlay, edited=place.key in edited)
        except PathRefused:
            hidden += 1
        else:
            files += [] if file is None else [file]
    return sorted(files, key=lambda file: (min(map(_rank, file.problems), default=9), file.place.shown)), hidden


def _place(uri: str, overlay: EditOverlay) -> Place | None:
    """None for what is neither open nor in a folder, like the libraries that a server looks into."""
    try:
        return overlay.view.resolve(uri)
    except PathRefused:
        return None


def _file(document: DiagnosedDocument, place: Place, overlay: EditOverlay, *, edited: bool) -> _File | None:
    """None for a file that this turn has deleted."""
    problems: Sequence[Problem] = document.problems
    if edited or document.text is not None:
        now = overlay.peek(place)
        if now is None:
            return None
        before = document.text
        if before is None:
            # It is not open: the editor's servers read what is on disk, as the view does.
            on_disk = overlay.view.peek(place)
            before = "" if on_disk is None else on_disk.text
        problems = _on_lines(problems, before, now.text)
    shown = sorted((_short(problem) for problem in problems), key=lambda problem: (_rank(problem), problem.line))
    return _File(place, shown, len(document.problems) - len(shown), edited, document.older, document.unread)


def _on_lines(problems: Sequence[Problem], before: str, now: str) -> Sequence[Problem]:
    """Those on lines that both texts have, as the present one counts them."""
    if before == now or not problems:
        return problems
    blocks = matching_blocks(split_lines(before), split_lines(now))
    begins = [block[0] for block in blocks]
    found: list[Problem] = []
    for problem in problems:
        i, j, count = blocks[at] if (at := bisect_right(begins, problem.line - 1) - 1) >= 0 else (0, 0, 0)
        if problem.line - 1 < i + count:
            found.append(replace(problem, line=problem.line - i + j))
    return found


def _short(problem: Problem) -> Problem:
    message = " ".join(problem.message.split())
    return replace(problem, message=message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…")


def _rank(problem: Problem) -> int:
    return _SEVERITIES.index(problem.severity) if problem.severity in _SEVERITIES else len(_SEVERITIES)


def _holds(start: Place, place: Place) -> bool:
    return place.key == start.key or place.key.startswith(start.key.rstrip("/") + "/")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
