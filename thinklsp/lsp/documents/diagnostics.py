"""Diagnostics as editors tell them: read, kept with the document that they are about, followed to its present text.

Every editor tells them with a code-action request, but only those that touch its range. They are kept with the
document, and so forgotten with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thinklsp.core.problems import Problem
from thinklsp.lsp.documents.open_documents import Document, Point, Seen
from thinklsp.lsp.protocol.convert import units
from thinklsp.lsp.protocol.forms import Range, is_markup

_SEVERITIES = {1: "error", 2: "warning", 3: "information", 4: "hint"}
# Following them through all changes that are remembered takes less than 10 ms.
_MOST_SEEN = 50


def problems_of(diagnostics: Sequence[Mapping[str, Any]]) -> tuple[Problem, ...]:
    return tuple(problem_of(diagnostic) for diagnostic in diagnostics)


def problem_of(diagnostic: Mapping[str, Any]) -> Problem:
    """What is absent or odd gets the value that serves best."""
    severity, code = diagnostic.get("severity"), diagnostic.get("code")
    return Problem(
        range_of(diagnostic)[0][0] + 1,
        _SEVERITIES.get(severity, "error") if isinstance(severity, int) else "error",
        message_of(diagnostic),
        str(diagnostic.get("source") or ""),
        str(code) if isinstance(code, str | int) else "",
    )


def message_of(diagnostic: Mapping[str, Any]) -> str:
    """Its text, also where that is markup, as LSP 3.18 has it."""
    message = diagnostic.get("message", "")
    return str(message["value"] if is_markup(message) else message)


def range_of(diagnostic: Mapping[str, Any]) -> tuple[Point, Point]:
    """Its beginning and end; the beginning of the document where it does not say."""
    where = diagnostic.get("range")
    start, end = (_point(where.get(side) if isinstance(where, Mapping) else None) for side in ("start", "end"))
    return start, max(start, end)


def moved(document: Document, diagnostics: Iterable[Mapping[str, Any]], version: int) -> tuple[Problem, ...]:
    """Diagnostics of an earlier version, on the lines where their text stands now; without those whose text has
    changed."""
    found: list[Problem] = []
    for diagnostic in diagnostics:
        start, end = range_of(diagnostic)
        begin, stop = document.moved(start, version), document.moved(end, version)
        if begin is not None and stop is not None:
            # Of one line the end counts: what is put in front of it would leave its beginning behind.
            line = stop[0] if start[0] == end[0] else begin[0]
            found.append(replace(problem_of(diagnostic), line=line + 1))
    return tuple(found)


def see(document: Document, where: Range, diagnostics: Iterable[Mapping[str, Any]]) -> tuple[Seen, ...]:
    """Keeps what came with a code-action request for this range. What was known of it before is so no more."""
    new = tuple(_seen(document, diagnostic) for diagnostic in diagnostics)[:_MOST_SEEN]
    first = where.start.line, where.start.character
    last = where.end.line, where.end.character
    told = {(seen.start, seen.problem) for seen in new}
    others = (
        seen
        for seen in present(document, document.seen)
        if not _touches(seen, first, last) and (seen.start, seen.problem) not in told
    )
    document.seen = (*new, *others)[:_MOST_SEEN]
    return new


def present(document: Document, seen: Iterable[Seen]) -> tuple[Seen, ...]:
    """The same in the document's present version, without what stood in text that has changed since."""
    return tuple(now for one in seen if (now := _followed(document, one)) is not None)


def at(seen: Sequence[Seen], where: Range) -> tuple[Seen, ...]:
    """Those that a range touches; where it touches none, those on its lines."""
    first = where.start.line, where.start.character
    last = where.end.line, where.end.character
    touched = tuple(one for one in seen if _touches(one, first, last))
    return touched or tuple(one for one in seen if one.start[0] <= last[0] and first[0] <= one.end[0])


def _seen(document: Document, diagnostic: Mapping[str, Any]) -> Seen:
    start, end = range_of(diagnostic)
    return Seen(problem_of(diagnostic), start, end, document.version, document.version, document.line(start[0]))


def _touches(seen: Seen, first: Point, last: Point) -> bool:
    """Whether an editor that is asked about this range tells of it. At their very ends editors differ."""
    return seen.start < last and first < seen.end if first != last else seen.start <= first < seen.end


def _followed(document: Document, seen: Seen) -> Seen | None:
    if seen.version == document.version:
        return seen
    # By the end of its line: a line that is put in front of it would leave its beginning behind.
    at = document.moved((seen.start[0], units(seen.text, document.encoding)), seen.version)
    if at is None or document.line(at[0]) != seen.text:
        return None
    start = at[0], seen.start[1]
    end = at[0] + seen.end[0] - seen.start[0], seen.end[1]
    problem = replace(seen.problem, line=at[0] + 1)
    return replace(seen, problem=problem, start=start, end=end, version=document.version)


def _point(value: Any) -> Point:
    line, character = (value.get(key) if isinstance(value, Mapping) else None for key in ("line", "character"))
    return _count(line), _count(character)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
