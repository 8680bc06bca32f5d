"""The command `send`, which runs a chat document's slash commands and sends the rest of the prompt."""

from __future__ import annotations

import asyncio
from functools import partial

from lsprotocol.types import ExecuteCommandParams

from thinklsp.core.errors import ThinkLspError
from thinklsp.core.prompt_syntax import Invocation, format_help, parse_slash_commands
from thinklsp.engine import ChatRequest, CompactRequest
from thinklsp.engine.results import Result, build_plain_result
from thinklsp.engine.session_commands import answer_slash_command, format_undo
from thinklsp.lsp.assistant import Assistant
from thinklsp.lsp.chats.chat import PendingPrompt
from thinklsp.lsp.chats.chat_context import collect_context
from thinklsp.lsp.chats.chat_documents import ChatAnswer
from thinklsp.lsp.editor.arguments import SendArguments, parse_arguments
from thinklsp.lsp.editor.turn_progress import TurnProgress
from thinklsp.lsp.server import ThinkLspServer
from thinklsp.lsp.turns.turn_run import AnswerSink, Delivery, TurnRun
from thinklsp.workspace.view import WorkspaceView


def register(server: ThinkLspServer) -> None:
    @server.command("thinklsp.send")
    async def send(params: ExecuteCommandParams) -> Result:
        """Send a document's prompt, and return a TurnResult or a TurnStarted.

        Raise ThinkLspError with a message for the user if the turn cannot start.
        """
        assistant = await server.load()
        uri, progress = parse_arguments(SendArguments, params).uri, server.find_progress(params)
        # Wait, because the text of a cancelled turn may not have been written to the document yet.
        await assistant.chat.wait_for_previous(uri)
        exchange = assistant.chat.begin(uri)
        view = assistant.snapshots.create_view()
        run: TurnRun | None = None
        try:
            run = await _Submission(assistant, exchange, progress).prepare_run(view)
        finally:
            if run is None:
                assistant.chat.finish(exchange)
        return await assistant.turns.launch_run(run, on_end=partial(_finish, assistant, exchange, run))


def _finish(assistant: Assistant, exchange: PendingPrompt, run: TurnRun) -> None:
    exchange.problem = run.problem
    assistant.chat.finish(exchange)


