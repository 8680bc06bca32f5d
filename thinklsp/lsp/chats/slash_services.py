"""What slash commands ask of the rest of the house: the same things that the commands of the protocol do, in words."""

from __future__ import annotations

from thinklsp.engine import CompactTask, Engine, TurnSpec
from thinklsp.engine.results import FileStatus
from thinklsp.engine.sessions import Reach, SessionCommands, restored_told, sessions_told
from thinklsp.engine.usage import usage_report, usage_told
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.applying import Applying
from thinklsp.lsp.turns.running import Running
from thinklsp.lsp.turns.turns import Asked, Turns


class Services:
    """Satisfies `SessionServices`. Its caller holds the session that it works on."""

    def __init__(self, engine: Engine, snapshots: Snapshots, turns: Turns, applying: Applying) -> None:
        self._engine = engine
        self._snapshots = snapshots
        self._turns = turns
        self._applying = applying

    async def compact(self, running: Running, session_id: str, instructions: str) -> str:
        spec = TurnSpec("compact", CompactTask(instructions), self._snapshots.view(), self._snapshots.key, session_id)
        turn = await self._turns.begun(Asked(spec, running.progress.work_done, None), running.progress)
        return str((await turn.run(running))["text"])

    async def restore(self, session_id: str, archive_id: str | None) -> str:
        restored = await self._commands().restore_claimed(session_id, archive_id)
        return restored_told(restored)

    async def usage(self, session_id: str) -> str:
        return usage_told(await usage_report(self._engine.store, session_id))

    async def sessions(self) -> str:
        return sessions_told(await self._commands().list())

    def _commands(self) -> SessionCommands:
        return SessionCommands(self._engine.store, Reach(self._snapshots.key), self._engine)

    async def undo(self, session_id: str) -> str:
        outcome = await self._applying.undo(None, session_id=session_id)
        return "\n".join(_told(file) for file in outcome.files)


def _told(file: FileStatus) -> str:
    name = file.uri.rpartition("/")[2]
    if file.status == "applied":
        return f"- {name} is as it was before the turn."
    return f"- {name} was left as it is: {file.reason or file.status}."
