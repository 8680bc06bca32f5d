"""A command runner that uses a shadow copy of the workspace, so that the user's files do not change.

The copy contains the turn's edits. It is an overlay mount or, if the system does not support overlay mounts, a copy of
the files that git lists. It is created before the first command, updated before each command, and deleted at the end of
the turn. If the server is killed, the next server deletes the copy.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.sandbox.bubblewrap import (
    SandboxFolder,
    SandboxHost,
    build_filter,
    build_options,
    can_disable_namespaces,
    find_sandbox_problem,
    is_same_or_parent,
    list_memory_folders,
)
from thinklsp.sandbox.process import (
    CommandLimits,
    CommandResult,
    SandboxFailed,
    WritableStorage,
    find_program,
    measure_folder,
    measure_free_bytes,
    run_command,
)
from thinklsp.workspace.ignore import IgnoreRules
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.shadow import collect_files, copy_folder, find_masks, read_content
from thinklsp.workspace.uri import quote_path
from thinklsp.workspace.view import Place, WorkspaceView

_MAX_REPORTED = 50
# The maximum number of changed paths to compare. After more changes, the next command gets a new shadow copy.
_MAX_CHECKED = 2_000
# Files that common programs leave behind. They are not reported as changes.
_LEFTOVERS = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".coverage", ".hypothesis", ".cache")


@dataclass(slots=True)
class _Shadow:
    """The shadow copy of a workspace folder, which commands see at `merged`. All changes go to `upper`.

    Without an overlay mount, `upper` and `merged` are the same folder, and `work` is None. The folders
    `read_only_paths` are missing from that copy and mounted read-only. `states` are the states of the files in `upper`
    after the last command.
    """

    root: Root
    upper: str
    merged: str
    work: str | None = None
    read_only_paths: tuple[str, ...] = ()
    states: _FileStates = field(default_factory=dict)


class Shadows:
    """The shadow copies of all workspace folders.

    New files, such as build results, are kept for later commands, while changed files are restored. `is_spoiled` is
    true if the next command needs new copies. `has_leftovers` is true if a new file was kept that git does not ignore.
    `initial_bytes` is the size of the change folders before the first command.
    """

    def __init__(
        self, view: WorkspaceView, state_folder: str, *, overlays: bool, should_stop: Callable[[], bool]
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
            self.initial_bytes = 0 if overlays else sum(measure_folder(folder)[0] for folder in self.changes_folders)
            unless_made.pop_all()

    def close(self) -> None:
        self._scratch.close()

    @property
    def changes_folders(self) -> list[str]:
        """The folders on disk that receive the changes of commands, one for each shadow copy."""
        return [shadow.upper for shadow in self._shadows]

    def _create_overlay(self, root: Root, name: str) -> _Shadow:
        upper, merged, work = (self._scratch.make_folder(name, part) for part in ("upper", "merged", "work"))
        return _Shadow(root, upper, merged, work)

    def _create_copy(self, root: Root, name: str, should_stop: Callable[[], bool]) -> _Shadow:
        target = self._scratch.make_folder(name, "copy")
        read_only_paths = copy_folder(root, target, should_stop=should_stop)
        return _Shadow(root, target, target, None, tuple(read_only_paths), record_states(target))

    def list_overlays(self) -> list[dict[str, str]]:
        """Return the overlays to mount, in the format of the sandbox launcher."""
        return [
            {"lower": shadow.root.path, "upper": shadow.upper, "work": shadow.work, "merged": shadow.merged}
            for shadow in self._shadows
            if shadow.work is not None
        ]

    def list_folders(self) -> list[SandboxFolder]:
        """Return the folders to mount in the sandbox. Secrets in them are hidden. Raises PathRefused."""
        return [self._build_folder(shadow, str(index)) for index, shadow in enumerate(self._shadows)]

    def _build_folder(self, shadow: _Shadow, name: str) -> SandboxFolder:
        masks = find_masks(shadow.root)
        if shadow.work is None:
            # The copy itself contains no secrets.
            masks = masks.select(shadow.read_only_paths)
        replaced = [
            (path, self._scratch.write_file(data, name, "shown", str(number)))
            for number, (path, data) in enumerate(masks.replaced.items())
        ]
        return SandboxFolder(
            shadow.root.path, shadow.merged, shadow.read_only_paths, tuple(masks.hidden), tuple(replaced)
        )

    def collect_writes(self, overlay: EditOverlay) -> list[dict[str, Any]]:
        """Return the files to write and delete before a command runs, in the format of the sandbox launcher."""
        changes: dict[int, dict[str, Any]] = {}
        for place, data, mode in collect_files(overlay, self._written_places.values()):
            self._written_places[place.key] = place
            shadow = next((candidate for candidate in self._shadows if candidate.root is place.root), None)
            if shadow is None or place.path is None:
                continue
            change = changes.setdefault(id(shadow), {"folder": shadow.merged, "writes": [], "deletes": []})
            if data is None:
                change["deletes"].append(place.path.parts)
            else:
                change["writes"].append([place.path.parts, base64.b64encode(data).decode(), mode])
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
        """Return True if a path differs from the turn's version.

        Changed files are recorded, so that they can be restored.
        """
        path = os.path.join(shadow.upper, *parts)
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


def _find_touched(shadow: _Shadow) -> Iterator[tuple[str, ...]]:
    before, shadow.states = shadow.states, record_states(shadow.upper)
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
    """A scratch folder, which is created immediately.

    Raises OSError. `empty_file` can be mounted over other files to hide them.
    """

    def __init__(self, state_folder: str) -> None:
        above = os.path.join(state_folder, _NAME)
        os.makedirs(above, mode=0o700, exist_ok=True)
        self.path = os.path.join(above, secrets.token_hex(8))
        # Only one server at a time may create a scratch folder, because another server deletes folders that are not
        # locked yet.
        lock = _lock(above, fcntl.LOCK_EX)
        try:
            _clear_left_behind(above)
            os.mkdir(self.path, 0o700)
            self._lock = _lock(self.path)
        finally:
            os.close(lock)
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
    """Delete a folder of any depth, whatever its permissions.

    If a path cannot be deleted, the next server tries again.
    """
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


def _lock(folder: str, operation: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> int:
    """Lock a folder by a file in it, which also excludes other machines that share the folder over a network.

    Return a descriptor that keeps the lock until it is closed. Raises OSError if another process has the lock.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(os.path.join(folder, _LOCK), flags, 0o600)
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _clear_left_behind(above: str) -> None:
    """Delete the scratch folders of servers that were killed. The folders of running servers are locked."""
    for entry in _scan_folder(above):
        with suppress(OSError):
            lock = _lock(entry.path)
            _remove(entry.path)
            os.close(lock)


