"""The diagnostics that an editor sent for a document. Their positions are updated as the document changes.

Editors send diagnostics with each code action request, but only for the requested range. The diagnostics are stored
with their document and removed with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lsprotocol.types import Diagnostic, Position, Range

from thinklsp.core.check_results import EditorDiagnostic
from thinklsp.lsp.documents.open_documents import Document, Point, TrackedDiagnostic
from thinklsp.lsp.protocol.converter import read_diagnostic
from thinklsp.lsp.protocol.positions import count_units

_SEVERITIES = {1: "error", 2: "warning", 3: "information", 4: "hint"}
_START = Range(Position(0, 0), Position(0, 0))
# The maximum number of stored diagnostics. Mapping them through the entire change history takes less than 10 ms.
_MAX_TRACKED = 50


def structure_diagnostics(values: object) -> list[Diagnostic]:
    """Convert the JSON of diagnostics in a command's argument. Raise ValueError if the JSON is not a list.

    Values that are not objects are omitted. A diagnostic without a range is placed at the start of its document.
    """
    if not isinstance(values, list):
        raise ValueError("not a list")  # noqa: TRY004 - pydantic expects this type
    read = (read_diagnostic(value, _START) for value in values)
    return [diagnostic for diagnostic in read if diagnostic is not None]


def convert_diagnostics(diagnostics: Sequence[Diagnostic]) -> tuple[EditorDiagnostic, ...]:
    return tuple(convert_diagnostic(diagnostic) for diagnostic in diagnostics)


def convert_diagnostic(diagnostic: Diagnostic) -> EditorDiagnostic:
    code = diagnostic.code
    return EditorDiagnostic(
        extract_range(diagnostic)[0][0] + 1,
        _SEVERITIES[diagnostic.severity or 1],
        diagnostic.message,
        diagnostic.source or "",
        "" if code is None else str(code),
    )


def extract_range(diagnostic: Diagnostic) -> tuple[Point, Point]:
    """Return a diagnostic's start and end. The end is never before the start."""
    start, end = _to_point(diagnostic.range.start), _to_point(diagnostic.range.end)
    return start, max(start, end)


def map_diagnostics(
    document: Document, diagnostics: Iterable[Diagnostic], version: int
) -> tuple[EditorDiagnostic, ...]:
    """Map diagnostics from an older version to the current lines. Diagnostics in changed text are omitted."""
    problems: list[EditorDiagnostic] = []
    for diagnostic in diagnostics:
        start, end = extract_range(diagnostic)
        begin, stop = document.map_position(start, version), document.map_position(end, version)
        if begin is not None and stop is not None:
            # For a single line, use the end. The start does not move if a line break is inserted before the diagnostic.
            line = stop[0] if start[0] == end[0] else begin[0]
            problems.append(replace(convert_diagnostic(diagnostic), line=line + 1))
    return tuple(problems)


def track_diagnostics(
    document: Document, range_: Range, diagnostics: Iterable[Diagnostic]
) -> tuple[TrackedDiagnostic, ...]:
    """Store the diagnostics from a code action request. They replace older diagnostics in the requested range."""
    tracked = tuple(_build_tracked(document, diagnostic) for diagnostic in diagnostics)[:_MAX_TRACKED]
    first = range_.start.line, range_.start.character
    last = range_.end.line, range_.end.character
    reported = {(item.start, item.problem) for item in tracked}
    older = (
        item
        for item in update_tracked(document, document.tracked_diagnostics)
        if not _is_touched(item, first, last) and (item.start, item.problem) not in reported
    )
    document.tracked_diagnostics = (*tracked, *older)[:_MAX_TRACKED]
    return tracked


def update_tracked(document: Document, tracked: Iterable[TrackedDiagnostic]) -> tuple[TrackedDiagnostic, ...]:
    """Return diagnostics at their positions in the current version, omitting diagnostics in changed text."""
    return tuple(updated for item in tracked if (updated := _follow_text(document, item)) is not None)


def select_in_range(tracked: Sequence[TrackedDiagnostic], range_: Range) -> tuple[TrackedDiagnostic, ...]:
    """Return the diagnostics in a range. If there are none, return the diagnostics on the lines of the range."""
    first = range_.start.line, range_.start.character
    last = range_.end.line, range_.end.character
    in_range = tuple(item for item in tracked if _is_touched(item, first, last))
    return in_range or tuple(item for item in tracked if item.start[0] <= last[0] and first[0] <= item.end[0])


def _build_tracked(document: Document, diagnostic: Diagnostic) -> TrackedDiagnostic:
    start, end = extract_range(diagnostic)
    return TrackedDiagnostic(
        convert_diagnostic(diagnostic), start, end, document.version, document.version, document.get_line(start[0])
    )


def _is_touched(tracked: TrackedDiagnostic, first: Point, last: Point) -> bool:
    return tracked.start < last and first < tracked.end if first != last else tracked.start <= first < tracked.end


def _follow_text(document: Document, tracked: TrackedDiagnostic) -> TrackedDiagnostic | None:
    if tracked.version == document.version:
        return tracked
    # Use the end of the line. The start does not move if a line break is inserted before the diagnostic.
    end_of_line = document.map_position(
        (tracked.start[0], count_units(tracked.text, document.encoding)), tracked.version
    )
    if end_of_line is None or document.get_line(end_of_line[0]) != tracked.text:
        return None
    start = end_of_line[0], tracked.start[1]
    end = end_of_line[0] + tracked.end[0] - tracked.start[0], tracked.end[1]
    problem = replace(tracked.problem, line=end_of_line[0] + 1)
    return replace(tracked, problem=problem, start=start, end=end, version=document.version)


def _to_point(position: Position) -> Point:
    return position.line, position.character
