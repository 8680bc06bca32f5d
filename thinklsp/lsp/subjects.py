"""What a command is about: the document and range that it names, or those of the latest code-action request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lsprotocol import types

from thinklsp.core.errors import StaleDocument, TurnRefused
from thinklsp.core.problems import Problem
from thinklsp.lsp import arguments as args
from thinklsp.lsp.documents import Document
from thinklsp.lsp.state import State

_SEVERITIES = {1: "error", 2: "warning", 3: "information", 4: "hint"}


@dataclass(frozen=True, slots=True)
class Subject:
    """`range` None: the whole document."""

    uri: str
    range: types.Range | None
    line_count: int
    diagnostics: Sequence[Mapping[str, Any]] = ()


def subject_of(state: State, uri: str | None, range_: args.Range | None, version: int | None = None) -> Subject | None:
    """None when nothing says what the command is about. Raises StaleDocument when the range belongs to text that has
    changed since."""
    diagnostics: Sequence[Mapping[str, Any]] = ()
    where = None if range_ is None else plain_range(range_)
    if uri is None and (latest := state.last_action) is not None:
        uri, diagnostics = latest.uri, latest.diagnostics
        if where is None:
            where, version = latest.range, latest.version
    if uri is None:
        return None
    document = state.documents.get(uri)
    if document is None:
        return Subject(uri, where, 2**31, diagnostics)
    if where is not None and version is not None and version != document.version:
        where = _moved(document, where, version)
    return Subject(uri, where, document.line_count, diagnostics)


def latest_place(state: State) -> tuple[Subject, tuple[Problem, ...]] | None:
    """Where the user was when the editor last asked for code actions outside of chat documents, and the problems that
    it knew there. `Subject.range` is where that place is now, None where its text has changed since."""
    place = state.last_place
    if place is None:
        return None
    problems = problems_of(place.diagnostics)
    document = state.documents.get(place.uri)
    if document is None:
        return Subject(place.uri, place.range, 2**31, place.diagnostics), problems
    try:
        where: types.Range | None = _moved(document, place.range, place.version)
    except StaleDocument:
        where = None
    moved = tuple(_followed(document, problem, place.version) for problem in problems)
    return Subject(place.uri, where, document.line_count, place.diagnostics), moved


def _followed(document: Document, problem: Problem, version: int) -> Problem:
    point = document.moved((problem.line - 1, 0), version)
    return problem if point is None else replace(problem, line=point[0] + 1)


def required_subject(state: State, uri: str | None, range_: args.Range | None, version: int | None) -> Subject:
    """The same; raises TurnRefused when nothing says what the command is about."""
    subject = subject_of(state, uri, range_, version)
    if subject is None:
        raise TurnRefused("Nothing says what this is about: name a document by uri, or select some code first.")
    return subject


def plain_range(given: args.Range) -> types.Range:
    return types.Range(
        types.Position(given.start.line, given.start.character), types.Position(given.end.line, given.end.character)
    )


def lines_of(where: types.Range | None, line_count: int) -> tuple[int, int] | None:
    """First and last line, counted from 1. A range that ends at the start of a line does not hold that line."""
    if where is None:
        return None
    first, last = where.start.line + 1, where.end.line + 1
    if where.end.character == 0 and last > first:
        last -= 1
    return min(first, line_count), min(max(first, last), line_count)


def problems_of(diagnostics: Sequence[Mapping[str, Any]]) -> tuple[Problem, ...]:
    return tuple(_problem(diagnostic) for diagnostic in diagnostics)


def _problem(diagnostic: Mapping[str, Any]) -> Problem:
    where = diagnostic.get("range")
    start = where.get("start") if isinstance(where, Mapping) else None
    line = start.get("line") if isinstance(start, Mapping) else None
    severity = diagnostic.get("severity")
    code = diagnostic.get("code")
    return Problem(
        line + 1 if isinstance(line, int) else 1,
        _SEVERITIES.get(severity, "error") if isinstance(severity, int) else "error",
        str(diagnostic.get("message", "")),
        str(diagnostic.get("source") or ""),
        str(code) if isinstance(code, str | int) else "",
    )


def _moved(document: Document, where: types.Range, version: int) -> types.Range:
    start = document.moved((where.start.line, where.start.character), version)
    end = document.moved((where.end.line, where.end.character), version)
    if start is None or end is None:
        raise StaleDocument("The selected code has changed since it was selected. Select it again.")
    return types.Range(types.Position(*start), types.Position(*end))
