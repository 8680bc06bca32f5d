"""What `send` does with a chat document: slash commands first, then the rest of the prompt as a turn."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from thinklsp.core.errors import ThinkLspError
from thinklsp.engine import ChatTask, Engine, TurnSpec
from thinklsp.engine.results import Result, plain_result
from thinklsp.lsp.chats.chat import ChatDocuments, Exchange
from thinklsp.lsp.chats.chat_context import context_of
from thinklsp.lsp.chats.chat_documents import Answer
from thinklsp.lsp.chats.sessions import Sessions
from thinklsp.lsp.chats.slash import Slashed, described, taken_apart
from thinklsp.lsp.chats.slash_commands import SlashCommands
from thinklsp.lsp.editor.progress import TurnProgress
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.editor.work_done import WorkDone
from thinklsp.lsp.turns.running import Running
from thinklsp.lsp.turns.running_turn import Told
from thinklsp.lsp.turns.turns import Asked, Turns
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

    async def send(self, uri: str | None, work_done: WorkDone) -> Any:
        """TurnResult or TurnStarted by the token rule. Raises ThinkLspError with a sentence where it cannot begin."""
        # What a turn that was cut has to say is still on its way to the document.
        await self._chat.settled(uri)
        exchange = self._chat.take(uri)
        view = self._snapshots.view()
        running: Running | None = None
        try:
            running = await self._prepared(exchange, view, work_done)
        finally:
            if running is None:
                self._chat.leave(exchange)
        return await self._turns.launch(running, ended=lambda: self._chat.leave(exchange))

    async def _prepared(self, exchange: Exchange, view: WorkspaceView, work_done: WorkDone) -> Running:
        """What will run; it holds its session, and the document knows it."""
        session_id, notice = await self._chat.session_of(exchange)
        notices = () if notice is None else (notice,)
        slashed = taken_apart(exchange.chat.prompt)
        if slashed:
            return await self._prepared_commands(exchange, work_done, slashed, session_id, notices)
        turn = await self._turns.prepared(
            self._asked(exchange, view, exchange.chat.prompt, session_id, work_done, notices)
        )
        self._chat.begun(exchange, turn.session_id)
        return turn

    async def _prepared_commands(
        self,
        exchange: Exchange,
        work_done: WorkDone,
        slashed: Slashed,
        session_id: str | None,
        notices: tuple[str, ...],
    ) -> Running:
        clears = not slashed.problems and any(one.command.name == "clear" for one in slashed.invocations)
        first = session_id or (await self._sessions.begin()).id
        last = (await self._sessions.begin()).id if clears else first
        turn_id = work_done.turn_id
        free_first, free_last = self._engine.claim(first, turn_id), self._engine.claim(last, turn_id)

        def free() -> None:
            free_first()
            free_last()

        async def work(running: Running) -> Result:
            try:
                return await self._run(running, exchange, slashed, (first, last), notices)
            except asyncio.CancelledError:
                exchange.problem = "The turn was cancelled."
                raise
            except ThinkLspError as error:
                exchange.problem = str(error)
                raise
            finally:
                # A turn lets other processes have its session by itself; what commands change is none.
                for session_id in {first, last}:
                    await self._engine.store.release(session_id)

        self._chat.begun(exchange, first)
        running = Running(turn_id, last, exchange.uri, TurnProgress(work_done), work, free)
        running.stopped = work_done.is_cancelled
        return running

    async def _run(
        self,
        running: Running,
        exchange: Exchange,
        slashed: Slashed,
        sessions: tuple[str, str],
        notices: tuple[str, ...],
    ) -> Result:
        """The commands, and then what is left of the prompt. What has been done stays with the exchange, for the
        document to be told of it even if the rest is cancelled or fails."""
        session_id, cleared = sessions
        if slashed.problems:
            told = "\n\n".join((*slashed.problems, f"The commands are:\n\n{described()}"))
            return await self._answer(running, exchange, session_id, Answer(told, notices, slashed.rest))
        exchange.rest, failed = slashed.rest, False
        async with aclosing(self._commands.run(running, slashed.invocations, session_id, cleared)) as steps:
            async for ran in steps:
                left = ", ".join(f"`/{other.command.name}`" for other in ran.left)
                exchange.told = "\n\n".join(ran.told)
                exchange.left = f"After this, nothing was run of {left}." if left else ""
                session_id, failed = ran.session_id, ran.failed
                self._chat.begun(exchange, session_id)
        notices = (*running.notices, *notices)
        if failed or not slashed.rest:
            told = "\n\n".join(filter(None, (exchange.told, exchange.left)))
            return await self._answer(running, exchange, session_id, Answer(told, notices, slashed.rest))
        # Taken anew: a command may have changed files, or taken its time.
        view = self._snapshots.view()
        asked = self._asked(exchange, view, slashed.rest, session_id, running.progress.work_done, notices)
        turn = await self._turns.begun(asked, running.progress)
        return await turn.run(running)

    async def _answer(self, running: Running, exchange: Exchange, session_id: str, answer: Answer) -> Result:
        await asyncio.shield(self._chat.answer(exchange, session_id, answer))
        return plain_result(running.id, session_id, "end_turn", answer.text, answer.notices)

    def _asked(
        self,
        exchange: Exchange,
        view: WorkspaceView,
        prompt: str,
        session_id: str | None,
        work_done: WorkDone,
        notices: tuple[str, ...],
    ) -> Asked:
        context = context_of(prompt, view, self._state)
        task = ChatTask(prompt, context.references, diagnosed=context.diagnosed)
        spec = TurnSpec("chat", task, view, self._snapshots.key, session_id)

        def answer(told: Told) -> asyncio.Task[None]:
            text = "\n\n".join(filter(None, (exchange.told, told.text)))
            # What the model has not heard is the next prompt again, to be mended or sent as it is.
            return self._chat.answer(
                exchange, told.session_id, Answer(text, told.notices, "" if told.heard else prompt)
            )

        return Asked(spec, work_done, None, exchange.uri, deliver=answer, notices=(*notices, *context.notices))
