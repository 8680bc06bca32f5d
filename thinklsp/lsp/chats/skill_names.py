"""The skills that complete `/skill:` in a chat document. They are read in a thread and cached for a few seconds."""

from __future__ import annotations

import asyncio
import time

from thinklsp.engine import Engine
from thinklsp.engine.instructions import FoundSkills, find_all_skills
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.tools.skill_files import Skill

_FRESH_SECONDS = 5.0
# Completion does not wait longer for a slow disk. The editor asks again at the next character.
_MAX_WAIT_SECONDS = 0.2


class SkillNames:
    """The user's own skills and those of the open folders, whether the user trusts them or not."""

    def __init__(self, state: ConnectionState, snapshots: Snapshots, engine: Engine) -> None:
        self._state = state
        self._snapshots = snapshots
        self._engine = engine
        self._found = FoundSkills()
        self._folders: frozenset[str] = frozenset()
        self._read_at = -_FRESH_SECONDS
        self._task: asyncio.Task[None] | None = None

    async def list_skills(self) -> tuple[Skill, ...]:
        """Return the skills, after at most 0.2 seconds."""
        folders = frozenset(self._state.documents.folders)
        is_stale = folders != self._folders or time.monotonic() - self._read_at > _FRESH_SECONDS
        if self._task is None and is_stale:
            self._task = self._state.spawn(self._read(folders))
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_MAX_WAIT_SECONDS)
        return self._found.skills

    async def _read(self, folders: frozenset[str]) -> None:
        try:
            view = self._snapshots.create_disk_view(is_quiet=True)
            self._found = await asyncio.to_thread(find_all_skills, view, self._engine.user.path)
        finally:
            self._folders, self._read_at, self._task = folders, time.monotonic(), None
