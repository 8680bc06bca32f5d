"""A server's WorkspaceEdit as an edit set, the way an editor understands it: versions checked, positions in UTF-16.

It writes nothing. The demo shows the edit set as a diff, and applies it to its own project alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, assert_never

from lsprotocol import types

from thinklsp.core.edits import EditSet, TextEdit, apply_edits
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.lines import split_lines
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import Place, WorkspaceView

Change: TypeAlias = types.TextDocumentEdit | types.CreateFile | types.RenameFile | types.DeleteFile
LspTextEdit: TypeAlias = types.TextEdit | types.AnnotatedTextEdit | types.SnippetTextEdit


class EditRefused(ThinkLspError):
    """An edit that an editor would not apply; the sentence goes back to the server."""


def edit_set_of(edit: types.WorkspaceEdit, view: WorkspaceView, versions: Mapping[str, int]) -> EditSet:
    """Apply all changes of the edit to the content of `view`. `versions`: those of the open documents.

    Raises EditRefused for a stale or broken edit, PathRefused for a place that may not be changed.
    """
    overlay = EditOverlay(view)
    for change in _changes(edit):
        match change:
            case types.CreateFile():
                _create(overlay, view.resolve(change.uri), change.options or types.CreateFileOptions())
            case types.RenameFile():
                overlay.rename(view.resolve(change.old_uri), view.resolve(change.new_uri))
            case types.DeleteFile():
                overlay.delete(view.resolve(change.uri))
            case types.TextDocumentEdit():
                _edit(overlay, change, versions)
            case _:
                assert_never(change)
    return overlay.edit_set()


def count_unconfirmed(edit: types.WorkspaceEdit) -> int:
    """Return how many changes the server wants the user to confirm before they are made."""
    asking = {name for name, mark in (edit.change_annotations or {}).items() if mark.needs_confirmation}
    return sum(
        getattr(part, "annotation_id", None) in asking
        for change in edit.document_changes or ()
        for part in (change.edits if isinstance(change, types.TextDocumentEdit) else (change,))
    )


def offset_in(text: str, position: types.Position) -> int:
    """Return the code point offset of an LSP position; one beyond its line or the text means its end."""
    lines = split_lines(text)
    if position.line >= len(lines):
        return len(text)
    at = sum(map(len, lines[: position.line]))
    units = position.character
    for char in lines[position.line].rstrip("\r\n"):
        units -= 2 if ord(char) > 0xFFFF else 1
        if units < 0:
            break
        at += 1
    return at


def _changes(edit: types.WorkspaceEdit) -> Iterator[Change]:
    """Return `documentChanges` if there are any, else `changes` in the same form."""
    if edit.document_changes is not None:
        yield from edit.document_changes
        return
    for uri, edits in (edit.changes or {}).items():
        yield types.TextDocumentEdit(types.OptionalVersionedTextDocumentIdentifier(uri), edits)


def _create(overlay: EditOverlay, place: Place, options: types.CreateFileOptions) -> None:
    if overlay.read(place) is None or options.overwrite:
        overlay.write(place, "")
    elif not options.ignore_if_exists:
        raise EditRefused(f"{place.shown} exists already.")


def _edit(overlay: EditOverlay, change: types.TextDocumentEdit, versions: Mapping[str, int]) -> None:
    uri, version = change.text_document.uri, change.text_document.version
    if version is not None and versions.get(uri) != version:
        raise EditRefused(f"The edit is for version {version} of {uri}, which is not the one that is open.")
    place = overlay.view.resolve(uri)
    found = overlay.read(place)
    if found is None:
        raise EditRefused(f"{place.shown} does not exist.")
    overlay.write(place, _edited(found.text, change.edits, place.shown))


def _edited(text: str, edits: Sequence[LspTextEdit], shown: str) -> str:
    made = []
    for edit in edits:
        if isinstance(edit, types.SnippetTextEdit):
            raise EditRefused(f"The edit of {shown} contains a snippet, which the demo does not support.")
        made.append(TextEdit(offset_in(text, edit.range.start), offset_in(text, edit.range.end), edit.new_text))
    try:
        return apply_edits(text, made)
    except ValueError as error:
        raise EditRefused(f"The edit of {shown} cannot be made: {error}.") from None