class _Submission:
    """A prompt that is being sent: its slash commands, then a turn with the rest."""

    def __init__(self, assistant: Assistant, exchange: PendingPrompt, progress: TurnProgress) -> None:
        self._assistant = assistant
        self._exchange = exchange
        self._progress = progress
        self._parsed = parse_slash_commands(exchange.chat.prompt)

    async def prepare_run(self, view: WorkspaceView) -> TurnRun:
        """Create a run for the prompt. Claim a session for the run and assign it to the document."""
        chats, exchange = self._assistant.chat, self._exchange
        session_id, notice = await chats.resolve_session(exchange)
        notices = () if notice is None else (notice,)
        if self._parsed:
            return await self._prepare_commands(session_id, notices)
        request, new_notices = self._build_request(view, session_id)
        run = await self._assistant.turns.prepare_run(
            request,
            self._progress,
            uri=exchange.uri,
            deliver=self._create_answer_sink(),
            notices=(*notices, *new_notices),
        )
        chats.assign_session(exchange, run.session_id)
        return run

    async def _prepare_commands(self, session_id: str | None, notices: tuple[str, ...]) -> TurnRun:
        """Create a run for the commands. It claims the document's session, and the new one that `/clear` begins."""
        sessions, engine, parsed = self._assistant.sessions, self._assistant.engine, self._parsed
        clears = not parsed.problems and any(each.command.name == "clear" for each in parsed.invocations)
        first = session_id or (await sessions.create()).id
        last = (await sessions.create()).id if clears else first
        releases = [engine.claims.claim(claimed, self._progress.turn_id) for claimed in (first, last)]

        def release() -> None:
            for release_session in releases:
                release_session()

        async def work(run: TurnRun) -> Result:
            try:
                return await self._run_commands(run, first, last, notices)
            finally:
                # Unlike a turn, a slash command does not release its session for other processes.
                for claimed in {first, last}:
                    await engine.store.release(claimed)

        self._assistant.chat.assign_session(self._exchange, first)
        return self._assistant.turns.create_run(last, self._exchange.uri, self._progress, work, release)

    async def _run_commands(self, run: TurnRun, session_id: str, cleared: str, notices: tuple[str, ...]) -> Result:
        """Run the commands in order until one fails, then send the rest of the prompt.

        The output of the commands is stored in the pending prompt. The output is therefore written to the document even
        if the turn is cancelled or fails.
        """
        exchange, parsed, outputs, has_failed = self._exchange, self._parsed, list[str](), False
        if parsed.problems:
            output = "\n\n".join((*parsed.problems, f"Available commands:\n\n{format_help()}"))
            return await self._write_answer(run, session_id, output, notices)
        exchange.remaining_prompt = parsed.unsent_prompt
        for number, invocation in enumerate(parsed.invocations, 1):
            if invocation.command.name == "clear":
                session_id = cleared
            try:
                outputs.append(await self._run_command(run, invocation, session_id))
            except ThinkLspError as error:
                outputs.append(str(error))
                has_failed = True
            exchange.command_output = "\n\n".join(outputs)
            exchange.skipped_notice = parsed.format_skipped(number)
            self._assistant.chat.assign_session(exchange, session_id)
            if has_failed:
                break
        notices = (*run.notices, *notices)
        if has_failed or not parsed.remaining_prompt:
            output = "\n\n".join(filter(None, (exchange.command_output, exchange.skipped_notice)))
            return await self._write_answer(run, session_id, output, notices)
        # Build the request after the commands have run, because a command may have changed files.
        request, new_notices = self._build_request(self._assistant.snapshots.create_view(), session_id)
        turn = await self._assistant.turns.start_turn(request, run.progress, notices=(*notices, *new_notices))
        return await run.run_turn(turn, deliver=self._create_answer_sink())

    async def _run_command(self, run: TurnRun, invocation: Invocation, session_id: str) -> str:
        """Run a slash command and return Markdown for the user."""
        assistant = self._assistant
        match invocation.command.name:
            case "clear":
                return "A new session starts here. The model no longer sees the conversation above."
            case "compact":
                request = CompactRequest(
                    view=assistant.snapshots.create_view(),
                    workspace=assistant.snapshots.key,
                    session_id=session_id,
                    instructions=invocation.argument,
                )
                turn = await assistant.turns.start_turn(request, run.progress)
                return str((await run.run_turn(turn))["text"])
            case "undo":
                outcome = await assistant.edit_applier.undo(None, session_id=session_id)
                return "\n\n".join(filter(None, (format_undo(outcome.files), outcome.new_text)))
            case _:
                return await answer_slash_command(assistant.sessions, invocation, session_id)

    async def _write_answer(self, run: TurnRun, session_id: str, text: str, notices: tuple[str, ...]) -> Result:
        answer = ChatAnswer(text, notices, self._parsed.unsent_prompt)
        await asyncio.shield(self._assistant.chat.write_answer(self._exchange, session_id, answer))
        return build_plain_result(run.id, session_id, "end_turn", text, notices)

    def _build_request(self, view: WorkspaceView, session_id: str | None) -> tuple[ChatRequest, tuple[str, ...]]:
        """Return the request with the files that the prompt mentions. Also return notices about unknown mentions."""
        prompt = self._parsed.remaining_prompt
        context = collect_context(prompt, view, self._assistant.state)
        request = ChatRequest(
            prompt=prompt,
            skills=self._parsed.skills,
            references=context.references,
            diagnosed=context.diagnosed,
            view=view,
            workspace=self._assistant.snapshots.key,
            session_id=session_id,
        )
        return request, context.notices

    def _create_answer_sink(self) -> AnswerSink:
        def deliver(delivery: Delivery) -> asyncio.Task[None]:
            text = "\n\n".join(filter(None, (self._exchange.command_output, delivery.text)))
            # If the prompt has no answer, offer its text as the next prompt.
            rest = "" if delivery.is_prompt_answered else self._parsed.unsent_prompt
            answer = ChatAnswer(text, delivery.notices, rest)
            return self._assistant.chat.write_answer(self._exchange, delivery.session_id, answer)

        return deliver
