"""The shadow of a workspace during a turn: for each folder an overlay over it, which takes no time to make, or a copy
of what git lists. Everything here blocks, and none of it runs anything."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from thinklsp.core.errors import PathRefused
from thinklsp.sandbox.ground import Ground, Seen, seen
from thinklsp.sandbox.room import Folder
from thinklsp.sandbox.usage import size_of
from thinklsp.workspace.ignore import IgnoreRules
from thinklsp.workspace.masks import Masks, find_masks
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.shadow import content, copy, wanted
from thinklsp.workspace.view import Place, WorkspaceView

_MOST_TOLD = 50
# A command that changes more is told of these; the next one gets a new shadow.
_MOST_LOOKED_AT = 2_000
# What programs leave behind and nobody wants to hear of.
_LEFTOVERS = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".coverage", ".hypothesis", ".cache")


@dataclass(slots=True)
class _Shadow:
    """Of one folder. `copy` is what is bound over it; `made`: where what has been changed is found."""

    root: Root
    copy: str
    made: str
    overlay: Mapping[str, str] | None = None
    shown: tuple[str, ...] = ()
    before: Seen = field(default_factory=dict)
    given: int = 0


class Shadows:
    """`spoiled`: commands have made of it what cannot be brought up to date; the next one needs a new one. What a
    command makes besides what is there, such as a build, stays for those after it; what it changes is put back.
    `littered`: something that it made stays which git does not ignore, so that this is not what the user will have."""

    def __init__(
        self, view: WorkspaceView, state_folder: str, *, overlays: bool, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Raises OSError, and PathRefused where the workspace cannot be copied. `stopped`: nobody waits any more."""
        self.spoiled = self.littered = False
        self._known: dict[str, Place] = {}
        self._ground = Ground(state_folder)
        with ExitStack() as unless_made:
            unless_made.callback(self._ground.close)
            self._shadows = [
                self._overlaid(folder.root, str(index)) if overlays else self._copied(folder.root, str(index), stopped)
                for index, folder in enumerate(view.folders)
            ]
            unless_made.pop_all()

    def close(self) -> None:
        self._ground.close()

    @property
    def nothing(self) -> str:
        """An empty file."""
        return self._ground.nothing

    @property
    def written(self) -> list[str]:
        """The folders on disk that hold what commands write."""
        return [shadow.made for shadow in self._shadows]

    @property
    def given(self) -> int:
        """The bytes that those folders held before the first command."""
        return sum(shadow.given for shadow in self._shadows)

    def overlays(self) -> list[Mapping[str, str]]:
        return [shadow.overlay for shadow in self._shadows if shadow.overlay is not None]

    def folders(self) -> list[Folder]:
        """Looked at again for each command: the user may have made secrets in the meantime. Raises PathRefused."""
        return [self._folder(shadow, str(index)) for index, shadow in enumerate(self._shadows)]

    def _folder(self, shadow: _Shadow, name: str) -> Folder:
        masks = _seen_masks(shadow, find_masks(shadow.root))
        replaced = [
            (path, self._ground.file(data, name, "shown", str(number)))
            for number, (path, data) in enumerate(masks.replaced.items())
        ]
        return Folder(shadow.root.path, shadow.copy, shadow.shown, tuple(masks.hidden), tuple(replaced))

    def sync(self, overlay: EditOverlay) -> list[dict[str, Any]]:
        """What has to be written and deleted before a command, as `sandbox.enter` takes it."""
        changes: dict[int, dict[str, Any]] = {}
        for place, file in wanted(overlay, self._known.values()):
            self._known[place.key] = place
            shadow = next((one for one in self._shadows if one.root is file.root), None)
            if shadow is None:
                continue
            change = changes.setdefault(id(shadow), {"folder": shadow.copy, "writes": [], "deletes": []})
            if file.data is None:
                change["deletes"].append(file.parts)
            else:
                change["writes"].append([file.parts, base64.b64encode(file.data).decode(), file.mode])
        return list(changes.values())

    def changed(self, overlay: EditOverlay) -> tuple[str, ...]:
        """What the command has changed, created or deleted, as people call it, besides what git ignores."""
        found: dict[tuple[Root, tuple[str, ...]], str] = {}
        self.spoiled = False
        for shadow in self._shadows:
            for number, parts in enumerate(_touched(shadow)):
                if number >= _MOST_LOOKED_AT:
                    self.spoiled = True
                    break
                if self._differs(shadow, parts, overlay):
                    found[shadow.root, parts] = _shown(overlay.view, shadow.root, parts)
        # What has gone with its folder is not told of by itself.
        outermost = (
            name
            for (root, parts), name in found.items()
            if not any((root, parts[:depth]) in found for depth in range(1, len(parts)))
        )
        return tuple(islice(outermost, _MOST_TOLD))

    def _differs(self, shadow: _Shadow, parts: tuple[str, ...], overlay: EditOverlay) -> bool:
        """Whether it is not as the turn has it. It will be, before the next command, unless it is new."""
        path = os.path.join(shadow.made, *parts)
        try:
            place = overlay.view.place_in(shadow.root, parts)
            data = content(overlay, place)
        except PathRefused:
            self.spoiled = True
            return True
        if data is None:
            is_there = not _is_gone(path)
            self.littered = self.littered or is_there
            return is_there
        self._known[place.key] = place
        return not _holds(path, data)

    def _overlaid(self, root: Root, name: str) -> _Shadow:
        names = {part: self._ground.folder(name, part) for part in ("upper", "work", "merged")}
        return _Shadow(root, names["merged"], names["upper"], {"lower": root.path, **names})

    def _copied(self, root: Root, name: str, stopped: Callable[[], bool]) -> _Shadow:
        target = self._ground.folder(name, "copy")
        copied = copy(root, target, stopped=stopped)
        return _Shadow(
            root, target, target, shown=tuple(copied.left_out), before=seen(target), given=size_of(target)[0]
        )


def _seen_masks(shadow: _Shadow, found: Masks) -> Masks:
    """Of a copy, only those in folders that are shown as they are: the copy itself holds no secrets."""
    if shadow.overlay is not None:
        return found

    def is_shown(path: str) -> bool:
        return any(path.startswith(f"{folder}/") for folder in shadow.shown)

    replaced = {path: data for path, data in found.replaced.items() if is_shown(path)}
    return Masks(list(filter(is_shown, found.hidden)), replaced)


def _touched(shadow: _Shadow) -> Iterator[tuple[str, ...]]:
    before, shadow.before = shadow.before, seen(shadow.made)
    rules = IgnoreRules(shadow.root)
    names = {name for name, state in shadow.before.items() if before.get(name) != state}
    for name in sorted(names | (before.keys() - shadow.before.keys())):
        parts = tuple(name.split("/"))
        if not any(part in _LEFTOVERS for part in parts) and not rules.ignored(parts):
            yield parts


def _shown(view: WorkspaceView, root: Root, parts: tuple[str, ...]) -> str:
    path = "/".join((*view.shown_above(root), *parts))
    return path.encode("utf-8", "replace").decode()


def _is_gone(path: str) -> bool:
    """In an overlay, what is gone is a sign of its own."""
    try:
        found = os.lstat(path)
    except OSError:
        return True
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _holds(path: str, data: bytes) -> bool:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(len(data) + 1) == data
    except OSError:
        return False
