"""A command's target: the document and range in its arguments or in the latest code action request."""

from __future__ import annotations

from dataclasses import dataclass

from lsprotocol.types import Position, Range

from thinklsp.core.check_results import EditorDiagnostic
from thinklsp.core.errors import StaleDocument, TurnRefused
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.documents.tracked_diagnostics import select_in_range, update_tracked
from thinklsp.lsp.editor import arguments as args
from thinklsp.lsp.editor.connection_state import ActionContext, ConnectionState


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """A command's target. `range` is None for an entire document."""

    uri: str
    range: Range | None
    line_count: int
    problems: tuple[EditorDiagnostic, ...] = ()


def resolve_target(
    state: ConnectionState, uri: str | None, range_: args.Range | None, version: int | None = None
) -> CommandTarget | None:
    """Return the target of a command, or None if neither the arguments nor a code action request specify a target.

    Raise StaleDocument if the text of the range has changed since the given version.
    """
    problems: tuple[EditorDiagnostic, ...] = ()
    target_range = None if range_ is None else to_lsp_range(range_)
    if uri is None and (latest := state.last_action) is not None:
        uri, problems = latest.uri, _find_problems(state, latest)
        if target_range is None:
            target_range, version = latest.range, latest.version
    if uri is None:
        return None
    document = state.documents.get(uri)
    if document is None:
        return CommandTarget(uri, target_range, 2**31, problems)
    if target_range is not None and version is not None and version != document.version:
        target_range = _map_range(document, target_range, version)
    return CommandTarget(uri, target_range, document.line_count, problems)


def find_known_problems(state: ConnectionState, target: CommandTarget) -> tuple[EditorDiagnostic, ...]:
    """Return the target's current diagnostics from code action requests, sorted by position."""
    document = state.documents.get(target.uri)
    diagnostics = () if document is None else update_tracked(document, document.tracked_diagnostics)
    if target.range is not None:
        diagnostics = select_in_range(diagnostics, target.range)
    return tuple(diagnostic.problem for diagnostic in sorted(diagnostics, key=lambda diagnostic: diagnostic.start))


def find_latest_location(state: ConnectionState) -> CommandTarget | None:
    """Return the target of the latest code action request outside chat documents, with its diagnostics.

    `range` is the current range, or None if the text of the range has changed.
    """
    place = state.last_location
    if place is None:
        return None
    problems = _find_problems(state, place)
    document = state.documents.get(place.uri)
    if document is None:
        return CommandTarget(place.uri, place.range, 2**31, problems)
    try:
        target_range: Range | None = _map_range(document, place.range, place.version)
    except StaleDocument:
        target_range = None
    return CommandTarget(place.uri, target_range, document.line_count, problems)


def _find_problems(state: ConnectionState, location: ActionContext) -> tuple[EditorDiagnostic, ...]:
    """Return a location's diagnostics at their current positions, or as sent if all their lines have changed."""
    document = state.documents.get(location.uri)
    diagnostics = () if document is None else update_tracked(document, location.diagnostics)
    return tuple(diagnostic.problem for diagnostic in diagnostics or location.diagnostics)


def require_target(
    state: ConnectionState, uri: str | None, range_: args.Range | None, version: int | None
) -> CommandTarget:
    """Return the target of a command. Raise TurnRefused if there is none."""
    subject = resolve_target(state, uri, range_, version)
    if subject is None:
        raise TurnRefused("The command has no target: name a document with `uri`, or select some code first.")
    return subject


def to_lsp_range(range_: args.Range) -> Range:
    return Range(Position(range_.start.line, range_.start.character), Position(range_.end.line, range_.end.character))


def to_line_numbers(range_: Range | None, line_count: int) -> tuple[int, int] | None:
    """Return the first and the last line, numbered from 1.

    A range that ends at the start of a line excludes that line.
    """
    if range_ is None:
        return None
    first, last = range_.start.line + 1, range_.end.line + 1
    if range_.end.character == 0 and last > first:
        last -= 1
    return min(first, line_count), min(max(first, last), line_count)


def _map_range(document: Document, range_: Range, version: int) -> Range:
    start = document.map_position((range_.start.line, range_.start.character), version)
    end = document.map_position((range_.end.line, range_.end.character), version)
    if start is None or end is None:
        raise StaleDocument("The selected code has changed since it was selected. Select it again.")
    return Range(Position(*start), Position(*end))
