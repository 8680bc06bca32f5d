"""Shadow copies of the workspace folders, which commands can change during a turn.

A shadow copy is an overlay mount or, if the system does not support overlay mounts, a copy of the files that git lists.
It is stored in a scratch folder, which is deleted at the end of the turn. If the server is killed, the next server
deletes the folder. The functions in this module block and run no programs.
"""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from thinklsp.core.errors import PathRefused
from thinklsp.sandbox.bubblewrap import SandboxFolder
from thinklsp.sandbox.resource_usage import measure_folder
from thinklsp.workspace.ignore import IgnoreRules
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.shadow import Masks, collect_files, copy_folder, find_masks, read_content
from thinklsp.workspace.view import Place, WorkspaceView

_MAX_REPORTED = 50
# The maximum number of changed paths to compare. After more changes, the next command gets a new shadow copy.
_MAX_CHECKED = 2_000
# Files that common programs leave behind. They are not reported as changes.
_LEFTOVERS = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".coverage", ".hypothesis", ".cache")


@dataclass(slots=True)
class _Shadow:
    """A shadow copy of a workspace folder. In the sandbox, it is mounted at `bound_folder`. `changes_folder` receives
    all changes."""

    root: Root
    bound_folder: str
    changes_folder: str
    overlay: Mapping[str, str] | None = None
    visible_folders: tuple[str, ...] = ()
    states: _FileStates = field(default_factory=dict)
    initial_bytes: int = 0


