"""The turns that run for one connection: started under the token rule, found by id or token, gone when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from thinklsp.core.errors import ThinkLspError
from thinklsp.engine import CompactTask, Turn, TurnSpec
from thinklsp.lsp.editor.bridge import EditorBridge
from thinklsp.lsp.editor.progress import TurnProgress
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.editor.work_done import Token, WorkDone
from thinklsp.lsp.edits.applying import Applying
from thinklsp.lsp.edits.drafts import Scope
from thinklsp.lsp.protocol.errors import TurnFailed, spoken
from thinklsp.lsp.turns.results import compacted_json
from thinklsp.lsp.turns.running import Running
from thinklsp.lsp.turns.running_turn import Deliver, RunningTurn


def no_scope() -> None:
    """The request named no place, so no change lies outside of it."""


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn that a command asks for. `work_done` has begun if the caller gave a token.

    `deliver` puts the answer where the user reads it, None where the caller shows it. `notices` are said with the
    result.
    """

    spec: TurnSpec
    work_done: WorkDone
    partial_token: Token | None
    uri: str | None = None
    scope: Callable[[], Scope | None] = no_scope
    deliver: Deliver | None = None
    notices: tuple[str, ...] = ()


Begin = Callable[[TurnSpec, str], Awaitable[Turn]]
"""Begins a turn under this id, which may have claimed its session."""


class Turns:
    """`changed` is called when something has begun or ended."""

    def __init__(self, state: State, applying: Applying, begin: Begin, changed: Callable[[], None]) -> None:
        self._state = state
        self._applying = applying
        self._begin = begin
        self._changed = changed
        self._editor = EditorBridge(state)
        self._running: dict[str, Running] = {}

    async def start(self, asked: Asked) -> Any:
        """With a work-done token the answer is the TurnResult, without one TurnStarted at once.

        Raises ThinkLspError with a sentence where the turn cannot begin, or failed.
        """
        return await self.launch(await self.prepared(asked))

    async def prepared(self, asked: Asked) -> Running:
        """A turn that is ready to run and holds its session."""
        progress = TurnProgress(asked.work_done)
        running_turn = await self.begun(asked, progress)
        turn = running_turn.turn
        running = Running(turn.id, turn.session.id, asked.uri, progress, running_turn.run, turn.release)
        if isinstance(turn.spec.task, CompactTask):
            running.shape = partial(compacted_json, turn)
        # Cancel may have been pressed while the engine was loading.
        running.stopped = asked.work_done.is_cancelled
        return running

    async def begun(self, asked: Asked, progress: TurnProgress) -> RunningTurn:
        turn = await self._begin(asked.spec, asked.work_done.turn_id)
        turn.said.extend(asked.notices)
        turn.waiting = self._applying.proposals.told_of(turn.session.id)
        progress.use(asked.partial_token, turn.display)
        client, editor = self._state.client, self._editor
        return RunningTurn(turn, client, editor, self._applying, progress, asked.scope, asked.deliver, asked.uri)

    async def launch(self, running: Running, *, ended: Callable[[], None] = _nothing) -> Any:
        """Runs it under the token rule. `ended` is called when it is over, however that came.

        Raises TurnFailed where its caller waits for it and it fails.
        """
        self._running[running.id] = running
        work_done = running.progress.work_done
        work_done.is_launched, watched = True, work_done.is_watched
        if not watched:
            self._state.spawn(work_done.offer())
        work = running.run() if watched else self._unwatched(running)
        running.task = self._state.spawn(work, awaited=watched)
        running.task.add_done_callback(lambda _: self._ended(running, ended))
        # Later, as a fault in it must not answer the caller of a turn that runs.
        asyncio.get_running_loop().call_soon(self._changed)
        started = {"turnId": running.id, "sessionId": running.session_id}
        if not watched:
            return started
        try:
            return await running.task
        except ThinkLspError as error:
            raise TurnFailed(str(error), started) from error

    def stop(self, turn_id: str | None) -> list[str]:
        """Ends a turn, the newest one where none is named. The ids of those that were running."""
        if turn_id is None:
            turn_id = next(reversed(self._running), None)
        running = None if turn_id is None else self._running.get(turn_id)
        if running is None:
            return []
        running.stop()
        return [running.id]

    def stop_by_token(self, token: Token) -> bool:
        """Whether anything reported under it."""
        found = [running for running in self._running.values() if running.progress.work_done.token == token]
        for running in found:
            running.stop()
        return bool(found)

    def for_document(self, uri: str) -> list[str]:
        """Turns that work for this document, or for none in particular."""
        return [running.id for running in self._running.values() if running.uri in (uri, None)]

    def in_chat(self, uri: str, session_id: str | None) -> str | None:
        """The turn that runs for this chat document or in its session."""
        ids = (
            running.id
            for running in self._running.values()
            if running.uri == uri or (session_id is not None and running.session_id == session_id)
        )
        return next(ids, None)

    def uses(self, token: Token) -> bool:
        """Whether something that runs reports under this token."""
        return any(running.progress.uses(token) for running in self._running.values())

    def in_session(self, session_id: str | None) -> Running | None:
        """What runs in this session; None: the newest of all."""
        newest_first = reversed(self._running.values())
        return next((running for running in newest_first if session_id in (None, running.session_id)), None)

    async def _unwatched(self, running: Running) -> Any:
        """A turn whose command has been answered already: what goes wrong is said by progress and one message."""
        try:
            await running.run()
        except Exception as error:
            self._state.client.show_message("error", spoken(error))
            if not isinstance(error, ThinkLspError):
                raise

    def _ended(self, running: Running, ended: Callable[[], None]) -> None:
        """However it ended, and even if it never began: the session is free and the progress has its end."""
        running.release()
        running.progress.end("cancelled")
        self._running.pop(running.id, None)
        ended()
        self._changed()
