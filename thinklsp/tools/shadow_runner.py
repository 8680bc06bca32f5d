"""A command runner that uses a shadow copy of the workspace, so that the user's files do not change.

The copy contains the turn's edits. It is created before the first command, updated before each command, and deleted at
the end of the turn.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.sandbox.bubblewrap import (
    SandboxHost,
    build_filter,
    build_options,
    can_disable_namespaces,
    find_sandbox_problem,
    is_same_or_parent,
    list_memory_folders,
)
from thinklsp.sandbox.process import CommandLimits, SandboxFailed, run_command
from thinklsp.sandbox.resource_usage import WritableStorage, measure_free_bytes
from thinklsp.tools.command_runs import CommandResult
from thinklsp.tools.programs import find_program
from thinklsp.tools.shadows import Shadows
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.relpath import quote_path
from thinklsp.workspace.view import WorkspaceView

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
    """The command runner of a turn. If `overlays` is false, the runner always copies the workspace files."""

    def __init__(
        self, environment: Mapping[str, str], state_folder: str, limits: CommandLimits, *, overlays: bool = True
    ) -> None:
        self._environment = environment
        self._state_folder = state_folder
        self._limits = limits
        self._overlays = overlays
        self._shadows: Shadows | None = None
        self._run_lock = asyncio.Lock()
        self._preparing: asyncio.Future[dict[str, Any]] | None = None
        self._closed = False

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
                # If the sandbox fails even with a new shadow copy, this system does not support overlay mounts.
                await self._discard_shadows()
                self._overlays = self._overlays and not is_new

    async def aclose(self) -> None:
        self._closed = True
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
        writable = WritableStorage(
            shadows.changes_folders, list_memory_folders(self._build_machine(shadows)), shadows.initial_bytes
        )
        outcome = await run_command(task, writable, self._limits, seconds)
        changed = await asyncio.to_thread(shadows.find_changed, overlay)
        if outcome.end_reason == "disk":
            # Free the disk space immediately, because the user's sessions are on the same disk.
            await self._discard_shadows()
        return CommandResult(
            outcome.end_reason,
            outcome.status,
            outcome.output,
            outcome.seconds,
            outcome.omitted_bytes,
            changed,
            is_clean,
        )

    def _prepare_task(self, bwrap: str, argv: Sequence[str], overlay: EditOverlay, cwd: str) -> dict[str, Any]:
        """Create the shadow copy if necessary, and build the sandbox task for a command. This function blocks."""
        _check_workspace(overlay.view, _find_home(self._environment), os.path.realpath(self._state_folder))
        if self._shadows is None:
            self._shadows = Shadows(
                overlay.view, self._state_folder, overlays=self._overlays, should_stop=lambda: self._closed
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
                machine,
                shadows.list_folders(),
                cwd,
                memory_bytes=memory,
                disable_namespaces=can_disable_namespaces(bwrap),
            ),
            "filter": base64.b64encode(build_filter(os.uname().machine)).decode(),
            "argv": [bwrap, *argv],
        }

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
