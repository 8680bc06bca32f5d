"""The `thinklsp.send` command, which runs a chat document's slash commands and sends the rest of the prompt."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial

from thinklsp.core.prompt_syntax import ParsedPrompt, format_help, parse_slash_commands
from thinklsp.engine import ChatRequest, Engine
from thinklsp.engine.results import Result, build_plain_result
from thinklsp.engine.workspace_sessions import WorkspaceSessions
from thinklsp.lsp.chats.chat import ChatDocuments, PendingPrompt
from thinklsp.lsp.chats.chat_context import collect_context
from thinklsp.lsp.chats.chat_documents import ChatAnswer
from thinklsp.lsp.chats.slash_commands import SlashCommands
from thinklsp.lsp.editor.client import WorkDone
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.turn_progress import TurnProgress
from thinklsp.lsp.turns.turn_registry import TurnRegistry
from thinklsp.lsp.turns.turn_run import AnswerSink, Delivery, TurnRun
from thinklsp.workspace.view import WorkspaceView


class ChatSubmitter:
    def __init__(
        self,
        state: ConnectionState,
        snapshots: Snapshots,
        engine: Engine,
        sessions: WorkspaceSessions,
        chats: ChatDocuments,
        turns: TurnRegistry,
        commands: SlashCommands,
    ) -> None:
        self._state = state
        self._snapshots = snapshots
        self._engine = engine
        self._sessions = sessions
        self._chats = chats
        self._turns = turns
        self._commands = commands

    async def send(self, uri: str | None, work_done: WorkDone) -> Result:
        """Send the document's prompt, and return a TurnResult or a TurnStarted.

        Raises ThinkLspError with a message for the user if the turn cannot start.
        """
        # Wait, because the text of a cancelled turn may not have been written to the document yet.
        await self._chats.wait_for_previous(uri)
        exchange = self._chats.begin(uri)
        view = self._snapshots.create_view()
        run: TurnRun | None = None
        try:
            run = await self._prepare_run(exchange, view, work_done)
        finally:
            if run is None:
                self._chats.finish(exchange)
        return await self._turns.launch_run(run, on_end=partial(self._finish_prompt, exchange, run))

    def _finish_prompt(self, exchange: PendingPrompt, run: TurnRun) -> None:
        exchange.problem = run.problem
        self._chats.finish(exchange)

    async def _prepare_run(self, exchange: PendingPrompt, view: WorkspaceView, work_done: WorkDone) -> TurnRun:
        """Create a run for the document's prompt. Claim a session for the run and assign it to the document."""
        session_id, notice = await self._chats.resolve_session(exchange)
        notices = () if notice is None else (notice,)
        slashed = parse_slash_commands(exchange.chat.prompt)
        if slashed:
            return await self._prepare_commands(exchange, work_done, slashed, session_id, notices)
        request, new_notices = self._build_request(slashed, view, session_id)
        deliver, notices = self._create_answer_sink(exchange, slashed.unsent_prompt), (*notices, *new_notices)
        run = await self._turns.prepare_run(request, work_done, uri=exchange.uri, deliver=deliver, notices=notices)
        self._chats.assign_session(exchange, run.session_id)
        return run

    async def _prepare_commands(
        self,
        exchange: PendingPrompt,
        work_done: WorkDone,
        parsed: ParsedPrompt,
        session_id: str | None,
        notices: tuple[str, ...],
    ) -> TurnRun:
        starts_new_session = not parsed.problems and any(
            invocation.command.name == "clear" for invocation in parsed.invocations
        )
        first = session_id or (await self._sessions.create()).id
        last = (await self._sessions.create()).id if starts_new_session else first
        turn_id = work_done.turn_id
        release_first, release_last = (
            self._engine.claims.claim(first, turn_id),
            self._engine.claims.claim(last, turn_id),
        )

        def release() -> None:
            release_first()
            release_last()

        async def run_commands(run: TurnRun) -> Result:
            try:
                return await self._run_commands(run, exchange, parsed, (first, last), notices)
            finally:
                # Unlike a turn, a slash command does not release its session for other processes.
                for session_id in {first, last}:
                    await self._engine.store.release(session_id)

        self._chats.assign_session(exchange, first)
        return self._turns.create_run(last, exchange.uri, TurnProgress(work_done), run_commands, release)

    async def _run_commands(
        self,
        run: TurnRun,
        exchange: PendingPrompt,
        parsed: ParsedPrompt,
        sessions: tuple[str, str],
        notices: tuple[str, ...],
    ) -> Result:
        """Run the commands, then send the rest of the prompt.

        The output of the commands is stored in the pending prompt. The output is therefore written to the document even
        if the turn is cancelled or fails.
        """
        session_id, cleared = sessions
        if parsed.problems:
            output = "\n\n".join((*parsed.problems, f"Available commands:\n\n{format_help()}"))
            return await self._write_answer(
                run, exchange, session_id, ChatAnswer(output, notices, parsed.unsent_prompt)
            )
        exchange.remaining_prompt, failed = parsed.unsent_prompt, False
        async with aclosing(self._commands.run(run, parsed.invocations, session_id, cleared)) as steps:
            async for progress in steps:
                skipped = ", ".join(f"`/{other.command.name}`" for other in progress.remaining)
                exchange.command_output = "\n\n".join(progress.output)
                exchange.skipped_notice = f"Not run: {skipped}." if skipped else ""
                session_id, failed = progress.session_id, progress.has_failed
                self._chats.assign_session(exchange, session_id)
        notices = (*run.notices, *notices)
        if failed or not parsed.remaining_prompt:
            output = "\n\n".join(filter(None, (exchange.command_output, exchange.skipped_notice)))
            return await self._write_answer(
                run, exchange, session_id, ChatAnswer(output, notices, parsed.unsent_prompt)
            )
        # Build the request after the commands have run, because a command may have changed files.
        request, new_notices = self._build_request(parsed, self._snapshots.create_view(), session_id)
        turn = await self._turns.start_turn(request, run.progress, notices=(*notices, *new_notices))
        return await run.run_turn(turn, deliver=self._create_answer_sink(exchange, parsed.unsent_prompt))

    async def _write_answer(self, run: TurnRun, exchange: PendingPrompt, session_id: str, answer: ChatAnswer) -> Result:
        await asyncio.shield(self._chats.write_answer(exchange, session_id, answer))
        return build_plain_result(run.id, session_id, "end_turn", answer.text, answer.notices)

    def _build_request(
        self, parsed: ParsedPrompt, view: WorkspaceView, session_id: str | None
    ) -> tuple[ChatRequest, tuple[str, ...]]:
        """Return the request with the files that the prompt mentions. Also return notices about unknown mentions."""
        context = collect_context(parsed.remaining_prompt, view, self._state)
        request = ChatRequest(
            prompt=parsed.remaining_prompt,
            skills=parsed.skills,
            references=context.references,
            diagnosed=context.diagnosed,
            view=view,
            workspace=self._snapshots.key,
            session_id=session_id,
        )
        return request, context.notices

    def _create_answer_sink(self, exchange: PendingPrompt, unsent_prompt: str) -> AnswerSink:
        def deliver(delivery: Delivery) -> asyncio.Task[None]:
            text = "\n\n".join(filter(None, (exchange.command_output, delivery.text)))
            # If the prompt has no answer, offer its text as the next prompt.
            rest = "" if delivery.is_prompt_answered else unsent_prompt
            return self._chats.write_answer(exchange, delivery.session_id, ChatAnswer(text, delivery.notices, rest))

        return deliver
