"""What slash commands ask of the rest of the house: the same things that the commands of the protocol do, in words."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Literal

from thinklsp.engine import CompactTask, Engine, TurnSpec
from thinklsp.engine.sessions import Reach, SessionCommands, sessions_told
from thinklsp.engine.usage import usage_report, usage_told
from thinklsp.lsp.applying import Applying
from thinklsp.lsp.edits import FileStatus
from thinklsp.lsp.sessions import Sessions
from thinklsp.lsp.snapshots import Snapshots
from thinklsp.settings.model import Review


class Services:
    """Satisfies `SessionServices`. Its caller holds the session that it works on."""

    def __init__(
        self,
        engine: Engine,
        snapshots: Snapshots,
        sessions: Sessions,
        applying: Applying,
        review: Callable[[], Review],
    ) -> None:
        self._engine = engine
        self._snapshots = snapshots
        self._sessions = sessions
        self._applying = applying
        self._review = review

    async def compact(self, session_id: str, instructions: str) -> str:
        view, key = self._snapshots.view(), self._snapshots.key
        spec = TurnSpec("compact", CompactTask(instructions), view, key, session_id)
        holder = self._engine.holder(session_id)
        turn = await self._engine.begin(spec, self._sessions.editor, self._sessions.choices, turn_id=holder)
        async with aclosing(turn.events(_nobody, _stop)) as events:
            async for _ in events:
                pass
        return turn.text

    async def usage(self, session_id: str) -> str:
        return usage_told(await usage_report(self._engine.store, session_id))

    async def sessions(self) -> str:
        reach = Reach(self._snapshots.key)
        return sessions_told(await SessionCommands(self._engine.store, reach, self._engine.is_busy).list())

    async def undo(self, session_id: str) -> str:
        """As the command does: the newest turn of the workspace that wrote."""
        del session_id
        outcome = await self._applying.undo(None, review=self._review())
        return "\n".join(_told(file) for file in outcome.files)


def _told(file: FileStatus) -> str:
    name = file.uri.rpartition("/")[2]
    if file.status == "applied":
        return f"- {name} is as it was before the turn."
    return f"- {name} was left as it is: {file.reason or file.status}."


async def _nobody(_question: str, _options: tuple[str, ...]) -> None:
    """A summary asks nothing."""


async def _stop(_said: str) -> Literal["stop"]:
    return "stop"
