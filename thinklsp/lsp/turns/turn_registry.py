"""The registry of runs. It starts runs, finds them by id, token or document, and removes finished runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from thinklsp.core.errors import ThinkLspError, TurnRefused
from thinklsp.engine import ChatRequest, CompactRequest, Engine, Turn, TurnRequest
from thinklsp.engine.results import Result, build_compact_result
from thinklsp.engine.session_claims import QueuedPrompt, SessionBusy
from thinklsp.engine.turn_config import Preferences
from thinklsp.jsonrpc.rpc_messages import InvalidParams, TurnError, format_error
from thinklsp.lsp.editor.bridge import EditorBridge
from thinklsp.lsp.editor.client import Token
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.turn_progress import TurnProgress
from thinklsp.lsp.edits.edit_applier import EditApplier, FindScope, find_no_scope
from thinklsp.lsp.turns.turn_run import AnswerSink, Delivery, TurnRun

_DRAINING = "This server is about to stop, so it starts no new turn. Connect again in a moment and repeat the prompt."


class TurnRegistry:
    """The commands that are running in a connection. `on_change` is called after a run has started or ended."""

    def __init__(
        self,
        state: ConnectionState,
        engine: Engine,
        preferences: Preferences,
        applying: EditApplier,
        on_change: Callable[[], None],
    ) -> None:
        self._state = state
        self._engine = engine
        self._preferences = preferences
        self._applying = applying
        self._on_change = on_change
        self._editor = EditorBridge(state)
        self._runs: dict[str, TurnRun] = {}

    async def prepare_run(
        self,
        request: TurnRequest,
        progress: TurnProgress,
        *,
        token: Token | None = None,
        uri: str | None = None,
        find_scope: FindScope = find_no_scope,
        deliver: AnswerSink | None = None,
        notices: tuple[str, ...] = (),
        may_wait: bool = False,
    ) -> TurnRun:
        """Create a run for a turn and claim the run's session. Raises ThinkLspError if the turn cannot start.

        `token` receives partial results, and `notices` are added to the result. `find_scope` and `deliver` are passed
        to `TurnRun.run_turn`. If `may_wait` is True and the session is busy, the prompt waits for the running turn.
        """
        if token is not None and (token == progress.token or self.uses_token(token)):
            raise InvalidParams("The token in `partialResultToken` is already in use. Use a new token.")
        try:
            turn = await self.start_turn(request, progress, token=token, notices=notices)
        except SessionBusy:
            if not may_wait or not isinstance(request, ChatRequest):
                raise
            progress.use(token, "status")
            return await self._queue_run(request, progress, find_scope, deliver)

        async def work(run: TurnRun) -> Result:
            return await run.run_turn(turn, find_scope, deliver)

        run = self.create_run(turn.session.id, uri, progress, work, turn.release)
        if isinstance(request, CompactRequest):
            run.shape = partial(build_compact_result, turn)
        return run

    async def _queue_run(
        self, request: ChatRequest, progress: TurnProgress, find_scope: FindScope, deliver: AnswerSink | None
    ) -> TurnRun:
        """Create a run for a prompt that waits for the running turn of its session."""
        claims = self._engine.claims
        session = await self._engine.open_session(request.session_id, request.workspace)
        prompt = await claims.queue_prompt(replace(request, session_id=session.id), session.id, progress.turn_id)

        async def work(run: TurnRun) -> Result:
            return await self._run_queued(run, prompt, find_scope, deliver)

        def release() -> None:
            claims.release(session.id, prompt.turn_id)
            if not prompt.is_settled:
                self._state.spawn(claims.take_back(prompt))

        run = self.create_run(session.id, None, progress, work, release)
        run.is_waiting = True
        progress.show_queued()
        return run

    async def _run_queued(
        self, run: TurnRun, prompt: QueuedPrompt, find_scope: FindScope, deliver: AnswerSink | None
    ) -> Result:
        """Wait until a turn takes the prompt or the session is free. Return the result of the turn with the prompt."""
        claims = self._engine.claims
        try:
            if run.is_cancelled:
                # The user cancelled before the task started, so cancel the task itself.
                run.cancel()
            await asyncio.wait([prompt.taken])
            run.is_waiting = False
            taker_id = prompt.taken.result()
            if taker_id is None:
                turn = await self.start_turn(prompt.request, run.progress)
                prompt.is_settled = True
                return await run.run_turn(turn, find_scope, deliver)
        except asyncio.CancelledError:
            if not prompt.is_settled:
                # A prompt is never lost because its client has gone.
                ending = (
                    claims.end_queued(prompt, "interrupted") if self._state.is_stopped else claims.take_back(prompt)
                )
                await asyncio.shield(ending)
            raise
        except ThinkLspError as error:
            if not prompt.is_settled:
                await claims.end_queued(prompt, "error", str(error))
            raise
        return await self._follow(run, self._runs[taker_id], deliver)

    async def _follow(self, run: TurnRun, taker: TurnRun, deliver: AnswerSink | None) -> Result:
        """Wait for the run whose turn took the prompt of this run, and return its result.

        A cancellation of this run cancels the turn.
        """
        run.turns, run.leader = taker.turns, taker
        taker.progress.adopt(run.progress)
        try:
            await asyncio.wait([taker.ended])
        except asyncio.CancelledError:
            if not self._state.is_stopped:
                taker.cancel()
            raise
        result = taker.ended.result()
        if deliver is not None:
            await asyncio.shield(deliver(Delivery(run.session_id, result["text"], tuple(result["notices"]), True)))
        return dict(result)

    async def start_turn(
        self,
        request: TurnRequest,
        progress: TurnProgress,
        *,
        token: Token | None = None,
        notices: tuple[str, ...] = (),
    ) -> Turn:
        """Start a turn with the id from `progress`. The caller may already have claimed the session."""
        if self._state.is_draining:
            raise TurnRefused(_DRAINING)
        # Read the preferences after the refresh, so that editor settings received during the refresh apply to this
        # turn.
        await self._engine.config.refresh()
        preferences, turn_id = self._preferences, progress.turn_id
        turn = await self._engine.start_turn(request, preferences.editor, preferences.choices, turn_id=turn_id)
        turn.output.notices.extend(notices)
        progress.use(token, turn.display)
        return turn

    def create_run(
        self,
        session_id: str,
        uri: str | None,
        progress: TurnProgress,
        work: Callable[[TurnRun], Awaitable[Result]],
        release: Callable[[], None],
    ) -> TurnRun:
        # The user may have cancelled the turn while the engine was loading.
        is_cancelled = progress.is_cancelled
        return TurnRun(session_id, uri, progress, work, release, self._editor, self._applying, is_cancelled)

    async def launch_run(self, run: TurnRun, *, on_end: Callable[[], None] = lambda: None) -> Result:
        """Start a run. Return its TurnResult if the caller gave a work-done token, or else TurnStarted immediately.

        `on_end` is always called after the run. Raises TurnError if the caller waits for a run that fails.
        """
        self._runs[run.id] = run
        started: Result = {"turnId": run.id, "sessionId": run.session_id}
        run.progress.is_launched = True
        watched = self._state.spawn(run.run(), is_awaited=True) if run.progress.is_watched else None
        if watched is None:
            self._state.spawn(run.progress.offer())
        task: asyncio.Task[Any] = watched or self._state.spawn(self._run_unwatched(run))
        task.add_done_callback(lambda _: self._end_run(run, on_end))
        # Schedule the listener, so that an error in the listener does not fail this command.
        asyncio.get_running_loop().call_soon(self._on_change)
        if watched is None:
            return started
        try:
            return await watched
        except ThinkLspError as error:
            raise TurnError(str(error), started) from error

    @property
    def has_runs(self) -> bool:
        return bool(self._runs)

    def stop_run(self, turn_id: str | None) -> list[str]:
        """Cancel a run, by default the newest whose prompt does not wait. Return the ids of the cancelled runs."""
        run = self.find_in_session(None) if turn_id is None else self._runs.get(turn_id)
        if run is None:
            return []
        run.cancel()
        return [run.id]

    def stop_by_token(self, token: Token) -> bool:
        """Cancel the runs that report progress under a token. Return True if there are any."""
        matches = [run for run in self._runs.values() if run.progress.token == token]
        for run in matches:
            run.cancel()
        return bool(matches)

    def find_for_document(self, uri: str) -> list[str]:
        """Return the ids of the runs for this document and of the runs without a document."""
        return [run.id for run in self._runs.values() if run.uri in (uri, None) and not run.is_waiting]

    def find_in_chat(self, uri: str, session_id: str | None) -> str | None:
        """Return the id of the run for this chat document or its session, or None if there is no such run."""
        ids = (
            run.id
            for run in self._runs.values()
            if run.uri == uri or (session_id is not None and run.session_id == session_id)
        )
        return next(ids, None)

    def uses_token(self, token: Token) -> bool:
        """Return True if a run reports progress under this token."""
        return any(run.progress.has_token(token) for run in self._runs.values())

    def find_in_session(self, session_id: str | None) -> TurnRun | None:
        """Return the run in a session, or the newest run if the session is None. Waiting prompts do not count."""
        newest_first = [run for run in reversed(self._runs.values()) if not run.is_waiting]
        return next((run for run in newest_first if session_id in (None, run.session_id)), None)

    async def _run_unwatched(self, run: TurnRun) -> None:
        """Run a turn for which no caller waits. Report a failure in the progress and in a message.

        The failure of a turn that took several prompts is one message.
        """
        try:
            await run.run()
        except Exception as error:
            if run.leader is None or run.leader.progress.is_watched:
                self._state.client.show_message("error", format_error(error))
            if not isinstance(error, ThinkLspError):
                raise

    def _end_run(self, run: TurnRun, on_end: Callable[[], None]) -> None:
        """Release the session and end the progress, even if the run never started."""
        run.release()
        run.progress.end("cancelled")
        self._runs.pop(run.id, None)
        on_end()
        self._on_change()
