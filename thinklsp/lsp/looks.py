"""Which changes want a look of the user before they happen. Pure: what was asked for against what would change."""

from __future__ import annotations

from collections.abc import Sequence

from thinklsp.core.edits import FileEdit, hunks
from thinklsp.lsp.convert import Lines
from thinklsp.lsp.edits import Proposal, Review, Scope


def why_looked_at(file: FileEdit, scope: Scope | None, lines: tuple[int, int] | None) -> str | None:
    """Why this change lies outside of what was asked for; None where it does not. `lines`: zero-based, those that a
    hunk replaces, from the first to the one that its end stands in; None for an operation on the whole file."""
    if lines is None and file.deletes:
        return "deletes the file"
    if lines is None and file.new_uri is not None:
        return "renames the file"
    if scope is None:
        return None
    if file.uri != scope.uri:
        return "in another file than the one that you asked about"
    if lines is None or scope.lines is None:
        return None
    first, last = scope.lines
    return None if first <= lines[0] and lines[1] <= last + 1 else "outside the lines that you asked about"


def wants_look(ready: Sequence[Proposal], review: Review, scope: Scope | None) -> bool:
    """Whether anything in the edit does. What the user has asked for by name needs none but by their own setting."""
    if review != "auto":
        return review == "always"
    return any(_outside(item, scope) for item in ready)


def _outside(item: Proposal, scope: Scope | None) -> bool:
    file = item.file
    if why_looked_at(file, scope, None) is not None:
        return True
    if scope is None or scope.lines is None or item.after is None or item.present.text is None:
        return False
    text = item.present.text
    lines = Lines(text, "utf-32")
    places = ((lines.position(hunk.start), lines.position(hunk.end)) for hunk in hunks(text, item.after))
    return any(why_looked_at(file, scope, (start["line"], end["line"])) is not None for start, end in places)
