"""What `send` does with a chat document: slash commands first, then the rest of the prompt as a turn."""

from __future__ import annotations

import secrets
from typing import Any

from thinklsp.core.events import TurnFinished
from thinklsp.engine import ChatTask, Engine, Turn, TurnSpec
from thinklsp.lsp.chat import ChatDocuments, Exchange
from thinklsp.lsp.chat_context import context_of
from thinklsp.lsp.chat_documents import Answer
from thinklsp.lsp.progress import TurnProgress
from thinklsp.lsp.running_work import Result, RunningWork, plain_result
from thinklsp.lsp.sessions import Sessions
from thinklsp.lsp.slash import Slashed, described, taken_apart
from thinklsp.lsp.slash_commands import SlashCommands
from thinklsp.lsp.snapshots import Snapshots
from thinklsp.lsp.state import State
from thinklsp.lsp.turns import Asked, Running, Turns
from thinklsp.workspace.view import WorkspaceView


class Sending:
    def __init__(
        self,
        state: State,
        snapshots: Snapshots,
        engine: Engine,
        sessions: Sessions,
        chat: ChatDocuments,
        turns: Turns,
        commands: SlashCommands,
    ) -> None:
        self._state = state
        self._snapshots = snapshots
        self._engine = engine
        self._sessions = sessions
        self._chat = chat
        self._turns = turns
        self._commands = commands

    async def send(self, uri: str | None, progress: TurnProgress | None) -> Any:
        """TurnResult or TurnStarted by the token rule. Raises ThinkLspError with a sentence where it cannot begin."""
        exchange = self._chat.take(uri)
        view = self._snapshots.view()
        running: Running | None = None
        try:
            running = await self._prepared(exchange, view, progress)
        finally:
            if running is None:
                self._chat.leave(exchange)
        watched = progress is not None
        return await self._turns.launch(running, watched=watched, ended=lambda: self._chat.leave(exchange))

    async def _prepared(self, exchange: Exchange, view: WorkspaceView, progress: TurnProgress | None) -> Running:
        """What will run; it holds its session, and the document knows it."""
        session_id, notice = await self._chat.session_of(exchange)
        notices = () if notice is None else (notice,)
        slashed = taken_apart(exchange.chat.prompt)
        if slashed:
            return await self._prepared_commands(exchange, progress, slashed, session_id, notices)
        turn = await self._turns.prepared(
            self._asked(exchange, view, exchange.chat.prompt, session_id, progress, notices)
        )
        self._chat.begun(exchange, turn.session_id)
        return turn

    async def _prepared_commands(
        self,
        exchange: Exchange,
        progress: TurnProgress | None,
        slashed: Slashed,
        session_id: str | None,
        notices: tuple[str, ...],
    ) -> RunningWork:
        clears = not slashed.problems and any(one.command.name == "clear" for one in slashed.invocations)
        first = session_id or (await self._sessions.begin()).id
        last = (await self._sessions.begin()).id if clears else first
        turn_id = secrets.token_hex(8)
        free_first, free_last = self._engine.claim(first, turn_id), self._engine.claim(last, turn_id)

        def free() -> None:
            free_first()
            free_last()

        async def work(running: RunningWork) -> Result:
            if slashed.problems:
                told = "\n\n".join((*slashed.problems, f"The commands are:\n\n{described()}"))
                return await self._tell(exchange, running, first, Answer(told, notices, slashed.rest))
            ran = await self._commands.run(slashed.invocations, first, last)
            exchange.told, exchange.rest = ran.told, slashed.rest
            self._chat.begun(exchange, ran.session_id)
            if ran.failed or not slashed.rest:
                return await self._tell(exchange, running, ran.session_id, Answer(ran.told, notices, slashed.rest))
            # Taken anew: a command may have changed files, or taken its time.
            view = self._snapshots.view()
            asked = self._asked(exchange, view, slashed.rest, ran.session_id, running.progress, notices)
            return await running.go_on(await self._turns.prepared(asked, running.id))

        self._chat.begun(exchange, last)
        progress = progress or TurnProgress(self._state.client)
        running = RunningWork(turn_id, last, "send", exchange.uri, progress, work, free)
        running.stopped = progress.cancelled
        return running

    async def _tell(self, exchange: Exchange, running: RunningWork, session_id: str, answer: Answer) -> Result:
        self._chat.begun(exchange, session_id)
        await self._chat.answer(exchange, session_id, answer)
        return plain_result(running.id, session_id, "end_turn", answer.text)

    def _asked(
        self,
        exchange: Exchange,
        view: WorkspaceView,
        prompt: str,
        session_id: str | None,
        progress: TurnProgress | None,
        notices: tuple[str, ...],
    ) -> Asked:
        context = context_of(prompt, view, self._state)
        task = ChatTask(prompt, context.references, diagnosed=context.diagnosed)
        spec = TurnSpec("chat", task, view, self._snapshots.key, session_id)

        async def answer(turn: Turn, finished: TurnFinished, said: tuple[str, ...]) -> None:
            text = "\n\n".join(filter(None, (exchange.told, finished.text)))
            await self._chat.answer(exchange, turn.session.id, Answer(text, said))

        return Asked(spec, progress, None, exchange.uri, deliver=answer, notices=(*notices, *context.notices))
