"""A server's WorkspaceEdit as an edit set, the way an editor understands it: versions checked, positions in UTF-16.

It writes nothing. The demo shows what comes out as a diff, and applies it to its own project alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thinklsp.core.edits import EditSet, TextEdit, apply_edits
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.lines import split_lines
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import Place, WorkspaceView

Json = Mapping[str, Any]


class EditRefused(ThinkLspError):
    """An edit that an editor would not apply; the sentence goes back to the server."""


def edit_set_of(edit: Json, view: WorkspaceView, versions: Mapping[str, int]) -> EditSet:
    """All changes of the edit on what `view` holds. `versions`: those of the open documents.

    Raises EditRefused for a stale or broken edit, PathRefused for a place that may not be changed.
    """
    overlay = EditOverlay(view)
    for change in _changes(edit):
        match change.get("kind"):
            case "create":
                _create(overlay, view.resolve(change["uri"]), change.get("options") or {})
            case "rename":
                overlay.rename(view.resolve(change["oldUri"]), view.resolve(change["newUri"]))
            case "delete":
                overlay.delete(view.resolve(change["uri"]))
            case None:
                _edit(overlay, change, versions)
            case other:
                raise EditRefused(f"The edit asks for {other!r}, which no editor knows.")
    return overlay.edit_set()


def to_be_confirmed(edit: Json) -> int:
    """How many changes the server wants the user to look at before they are made."""
    asking = {name for name, mark in (edit.get("changeAnnotations") or {}).items() if mark.get("needsConfirmation")}
    parts = [part for change in edit.get("documentChanges") or () for part in change.get("edits", [change])]
    return sum(part.get("annotationId") in asking for part in parts)


def offset_in(text: str, position: Json) -> int:
    """The code point offset of an LSP position; one beyond its line or the text means its end."""
    lines = split_lines(text)
    if position["line"] >= len(lines):
        return len(text)
    at = sum(map(len, lines[: position["line"]]))
    units = position["character"]
    for char in lines[position["line"]].rstrip("\r\n"):
        units -= 2 if ord(char) > 0xFFFF else 1
        if units < 0:
            break
        at += 1
    return at


def _changes(edit: Json) -> Iterator[Json]:
    """`documentChanges` where there are any, else `changes` in the same form."""
    if edit.get("documentChanges") is not None:
        yield from edit["documentChanges"]
        return
    for uri, edits in (edit.get("changes") or {}).items():
        yield {"textDocument": {"uri": uri, "version": None}, "edits": edits}


def _create(overlay: EditOverlay, place: Place, options: Json) -> None:
    if overlay.read(place) is None or options.get("overwrite"):
        overlay.write(place, "")
    elif not options.get("ignoreIfExists"):
        raise EditRefused(f"{place.shown} exists already.")


def _edit(overlay: EditOverlay, change: Json, versions: Mapping[str, int]) -> None:
    uri, version = change["textDocument"]["uri"], change["textDocument"].get("version")
    if version is not None and versions.get(uri) != version:
        raise EditRefused(f"The edit is for version {version} of {uri}, which is not the one that is open.")
    place = overlay.view.resolve(uri)
    found = overlay.read(place)
    if found is None:
        raise EditRefused(f"{place.shown} does not exist.")
    overlay.write(place, _edited(found.text, change["edits"], place.shown))


def _edited(text: str, edits: Sequence[Json], shown: str) -> str:
    made = [
        TextEdit(offset_in(text, edit["range"]["start"]), offset_in(text, edit["range"]["end"]), edit["newText"])
        for edit in edits
    ]
    try:
        return apply_edits(text, made)
    except ValueError as error:
        raise EditRefused(f"The edit of {shown} cannot be made: {error}.") from None
