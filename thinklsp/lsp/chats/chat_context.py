"""What the words after an `@` in a prompt bring along: files, the selection, diagnostics. From memory and a view."""

from __future__ import annotations

from dataclasses import dataclass

from thinklsp.core.errors import PathRefused
from thinklsp.core.problems import Diagnosed
from thinklsp.engine import Reference
from thinklsp.lsp.chats.chat_outline import outside_fences
from thinklsp.lsp.chats.mentions import mentions, special_mentions, written
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.editor.subjects import latest_place, lines_of
from thinklsp.tools.shown import visible
from thinklsp.workspace.uri import uri_to_path
from thinklsp.workspace.view import WorkspaceView

_AROUND = 3
_MOST_NOTICES = 5


@dataclass(frozen=True, slots=True)
class Context:
    """`notices` say what was asked for and is not there."""

    references: tuple[Reference, ...]
    diagnosed: Diagnosed | None = None
    notices: tuple[str, ...] = ()


def context_of(prompt: str, view: WorkspaceView, state: State) -> Context:
    references: list[Reference] = []
    diagnosed = None
    notices: list[str] = []
    prose = set(mentions("\n".join(line for _, line in outside_fences(prompt.splitlines()))))
    for mention in mentions(prompt):
        if _is_file(view, mention.path):
            references.append(Reference(mention.path, mention.lines))
        elif mention.lines is not None and mention in prose and len(notices) < _MOST_NOTICES:
            # Without lines it may be a mere word, and in code anything.
            notices.append(f"{visible(mention.text)} names no file of the workspace and no open document.")
    for word in special_mentions(prompt):
        if word == "selection":
            found: Reference | str = _selection(view, state)
        else:
            diagnosed, found = _diagnostics(view, state)
        if isinstance(found, str):
            notices.append(found)
        else:
            references.append(found)
    return Context(tuple(dict.fromkeys(references)), diagnosed, tuple(notices))


def mention_of(uri: str, view: WorkspaceView, lines: tuple[int, int] | None) -> str:
    """`@path:L1-L2` for a document, or its file name where it has no path in a folder and is not open."""
    try:
        name = view.resolve(uri).shown
    except PathRefused:
        name = uri_to_path(uri).rsplit("/", 1)[-1] if uri.startswith("file:") else uri
    return written(name, lines)


def _selection(view: WorkspaceView, state: State) -> Reference | str:
    place = latest_place(state)
    if place is None:
        return (
            "@selection was left out: no code has been selected yet. Select some and ask for code actions there, "
            "then send again."
        )
    if place.range is None:
        return "@selection was left out: the selected code has changed since. Select it again, then send again."
    if not _can_be_read(view, place.uri):
        return "@selection was left out: its document is closed and no file of the workspace."
    return Reference(place.uri, lines_of(place.range, place.line_count))


def _diagnostics(view: WorkspaceView, state: State) -> tuple[Diagnosed | None, Reference | str]:
    place = latest_place(state)
    if place is None or not place.problems:
        return None, (
            "@diagnostics was left out: no diagnostics are known. Ask for code actions where they stand, "
            "then send again."
        )
    if not _can_be_read(view, place.uri):
        return None, "@diagnostics was left out: their document is closed and no file of the workspace."
    lines = [problem.line for problem in place.problems]
    around = (max(1, min(lines) - _AROUND), max(lines) + _AROUND)
    return Diagnosed(view.resolve(place.uri).shown, place.problems), Reference(place.uri, around)


def _is_file(view: WorkspaceView, path: str) -> bool:
    """A word after an @ that names no file is just a word."""
    try:
        return view.kind(view.resolve(path)) == "file"
    except PathRefused:
        return False


def _can_be_read(view: WorkspaceView, uri: str) -> bool:
    try:
        return view.peek(view.resolve(uri)) is not None
    except PathRefused:
        return False