_NO_PROGRAM = re.compile(r"execvp (.*): ([^:]*)", re.DOTALL)
_MAX_FILE_BYTES = 2 * 1024**3
# Linux limits the number of bytes in one argument, and in all arguments together with the environment.
_MAX_WORD_BYTES, _MAX_COMMAND_BYTES = 128 * 1024 - 1, 1024**2
# The home folder inside the sandbox for users without a home folder.
_NO_HOME = "/tmp/home"  # noqa: S108 - a path in the sandbox


def explain_missing_sandbox() -> str | None:
    """Return a message that explains why no command can run on this machine and suggests a fix, or None.

    The first call blocks for a few milliseconds.
    """
    return find_sandbox_problem(find_program("bwrap", ()))


class ShadowRunner:
    """The command runner of a turn. If `overlays` is false, it copies the workspace files."""

    def __init__(
        self, environment: Mapping[str, str], state_folder: str, limits: CommandLimits, *, overlays: bool = True
    ) -> None:
        self._environment = environment
        self._state_folder = state_folder
        self._limits = limits
        self._overlays = overlays
        self._is_closed = False
        self._shadows: Shadows | None = None
        self._run_lock = asyncio.Lock()
        self._preparing: asyncio.Future[dict[str, Any]] | None = None

    async def run(
        self, argv: Sequence[str], overlay: EditOverlay, *, folder: str | None, seconds: float, fresh: bool = False
    ) -> CommandResult:
        words = _check_words(argv)
        async with self._run_lock:
            while True:
                if self._shadows is not None and (self._shadows.is_spoiled or (fresh and self._shadows.has_leftovers)):
                    await self._discard_shadows()
                is_new = self._shadows is None
                try:
                    return await self._run(words, overlay, folder, seconds)
                except SandboxFailed as failed:
                    if _NO_PROGRAM.fullmatch(str(failed)) or (is_new and not self._overlays):
                        raise _to_tool_error(failed) from None
                # An earlier command may have left files that cannot be updated, so try again with a new shadow copy.
                # If a new one fails too, this system does not support overlay mounts.
                await self._discard_shadows()
                self._overlays = self._overlays and not is_new

    async def aclose(self) -> None:
        self._is_closed = True
        async with self._run_lock:
            await self._discard_shadows()

    async def _discard_shadows(self) -> None:
        if self._preparing is not None:
            # A thread may still be preparing a command after its call was cancelled.
            await asyncio.wait((self._preparing,))
        shadows, self._shadows = self._shadows, None
        if shadows is not None:
            await asyncio.shield(asyncio.to_thread(shadows.close))

    async def _run(self, words: list[str], overlay: EditOverlay, folder: str | None, seconds: float) -> CommandResult:
        view = overlay.view
        bwrap = await asyncio.to_thread(find_program, "bwrap", [entry.root.path for entry in view.folders])
        problem = await asyncio.to_thread(find_sandbox_problem, bwrap)
        if bwrap is None or problem is not None:
            raise ToolFailed(problem or "")
        cwd = await asyncio.to_thread(_resolve_working_folder, overlay, folder)
        if self._preparing is not None:
            await asyncio.wait((self._preparing,))
        self._preparing = asyncio.ensure_future(asyncio.to_thread(self._prepare_task, bwrap, words, overlay, cwd))
        try:
            task = await asyncio.shield(self._preparing)
        except OSError as error:
            raise ToolFailed(f"The workspace could not be copied: {error.strerror}.") from None
        if (shadows := self._shadows) is None:
            raise AssertionError("made by the task")
        is_clean = not shadows.has_leftovers
        # If the command is cancelled, its changes are unknown, so the next command needs a new shadow copy.
        shadows.is_spoiled = True
        memory_folders = list_memory_folders(self._build_machine(shadows))
        writable = WritableStorage(shadows.changes_folders, memory_folders, shadows.initial_bytes)
        outcome = await run_command(task, writable, self._limits, seconds)
        changed = await asyncio.to_thread(shadows.find_changed, overlay)
        if outcome.end_reason == "disk":
            # Free the disk space immediately, because the user's sessions are on the same disk.
            await self._discard_shadows()
        return replace(outcome, changed_paths=changed, is_clean=is_clean)

    def _prepare_task(self, bwrap: str, argv: Sequence[str], overlay: EditOverlay, cwd: str) -> dict[str, Any]:
        """Create the shadow copy if necessary, and build the sandbox task for a command. This function blocks."""
        _check_workspace(overlay.view, _find_home(self._environment), os.path.realpath(self._state_folder))
        if self._shadows is None:
            self._shadows = Shadows(
                overlay.view, self._state_folder, overlays=self._overlays, should_stop=lambda: self._is_closed
            )
        shadows = self._shadows
        _check_disk(self._state_folder, self._limits.min_free_bytes)
        machine = self._build_machine(shadows)
        memory = self._limits.max_memory_bytes // 4
        return {
            "overlays": shadows.list_overlays(),
            "sync": shadows.collect_writes(overlay),
            "limits": {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": _MAX_FILE_BYTES},
            "processes": self._limits.max_processes,
            "settings": build_options(
                machine, shadows.list_folders(), cwd, memory_bytes=memory,
                disable_namespaces=can_disable_namespaces(bwrap),
            ),
            "filter": base64.b64encode(build_filter(os.uname().machine)).decode(),
            "argv": [bwrap, *argv],
        }  # fmt: skip

    def _build_machine(self, shadows: Shadows) -> SandboxHost:
        hidden = (os.path.realpath(self._state_folder),)
        prefixes = (sys.base_prefix, sys.prefix)
        return SandboxHost(self._environment, _find_home(self._environment), shadows.empty_file, prefixes, hidden)


def _to_tool_error(error: SandboxFailed) -> ToolFailed:
    missing = _NO_PROGRAM.fullmatch(str(error))
    if missing is not None:
        return ToolFailed(f"The program {missing[1]} cannot be run: {missing[2].lower()}.")
    return ToolFailed(f"The sandbox could not be started: {error}. Run `thinklsp doctor` for details.")


def _check_words(argv: Sequence[str]) -> list[str]:
    if not argv or not argv[0] or any("\0" in word for word in argv):
        raise ToolFailed("The command must name a program and must not contain NUL characters.")
    try:
        lengths = [len(os.fsencode(word)) for word in argv]
    except UnicodeEncodeError:
        raise ToolFailed("A word of the command is not valid text: it contains a lone surrogate.") from None
    if max(lengths) > _MAX_WORD_BYTES or sum(lengths) + len(lengths) * 9 > _MAX_COMMAND_BYTES:
        raise ToolFailed("The command is too long for the system; put its input into a file.")
    return list(argv)


def _find_home(environment: Mapping[str, str]) -> str:
    home = environment.get("HOME") or os.path.expanduser("~")
    home = os.path.realpath(home) if os.path.isabs(home) else "/"
    return _NO_HOME if home == "/" else home


def _check_workspace(view: WorkspaceView, home: str, state_folder: str) -> None:
    for folder in view.folders:
        if is_same_or_parent(folder.root.path, home):
            raise PathRefused("Commands do not run if the workspace is the entire home folder.")
        if is_same_or_parent(folder.root.path, state_folder):
            raise PathRefused(f"Commands do not run if the workspace contains thinklsp's own folder, {state_folder}.")


def _check_disk(state_folder: str, minimum: int) -> None:
    if measure_free_bytes(state_folder) < minimum:
        raise ToolFailed(
            f"Commands do not run while less than {minimum // 1024**2} MB are free on the disk of "
            f"{quote_path(state_folder)}. Free some space first."
        )


def _resolve_working_folder(overlay: EditOverlay, folder: str | None) -> str:
    if not overlay.view.folders:
        raise ToolFailed("No folder is open, so commands have no folder to run in.")
    place = overlay.view.resolve_folder(folder)[0]
    if place.root is None or place.path is None or (place.path.parts and overlay.find_kind(place) != "directory"):
        raise ToolFailed(f"The workspace has no folder {place.label} to run a command in.")
    return os.path.join(place.root.path, *place.path.parts)
