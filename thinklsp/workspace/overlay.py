"""The pending changes of a turn. They change neither the disk nor the editor.

The overlay is the only mutable object in this package and belongs to one turn. Files are read with their pending
changes. At the end of the turn, the overlay returns an `EditSet`. Terminal commands call `apply_to_disk` after the
user's consent, but the language server never does.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

from thinklsp.core.edits import EditSet, FileEdit
from thinklsp.core.errors import PathRefused
from thinklsp.core.messages import Sight
from thinklsp.core.text_safety import format_size
from thinklsp.workspace.documents import format_notebook
from thinklsp.workspace.paths import MAX_EDIT_BYTES, FileKind, Root
from thinklsp.workspace.uri import RelPath, quote_path
from thinklsp.workspace.view import FileText, Place, WorkspaceView

_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Pending:
    """The pending state of a file.

    `text` is None if the turn deleted the file. `origin` is the key of the place from which the file was renamed.
    """

    place: Place
    text: str | None
    origin: str | None = None


class EditOverlay:
    """The pending changes of a turn. `sight` is the model's knowledge of the files."""

    def __init__(self, view: WorkspaceView) -> None:
        self.view = view
        self.sight = Sight()
        self._pending: dict[str, _Pending] = {}

    def read(self, place: Place) -> FileText | None:
        """Read a file with this turn's edits. If the turn has edited the file, the text's source is `turn`."""
        return self._read_text(place, cache=True)

    def peek(self, place: Place) -> FileText | None:
        return self._read_text(place, cache=False)

    def find_kind(self, place: Place) -> FileKind | None:
        pending = self._pending.get(place.key)
        if pending is not None:
            return None if pending.text is None else "file"
        if any(self._is_below(other, place) for other in self._list_present()):
            return "directory"
        return self.view.find_kind(place)

    def list_changed(self) -> tuple[Place, ...]:
        """Return the places of all files that this turn changed, including deleted files."""
        return tuple(pending.place for pending in self._pending.values())

    def find_origin(self, place: Place) -> Place:
        """Return the original place of a renamed file. For other files, return `place` itself."""
        old = next((old for old, new in self._find_renames().items() if new == place.key), None)
        return place if old is None else self._pending[old].place

    def find_moved(self, place: Place) -> Place | None:
        """Return the new place of a file that this turn renamed, or None."""
        moved = (pending for pending in self._pending.values() if pending.origin == place.key)
        return next((pending.place for pending in moved if pending.place.key != place.key), None)

    def write(self, place: Place, text: str) -> None:
        """Set the text of a new or existing file.

        If the file must not be changed, raise PathRefused without any change.
        """
        self._check_editable(place)
        _check_size(place, text)
        current = self.read(place)
        _check_surrogates(place, text, "" if current is None else current.text)
        if current is None:
            self._check_free(place)
        pending = self._pending.get(place.key)
        origin = place.key if pending is None or pending.text is None else pending.origin
        self._pending[place.key] = _Pending(place, text, origin)

    def rename(self, old: Place, new: Place) -> None:
        text = self._read_existing(old)
        if new.root is None:
            raise PathRefused(f"{quote_path(new.label)} is not in a workspace folder.")
        self._check_editable(new)
        if self.view.find_operation_uri(old) != old.uri:
            raise PathRefused(
                f"{quote_path(old.label)} is open in the editor through a link to it, so it cannot be renamed. Ask the "
                "user to close the document first."
            )
        if new.key == old.key:
            raise PathRefused(f"{quote_path(old.label)} already has that name.")
        if self.find_kind(new) is not None:
            raise PathRefused(f"{quote_path(new.label)} already exists; choose another name or delete it first.")
        self._check_free(new)
        pending = self._pending.get(old.key)
        origin = old.key if pending is None else pending.origin
        self._pending[new.key] = _Pending(new, text, origin)
        self._pending[old.key] = _Pending(old, None)

    def delete(self, place: Place) -> None:
        self._read_existing(place)
        self._pending[place.key] = _Pending(place, None)

    def build_edit_set(self) -> EditSet:
        """Return the net changes of the turn, in the order in which the files were first changed.

        A rename becomes a single edit with `new_uri` if the old path no longer exists and the new path did not exist
        before. In a chain of renames, each file has an independent edit.
        """
        renamed = self._find_renames()
        targets = set(renamed.values())
        edits = [
            self._build_edit(pending, self._pending.get(renamed.get(key, "")))
            for key, pending in self._pending.items()
            if key not in targets
        ]
        return EditSet(tuple(edit for edit in edits if edit is not None))

    def _find_renames(self) -> dict[str, str]:
        """Map the old key of each renamed file to its new key."""
        renamed: dict[str, str] = {}
        for key, pending in self._pending.items():
            origin = pending.origin
            if pending.text is None or origin is None or origin in (key, *renamed):
                continue
            source = self._pending.get(origin)
            if source is None or source.text is not None:
                continue
            if self.view.read(source.place) is not None and self.view.read(pending.place) is None:
                renamed[origin] = key
        return renamed

    def _build_edit(self, pending: _Pending, target: _Pending | None) -> FileEdit | None:
        place = pending.place
        start = self.view.read(place)
        before = None if start is None else start.text
        version = None if start is None else start.version
        key = "" if place.root is None else place.key
        if target is None and pending.text is None and before is not None and has_bom(place):
            # The text must be complete for an undo, because no file is left that has the mark.
            before = _BOM + before.removeprefix(_BOM)
        if target is not None:
            new = target.place
            return FileEdit(place.uri, place.label, before, target.text, version, new.uri, new.label, key)
        if before == pending.text:
            return None
        uri = place.uri if pending.text is not None else self.view.find_operation_uri(place)
        return FileEdit(uri, place.label, before, pending.text, version, key=key)

    def _read_text(self, place: Place, *, cache: bool) -> FileText | None:
        pending = self._pending.get(place.key)
        cells = self.view.list_cells(place)
        if any(cell.key in self._pending for cell in cells):
            self.view.check_readable(place)
            texts = ((cell.uri, self._read_text(cell, cache=cache)) for cell in cells)
            return FileText(format_notebook((uri, cell.text) for uri, cell in texts if cell is not None), "turn")
        if pending is None:
            return self.view.read(place) if cache else self.view.peek(place)
        return None if pending.text is None else FileText(pending.text, "turn")

    def _read_existing(self, place: Place) -> str:
        """Return the text of a file that will be deleted or renamed. Raises PathRefused if this is not allowed."""
        if place.root is None:
            raise PathRefused(f"{quote_path(place.label)} is not in a workspace folder, so it can only be edited.")
        self._check_editable(place)
        current = self.read(place)
        if current is None:
            raise PathRefused(f"{quote_path(place.label)} does not exist.")
        return current.text

    def _check_editable(self, place: Place) -> None:
        self.view.check_writable(place)
        start = self.view.read(place)
        if start is not None:
            _check_size(place, start.text)

    def _check_free(self, place: Place) -> None:
        """Raise PathRefused if the place is a folder or is inside a file, because no file can be created there."""
        if place.root is None:
            raise PathRefused(f"{quote_path(place.label)} is not open and not in a workspace folder.")
        for other in self._list_present():
            if self._is_below(other, place):
                raise PathRefused(f"{quote_path(place.label)} is a folder, not a file.")
            if self._is_below(place, other):
                raise PathRefused(f"{quote_path(other.label)} is a file, so nothing can be created below it.")

    def _list_present(self) -> list[Place]:
        """Return the files that this turn created or changed, and the open documents."""
        written_places = [pending.place for pending in self._pending.values() if pending.text is not None]
        open_places = [place for place in self.view.list_open_places() if place.key not in self._pending]
        return written_places + open_places

    @staticmethod
    def _is_below(inner: Place, outer: Place) -> bool:
        return inner.key.startswith(outer.key.rstrip("/") + "/")


