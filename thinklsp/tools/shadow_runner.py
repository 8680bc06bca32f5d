"""Runs commands on a shadow of the workspace: as it would be after the turn, while the user's own tree is not touched.

The shadow is made before the first command, brought up to date before each, and thrown away with the turn.
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
from thinklsp.sandbox.bubblewrap import build_filter, is_deep, why_not
from thinklsp.sandbox.process import Limits, Outcome, SandboxFailed, run
from thinklsp.sandbox.room import Machine, in_memory, options
from thinklsp.sandbox.usage import Writable, free_bytes
from thinklsp.tools.commands import Ran
from thinklsp.tools.programs import find_program
from thinklsp.tools.shadows import Shadows
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.relpath import quoted
from thinklsp.workspace.view import WorkspaceView

_NO_PROGRAM = re.compile(r"execvp (.*): ([^:]*)", re.DOTALL)
_LARGEST_FILE = 2 * 1024**3
# What the system takes: bytes of one word, and of all of them with room for the environment.
_LONGEST_WORD, _LONGEST_COMMAND = 128 * 1024 - 1, 1024**2
# Where commands are at home if the user is nowhere.
_NO_HOME = "/tmp/home"  # noqa: S108 - a path in the sandbox


def sandbox_problem(folders: Sequence[str] = ()) -> str | None:
    """Why no command can be run here, and what to do; None where they can. Blocks for some milliseconds, once."""
    return why_not(find_program("bwrap", folders))


class ShadowRunner:
    """One per turn; `overlays` False has it copy in any case."""

    def __init__(
        self, environment: Mapping[str, str], state_folder: str, limits: Limits, *, overlays: bool = True
    ) -> None:
        self._environment = environment
        self._state_folder = state_folder
        self._limits = limits
        self._overlays = overlays
        self._shadows: Shadows | None = None
        self._one_by_one = asyncio.Lock()
        self._preparing: asyncio.Future[dict[str, Any]] | None = None
        self._closed = False

    async def run(
        self, argv: Sequence[str], overlay: EditOverlay, *, folder: str | None, seconds: float, fresh: bool = False
    ) -> Ran:
        words = _checked(argv)
        async with self._one_by_one:
            while True:
                if self._shadows is not None and (self._shadows.spoiled or (fresh and self._shadows.littered)):
                    await self._forget()
                is_new = self._shadows is None
                try:
                    return await self._run(words, overlay, folder, seconds)
                except SandboxFailed as failed:
                    if _NO_PROGRAM.fullmatch(str(failed)) or (is_new and not self._overlays):
                        raise _told(failed) from None
                # What commands have left can be in the way of this one. Where a new shadow does not help, this system
                # has no overlays for its users.
                await self._forget()
                self._overlays = self._overlays and not is_new

    async def aclose(self) -> None:
        self._closed = True
        async with self._one_by_one:
            await self._forget()

    async def _forget(self) -> None:
        if self._preparing is not None:
            # A call that was cancelled has left this to its thread.
            await asyncio.wait((self._preparing,))
        shadows, self._shadows = self._shadows, None
        if shadows is not None:
            await asyncio.shield(asyncio.to_thread(shadows.close))

    async def _run(self, words: list[str], overlay: EditOverlay, folder: str | None, seconds: float) -> Ran:
        view = overlay.view
        bwrap = await asyncio.to_thread(find_program, "bwrap", [one.root.path for one in view.folders])
        problem = await asyncio.to_thread(why_not, bwrap)
        if bwrap is None or problem is not None:
            raise ToolFailed(problem or "")
        cwd = await asyncio.to_thread(_working_folder, overlay, folder)
        if self._preparing is not None:
            await asyncio.wait((self._preparing,))
        self._preparing = asyncio.ensure_future(asyncio.to_thread(self._task, bwrap, words, overlay, cwd))
        try:
            task = await asyncio.shield(self._preparing)
        except OSError as error:
            raise ToolFailed(f"The copy of the workspace could not be made: {error.strerror}.") from None
        if (shadows := self._shadows) is None:
            raise AssertionError("made by the task")
        is_clean = not shadows.littered
        # Until somebody has looked at what the command has left.
        shadows.spoiled = True
        writable = Writable(shadows.written, in_memory(self._machine(shadows)), shadows.given)
        outcome = await run(task, writable, self._limits, seconds)
        changed = await asyncio.to_thread(shadows.changed, overlay)
        if outcome.ended == "disk":
            # The user's sessions lie on the same disk: make room at once.
            await self._forget()
        return _ran(outcome, changed, clean=is_clean)

    def _task(self, bwrap: str, argv: Sequence[str], overlay: EditOverlay, cwd: str) -> dict[str, Any]:
        """All that blocks: the shadow is made, if there is none, and what it lacks is collected."""
        _check_room(overlay.view, _home(self._environment), os.path.realpath(self._state_folder))
        if self._shadows is None:
            self._shadows = Shadows(
                overlay.view, self._state_folder, overlays=self._overlays, stopped=lambda: self._closed
            )
        shadows = self._shadows
        _check_disk(self._state_folder, self._limits.free)
        machine = self._machine(shadows)
        memory = self._limits.memory // 4
        return {
            "overlays": shadows.overlays(),
            "sync": shadows.sync(overlay),
            "limits": {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": _LARGEST_FILE},
            "processes": self._limits.processes,
            "settings": options(machine, shadows.folders(), cwd, memory=memory, deep=is_deep(bwrap)),
            "filter": base64.b64encode(build_filter(os.uname().machine)).decode(),
            "argv": [bwrap, *argv],
        }

    def _machine(self, shadows: Shadows) -> Machine:
        hidden = (os.path.realpath(self._state_folder),)
        prefixes = (sys.base_prefix, sys.prefix)
        return Machine(self._environment, _home(self._environment), shadows.nothing, prefixes, hidden)


def _told(failed: SandboxFailed) -> ToolFailed:
    missing = _NO_PROGRAM.fullmatch(str(failed))
    if missing is not None:
        return ToolFailed(f"The program {missing[1]} cannot be run: {missing[2].lower()}.")
    return ToolFailed(f"The sandbox could not be started: {failed}. thinklsp doctor says more.")


def _checked(argv: Sequence[str]) -> list[str]:
    if not argv or not argv[0] or any("\0" in word for word in argv):
        raise ToolFailed("The command must name a program, and no word of it may hold a NUL character.")
    try:
        lengths = [len(os.fsencode(word)) for word in argv]
    except UnicodeEncodeError:
        raise ToolFailed("A word of the command is not valid text: it holds half a character.") from None
    if max(lengths) > _LONGEST_WORD or sum(lengths) + len(lengths) * 9 > _LONGEST_COMMAND:
        raise ToolFailed("The command is too long for the system; write what it needs into a file.")
    return list(argv)


def _home(environment: Mapping[str, str]) -> str:
    home = environment.get("HOME") or os.path.expanduser("~")
    home = os.path.realpath(home) if os.path.isabs(home) else "/"
    return _NO_HOME if home == "/" else home


def _check_room(view: WorkspaceView, home: str, state_folder: str) -> None:
    for folder in view.folders:
        if _holds(folder.root.path, home):
            raise PathRefused("No command is run where the workspace is the whole home folder.")
        if _holds(folder.root.path, state_folder):
            raise PathRefused(f"No command is run where the workspace holds thinklsp's own folder, {state_folder}.")


def _check_disk(state_folder: str, least: int) -> None:
    if free_bytes(state_folder) < least:
        raise ToolFailed(
            f"No command is run while less than {least // 1024**2} MB are free on the disk that holds "
            f"{quoted(state_folder)}. Make room there first."
        )


def _working_folder(overlay: EditOverlay, folder: str | None) -> str:
    if not overlay.view.folders:
        raise ToolFailed("No folder is open, so there is nothing that a command could run in.")
    place = overlay.view.resolve_folder(folder)[0]
    if place.root is None or place.path is None or (place.path.parts and overlay.kind(place) != "directory"):
        raise ToolFailed(f"There is no folder {place.shown} in the workspace to run a command in.")
    return os.path.join(place.root.path, *place.path.parts)


def _ran(outcome: Outcome, changed: tuple[str, ...], *, clean: bool) -> Ran:
    return Ran(outcome.ended, outcome.status, outcome.output, outcome.seconds, outcome.cut, changed, clean)


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
