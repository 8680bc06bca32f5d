"""Which changes want a look of the user before they happen. Pure: what was asked for against what would change."""

from __future__ import annotations

from collections.abc import Sequence

from thinklsp.core.choices import Review
from thinklsp.core.edits import FileEdit, hunks
from thinklsp.lsp.edits.drafts import Proposal, Scope
from thinklsp.lsp.edits.fetched import newly_fetched
from thinklsp.lsp.protocol.convert import Lines


def why_operation(file: FileEdit, scope: Scope | None) -> str | None:
    """Why an operation on the whole file wants a look; None where it does not."""
    if file.deletes:
        return "deletes the file"
    if file.new_uri is not None:
        return "renames the file"
    return why_file(file, scope)


def why_file(file: FileEdit, scope: Scope | None) -> str | None:
    """Why every change of the file's text wants one, wherever it stands."""
    if hosts := newly_fetched(file.before or "", file.after or ""):
        return f"makes editors load from {', '.join(hosts)}"
    if is_untrusted(file, scope):
        return "in a folder whose instructions you have not agreed to"
    if _is_elsewhere(file, scope):
        return "in another file than the one that you asked about"
    return None


def why_lines(scope: Scope | None, lines: tuple[int, int]) -> str | None:
    """Why a hunk in the file that was asked about wants one. `lines`: zero-based, those that it replaces, from the
    first to the one that its end stands in."""
    if scope is None or scope.lines is None:
        return None
    first, last = scope.lines
    return None if first <= lines[0] and lines[1] <= last + 1 else "outside the lines that you asked about"


def wants_look(ready: Sequence[Proposal], review: Review, scope: Scope | None) -> bool:
    """Whether anything in the edit does. What the user has asked for by name needs none but by their own setting."""
    if review != "auto":
        return review == "always"
    return any(loads(item) or is_untrusted(item.file, scope) or is_beyond(item, scope) for item in ready)


def loads(item: Proposal) -> list[str]:
    """The hosts from which editors would load something by the file's being open."""
    return newly_fetched(item.file.before or "", item.after or "")


def is_untrusted(file: FileEdit, scope: Scope | None) -> bool:
    """Tell whether the file is in a folder that the user does not trust."""
    return scope is not None and file.uri in scope.untrusted


def _is_elsewhere(file: FileEdit, scope: Scope | None) -> bool:
    """Tell whether the request named another file."""
    return scope is not None and scope.uri is not None and file.uri != scope.uri


def is_beyond(item: Proposal, scope: Scope | None) -> bool:
    """Whether something in the file's part goes beyond what was asked for."""
    file = item.file
    if file.deletes or file.new_uri is not None or _is_elsewhere(file, scope):
        return True
    if scope is None or scope.lines is None or item.after is None or item.present.text is None:
        return False
    text = item.present.text
    lines = Lines(text, "utf-32")
    places = ((lines.position(hunk.start), lines.position(hunk.end)) for hunk in hunks(text, item.after))
    return any(why_lines(scope, (start["line"], end["line"])) is not None for start, end in places)