def _check_surrogates(place: Place, text: str, before: str) -> None:
    """Raise PathRefused if an edit adds lone surrogates, which files cannot contain."""
    halves = _HALF.findall(text)
    if len(halves) > len(_HALF.findall(before)):
        raise PathRefused(
            f"{quote_path(place.label)} was not changed: the new text contains a lone surrogate, "
            f"{quote_path(halves[0])}, which files cannot contain. Send the text again without it."
        )


def _check_size(place: Place, text: str) -> None:
    if len(text) > MAX_EDIT_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_EDIT_BYTES:
        limit = f"{format_size(MAX_EDIT_BYTES)}, the size limit for edits"
        raise PathRefused(f"{quote_path(place.label)} is larger than {limit}.")


_BOM, _BOM_BYTES = "\ufeff", b"\xef\xbb\xbf"


def has_bom(place: Place) -> bool:
    """Return whether the file on disk starts with a byte order mark, which editors do not include in a document."""
    data = None
    with suppress(PathRefused):
        data = place.load_bytes()
    return data is not None and data.startswith(_BOM_BYTES)


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """The outcome of writing one file to disk. `reason` is the error message if the file was not changed, or None."""

    uri: str
    reason: str | None = None


def apply_to_disk(edit_set: EditSet, view: WorkspaceView) -> tuple[FileOutcome, ...]:
    """Write the edits to disk in their order, and return one outcome per file.

    `view` is the turn's view. Its documents are treated as saved files.
    """
    return tuple(_apply_file(edit, view) for edit in edit_set.files)


def _apply_file(edit: FileEdit, view: WorkspaceView) -> FileOutcome:
    try:
        _apply(edit, view)
    except PathRefused as refused:
        return FileOutcome(edit.uri, str(refused))
    return FileOutcome(edit.uri)


def _apply(edit: FileEdit, view: WorkspaceView) -> None:
    root, path = _require_disk_path(view.resolve(edit.uri))
    if edit.before is None:
        root.create(path, _encode(edit.after or ""))
        return
    expected = _encode(edit.before)
    data = root.read(path)
    # A text from disk has no byte order mark. An open document has exactly the text that the editor sent.
    marked = data is not None and data.startswith(_BOM_BYTES) and not expected.startswith(_BOM_BYTES)
    mark = _BOM_BYTES if marked else b""
    if data != mark + expected:
        raise PathRefused(f"`{edit.path}` changed on disk in the meantime and was not written.")
    if edit.after is None:
        root.delete(path)
        return
    if edit.after != edit.before:
        root.replace(path, mark + _encode(edit.after), expected=data)
    if edit.new_uri is not None:
        new_root, new_path = _require_disk_path(view.resolve(edit.new_uri))
        if new_root is root:
            root.rename(path, new_path)
        else:
            new_root.create(new_path, mark + _encode(edit.after))
            root.delete(path)


def _require_disk_path(place: Place) -> tuple[Root, RelPath]:
    if place.root is None or place.path is None:
        raise PathRefused(f"`{place.label}` is not a file in a workspace folder.")
    return place.root, place.path


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise PathRefused("The new text contains a lone surrogate and cannot be written as UTF-8.") from None
