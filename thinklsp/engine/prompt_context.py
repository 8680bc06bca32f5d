"""The files that `@` mentions add to a prompt, and the mention of a document."""

from __future__ import annotations

from thinklsp.core.errors import PathRefused
from thinklsp.core.markdown import filter_outside_fences
from thinklsp.core.prompt_syntax import find_mentions, write_mention
from thinklsp.core.text_safety import escape_invisible
from thinklsp.engine.turn_request import Reference
from thinklsp.workspace.uri import uri_to_path
from thinklsp.workspace.view import WorkspaceView

_MAX_NOTICES = 5


def find_file_references(prompt: str, view: WorkspaceView) -> tuple[tuple[Reference, ...], tuple[str, ...]]:
    """Return the files that a prompt mentions, and a notice for each mention that could not be resolved."""
    references: list[Reference] = []
    notices: list[str] = []
    prose = set(find_mentions("\n".join(line for _, line in filter_outside_fences(prompt.splitlines()))))
    for mention in find_mentions(prompt):
        if _is_file(view, mention.path):
            references.append(Reference(mention.path, mention.lines))
        elif mention.lines is not None and mention in prose and len(notices) < _MAX_NOTICES:
            # A mention without line numbers, or in code, may not refer to a file.
            notices.append(f"{escape_invisible(mention.text)} is neither a workspace file nor an open document.")
    return tuple(references), tuple(notices)


def format_mention(uri: str, view: WorkspaceView, lines: tuple[int, int] | None) -> str:
    """Format a mention of lines in a document as `@path:L1-L2`.

    If tools cannot read the document, use only its file name.
    """
    try:
        name = view.resolve(uri).label
    except PathRefused:
        name = uri_to_path(uri).rsplit("/", 1)[-1] if uri.startswith("file:") else uri
    return write_mention(name, lines)


def _is_file(view: WorkspaceView, path: str) -> bool:
    """Return True if the text after an `@` is a file path rather than an ordinary word."""
    try:
        return view.find_kind(view.resolve(path)) == "file"
    except PathRefused:
        return False
