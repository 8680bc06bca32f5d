"""What a command is about: the document and range that it names, or those of the latest code-action request."""

from __future__ import annotations

from dataclasses import dataclass

from thinklsp.core.errors import StaleDocument, TurnRefused
from thinklsp.core.problems import Problem
from thinklsp.lsp.documents.diagnostics import at, present
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor import arguments as args
from thinklsp.lsp.editor.state import ActionContext, State
from thinklsp.lsp.protocol.forms import Position, Range


@dataclass(frozen=True, slots=True)
class Subject:
    """`range` None: the whole document."""

    uri: str
    range: Range | None
    line_count: int
    problems: tuple[Problem, ...] = ()


def subject_of(state: State, uri: str | None, range_: args.Range | None, version: int | None = None) -> Subject | None:
    """None when nothing says what the command is about. Raises StaleDocument when the range belongs to text that has
    changed since."""
    problems: tuple[Problem, ...] = ()
    where = None if range_ is None else plain_range(range_)
    if uri is None and (latest := state.last_action) is not None:
        uri, problems = latest.uri, _problems(state, latest)
        if where is None:
            where, version = latest.range, latest.version
    if uri is None:
        return None
    document = state.documents.get(uri)
    if document is None:
        return Subject(uri, where, 2**31, problems)
    if where is not None and version is not None and version != document.version:
        where = _moved(document, where, version)
    return Subject(uri, where, document.line_count, problems)


def known_problems(state: State, subject: Subject) -> tuple[Problem, ...]:
    """Those that the editor has told of there with code actions and that still stand, from the top down."""
    document = state.documents.get(subject.uri)
    seen = () if document is None else present(document, document.seen)
    if subject.range is not None:
        seen = at(seen, subject.range)
    return tuple(one.problem for one in sorted(seen, key=lambda one: one.start))


def latest_place(state: State) -> Subject | None:
    """Where the user was when the editor last asked for code actions outside of chat documents, and the problems that
    it knew there. `range` is where that place is now, None where its text has changed since."""
    place = state.last_place
    if place is None:
        return None
    problems = _problems(state, place)
    document = state.documents.get(place.uri)
    if document is None:
        return Subject(place.uri, place.range, 2**31, problems)
    try:
        where: Range | None = _moved(document, place.range, place.version)
    except StaleDocument:
        where = None
    return Subject(place.uri, where, document.line_count, problems)


def _problems(state: State, place: ActionContext) -> tuple[Problem, ...]:
    """Where the text of all of them has changed since they stay as they were told: the user means them."""
    document = state.documents.get(place.uri)
    seen = () if document is None else present(document, place.seen)
    return tuple(one.problem for one in seen or place.seen)


def required_subject(state: State, uri: str | None, range_: args.Range | None, version: int | None) -> Subject:
    """The same; raises TurnRefused when nothing says what the command is about."""
    subject = subject_of(state, uri, range_, version)
    if subject is None:
        raise TurnRefused("Nothing says what this is about: name a document by uri, or select some code first.")
    return subject


def plain_range(given: args.Range) -> Range:
    return Range(Position(given.start.line, given.start.character), Position(given.end.line, given.end.character))


def lines_of(where: Range | None, line_count: int) -> tuple[int, int] | None:
    """First and last line, counted from 1. A range that ends at the start of a line does not hold that line."""
    if where is None:
        return None
    first, last = where.start.line + 1, where.end.line + 1
    if where.end.character == 0 and last > first:
        last -= 1
    return min(first, line_count), min(max(first, last), line_count)


def _moved(document: Document, where: Range, version: int) -> Range:
    start = document.moved((where.start.line, where.start.character), version)
    end = document.moved((where.end.line, where.end.character), version)
    if start is None or end is None:
        raise StaleDocument("The selected code has changed since it was selected. Select it again.")
    return Range(Position(*start), Position(*end))
