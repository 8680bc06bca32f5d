"""Runs commands on a shadow of the workspace: as it would be after the turn, while the user's own tree is not touched.

Over each folder lies an overlay, which takes no time to make; where the system has none, a copy of what git lists. It
is made before the first command, brought up to date before each, and thrown away with the turn.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thinklsp.core.errors import PathRefused, ToolFailed
from thinklsp.sandbox.bubblewrap import is_deep, machine_name, why_not
from thinklsp.sandbox.ground import Ground, Seen, seen
from thinklsp.sandbox.process import Limits, Outcome, SandboxFailed, run
from thinklsp.sandbox.room import Folder, Machine, options
from thinklsp.sandbox.seccomp import program
from thinklsp.tools.commands import Ran
from thinklsp.tools.programs import find_program
from thinklsp.workspace.ignore import IgnoreRules
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.shadow import copy, secrets, wanted
from thinklsp.workspace.view import Place, WorkspaceView

_MOST_CHANGED = 50
# What programs leave behind and nobody wants to hear of.
_LEFTOVERS = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".coverage", ".hypothesis", ".cache")
_NO_PROGRAM = re.compile(r"execvp (.*): ([^:]*)", re.DOTALL)
_LARGEST_FILE = 2 * 1024**3
_MODE = 0o644


def sandbox_problem(folders: Sequence[str] = ()) -> str | None:
    """Why no command can be run here, and what to do; None where they can. Blocks for some milliseconds, once."""
    return why_not(find_program("bwrap", folders))


@dataclass(slots=True)
class _Shadow:
    """Of one folder. `copy` is what is bound over it; `made`: where what has been changed is found."""

    root: Root
    copy: str
    made: str
    overlay: Mapping[str, str] | None
    shown: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    before: Seen = field(default_factory=dict)


class ShadowRunner:
    """One per turn; `overlays` False has it copy in any case."""

    def __init__(
        self, environment: Mapping[str, str], state_folder: str, limits: Limits, *, overlays: bool = True
    ) -> None:
        self._environment = environment
        self._state_folder = state_folder
        self._limits = limits
        self._overlays = overlays
        self._ground: Ground | None = None
        self._shadows: list[_Shadow] = []
        self._known: dict[str, Place] = {}
        self._one_by_one = asyncio.Lock()

    async def run(self, argv: Sequence[str], overlay: EditOverlay, *, folder: str | None, seconds: float) -> Ran:
        async with self._one_by_one:
            try:
                return await self._run(argv, overlay, folder, seconds)
            except SandboxFailed as failed:
                if not failed.mounts or not self._overlays:
                    raise _told(failed) from None
            # This system has no overlays for its users.
            self._overlays = False
            await self._forget()
            try:
                return await self._run(argv, overlay, folder, seconds)
            except SandboxFailed as failed:
                raise _told(failed) from None

    async def aclose(self) -> None:
        async with self._one_by_one:
            await self._forget()

    async def _forget(self) -> None:
        ground, self._ground = self._ground, None
        self._shadows.clear()
        if ground is not None:
            await asyncio.shield(asyncio.to_thread(ground.close))

    async def _run(self, argv: Sequence[str], overlay: EditOverlay, folder: str | None, seconds: float) -> Ran:
        words = _checked(argv)
        view = overlay.view
        bwrap = await asyncio.to_thread(find_program, "bwrap", [one.root.path for one in view.folders])
        if bwrap is None or (problem := await asyncio.to_thread(why_not, bwrap)) is not None:
            raise ToolFailed(problem if bwrap is not None and problem else why_not(None) or "")
        cwd = await asyncio.to_thread(_working_folder, overlay, folder)
        try:
            task = await asyncio.shield(asyncio.to_thread(self._task, bwrap, words, overlay, cwd))
        except OSError as error:
            raise ToolFailed(f"The copy of the workspace could not be made: {error.strerror}.") from None
        outcome = await run(task, self._limits, seconds)
        changed = await asyncio.to_thread(self._changed, view, overlay)
        return _ran(outcome, changed)

    def _task(self, bwrap: str, argv: Sequence[str], overlay: EditOverlay, cwd: str) -> dict[str, Any]:
        """All that blocks: the shadow is made, if there is none, and what it lacks is collected."""
        if self._ground is None:
            self._ground = Ground(self._state_folder)
            self._shadows = [self._shadow_of(folder.root, index) for index, folder in enumerate(overlay.view.folders)]
        home = os.path.realpath(os.path.expanduser(self._environment.get("HOME") or "~"))
        if any(_holds(shadow.root.path, home) for shadow in self._shadows):
            raise PathRefused("No command is run where the workspace is the whole home folder.")
        hidden = (os.path.realpath(self._state_folder),)
        machine = Machine(self._environment, home, self._ground.nothing, (sys.base_prefix, sys.prefix), hidden)
        folders = [Folder(one.root.path, one.copy, one.shown, one.masked) for one in self._shadows]
        overlaid = all(shadow.overlay is not None for shadow in self._shadows)
        deep = overlaid and is_deep(bwrap)
        limits = {"RLIMIT_CORE": 0, "RLIMIT_DATA": self._limits.memory, "RLIMIT_FSIZE": _LARGEST_FILE}
        if overlaid:
            # Else it would count all processes of the user.
            limits["RLIMIT_NPROC"] = self._limits.processes
        return {
            "overlays": [shadow.overlay for shadow in self._shadows if shadow.overlay is not None],
            "sync": self._sync(overlay),
            "limits": limits,
            "settings": options(machine, folders, cwd, memory=self._limits.memory // 4, deep=deep),
            "filter": base64.b64encode(program(machine_name())).decode(),
            "argv": [bwrap, *argv],
        }

    def _shadow_of(self, root: Root, index: int) -> _Shadow:
        if self._ground is None:
            raise AssertionError("there is a place for it")
        if self._overlays:
            names = {name: self._ground.folder(str(index), name) for name in ("upper", "work", "merged")}
            return _Shadow(root, names["merged"], names["upper"], {"lower": root.path, **names}, masked=secrets(root))
        target = self._ground.folder(str(index), "copy")
        copied = copy(root, target)
        return _Shadow(root, target, target, None, tuple(copied.ignored), before=seen(target))

    def _sync(self, overlay: EditOverlay) -> list[dict[str, Any]]:
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
                change["writes"].append([file.parts, base64.b64encode(file.data).decode(), _MODE])
        return list(changes.values())

    def _changed(self, view: WorkspaceView, overlay: EditOverlay) -> tuple[str, ...]:
        """What the command has changed, created or deleted, as people call it, besides what git ignores."""
        ours = {(file.root, file.parts): file.data for _, file in wanted(overlay, self._known.values())}
        found: list[str] = []
        for shadow in self._shadows:
            before, shadow.before = shadow.before, seen(shadow.made)
            rules = IgnoreRules(shadow.root)
            names = {name for name, state in shadow.before.items() if before.get(name) != state}
            names |= before.keys() - shadow.before.keys()
            for name in sorted(names):
                parts = tuple(name.split("/"))
                if any(part in _LEFTOVERS for part in parts) or rules.ignored(parts):
                    continue
                if (shadow.root, parts) in ours and _holds_still(shadow, name, ours[shadow.root, parts]):
                    continue
                found.append(view.place_in(shadow.root, parts).shown)
        return tuple(found[:_MOST_CHANGED])


def _told(failed: SandboxFailed) -> ToolFailed:
    missing = _NO_PROGRAM.fullmatch(str(failed))
    if missing is not None:
        return ToolFailed(f"The program {missing[1]} cannot be run: {missing[2].lower()}.")
    return ToolFailed(f"The sandbox could not be started: {failed}. thinklsp doctor says more.")


def _checked(argv: Sequence[str]) -> list[str]:
    if not argv or not argv[0] or any("\0" in word for word in argv):
        raise ToolFailed("The command must name a program, and no word of it may hold a NUL character.")
    return list(argv)


def _working_folder(overlay: EditOverlay, folder: str | None) -> str:
    if not overlay.view.folders:
        raise ToolFailed("No folder is open, so there is nothing that a command could run in.")
    place = overlay.view.resolve_folder(folder)[0]
    if place.root is None or place.path is None or (place.path.parts and overlay.kind(place) != "directory"):
        raise ToolFailed(f"There is no folder {place.shown} in the workspace to run a command in.")
    return os.path.join(place.root.path, *place.path.parts)


def _holds_still(shadow: _Shadow, name: str, data: bytes | None) -> bool:
    """Whether it is what it was made before the command."""
    path = os.path.join(shadow.made, name)
    if data is None:
        # In an overlay what is gone is a sign of its own.
        return not os.path.isfile(path)
    try:
        with open(path, "rb") as file:
            return not os.path.islink(path) and file.read(len(data) + 1) == data
    except OSError:
        return False


def _ran(outcome: Outcome, changed: tuple[str, ...]) -> Ran:
    return Ran(outcome.ended, outcome.status, outcome.output, outcome.seconds, outcome.cut, changed)


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