class Shadows:
    """The shadow copies of all workspace folders.

    New files, such as build results, are kept for later commands, while changed files are restored. `is_spoiled` is
    true if the next command needs new copies. `has_leftovers` is true if a new file was kept that git does not ignore.
    """

    def __init__(
        self, view: WorkspaceView, state_folder: str, *, overlays: bool, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Create the shadow copies, and stop early if `should_stop` returns True. Raises OSError or PathRefused."""
        self.is_spoiled = self.has_leftovers = False
        self._written_places: dict[str, Place] = {}
        self._scratch = _ScratchFolder(state_folder)
        self.empty_file = self._scratch.empty_file
        with ExitStack() as unless_made:
            unless_made.callback(self._scratch.close)
            self._shadows = [
                self._create_overlay(folder.root, str(index))
                if overlays
                else self._create_copy(folder.root, str(index), should_stop)
                for index, folder in enumerate(view.folders)
            ]
            unless_made.pop_all()

    def close(self) -> None:
        self._scratch.close()

    @property
    def changes_folders(self) -> list[str]:
        """The folders on disk that receive the changes of commands, one for each shadow copy."""
        return [shadow.changes_folder for shadow in self._shadows]

    @property
    def initial_bytes(self) -> int:
        """The total size of the change folders before the first command, in bytes."""
        return sum(shadow.initial_bytes for shadow in self._shadows)

    def list_overlays(self) -> list[Mapping[str, str]]:
        return [shadow.overlay for shadow in self._shadows if shadow.overlay is not None]

    def list_folders(self) -> list[SandboxFolder]:
        """Return the folders to mount in the sandbox. Secrets in them are hidden. Raises PathRefused."""
        return [self._build_folder(shadow, str(index)) for index, shadow in enumerate(self._shadows)]

    def _build_folder(self, shadow: _Shadow, name: str) -> SandboxFolder:
        masks = _filter_masks(shadow, find_masks(shadow.root))
        replaced = [
            (path, self._scratch.write_file(data, name, "shown", str(number)))
            for number, (path, data) in enumerate(masks.replaced.items())
        ]
        return SandboxFolder(
            shadow.root.path, shadow.bound_folder, shadow.visible_folders, tuple(masks.hidden), tuple(replaced)
        )

    def collect_writes(self, overlay: EditOverlay) -> list[dict[str, Any]]:
        """Return the files to write and delete before a command runs, in the format of the sandbox launcher."""
        changes: dict[int, dict[str, Any]] = {}
        for place, file in collect_files(overlay, self._written_places.values()):
            self._written_places[place.key] = place
            shadow = next((candidate for candidate in self._shadows if candidate.root is file.root), None)
            if shadow is None:
                continue
            change = changes.setdefault(id(shadow), {"folder": shadow.bound_folder, "writes": [], "deletes": []})
            if file.data is None:
                change["deletes"].append(file.parts)
            else:
                change["writes"].append([file.parts, base64.b64encode(file.data).decode(), file.mode])
        return list(changes.values())

    def find_changed(self, overlay: EditOverlay) -> tuple[str, ...]:
        """Return the readable paths that the command changed, created or deleted, without paths that git ignores."""
        labels: dict[tuple[Root, tuple[str, ...]], str] = {}
        self.is_spoiled = False
        for shadow in self._shadows:
            for number, parts in enumerate(_find_touched(shadow)):
                if number >= _MAX_CHECKED:
                    self.is_spoiled = True
                    break
                if self._is_different(shadow, parts, overlay):
                    labels[shadow.root, parts] = _format_path(overlay.view, shadow.root, parts)
        # Report a deleted folder without the paths inside it.
        outermost = (
            name
            for (root, parts), name in labels.items()
            if not any((root, parts[:depth]) in labels for depth in range(1, len(parts)))
        )
        return tuple(islice(outermost, _MAX_REPORTED))

    def _is_different(self, shadow: _Shadow, parts: tuple[str, ...], overlay: EditOverlay) -> bool:
        """Return True if a path differs from the turn's version. Changed files are recorded, so that they can be
        restored."""
        path = os.path.join(shadow.changes_folder, *parts)
        try:
            place = overlay.view.build_place(shadow.root, parts)
            data = read_content(overlay, place)
        except PathRefused:
            self.is_spoiled = True
            return True
        if data is None:
            is_there = not _is_gone(path)
            self.has_leftovers = self.has_leftovers or is_there
            return is_there
        self._written_places[place.key] = place
        return not _has_content(path, data)

    def _create_overlay(self, root: Root, name: str) -> _Shadow:
        names = {part: self._scratch.make_folder(name, part) for part in ("upper", "work", "merged")}
        return _Shadow(root, names["merged"], names["upper"], {"lower": root.path, **names})

    def _create_copy(self, root: Root, name: str, should_stop: Callable[[], bool]) -> _Shadow:
        target = self._scratch.make_folder(name, "copy")
        copied = copy_folder(root, target, should_stop=should_stop)
        return _Shadow(
            root,
            target,
            target,
            visible_folders=tuple(copied.excluded_folders),
            states=record_states(target),
            initial_bytes=measure_folder(target)[0],
        )


def _filter_masks(shadow: _Shadow, masks: Masks) -> Masks:
    """Limit the masks for secrets to the folders that the sandbox shows directly, because copies contain no secrets."""
    if shadow.overlay is not None:
        return masks

    def is_shown(path: str) -> bool:
        return any(path.startswith(f"{folder}/") for folder in shadow.visible_folders)

    replaced = {path: data for path, data in masks.replaced.items() if is_shown(path)}
    return Masks(list(filter(is_shown, masks.hidden)), replaced)


def _find_touched(shadow: _Shadow) -> Iterator[tuple[str, ...]]:
    before, shadow.states = shadow.states, record_states(shadow.changes_folder)
    rules = IgnoreRules(shadow.root)
    names = {name for name, state in shadow.states.items() if before.get(name) != state}
    for name in sorted(names | (before.keys() - shadow.states.keys())):
        parts = tuple(name.split("/"))
        if not any(part in _LEFTOVERS for part in parts) and not rules.is_ignored(parts):
            yield parts


def _format_path(view: WorkspaceView, root: Root, parts: tuple[str, ...]) -> str:
    path = "/".join((*view.find_label_prefix(root), *parts))
    return path.encode("utf-8", "replace").decode()


def _is_gone(path: str) -> bool:
    """Return True if a path was deleted. In an overlay, a special device file stands for a deleted file."""
    try:
        status = os.lstat(path)
    except OSError:
        return True
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _has_content(path: str, data: bytes) -> bool:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(len(data) + 1) == data
    except OSError:
        return False


_NAME = "shadow"
_LOCK = "lock"
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# The extended attribute of a new folder that replaces a workspace folder in the overlay.
_OPAQUE = "user.overlay.opaque"


class _ScratchFolder:
    """A scratch folder, which is created immediately. Raises OSError. `empty_file` can be mounted over other files to
    hide them."""

    def __init__(self, state_folder: str) -> None:
        above = os.path.join(state_folder, _NAME)
        os.makedirs(above, mode=0o700, exist_ok=True)
        self.path = os.path.join(above, secrets.token_hex(8))
        # Only one server at a time may create a scratch folder, because another server deletes folders that are not
        # locked yet.
        with _lock_folder(above):
            _clear_left_behind(above)
            os.mkdir(self.path, 0o700)
            self._lock = os.open(os.path.join(self.path, _LOCK), _NEW_FILE, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.empty_file = os.path.join(self.path, "nothing")
        os.close(os.open(self.empty_file, _NEW_FILE, 0o444))

    def make_folder(self, *names: str) -> str:
        """Create a folder in the scratch folder if it does not exist, and return its path."""
        path = os.path.join(self.path, *names)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def write_file(self, data: bytes, *names: str) -> str:
        """Write `data` to a new read-only file in the scratch folder, and return the file's path."""
        path = os.path.join(self.make_folder(*names[:-1]), names[-1])
        with suppress(FileNotFoundError):
            os.unlink(path)
        with open(os.open(path, _NEW_FILE, 0o444), "wb") as file:
            file.write(data)
        return path

    def close(self) -> None:
        _remove(self.path)
        os.close(self._lock)


def _remove(path: str) -> None:
    """Delete a folder of any depth, whatever its permissions. If a path cannot be deleted, the next server tries
    again."""
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        for entry in _scan_folder(folder):
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                os.chmod(entry.path, 0o700)
                above = os.path.join(path, secrets.token_hex(8))
                os.rename(entry.path, above)
                waiting.append(above)
        if folder != path:
            with suppress(OSError):
                os.rmdir(folder)
    with suppress(OSError):
        os.rmdir(path)


def _scan_folder(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


_FileStates = dict[str, tuple[int, int, int, int]]


def record_states(folder: str) -> _FileStates:
    """Return the state of each file below a folder by relative path, so that later changes can be detected.

    Folders are included only if they replaced another folder. Paths that are too long are skipped.
    """
    states: _FileStates = {}
    waiting = [""]
    while waiting:
        above = waiting.pop()
        for entry in _scan_folder(os.path.join(folder, above)):
            path = f"{above}{entry.name}"
            with suppress(OSError):
                state = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(state.st_mode):
                    waiting.append(f"{path}/")
                    if not _is_opaque(entry.path):
                        continue
                states[path] = (state.st_mode, state.st_size, state.st_mtime_ns, state.st_ino)
    return states


def _is_opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


@contextmanager
def _lock_folder(above: str) -> Iterator[None]:
    lock = os.open(os.path.join(above, _LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _clear_left_behind(above: str) -> None:
    for entry in _scan_folder(above):
        if not entry.is_dir(follow_symlinks=False):
            continue
        try:
            lock = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            # The server that created this folder has exited without locking it or while deleting it.
            _remove(entry.path)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(entry.path)
        except OSError:
            pass
        finally:
            os.close(lock)
