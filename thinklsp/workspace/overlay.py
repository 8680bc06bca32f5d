"""What a turn has changed so far. Nothing leaves it but the `EditSet` at the end; disk and editor are not touched.

Owned by one turn, and the only mutable thing in this room. Reads fall through: pending edit, then the view.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from thinklsp.core.edits import EditSet, FileEdit
from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import EDIT_LIMIT
from thinklsp.workspace.relpath import quoted
from thinklsp.workspace.view import FileText, Place, WorkspaceView

_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Pending:
    """What stands at a place now. `text` None: nothing. `origin`: the key that its content was renamed from."""

    place: Place
    text: str | None
    origin: str | None = None


class EditOverlay:
    def __init__(self, view: WorkspaceView) -> None:
        self.view = view
        self._pending: dict[str, _Pending] = {}

    def read(self, place: Place) -> FileText | None:
        """As `WorkspaceView.read`, with this turn's edits; their source is `turn`."""
        return self._text(place, keep=True)

    def peek(self, place: Place) -> FileText | None:
        return self._text(place, keep=False)

    def kind(self, place: Place) -> Literal["file", "directory", "link", "other"] | None:
        pending = self._pending.get(place.key)
        if pending is not None:
            return None if pending.text is None else "file"
        if any(self._is_below(other, place) for other in self._present()):
            return "directory"
        return self.view.kind(place)

    def changed(self) -> tuple[Place, ...]:
        """Every place that this turn has touched, deleted ones included."""
        return tuple(pending.place for pending in self._pending.values())

    def origin(self, place: Place) -> Place:
        """The place whose file `edit_set` renames to this one; the place itself where it does not."""
        old = next((old for old, new in self._renames().items() if new == place.key), None)
        return place if old is None else self._pending[old].place

    def write(self, place: Place, text: str) -> None:
        """The new text of a file, which is created where there was none. Raises PathRefused; then nothing changed."""
        self._check(place)
        _check_size(place, text)
        known = self.read(place)
        _check_whole(place, text, "" if known is None else known.text)
        if known is None:
            self._check_room(place)
        pending = self._pending.get(place.key)
        origin = place.key if pending is None or pending.text is None else pending.origin
        self._pending[place.key] = _Pending(place, text, origin)

    def rename(self, old: Place, new: Place) -> None:
        text = self._existing(old)
        if new.root is None:
            raise PathRefused(f"{quoted(new.shown)} is not a place in a workspace folder.")
        self._check(new)
        if new.key == old.key:
            raise PathRefused(f"{quoted(old.shown)} has that name already.")
        if self.kind(new) is not None:
            raise PathRefused(f"{quoted(new.shown)} exists already; choose another name or delete it first.")
        self._check_room(new)
        pending = self._pending.get(old.key)
        origin = old.key if pending is None else pending.origin
        self._pending[new.key] = _Pending(new, text, origin)
        self._pending[old.key] = _Pending(old, None)

    def delete(self, place: Place) -> None:
        self._existing(place)
        self._pending[place.key] = _Pending(place, None)

    def edit_set(self) -> EditSet:
        """The net changes against what the turn started from, in the order in which files were first touched.

        A rename is one edit with `new_uri` where its old name has become free and its new name was free before;
        a longer shuffle comes as what it does to each file. So the edits do not depend on one another.
        """
        renamed = self._renames()
        targets = set(renamed.values())
        edits = [
            self._edit(pending, self._pending.get(renamed.get(key, "")))
            for key, pending in self._pending.items()
            if key not in targets
        ]
        return EditSet(tuple(edit for edit in edits if edit is not None))

    def _renames(self) -> dict[str, str]:
        """Old key to new key."""
        renamed: dict[str, str] = {}
        for key, pending in self._pending.items():
            origin = pending.origin
            if pending.text is None or origin is None or origin in (key, *renamed):
                continue
            left = self._pending.get(origin)
            if left is None or left.text is not None:
                continue
            if self.view.read(left.place) is not None and self.view.read(pending.place) is None:
                renamed[origin] = key
        return renamed

    def _edit(self, pending: _Pending, target: _Pending | None) -> FileEdit | None:
        place = pending.place
        start = self.view.read(place)
        before = None if start is None else start.text
        version = None if start is None else start.version
        if target is not None:
            new = target.place
            return FileEdit(place.uri, place.shown, before, target.text, version, new.uri, new.shown)
        if before == pending.text:
            return None
        return FileEdit(place.uri, place.shown, before, pending.text, version)

    def _text(self, place: Place, *, keep: bool) -> FileText | None:
        pending = self._pending.get(place.key)
        if pending is None:
            return self.view.read(place) if keep else self.view.peek(place)
        return None if pending.text is None else FileText(pending.text, "turn")

    def _existing(self, place: Place) -> str:
        """The text of a file that is about to go. Raises PathRefused where that cannot be."""
        if place.root is None:
            raise PathRefused(f"{quoted(place.shown)} is not a file in a workspace folder; only its text can change.")
        self._check(place)
        found = self.read(place)
        if found is None:
            raise PathRefused(f"{quoted(place.shown)} does not exist.")
        return found.text

    def _check(self, place: Place) -> None:
        self.view.check_writable(place)
        start = self.view.read(place)
        if start is not None:
            _check_size(place, start.text)

    def _check_room(self, place: Place) -> None:
        """A new file may neither take the name of a folder nor use a file as a folder."""
        if place.root is None:
            raise PathRefused(f"{quoted(place.shown)} is not open and not in a workspace folder.")
        for other in self._present():
            if self._is_below(other, place):
                raise PathRefused(f"{quoted(place.shown)} is a folder, not a file.")
            if self._is_below(place, other):
                raise PathRefused(f"{quoted(other.shown)} is a file, so nothing can be created below it.")

    def _present(self) -> list[Place]:
        """Files that this turn has made or changed, and those that are open without being on disk."""
        made = [pending.place for pending in self._pending.values() if pending.text is not None]
        known = [place for place in self.view.unlike_disk() if place.key not in self._pending]
        return made + known

    @staticmethod
    def _is_below(inner: Place, outer: Place) -> bool:
        return inner.key.startswith(outer.key.rstrip("/") + "/")


def _check_whole(place: Place, text: str, before: str) -> None:
    """Raises PathRefused for a text with more halves of characters than the one before: the editor and the disk would
    get another text than the one that is remembered. Those of a document are the editor's own."""
    halves = _HALF.findall(text)
    if len(halves) > len(_HALF.findall(before)):
        raise PathRefused(
            f"{quoted(place.shown)} was left as it is: the new text holds half of a character, {quoted(halves[0])}, "
            "which cannot stand in a file. Send the text again with the whole character, or without it."
        )


def _check_size(place: Place, text: str) -> None:
    """Raises PathRefused for a text that is too large to be edited by a turn."""
    if len(text) > EDIT_LIMIT or len(text.encode("utf-8", "surrogatepass")) > EDIT_LIMIT:
        raise PathRefused(f"{quoted(place.shown)} is larger than {EDIT_LIMIT // 1024} KiB, more than tools edit.")
