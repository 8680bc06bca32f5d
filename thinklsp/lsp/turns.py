"""The turns that run for one connection: started under the token rule, found by id or token, gone when they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from thinklsp.core.errors import ThinkLspError
from thinklsp.engine import Turn, TurnSpec
from thinklsp.lsp.applying import Applying
from thinklsp.lsp.edits import Scope
from thinklsp.lsp.progress import Token, TurnProgress
from thinklsp.lsp.protocol.errors import spoken
from thinklsp.lsp.running import Deliver, RunningTurn
from thinklsp.lsp.state import State


def no_scope() -> None:
    """The request named no place, so no change lies outside of it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn that a command asks for. `progress` is set where the caller gave a work-done token, and has begun.

    `deliver` puts the answer where the user reads it, None where the caller shows it. `notice` is said with the result.
    """

    spec: TurnSpec
    progress: TurnProgress | None
    partial_token: Token | None
    uri: str | None = None
    scope: Callable[[], Scope | None] = no_scope
    deliver: Deliver | None = None
    notice: str | None = None


class Turns:
    """`ended` is called when a turn is over, however that came."""

    def __init__(
        self,
        state: State,
        applying: Applying,
        begin: Callable[[TurnSpec], Awaitable[Turn]],
        ended: Callable[[], None],
    ) -> None:
        self._state = state
        self._when_ended = ended
        self._applying = applying
        self._begin = begin
        self._running: dict[str, RunningTurn] = {}

    async def start(self, asked: Asked) -> Any:
        """With a work-done token the answer is the TurnResult, without one TurnStarted at once.

        Raises ThinkLspError with a sentence where the turn cannot begin, or failed.
        """
        turn = await self._begin(asked.spec)
        if asked.notice is not None:
            turn.said.append(asked.notice)
        progress = asked.progress or TurnProgress(self._state.client)
        progress.use(asked.partial_token, turn.display)
        running = RunningTurn(turn, self._state.client, self._applying, progress, asked.uri, asked.scope, asked.deliver)
        # Cancel may have been pressed while the engine was loading.
        running.stopped = progress.cancelled
        self._running[turn.id] = running
        watched = asked.progress is not None
        work = running.run() if watched else self._unwatched(running)
        running.task = self._state.spawn(work, awaited=watched)
        running.task.add_done_callback(lambda _: self._ended(running))
        if watched:
            return await running.task
        return {"turnId": turn.id, "sessionId": turn.session.id}

    def stop(self, turn_id: str | None) -> list[str]:
        """Ends a turn, the newest one where none is named. The ids of those that were running."""
        if turn_id is None:
            turn_id = next(reversed(self._running), None)
        running = None if turn_id is None else self._running.get(turn_id)
        if running is None:
            return []
        running.stop()
        return [running.turn.id]

    def stop_by_token(self, token: Token) -> None:
        for running in list(self._running.values()):
            if running.progress.work_token == token:
                running.stop()

    def for_document(self, uri: str) -> list[str]:
        """Turns that work for this document, or for none in particular."""
        return [running.turn.id for running in self._running.values() if running.uri in (uri, None)]

    def in_session(self, session_id: str | None) -> RunningTurn | None:
        """The turn that runs in this session; None: the newest one of all."""
        newest_first = reversed(self._running.values())
        return next((running for running in newest_first if session_id in (None, running.turn.session.id)), None)

    async def _unwatched(self, running: RunningTurn) -> None:
        """A turn whose command has been answered already: what goes wrong is said by progress and one message."""
        token = f"thinklsp-{running.turn.id}"
        created = await self._state.client.create_progress(token)
        running.progress.begin(running.turn.spec.title, token if created else None)
        try:
            await running.run()
        except Exception as error:
            self._state.client.show_message("error", spoken(error))
            if not isinstance(error, ThinkLspError):
                raise

    def _ended(self, running: RunningTurn) -> None:
        """However it ended, and even if it never began: the session is free and the progress has its end."""
        running.turn.release()
        running.progress.end("cancelled")
        self._running.pop(running.turn.id, None)
        self._when_ended()
