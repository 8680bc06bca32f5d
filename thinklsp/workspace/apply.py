"""An edit set onto disk, for terminal commands after the user said yes. The language server never calls this.

Files are written one by one through the gate; each only if it still holds what the turn started from.
"""

from __future__ import annotations

from dataclasses import dataclass

from thinklsp.core.edits import EditSet, FileEdit
from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Root
from thinklsp.workspace.relpath import RelPath
from thinklsp.workspace.view import Place, WorkspaceView

_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """`reason` None: written. Otherwise a sentence that says why this file was left as it is."""

    uri: str
    reason: str | None = None


def apply_to_disk(edit_set: EditSet, view: WorkspaceView) -> tuple[FileOutcome, ...]:
    """In order, one outcome per file. `view` is the one that the turn had; documents in it count as saved files."""
    return tuple(_outcome(edit, view) for edit in edit_set.files)


def _outcome(edit: FileEdit, view: WorkspaceView) -> FileOutcome:
    try:
        _apply(edit, view)
    except PathRefused as refused:
        return FileOutcome(edit.uri, str(refused))
    return FileOutcome(edit.uri)


def _apply(edit: FileEdit, view: WorkspaceView) -> None:
    root, path = _on_disk(view.resolve(edit.uri))
    if edit.before is None:
        root.create(path, _encoded(edit.after or ""))
        return
    expected = _encoded(edit.before)
    data = root.read(path)
    # Texts read from disk came without the mark, those of open documents as the editor has them.
    marked = data is not None and data.startswith(_MARK) and not expected.startswith(_MARK)
    mark = _MARK if marked else b""
    if data != mark + expected:
        raise PathRefused(f"`{edit.path}` has changed on disk meanwhile and was left as it is.")
    if edit.after is None:
        root.delete(path)
        return
    if edit.after != edit.before:
        root.replace(path, mark + _encoded(edit.after), expected=data)
    if edit.new_uri is not None:
        new_root, new_path = _on_disk(view.resolve(edit.new_uri))
        if new_root is root:
            root.rename(path, new_path)
        else:
            new_root.create(new_path, mark + _encoded(edit.after))
            root.delete(path)


def _on_disk(place: Place) -> tuple[Root, RelPath]:
    if place.root is None or place.path is None:
        raise PathRefused(f"`{place.shown}` is not a file in a workspace folder.")
    return place.root, place.path


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise PathRefused("The new text holds half of a character pair and cannot be written as UTF-8.") from None
